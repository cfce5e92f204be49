"""One invocation: which memory it is about, and how it answers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from backstory.cli.pages.page import Page, aside, page, write_json

if TYPE_CHECKING:
    from backstory.home import Backstory
    from backstory.memory import MemoryHandle
    from backstory.operations.services import Progress

__all__ = ["Session", "counting", "progress", "session_of"]

T = TypeVar("T")

_LONG_INDEXING_KIB = 16 * 1024
"""Less is indexed in about a second."""


@dataclass
class Session:
    """The options that stand before the verb, and whether an answer was given already."""

    home: str | None = None
    user: str | None = None
    agent: str | None = None
    config: str | None = None
    store: str | None = None
    as_json: bool = False
    debug: bool = False
    answered: bool = False

    @contextmanager
    def opened(self) -> Iterator[Backstory]:
        """Open the home; nothing is learned in the background, and nothing is created before something is written."""
        from backstory import Backstory
        from backstory.ledger.core.errors import UsageError

        if self.home == "":
            raise UsageError("--home is empty: name a folder, or leave the option out")
        with (
            indexing() as told,
            Backstory.open(
                self.home, config=self.config, background=False, progress=told, event_store=self.store
            ) as bs,
        ):
            yield bs

    @contextmanager
    def memory(self) -> Iterator[MemoryHandle]:
        """Open the one memory that the invocation is about."""
        with self.opened() as bs:
            yield bs.memory(self.user, self.agent)

    def answer(self, value: T, show: Callable[[Page, T], None]) -> None:
        """Give the answer: one JSON value with --json, else a page for people."""
        if self.as_json:
            write_json(value)
            self.answered = True
        else:
            show(page(), value)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """With --json, let what is printed meanwhile go to standard error: it is not the answer."""
        with contextlib.redirect_stdout(sys.stderr) if self.as_json else contextlib.nullcontext():
            yield

    def note(self, text: str) -> None:
        """Say something beside the answer."""
        aside(text)


def session_of(ctx: typer.Context) -> Session:
    """Return the invocation that a verb belongs to."""
    session = ctx.obj
    if not isinstance(session, Session):
        raise TypeError("a verb was run without the options before it")
    return session


def indexing() -> AbstractContextManager[Callable[[int, int], None]]:
    """Show how far an index has come that is built on the way to an answer; see `counting`."""
    return counting("indexing the log, KiB", worth=_LONG_INDEXING_KIB, unit=1024)


@contextmanager
def counting(label: str, *, worth: int = 2, unit: int = 1) -> Iterator[Callable[[int, int], None]]:
    """Show how far a work has come whose length is told by itself, where that takes long and somebody watches.

    Yields what is to be told how much is done and how much there is; `unit` of it are one step, `worth` as in
    `progress`.
    """
    with contextlib.ExitStack() as shown:
        step: Progress | None = None

        def tell(done: int, total: int) -> None:
            nonlocal step
            if step is None and done < total:
                step = shown.enter_context(progress(label, total // unit, worth=worth))
            if step is not None:
                step(done // unit)
            if done >= total:
                shown.pop_all().close()
                step = None

        yield tell


@contextmanager
def progress(label: str, total: int, *, worth: int = 2) -> Iterator[Progress]:
    """Show how far a long work has come, where somebody watches; yields what is to be told the steps done.

    `worth`: fewer steps than these are done before a bar could be read.
    """
    if total < worth or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
