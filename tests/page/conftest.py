"""Fixtures of the page's tests: one browser and one address for each process, windows that fail a test, servers."""

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

from browsing import ARGUMENTS, Kept, OpenOn, Window, open_window, problems_of  # noqa: E402
from hosting import Host, Hosted, hosting  # noqa: E402
from serving import ThreadServer  # noqa: E402

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


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """The address of all servers that need none of their own."""
    with hosting() as one:
        yield one


@pytest.fixture(scope="session")
def _kept(host: Host, _chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Kept:
    return Kept(_chromium[0], host.url)


@pytest.fixture
def browser(_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser of this process."""
    found, loop = _chromium
    with _running(loop):
        yield found


@pytest.fixture
def open_on(browser: Browser, host: Host, _kept: Kept, request: pytest.FixtureRequest) -> OpenOn:
    """Open windows on servers: `open_on(server, **options)`; the test fails when something goes wrong in one."""
    opened: list[Window] = []

    def open_on_server(server: ThreadServer, *, kept: bool = True, **options: object) -> Window:
        if isinstance(server, Hosted):
            host.show(server)
        if kept and isinstance(server, Hosted) and "beside" not in options and _kept.is_free():
            window = _kept.open(**options)  # type: ignore[arg-type]
        else:
            window = open_window(browser, server.url, **options)  # type: ignore[arg-type]
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
            if not window.closed and not window.page.is_closed():
                # What was said last is heard, too.
                window.page.evaluate("() => 0")
        problems = problems_of(opened)
        for window in reversed(opened):
            window.close()
        assert not problems, "\n".join(problems)


@pytest.fixture(scope="session")
def story_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's story before the undo: the wrong fact is in the memory of ada. Copy it to change it."""
    folder = tmp_path_factory.mktemp("story")
    result = CliRunner().invoke(app, ["demo", "--keep", str(folder), "--before-undo"])
    assert result.exit_code == 0, result.output
    return folder / "home"


@pytest.fixture
def story(host: Host, story_home: Path, tmp_path: Path) -> Iterator[ThreadServer]:
    """A server on a copy of the story, for tests that change it."""
    shutil.copytree(story_home, tmp_path / "home")
    with host.serving(tmp_path / "home", clock=FakeClock(NOW)) as server:
        yield server


@pytest.fixture(scope="session")
def told_story(host: Host, story_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    """A server on the story, for the tests that only read it."""
    home = tmp_path_factory.mktemp("told") / "home"
    shutil.copytree(story_home, home)
    log = home / "users/ada/ledger.jsonl"
    before = log.read_bytes()
    with host.serving(home, clock=FakeClock(NOW)) as server:
        yield server
    assert log.read_bytes() == before, "a test changed the story that others read"


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
