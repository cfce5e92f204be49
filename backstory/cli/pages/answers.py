"""Results that only the command line has, and the pages of an import and of the move of a home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from backstory.cli.pages.labels import counted
from backstory.cli.pages.page import Page
from backstory.ledger.core.scope import Scope
from backstory.lifecycle.copying import CancelledCopy, CopiedHome
from backstory.projections.history.views import LogEntry
from backstory.results import ImportedDocument, ReadFile

COUNTS = ("threads", "turns", "skipped", "superseded", "cut")
"""What is summed up over deliveries and scopes."""


class RecordedScope(msgspec.Struct, frozen=True):
    """What `record` recorded in one scope."""

    user: str | None
    agent: str | None
    threads: int = 0
    turns: int = 0
    skipped: int = 0
    superseded: int = 0
    cut: int = 0


class RecordAnswer(msgspec.Struct, frozen=True):
    """What `record` recorded in all scopes, and in each."""

    threads: int
    turns: int
    skipped: int
    backlog: bool
    superseded: int
    cut: int
    scopes: tuple[RecordedScope, ...]

    @classmethod
    def of(cls, counts: Mapping[Scope, Counter[str]], *, backlog: bool) -> RecordAnswer:
        """Sum up the `COUNTS` of each scope."""
        sums = {name: sum(one[name] for one in counts.values()) for name in COUNTS}
        scopes = tuple(RecordedScope(scope.user, scope.agent, **one) for scope, one in counts.items())
        return cls(**sums, backlog=backlog, scopes=scopes)


class NewKey(msgspec.Struct, frozen=True):
    """A public key, and the file with the private one."""

    key: str
    file: str


class ConfigValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A configured value and its origin: default, file, environment or argument."""

    value: object
    origin: str


class Drawn(msgspec.Struct, frozen=True):
    """The file of a graph, and how many items it shows and leaves out, by kind."""

    written: str
    format: str
    shown: dict[str, int]
    left_out: dict[str, int]


class WrittenTest(msgspec.Struct, frozen=True):
    """A memory test that `test --from-fact` wrote: its file, all files, the words in them and what they lack."""

    test: str
    files: tuple[str, ...]
    words: tuple[str, ...]
    notes: tuple[str, ...]


_MOST_REASONS = 10


def import_lines(page: Page, imported: ImportedDocument, entry: LogEntry | None, *, dry_run: bool) -> None:
    """Show an import, or with `dry_run` what it would bring."""
    read = imported.read
    if read is None:
        return
    if read.turns:
        held = f"{counted(read.turns, 'turn')} of {counted(read.threads, 'conversation')}"
    else:
        held = counted(read.facts, "fact") if read.facts or dry_run else ""
    page.line(f"{read.title} ({read.format}){f': {held}' if held else ''}")
    if dry_run:
        for text in read.first:
            page.line(f"  {text}")
        page.line("nothing was written")
    elif read.turns:
        page.line(f"{read.new:,} recorded, {_here_already(read)}")
        if read.new:
            page.line("`backstory extract --clock turns` learns from them, as of the times of the turns")
    else:
        if read.known:
            page.line(_here_already(read))
        if entry is not None and (read.new or not read.facts):
            page.line(f"commit {entry.seq}: {entry.summary}")
        page.line(f"{counted(len(imported.facts), 'fact')} in memory now")
    _reasons(page, read)


def _here_already(read: ReadFile) -> str:
    return f"{read.known:,} {'was' if read.known == 1 else 'were'} here already"


def _reasons(page: Page, read: ReadFile) -> None:
    _counts(page, "refused", read.refused)
    _counts(page, "left out", read.left_out)
    if read.unread_keys:
        page.line(f"keys that were not read: {', '.join(read.unread_keys)}")


def _counts(page: Page, what: str, counts: Mapping[str, int]) -> None:
    for reason, count in list(counts.items())[:_MOST_REASONS]:
        page.line(f"{what}: {count:,}, {reason}")


def copied_lines(page: Page, done: CopiedHome) -> None:
    """Print what a copy has moved."""
    what = f"{counted(done.commits, 'commit')} in {counted(done.streams, 'stream')}"
    if done.new:
        page.line((f"Moved {what} from {done.source} to {done.target}.", "bold"))
    else:
        page.line((f"All {what} of {done.source} are in {done.target} already.", "bold"))
    page.line(f"{done.source} takes no changes any more.")
    if done.files:
        page.line(f"Copied beside the logs: {', '.join(done.files)}.")
    if done.kept:
        page.line(f"Not copied, since the target has another one: {', '.join(done.kept)}.")


def cancelled_lines(page: Page, done: CancelledCopy) -> None:
    """Print what has become of a copy that was given up."""
    page.line((f"{done.source} takes changes again.", "bold"))
    page.line(f"{done.target} stays an incomplete copy. Delete it, or run `backstory copy` again to complete it.")
