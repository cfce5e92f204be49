"""Verb that erases content irreversibly: forget."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import counted, size
from backstory.cli.pages.page import Column, Page
from backstory.cli.session import Session
from backstory.ledger.core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from backstory.memory import MemoryHandle
    from backstory.results import Forgotten, RemovedUser

_MOST_NAMED = 5


def forget(
    session: Session,
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
    whole_user: Annotated[
        bool,
        typer.Option(
            "--whole-user", help="Remove the user of --user altogether: all memories, their folder and the name."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be erased, and erase nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase content from both logs, memory.json and the indexes. This cannot be undone.

    Ids, times and digests stay, as proof. With --whole-user nothing stays but a mark without a name.

    Example: backstory forget --matching "Main Street 4" --dry-run
    """
    if sum(one is not None for one in (fact, thread, matching)) + everything + whole_user != 1:
        raise UsageError(
            "name exactly one thing to forget: --fact ID, --thread T, --matching TEXT, --all or --whole-user"
        )
    if with_evidence and fact is None:
        raise UsageError("--with-evidence needs --fact; to erase a whole conversation use --thread")

    asks = not (dry_run or yes)
    if asks and not sys.stdin.isatty():
        raise UsageError("forget cannot be undone, and there is no terminal to confirm it: try --dry-run, then --yes")
    if whole_user:
        _forget_user(session, dry_run=dry_run, asks=asks)
        return

    def forget_in(memory: MemoryHandle, *, dry_run: bool) -> Forgotten:
        return memory.forget(
            fact,
            thread_id=thread,
            matching=matching,
            everything=everything,
            with_evidence=with_evidence,
            dry_run=dry_run,
        )

    with session.memory() as memory:
        if asks:
            session.confirm(_question(forget_in(memory, dry_run=True)), "nothing was erased")
        left = "an erasure that has begun is completed by the next command; run `backstory forget` again for the rest"
        with contextlib.nullcontext() if dry_run else session.when_interrupted(lambda: left):
            result = forget_in(memory, dry_run=dry_run)
    session.answer(result, lambda page, forgotten: _lines(page, forgotten, dry_run=dry_run))


def _forget_user(session: Session, *, dry_run: bool, asks: bool) -> None:
    """Remove the user of --user.

    Raises:
        UsageError: No user is named, or an agent is.
        NotFoundError: There is no such user; the message names the nearest.
    """
    from backstory.cli.nearest import missing

    scope = session.scope
    if scope.user is None or scope.agent is not None:
        raise UsageError("--whole-user needs --user alone: it removes the user with all of the user's agents")
    with session.opened() as bs:
        try:
            if asks:
                planned = _removed_in_words(bs.forget_user(scope.user, dry_run=True))
                session.confirm(f"Remove {planned} for good?", "nothing was removed")
            result = bs.forget_user(scope.user, dry_run=dry_run)
        except NotFoundError as error:
            raise NotFoundError(missing(bs, scope) or str(error)) from error
    session.answer(result, lambda page, removed: _removed_lines(page, removed, dry_run=dry_run))


def _removed_in_words(removed: RemovedUser) -> str:
    memories = counted(len(removed.scopes), "memory", "memories")
    return f"user {removed.user} with {memories} in {counted(removed.files, 'file')} ({size(removed.bytes)})"


def _removed_lines(page: Page, removed: RemovedUser, *, dry_run: bool) -> None:
    numbers = (Column(name, right=True) for name in ("commits", "facts", "turns"))
    rows = ((one.agent or "-", str(one.commits), str(one.facts), str(one.turns)) for one in removed.scopes)
    page.table((Column("agent", "cyan"), *numbers), rows)
    if removed.witness is not None:
        page.line((f"the witness {removed.witness} keeps the user's name and hashes: remove them there", "yellow"))
    if not removed.scopes and not removed.files:
        page.line("completed a removal that was interrupted")
    elif dry_run:
        page.line((f"{_removed_in_words(removed)} would be removed. Nothing was: this was a dry run.", "bold"))
    else:
        page.line(("Removed", "bold red"), f": {_removed_in_words(removed)}. This cannot be undone.")


def _question(planned: Forgotten) -> str:
    facts = _facts(planned)
    more = ", …" if len(facts) > _MOST_NAMED else ""
    of = f", those of {', '.join(facts[:_MOST_NAMED])}{more} among them" if facts else ""
    also = f"; {len(planned.also)} learned from the same turns stay" if planned.also else ""
    return f"Erase {counted(len(planned.redacted), 'content')} for good{of}{also}?"


def _facts(forgotten: Forgotten) -> list[str]:
    return list(dict.fromkeys(erased.fact for erased in forgotten.redacted if erased.fact is not None))


def _lines(page: Page, forgotten: Forgotten, *, dry_run: bool) -> None:
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
