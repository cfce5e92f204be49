"""Verbs that ask and write nothing: show, log, why, why-not, diff, what-if."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import Session, progress, session_of

if TYPE_CHECKING:
    from backstory.home import Backstory
    from backstory.memory import MemoryHandle

__all__ = ["diff", "log", "show", "what_if", "why", "why_not"]

_ON_A_SCREEN = 20


def show(
    ctx: typer.Context,
    *,
    at: Annotated[str | None, typer.Option(metavar="SEQ|TIME", help="As it was after a commit, or at a time.")] = None,
) -> None:
    """Show what is remembered, now or as it was.

    Example: backstory show --at 2026-03-12T10:30:00Z
    """
    from backstory.cli.pages.labels import whose
    from backstory.cli.pages.tables import document_page

    session = session_of(ctx)
    with session.memory() as memory:
        owner = whose(memory.scope.user, memory.scope.agent)
        session.answer(memory.document(at), lambda page, document: document_page(page, document, owner))


def log(
    ctx: typer.Context,
    *,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many; on a terminal 20.")] = None,
    fact: Annotated[str | None, typer.Option(metavar="ID", help="Only commits about this fact.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only commits from this conversation.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only commits since then.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new commits as they come, oldest first; --json: one a line.")
    ] = False,
) -> None:
    """List the commits, newest first: when memory changed, why, and by whom.

    Example: backstory log --thread monday --since 2026-03-01
    """
    from backstory.cli.pages.stories import log_table

    session = session_of(ctx)
    with session.opened() as bs:
        memory = bs.memory(session.user, session.agent)
        if follow:
            _follow(session, bs, memory, limit=limit, fact=fact, thread=thread, since=since)
        entries = memory.log(limit=limit, fact=fact, thread=thread, since=since)
        most = _ON_A_SCREEN if limit is None and not session.as_json and sys.stdout.isatty() else len(entries)
        session.answer(entries if session.as_json else entries[:most], log_table)
    if len(entries) > most:
        session.note(f"{len(entries) - most} older commits are not shown; see them with --limit {len(entries)}")


def _follow(
    session: Session,
    bs: Backstory,
    memory: MemoryHandle,
    *,
    limit: int | None,
    fact: str | None,
    thread: str | None,
    since: str | None,
) -> None:
    """Print commits as they come, until somebody has seen enough; some of those before them, if asked for."""
    from backstory.cli.pages.page import page, write_json
    from backstory.cli.pages.stories import log_row
    from backstory.ledger.core.commit import unseal
    from backstory.ledger.core.scope import LEDGER
    from backstory.projections.history.history import LogEntry, concerns, entry

    def tell(one: LogEntry) -> None:
        if session.as_json:
            write_json(one, indented=False)
        else:
            page().line("  ".join(part for part in log_row(one) if part))
        sys.stdout.flush()

    stream = memory.scope.stream(LEDGER)
    wanted = None if fact is None else memory.fact_id(fact)
    head = memory.head()
    session.answered = True
    for one in reversed(memory.log(limit=limit, fact=wanted, thread=thread, since=since) if limit or since else ()):
        if one.seq <= head.seq:
            tell(one)
    for record in bs.store.follow(stream, head.seq):
        commit = unseal(record.line, head, stream=stream, byte=record.byte)
        head = commit.head
        if (wanted is None or concerns(commit, wanted)) and thread in (None, commit.cause.thread):
            tell(entry(commit))


def why(
    ctx: typer.Context,
    *,
    fact_id: Annotated[str, typer.Argument(metavar="FACT_ID", help="A fact's id, or a unique beginning of it.")],
) -> None:
    """Tell where a fact comes from, down to the words that were said; also one that is gone.

    Example: backstory why fact_2_0
    """
    from backstory.cli.pages.stories import why_story

    session = session_of(ctx)
    with session.memory() as memory:
        session.answer(memory.why(fact_id), why_story)


def why_not(ctx: typer.Context, text: Annotated[str, typer.Argument(help="What you would have expected.")]) -> None:
    """Tell why something is not remembered; exit 1 where nothing like it ever came up.

    Example: backstory why-not "likes tea"
    """
    from backstory.cli.pages.stories import refusal_table
    from backstory.ledger.core.dedup import dedup_key

    session = session_of(ctx)
    with session.memory() as memory:
        found = memory.why_not(text)
        remembered = [fact for fact in memory.facts() if dedup_key(fact.content) == dedup_key(text)]
    session.answer(found, lambda page, told: refusal_table(page, told, remembered))
    if not found:
        raise typer.Exit(1)


def diff(
    ctx: typer.Context,
    *,
    a: Annotated[str, typer.Argument(metavar="A", help="A commit's number, or a time.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
) -> None:
    """Compare memory at two moments: what B has that A has not is added.

    Example: backstory diff 3 2026-03-12T10:30:00Z
    """
    from backstory.cli.pages.stories import diff_lines

    session = session_of(ctx)
    with session.memory() as memory:
        session.answer(memory.diff(a, b), diff_lines)


def what_if(
    ctx: typer.Context,
    *,
    max_facts: Annotated[int | None, typer.Option(min=1, help="At most so many facts.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The confidence that a model's fact needs, 0 to 1.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any rule of the policy; may be repeated.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Leave out the commits after this one.")
    ] = None,
) -> None:
    """Decide the whole history again under other rules, and compare; writes nothing.

    A rule may lie beyond what configuration and `policy --set` take, such as a memory of five facts.

    Example: backstory what-if --max-facts 20 --threshold 0.9
    """
    from backstory.cli.inputs import policy_changes
    from backstory.cli.pages.stories import what_if_lines

    session = session_of(ctx)
    changes = policy_changes(settings or ())
    if max_facts is not None:
        changes["max_facts"] = max_facts
    if threshold is not None:
        changes["fact_confidence_threshold"] = threshold
    with session.memory() as memory:
        with progress("deciding again", memory.head().seq if until is None else until, worth=500) as step:
            result = memory.what_if(until=until, progress=step, **changes)
        session.answer(result, what_if_lines)
