"""Session of one invocation: its global options, its streams, the memory it opens and how it prints a result."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import typer

from backstory.cli.pages.labels import show_local_times
from backstory.cli.pages.page import Page, page, show_traceback, write_json, write_message
from backstory.ledger.core.errors import BackstoryError, NoModelError, StoreError, UsageError

if TYPE_CHECKING:
    import msgspec

    from backstory.config.loading import Loaded
    from backstory.home import Backstory
    from backstory.ledger.core.scope import Scope
    from backstory.memory import MemoryHandle
    from backstory.services.services import Progress


R = TypeVar("R", bound="msgspec.Struct")
T = TypeVar("T")

_LONG_INDEXING_KIB = 16 * 1024
"""Indexing less than this takes about a second and needs no progress bar."""


@dataclass
class Session:
    """The global options of an invocation, and whether it has printed its result.

    `user_from` and `agent_from` are the origins of the names: argument, environment or default.
    """

    home: str | None = None
    user: str | None = None
    agent_given: str | None = None
    config: str | None = None
    store: str | None = None
    as_json: bool = False
    debug: bool = False
    utc: bool = False
    user_from: str = "default"
    agent_from: str = "default"
    answered: bool = False
    interrupted: str = "interrupted"
    """What to say after an interrupt."""

    @cached_property
    def agent(self) -> str | None:
        """The agent, under the name by which the host of the home keeps it."""
        given = self.agent_given
        if given is None or given == given.lower():
            return given
        host = self.loaded().host
        return given if host is None else host.agent_name(given)

    @property
    def scope(self) -> Scope:
        """The scope that --user and --agent name; without them the global one.

        Raises:
            ScopeError: A name is invalid.
        """
        from backstory.ledger.core.scope import Scope

        return Scope.of(self.user, self.agent)

    @property
    def origins(self) -> str:
        """The environment variables that name the user and the agent; "" where none does."""
        named = {"BACKSTORY_USER": self.user_from, "BACKSTORY_AGENT": self.agent_from}
        read = [variable for variable, origin in named.items() if origin == "environment"]
        return f"from {' and '.join(read)}" if read else ""

    def check_home(self) -> None:
        """Refuse an empty --home.

        Raises:
            UsageError: --home is empty.
        """
        if self.home == "":
            raise UsageError("--home is empty: name a folder, or leave the option out")

    def loaded(self) -> Loaded:
        """Load the settings that are in force in the home."""
        from backstory.config.loading import load_settings

        self.check_home()
        return load_settings(self.config, {"event_store": self.store}, home=self.home, as_hosted=True)

    def opening(self) -> Callable[..., Backstory]:
        """Return `Backstory.open` with the global options."""
        from backstory import Backstory

        self.check_home()
        return partial(Backstory.open, self.home, config=self.config, event_store=self.store, as_hosted=True)

    @contextmanager
    def opened(self, **changes: str | None) -> Iterator[Backstory]:
        """Open the home without a background producer.

        Args:
            changes: Arguments of `Backstory.open` beside those that the global options give.
        """
        with (
            progress_of_total("indexing the log, KiB", least=_LONG_INDEXING_KIB, unit=1024) as step,
            self.opening()(background=False, progress=step, **changes) as bs,
        ):
            try:
                yield bs
            except NoModelError as error:
                if bs.config.no_model is None:
                    raise
                raise NoModelError(bs.config.no_model) from error

    @contextmanager
    def memory(self, *, creates: bool = False) -> Iterator[MemoryHandle]:
        """Open the memory that --user and --agent name; see `named`."""
        with self.opened() as bs:
            yield self.named(bs, creates=creates)

    def named(self, bs: Backstory, *, creates: bool = False) -> MemoryHandle:
        """Return the memory that --user and --agent name, and note where the home does not know them.

        Args:
            bs: The open home.
            creates: Whether the verb creates an unknown memory. It is then noted only if a similar name is known.
        """
        self.note_missing(bs, self.scope, creates=creates)
        return bs.memory_of(self.scope)

    def note_missing(self, bs: Backstory, scope: Scope, *, creates: bool = False) -> bool:
        """Note on standard error that the home does not know a user or an agent, and which known one is nearest.

        Returns:
            Whether it does not know it.

        Raises:
            StoreError: An engine does not answer, and the verb creates no memory.
        """
        from backstory.cli.nearest import missing

        try:
            said = missing(bs, scope)
        except StoreError:
            # Another verb would only wait as long once more; a server or a first turn may come before the engine.
            if not creates:
                raise
            return False
        if said is not None and (not creates or "nearest" in said):
            self.note(f"{said}; a new memory is created" if creates else said)
        return said is not None

    @contextmanager
    def when_interrupted(self, left: Callable[[], str]) -> Iterator[None]:
        """Have an interrupt of the block say what it leaves undone.

        Args:
            left: Returns what is left; called at the interrupt, while the memory is still open.
        """
        try:
            yield
        except KeyboardInterrupt:
            with contextlib.suppress(BackstoryError):
                self.interrupted = f"interrupted: {left()}"
            raise

    def answer(self, value: T, show: Callable[[Page, T], None]) -> None:
        """Print the result: as JSON with --json, else with `show`."""
        if self.as_json:
            write_json(value)
            self.answered = True
        else:
            show(self.page(), value)

    def answer_each(
        self, results: Sequence[tuple[Scope, R]], show: Callable[[Page, Sequence[tuple[Scope, R]]], None]
    ) -> None:
        """Print the results of several memories; as JSON each is an object with its user and agent."""
        from msgspec import to_builtins

        found = [{"user": scope.user, "agent": scope.agent, **to_builtins(result)} for scope, result in results]
        self.answer(found, lambda page, _: show(page, results))

    def page(self) -> Page:
        """Return a page on standard output; on a terminal its times are local ones unless --utc is given."""
        show_local_times(local=sys.stdout.isatty() and not self.utc)
        return page()

    def confirm(self, question: str, left: str) -> None:
        """Ask a question on standard error; without a yes note what is left undone, and exit with code 1."""
        try:
            said = typer.confirm(question, err=True)
        except typer.Abort:
            said = False
        if not said:
            self.note(left)
            raise typer.Exit(1)

    def note(self, text: str) -> None:
        """Write a note to standard error."""
        write_message(text)


@contextmanager
def progress_of_total(label: str, *, least: int = 2, unit: int = 1) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar for work that reports its own total.

    Args:
        label: What is done.
        least: The total from which on a bar is shown, in steps.
        unit: How much of the reported amounts is one step.

    Yields:
        A function to call with the amount done and the total amount.
    """
    with contextlib.ExitStack() as shown:
        step: Progress | None = None

        def report(done: int, total: int) -> None:
            nonlocal step
            if step is None and done < total:
                step = shown.enter_context(progress(label, total // unit, least=least))
            if step is not None:
                step(done // unit)
            if done >= total:
                shown.pop_all().close()
                step = None

        yield report


@contextmanager
def progress(label: str, total: int, *, least: int = 2) -> Iterator[Progress]:
    """Show a progress bar on standard error if it is a terminal.

    Args:
        label: What is done.
        total: The number of steps.
        least: The number of steps from which on a bar is shown.

    Yields:
        A function to call with the number of steps done.
    """
    if total < least or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


_REPEATED = "psycopg.pool"
"""Logger of each attempt to connect, of which there are many a second; the error of the verb is about the last one."""


def prepare_streams(ctx: typer.Context, session: Session) -> None:
    """Set the encoding and the logging that the global options ask for, until the context closes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8" if session.as_json else None, errors="replace")
    root, logger = logging.getLogger(), logging.getLogger("backstory")
    known = next((handler for handler in root.handlers if isinstance(handler, _OneLineHandler)), None)
    if known is not None:
        # The demo runs verbs inside a verb, and an option after the verb is known late.
        if session.debug:
            known.debug = True
            logger.setLevel(logging.DEBUG)
        return
    handler = _OneLineHandler(debug=session.debug)
    repeated = logging.getLogger(_REPEATED)
    before, before_repeated = logger.level, repeated.level
    root.addHandler(handler)
    logger.setLevel(logging.DEBUG if session.debug else logging.WARNING)
    repeated.setLevel(logging.NOTSET if session.debug else logging.ERROR)

    def restore() -> None:
        root.removeHandler(handler)
        logger.setLevel(before)
        repeated.setLevel(before_repeated)

    ctx.call_on_close(restore)


class _OneLineHandler(logging.Handler):
    """Writes each log record as one line; with `debug` also the traceback of its error."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self.debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.getMessage()}: {error}" if error is not None else record.getMessage()
        write_message(f"{record.levelname.lower()}: {text}")
        if error is not None and self.debug:
            show_traceback(error)
