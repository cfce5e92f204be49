"""Verbs that take conversations in: record, extract, retry, discard, threads, turns, status."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import Session, progress, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.answers import ExtractedIn
    from backstory.home import Backstory
    from backstory.ledger.extraction.recorded import RecordedReply
    from backstory.ledger.threads.turn_dedup import Mode
    from backstory.memory import MemoryHandle
    from backstory.results import Extracted

__all__ = ["discard", "extract", "record", "retry", "status", "threads", "turns"]

_Replies = Annotated[
    str | None,
    typer.Option(
        "--replies", metavar="FILE", help="Recorded answers instead of a model: JSONL of thread_id and reply."
    ),
]
_All = Annotated[bool, typer.Option("--all", help="Do it for every user and agent of the home.")]


class Dating(StrEnum):
    """Which time a commit carries."""

    now = "now"
    turns = "turns"


def record(
    ctx: typer.Context,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON array or JSONL of messages; - reads what is piped in.")
    ],
    thread: Annotated[str | None, typer.Option(help="The conversation of messages that name no thread_id.")] = None,
    append: Annotated[bool, typer.Option("--append", help="All of it is new, even what was said before.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="It is the whole conversation: what it leaves out stands no longer.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave broken messages out and record the rest.")
    ] = False,
) -> None:
    """Keep what was said, durably; what is known already is skipped.

    Example: backstory --user ada record chat.jsonl
    """
    from backstory.cli.inputs import read_conversation
    from backstory.cli.pages.tables import recorded_line
    from backstory.ledger.core.errors import InputError, UsageError
    from backstory.results import RecordResult

    if append and replace:
        raise UsageError("--append and --replace exclude each other: say one of them")
    mode: Mode = "append" if append else "replace" if replace else "conversation"
    session = session_of(ctx)
    found = read_conversation(file, user=session.user, agent=session.agent, thread=thread)
    if found.broken and not keep_going:
        more = len(found.broken) - 1
        others = f" (and {more} more)" if more else ""
        raise InputError(
            f"{file}: {found.broken[0]}{others}; nothing was recorded: mend it, or leave it out with --keep-going"
        )
    for broken in found.broken:
        session.note(f"left out: {broken}")
    turns = skipped = superseded = 0
    with session.opened() as bs:
        work = [(bs.memory(g.user, g.agent), g.thread, messages) for g, messages in found.groups.items()]
        with progress("recording", sum(len(messages) for _, _, messages in work), worth=2_000) as step:
            done = 0
            for memory, name, messages in work:
                result = memory.record(name, messages, mode=mode)
                turns, skipped = turns + result.turns, skipped + result.skipped
                superseded += result.superseded
                done += len(messages)
                step(done)
    session.answer(RecordResult(len(work), turns, skipped, superseded=superseded), recorded_line)


def extract(
    ctx: typer.Context,
    *,
    thread: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    replies: _Replies = None,
    clock: Annotated[
        Dating, typer.Option(help="Date commits now, or by the turns they cover, for a backfill.")
    ] = Dating.now,
    every: _All = False,
) -> None:
    """Learn from everything that is pending, now; a failed update is parked, and exits 1.

    Example: backstory extract --replies answers.jsonl --clock turns
    """
    from backstory.cli.inputs import replies_in
    from backstory.cli.pages.tables import extracted_lines, extracted_table

    session = session_of(ctx)
    answers = replies_in(replies)
    backdate = clock is Dating.turns
    with session.opened() as bs:
        if every:
            results = _extract_all(session, bs, answers, thread, backdate=backdate)
            session.answer(results, extracted_table)
            failed = sum(result.failed for result in results)
        else:
            memory = bs.memory(session.user, session.agent)
            total = len(memory.threads()) if answers is None else len(answers)
            with progress("learning", total, worth=1 if answers is None else 2) as step:
                result = memory.extract(
                    answers, thread=thread, backdate=backdate, on_skipped=session.note, progress=step
                )
            session.answer(result, extracted_lines)
            failed = result.failed
    if failed:
        raise typer.Exit(1)


def _extract_all(
    session: Session, bs: Backstory, answers: Sequence[RecordedReply] | None, thread: str | None, *, backdate: bool
) -> list[ExtractedIn]:
    """Extract scope by scope; a recorded reply goes to the first scope that has its thread pending."""
    from backstory.cli.pages.answers import ExtractedIn

    owners = bs.owners()
    results = []
    unused = None if answers is None else [reply for reply in answers if thread in (None, reply.thread)]
    with progress("learning", len(owners)) as step:
        for number, owner in enumerate(owners, 1):
            memory = bs.memory(owner.user, owner.agent)
            if thread is None or thread in {known.thread for known in memory.threads()}:
                if unused is None:
                    result = memory.extract(thread=thread, backdate=backdate)
                else:
                    result, unused = _answer(memory, unused, backdate=backdate)
                results.append(ExtractedIn.of(owner, result))
            step(number)
    for reply in unused or ():
        session.note(f"a reply for thread {reply.thread} was not used: nothing of it is worth an update")
    return results


def _answer(
    memory: MemoryHandle, replies: Sequence[RecordedReply], *, backdate: bool
) -> tuple[Extracted, list[RecordedReply]]:
    """Offer replies to one scope; returns what it made of them, and those it had no use for."""
    declined: list[str] = []
    passed: list[RecordedReply] = []

    def told(number: int) -> None:
        if declined:
            declined.clear()
            passed.append(replies[number - 1])

    return memory.extract(replies, backdate=backdate, on_skipped=declined.append, progress=told), passed


def retry(
    ctx: typer.Context,
    *,
    thread: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    replies: _Replies = None,
) -> None:
    """Try parked updates again; exit 1 if one fails again."""
    from backstory.cli.inputs import replies_in
    from backstory.cli.pages.tables import extracted_lines

    session = session_of(ctx)
    answers = replies_in(replies)
    with session.memory() as memory:
        result = memory.retry(thread, replies=answers)
    session.answer(result, lambda page, told: extracted_lines(page, told, none="nothing was tried again"))
    if result.failed:
        raise typer.Exit(1)


def discard(
    ctx: typer.Context, thread: Annotated[str, typer.Option(help="The conversation whose parked updates are given up.")]
) -> None:
    """Give parked updates up: what was said stays, nothing is learned from it.

    Example: backstory discard --thread monday
    """
    from backstory.cli.pages.tables import extracted_lines

    session = session_of(ctx)
    with session.memory() as memory:
        result = memory.discard(thread)
    session.answer(result, extracted_lines)


def threads(ctx: typer.Context) -> None:
    """List the conversations."""
    from backstory.cli.pages.tables import thread_table

    session = session_of(ctx)
    with session.memory() as memory:
        session.answer(memory.threads(), thread_table)


def turns(
    ctx: typer.Context,
    thread: Annotated[str, typer.Argument(help="The conversation, see `threads`.")],
    restored: Annotated[
        list[str] | None, typer.Argument(metavar="[restore THREAD [TURN...]]", help="Bring superseded turns back.")
    ] = None,
    *,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Show the summaries of a long conversation instead of its turns.")
    ] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Show the turns that no longer stand, and why.")
    ] = False,
) -> None:
    """Show what was said in a conversation, as it is kept.

    `turns restore THREAD [TURN...]` brings superseded turns back, by the ids that --superseded shows; without ids those
    that a delivery superseded without proving that it told the whole conversation.

    Example: backstory turns restore monday t3 t4
    """
    from backstory.cli.pages.tables import restored_lines, summary_lines, superseded_lines, turn_lines
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if restored:
        if thread != "restore" or summaries or superseded:
            raise UsageError("give one thread to show, or `turns restore THREAD [TURN...]`")
        with session.memory() as memory:
            result = memory.restore(restored[0], restored[1:] or None)
        session.answer(result, restored_lines)
        if not result.restored:
            raise typer.Exit(1)
        return
    with session.memory() as memory:
        if summaries:
            session.answer(memory.summaries(thread), summary_lines)
        elif superseded:
            session.answer(memory.superseded(thread), superseded_lines)
        else:
            session.answer(memory.transcript(thread), turn_lines)


def status(ctx: typer.Context, every: _All = False) -> None:
    """Show where memory stands, what is pending and what is parked."""
    from backstory.cli.pages.tables import status_page, status_table

    session = session_of(ctx)
    with session.opened() as bs:
        if every:
            states = [bs.memory(owner.user, owner.agent).status() for owner in bs.owners()]
            session.answer(states, status_table)
        else:
            session.answer(bs.memory(session.user, session.agent).status(), status_page)
