"""Fixtures of the page's tests: one browser for each process, windows that fail a test, servers on the demo's story."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock
from playwright.sync_api import Browser, Page, expect, sync_playwright
from sizes import cannot
from typer.testing import CliRunner

from backstory.cli.app import app

for folder in (".", "../http"):
    sys.path.insert(0, str((Path(__file__).parent / folder).resolve()))

from browsing import ARGUMENTS, OpenOn, Window, open_window, problems_of  # noqa: E402
from serving import ThreadServer, thread_server  # noqa: E402

expect.set_options(timeout=1000 * PATIENCE / 4)

_OPENED = pytest.StashKey[list[Window]]()
"""The windows of a test."""

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)
"""The server's time: two days after the story's wrong update."""


@contextlib.contextmanager
def _running(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """Have this thread's running loop be this one.

    The browser's loop stays suspended between two calls. Other tests of the process run loops of their own meanwhile.
    """
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        cannot("Chromium is not installed")
    playwright = sync_playwright().start()
    loop = asyncio.get_running_loop()
    try:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()
    finally:
        asyncio._set_running_loop(loop)
        playwright.stop()
        asyncio._set_running_loop(None)


@pytest.fixture
def browser(_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser of this process."""
    found, loop = _chromium
    with _running(loop):
        yield found
        for context in found.contexts:
            context.close()


@pytest.fixture
def open_on(browser: Browser, request: pytest.FixtureRequest) -> OpenOn:
    """Open windows on servers: `open_on(server, **options)`; the test fails when something goes wrong in one."""
    opened: list[Window] = []

    def open_on_server(server: ThreadServer | str, **options: object) -> Window:
        url = server if isinstance(server, str) else server.url
        window = open_window(browser, url, **options)  # type: ignore[arg-type]
        opened.append(window)
        return window

    request.node.stash[_OPENED] = opened
    return open_on_server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test in whose windows something went wrong: now, since what they ask next may find no server any more."""
    try:
        yield
    finally:
        opened = item.stash.get(_OPENED, [])
        for window in opened:
            if not window.page.is_closed():
                # What was said last is heard, too.
                window.page.evaluate("() => 0")
        problems = problems_of(opened)
        assert not problems, "\n".join(problems)


@pytest.fixture(scope="session")
def story_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's story before the undo: the wrong fact is in the memory of ada. Copy it to change it."""
    folder = tmp_path_factory.mktemp("story")
    result = CliRunner().invoke(app, ["demo", "--keep", str(folder), "--before-undo"])
    assert result.exit_code == 0, result.output
    return folder / "home"


@pytest.fixture
def story(story_home: Path, tmp_path: Path) -> Iterator[ThreadServer]:
    """A server on a copy of the story, for tests that change it."""
    shutil.copytree(story_home, tmp_path / "home")
    with thread_server(tmp_path / "home", clock=FakeClock(NOW)) as server:
        yield server


@pytest.fixture(scope="module")
def told_story(story_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    """A server on the story, for the tests of a module that only read it."""
    home = tmp_path_factory.mktemp("told") / "home"
    shutil.copytree(story_home, home)
    with thread_server(home, clock=FakeClock(NOW)) as server:
        yield server


@pytest.fixture
def window(story: ThreadServer, open_on: OpenOn) -> Window:
    """A window on the story that shows Ada's memory."""
    opened = open_on(story)
    opened.go("#/memory?user=ada")
    return opened


@pytest.fixture
def page(window: Window) -> Page:
    """The page of `window`."""
    return window.page
