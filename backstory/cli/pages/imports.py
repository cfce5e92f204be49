"""Page of an import: what a file held, what came of it, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping

from backstory.cli.pages.labels import counted
from backstory.cli.pages.page import Page
from backstory.projections.history.views import LogEntry
from backstory.results import ImportedDocument, ReadFile

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
        page.line(f"{read.new:,} recorded, {read.known:,} were here already")
        if read.new:
            page.line("`backstory extract --clock turns` learns from them, as of the times of the turns")
    else:
        if read.known:
            page.line(f"{read.known:,} were here already")
        if entry is not None and (read.new or not read.facts):
            page.line(f"commit {entry.seq}: {entry.summary}")
        page.line(f"{counted(len(imported.facts), 'fact')} in memory now")
    _reasons(page, read)


def _reasons(page: Page, read: ReadFile) -> None:
    _counts(page, "refused", read.refused)
    _counts(page, "left out", read.left_out)
    if read.unread_keys:
        page.line(f"keys that were not read: {', '.join(read.unread_keys)}")


def _counts(page: Page, what: str, counts: Mapping[str, int]) -> None:
    for reason, count in list(counts.items())[:_MOST_REASONS]:
        page.line(f"{what}: {count:,}, {reason}")
