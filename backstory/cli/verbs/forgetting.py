"""The verb that cannot be undone: forget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.memory import MemoryHandle
    from backstory.results import Forgotten

__all__ = ["forget"]

_MOST_NAMED = 5


def forget(
    ctx: typer.Context,
    *,
    fact: Annotated[
        str | None, typer.Option(metavar="ID", help="A fact, by its whole id; also one that is gone.")
    ] = None,
    with_evidence: Annotated[
        bool, typer.Option("--with-evidence", help="With --fact: also the turns that it was learned from.")
    ] = False,
    thread: Annotated[str | None, typer.Option(help="A conversation, and what was learned from it.")] = None,
    matching: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Whatever holds a text, in any case and Unicode form.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything; of a user also what the user's agents remember.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: it cannot be undone.")] = False,
) -> None:
    """Erase content for good, everywhere: both logs, memory.json, indexes; ids, times and digests stay.

    Example: backstory forget --matching "Main Street 4" --dry-run
    """
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if sum(one is not None for one in (fact, thread, matching)) + everything != 1:
        raise UsageError("say what to forget, and one thing at a time: --fact ID, --thread T, --matching TEXT or --all")
    if with_evidence and fact is None:
        raise UsageError("--with-evidence is about a fact: name one with --fact, or forget the whole --thread")

    def ask(memory: MemoryHandle, *, dry_run: bool) -> Forgotten:
        return memory.forget(
            fact,
            thread_id=thread,
            matching=matching,
            everything=everything,
            with_evidence=with_evidence,
            dry_run=dry_run,
        )

    asks = not (dry_run or yes)
    if asks and not sys.stdin.isatty():
        raise UsageError("forgetting cannot be undone, and nobody is here to ask: look with --dry-run, then add --yes")
    with session.memory() as memory:
        if asks and not _agreed(ask(memory, dry_run=True)):
            session.note("nothing was erased")
            raise typer.Exit(1)
        told = ask(memory, dry_run=dry_run)
    session.answer(told, lambda page, told: _lines(page, told, dry_run=dry_run))


def _agreed(planned: Forgotten) -> bool:
    from backstory.cli.pages.labels import counted

    facts = _facts(planned)
    more = ", …" if len(facts) > _MOST_NAMED else ""
    of = f", those of {', '.join(facts[:_MOST_NAMED])}{more} among them" if facts else ""
    also = f"; {len(planned.also)} learned from the same turns stay" if planned.also else ""
    try:
        return typer.confirm(f"Erase {counted(len(planned.redacted), 'content')} for good{of}{also}?", err=True)
    except typer.Abort:
        return False


def _facts(told: Forgotten) -> list[str]:
    return list(dict.fromkeys(erased.fact for erased in told.redacted if erased.fact is not None))


def _lines(page: Page, told: Forgotten, *, dry_run: bool) -> None:
    from backstory.cli.pages.labels import counted
    from backstory.cli.pages.page import Column

    columns = (Column("stream", "cyan"), Column("commit", right=True), Column("what"), Column("of"))
    rows = ((one.stream, str(one.seq), one.what, one.fact or one.section or "") for one in told.redacted)
    page.table(columns, rows)
    if facts := _facts(told):
        page.line(("facts: ", "bold"), ", ".join(facts))
    for sharing in told.also:
        page.line((f"stays, though learned from the same turns: {sharing.kind} {sharing.id}, ", "dim"), sharing.content)
    contents = counted(len(told.redacted), "content")
    if dry_run:
        page.line((f"{contents} would go. Nothing was written: this was a dry run.", "bold"))
    else:
        page.line(("Erased", "bold red"), f": {contents}; nothing brings that back.")
