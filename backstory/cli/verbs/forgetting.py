"""Verb that erases content irreversibly: forget."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.memory import MemoryHandle
    from backstory.results import Forgotten

_MOST_NAMED = 5


def forget(
    ctx: typer.Context,
    *,
    fact: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Erase this fact, by its full id, also if it was removed before."),
    ] = None,
    with_evidence: Annotated[
        bool, typer.Option("--with-evidence", help="With --fact: erase the turns that it was learned from, too.")
    ] = False,
    thread: Annotated[
        str | None, typer.Option(help="Erase this conversation and the facts that were learned from it.")
    ] = None,
    matching: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Erase all content with this text, in any case and Unicode form.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Erase everything. For a user this includes the user's agents.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be erased, and erase nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase content from both logs, memory.json and the indexes. This cannot be undone.

    Ids, times and digests stay.

    Example: backstory forget --matching "Main Street 4" --dry-run
    """
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if sum(one is not None for one in (fact, thread, matching)) + everything != 1:
        raise UsageError("name exactly one thing to forget: --fact ID, --thread T, --matching TEXT or --all")
    if with_evidence and fact is None:
        raise UsageError("--with-evidence needs --fact; to erase a whole conversation use --thread")

    def forget_in(memory: MemoryHandle, *, dry_run: bool) -> Forgotten:
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
        raise UsageError("forget cannot be undone, and there is no terminal to confirm it: try --dry-run, then --yes")
    with session.memory() as memory:
        if asks and not _confirmed(forget_in(memory, dry_run=True)):
            session.note("nothing was erased")
            raise typer.Exit(1)
        left = "an erasure that has begun is completed by the next command; run `backstory forget` again for the rest"
        with contextlib.nullcontext() if dry_run else session.when_interrupted(lambda: left):
            result = forget_in(memory, dry_run=dry_run)
    session.answer(result, lambda page, forgotten: _lines(page, forgotten, dry_run=dry_run))


def _confirmed(planned: Forgotten) -> bool:
    from backstory.cli.pages.labels import counted

    facts = _facts(planned)
    more = ", …" if len(facts) > _MOST_NAMED else ""
    of = f", those of {', '.join(facts[:_MOST_NAMED])}{more} among them" if facts else ""
    also = f"; {len(planned.also)} learned from the same turns stay" if planned.also else ""
    try:
        return typer.confirm(f"Erase {counted(len(planned.redacted), 'content')} for good{of}{also}?", err=True)
    except typer.Abort:
        return False


def _facts(forgotten: Forgotten) -> list[str]:
    return list(dict.fromkeys(erased.fact for erased in forgotten.redacted if erased.fact is not None))


def _lines(page: Page, forgotten: Forgotten, *, dry_run: bool) -> None:
    from backstory.cli.pages.labels import counted
    from backstory.cli.pages.page import Column

    columns = (Column("stream", "cyan"), Column("commit", right=True), Column("what"), Column("of"))
    rows = ((one.stream, str(one.seq), one.what, one.fact or one.section or "") for one in forgotten.redacted)
    page.table(columns, rows)
    if facts := _facts(forgotten):
        page.line(("facts: ", "bold"), ", ".join(facts))
    for sharing in forgotten.also:
        page.line((f"stays, though learned from the same turns: {sharing.kind} {sharing.id}, ", "dim"), sharing.content)
    contents = counted(len(forgotten.redacted), "content")
    if dry_run:
        page.line((f"{contents} would be erased. Nothing was written: this was a dry run.", "bold"))
    else:
        page.line(("Erased", "bold red"), f": {contents}. This cannot be undone.")
