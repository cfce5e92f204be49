"""Set-up of every run: the profiles of Hypothesis, the order of the tests, and an environment without settings."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import sys
import threading
import types
import unittest
from collections.abc import Generator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from doubles import compiled, marks, run
from doubles.misbehaving import AUTHORITY
from hypothesis import Phase, is_hypothesis_test, settings
from sizes import LONG

# The same examples in every run, so that a change is judged by itself; `make torture` draws new ones.
settings.register_profile("quick", max_examples=10, stateful_step_count=15, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
settings.register_profile("torture", max_examples=250, stateful_step_count=60, deadline=None)
settings.load_profile("torture" if LONG else "full")
# `benchmarks.planted` asks whether a bug is found, not for its smallest example.
settings.register_profile("planted", settings(), phases=(Phase.explicit, Phase.generate), database=None)


_ROOM = 2**30
"""Bytes that a run may need for its temporary folders."""


def _keep_bytecode(folder: str) -> None:
    """Compile each module once, where the environment says that no bytecode is to be kept.

    The tests start hundreds of processes, and each would compile every module again.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder


def _spare_the_disk() -> None:
    """Have temporary folders in memory, where no sync waits for a disk; `make torture` is for the disk."""
    memory = Path("/dev/shm")  # noqa: S108 pytest makes folders there that are its user's alone
    if not LONG and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def _hear_signals() -> None:
    """Take signals as usual, also where the run was started with some of them ignored, as under `nohup`.

    A process inherits what its parent ignores, and some tests interrupt the processes that they start.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _trust_few() -> None:
    """Have each client of a model read one certificate to trust, not all of the machine's, which takes it 0.02 s.

    No test asks a server that these would prove, but those of `make torture` that install other people's clients.
    """
    if not LONG:
        os.environ["SSL_CERT_FILE"] = AUTHORITY


def _build_the_command_line_once() -> None:
    """Let all calls of an app in this process share its commands: to read every verb's signature takes 0.1 s."""
    typer.testing._get_command = functools.cache(typer.main.get_command)


def pytest_configure(config: pytest.Config) -> None:
    _build_the_command_line_once()
    _keep_bytecode(str(config.rootpath / ".pytest_cache" / "bytecode"))
    _spare_the_disk()
    _hear_signals()
    _trust_few()
    run.begin(config)
    compiled.compile_ahead(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without looking for garbage: what is made stays, and would be gone through each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by what it uses, where tests are chosen by their marks: to read all of them takes a second."""
    if item.config.getoption("markexpr"):
        marks.mark(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make torture` runs, and start long tests first, so that no worker ends with one."""
    left_out = [] if LONG else [item for item in items if item.get_closest_marker("torture")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if LONG or not item.get_closest_marker("torture")]
    if hasattr(config, "workerinput"):
        items.sort(key=_late)
    # What was collected stays: it need not be gone through again whenever a test collects garbage.
    gc.freeze()


def _late(item: pytest.Item) -> int:
    test = getattr(item, "obj", None)
    if isinstance(test, types.MethodType) and isinstance(test.__self__, unittest.TestCase):
        return 0  # a state machine
    if item.get_closest_marker("slow") or item.get_closest_marker("process"):
        return 1
    return 2 if is_hypothesis_test(test) else 3


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "BACKSTORY_")) and name != "BACKSTORY_REQUIRE":
            monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="session")
def _nothing_stays_in_the_checkout() -> Generator[None]:
    """What a page or an example writes belongs into a folder of its test. Names that begin with a dot are caches."""
    checkout = Path.cwd()
    before = set(checkout.iterdir())
    yield
    stray = sorted(path.name for path in set(checkout.iterdir()) - before if not path.name.startswith("."))
    assert not stray, f"a test of this run has left {', '.join(stray)} in the checkout: chdir to tmp_path in it"
