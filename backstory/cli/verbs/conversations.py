"""Verbs about conversations: record, extract, retry, discard, threads, turns, status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import counted
from backstory.cli.session import Session, progress
from backstory.ledger.core.errors import InputError, UsageError

if TYPE_CHECKING:
    from backstory.cli.pages.answers import RecordAnswer
    from backstory.home import Backstory
    from backstory.ledger.core.scope import Scope
    from backstory.ledger.extraction.models.recorded import RecordedReply
    from backstory.ledger.messages.conversation_file import Conversation
    from backstory.ledger.threads.delivery.turn_dedup import Mode
    from backstory.memory import MemoryHandle
    from backstory.results import Extracted, ParkedThread, PendingThread

    _Work = tuple[MemoryHandle, str, Sequence[dict[str, object]]]
    """A memory, a thread and its messages."""

Replies = Annotated[
    str | None,
    typer.Option(
        "--replies", metavar="FILE", help="Use recorded replies instead of a model: JSONL of thread_id and reply."
    ),
]
_All = Annotated[bool, typer.Option("--all", help="Include every user and agent of the home.")]

_MOST_NAMED = 10
"""How many other users an error lists."""


class CommitClock(StrEnum):
    """The time that a commit carries."""

    now = "now"
    turns = "turns"


def record(
    session: Session,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON array or JSONL of messages; - reads standard input.")
    ],
    thread: Annotated[str | None, typer.Option(help="Conversation of the messages without a thread_id.")] = None,
    append: Annotated[bool, typer.Option("--append", help="Record all messages, without deduplication.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take FILE as the whole conversation, and supersede all other turns.")
    ] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Skip broken messages and record the rest.")] = False,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Tag the new turns and what is learned from them; may be repeated."),
    ] = None,
    users_from_file: Annotated[
        bool,
        typer.Option(
            "--users-from-file",
            help="Record each message for the user and agent that it names; --user and --agent are for the others.",
        ),
    ] = False,
) -> None:
    """Record messages durably. Messages that are recorded already are skipped.

    A message may name its user_id and agent_name. With --user or --agent, a message that names another one is an
    error, unless --users-from-file is given.

    Example: backstory --user ada record chat.jsonl
    """
    from backstory.cli.inputs import read_conversation
    from backstory.cli.pages.tables import recorded_lines

    if append and replace:
        raise UsageError("--append and --replace exclude each other: leave one of them out")
    mode: Mode = "append" if append else "replace" if replace else "conversation"
    found = read_conversation(file, user=session.user, agent=session.agent, thread=thread)
    if found.broken and not keep_going:
        more = len(found.broken) - 1
        others = f" (and {more} more)" if more else ""
        raise InputError(
            f"{file}: {found.broken[0]}{others}; nothing was recorded: correct it, or skip it with --keep-going"
        )
    if not users_from_file:
        _must_be_of_one_scope(session, file, found)
    for broken in found.broken:
        session.note(f"skipped: {broken}")
    with session.opened() as bs:
        if any(group.scope.user == session.scope.user for group in found.groups):
            session.note_missing(bs, session.scope, creates=True)
        work = [(bs.memory_of(group.scope), group.thread, messages) for group, messages in found.groups.items()]
        answer = _record_all(session, work, mode, tags)
        waiting = [] if session.as_json or not answer.turns else _waiting_for_an_answer(work)
    session.answer(answer, lambda page, recorded: recorded_lines(page, recorded, waiting))


def _record_all(session: Session, work: Sequence[_Work], mode: Mode, tags: list[str] | None) -> RecordAnswer:
    """Record thread by thread, and sum up what was recorded in each scope."""
    from backstory.cli.pages.answers import COUNTS, RecordAnswer

    counts: dict[Scope, Counter[str]] = {}
    backlog, done, total = False, 0, sum(len(messages) for _, _, messages in work)
    with (
        session.when_interrupted(lambda: _recorded(done, total, mode)),
        progress("recording", total, least=2_000) as step,
    ):
        for memory, thread, messages in work:
            result = memory.record(thread, messages, mode=mode, tags=tags)
            counts.setdefault(memory.scope, Counter()).update({name: getattr(result, name) for name in COUNTS})
            backlog = backlog or result.backlog
            done += len(messages)
            step(done)
    return RecordAnswer.of(counts, backlog=backlog)


def _waiting_for_an_answer(work: Sequence[_Work]) -> list[PendingThread]:
    recorded = {(memory.scope, thread) for memory, thread, _ in work}
    return [
        pending
        for scope, memory in {memory.scope: memory for memory, _, _ in work}.items()
        for pending in memory.status().pending
        if pending.waiting_for == "answer" and (scope, pending.thread) in recorded
    ]


def _recorded(done: int, total: int, mode: Mode) -> str:
    again = "--append would record those again" if mode == "append" else "run it again, and those are skipped"
    return f"{done:,} of {total:,} messages are recorded; {again}"


def _must_be_of_one_scope(session: Session, file: str, found: Conversation) -> None:
    """Refuse messages that name another user than --user, or another agent than --agent.

    Raises:
        InputError: There are such messages.
    """
    strangers = found.strangers(session.user, session.agent)
    if not strangers:
        return
    named = ", ".join(f"{name} ({count})" for name, count in strangers[:_MOST_NAMED])
    more = f" and {len(strangers) - _MOST_NAMED} more" if len(strangers) > _MOST_NAMED else ""
    raise InputError(
        f"{file} names others than {session.scope}, each with its number of messages: {named}{more}; nothing was "
        "recorded: leave out --user and --agent, or record for everyone whom the file names with --users-from-file"
    )


def extract(
    session: Session,
    *,
    thread: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    replies: Replies = None,
    clock: Annotated[
        CommitClock, typer.Option(help="Date commits now, or by the turns they cover (for a backfill).")
    ] = CommitClock.now,
    every: _All = False,
) -> None:
    """Extract facts from all pending turns now. Exit 1 if an update fails; its turns are parked.

    Example: backstory extract --replies answers.jsonl --clock turns
    """
    from backstory.cli.inputs import read_recorded_replies
    from backstory.cli.pages.tables import extracted_lines, extracted_table, nothing_extracted

    answers = read_recorded_replies(replies)
    backdate = clock is CommitClock.turns
    with session.opened() as bs, session.when_interrupted(lambda: _still_pending(session, bs, thread, every=every)):
        if every:
            results = _extract_all(session, bs, answers, thread, backdate=backdate)
            session.answer_each(results, extracted_table)
            failed = sum(result.failed for _, result in results)
        else:
            memory = session.named(bs)
            total = len(memory.threads()) if answers is None else len(answers)
            with progress("extracting", total, least=1 if answers is None else 2) as step:
                result = memory.extract(
                    answers, thread=thread, backdate=backdate, on_skipped=session.note, progress=step
                )
            status = memory.status()
            none = nothing_extracted(status.pending)
            session.answer(
                result, lambda page, extracted: extracted_lines(page, extracted, none=none, parked=status.parked)
            )
            failed = result.failed
    if failed:
        raise typer.Exit(1)


def _still_pending(session: Session, bs: Backstory, thread: str | None, *, every: bool) -> str:
    memories = map(bs.memory_of, bs.owners() if every else [session.scope])
    return _stays([one for memory in memories for one in memory.status().pending], thread, "pending", "extract")


def _stays(waiting: Sequence[PendingThread | ParkedThread], thread: str | None, how: str, verb: str) -> str:
    """Count what an interrupted verb leaves undone, in one thread or in all."""
    found = [one for one in waiting if thread in (None, one.thread)]
    if not found:
        return f"nothing stays {how}"
    stay = "stays" if len(found) == 1 else "stay"
    turns = counted(sum(one.turns for one in found), "turn")
    return f"{counted(len(found), 'thread')} with {turns} {stay} {how}; run `backstory {verb}` again"


def _extract_all(
    session: Session, bs: Backstory, answers: Sequence[RecordedReply] | None, thread: str | None, *, backdate: bool
) -> list[tuple[Scope, Extracted]]:
    """Extract scope by scope. A recorded reply goes to the first scope in which its thread is pending."""
    owners = bs.owners()
    results = []
    unused = None if answers is None else [reply for reply in answers if thread in (None, reply.thread)]
    with progress("extracting", len(owners)) as step:
        for number, owner in enumerate(owners, 1):
            memory = bs.memory_of(owner)
            if thread is None or thread in {known.thread for known in memory.threads()}:
                if unused is None:
                    result = memory.extract(thread=thread, backdate=backdate)
                else:
                    result, unused = _extract_recorded(memory, unused, backdate=backdate)
                results.append((owner, result))
            step(number)
    for reply in unused or ():
        session.note(f"a reply for thread {reply.thread} was not used: no turn of it is due for an update")
    return results


def _extract_recorded(
    memory: MemoryHandle, replies: Sequence[RecordedReply], *, backdate: bool
) -> tuple[Extracted, list[RecordedReply]]:
    """Extract in one scope; return the result and the replies that the scope did not use."""
    skipped: list[str] = []
    unused: list[RecordedReply] = []

    def step(number: int) -> None:
        if skipped:
            skipped.clear()
            unused.append(replies[number - 1])

    return memory.extract(replies, backdate=backdate, on_skipped=skipped.append, progress=step), unused


def retry(
    session: Session,
    *,
    thread: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    replies: Replies = None,
) -> None:
    """Retry parked updates. Exit 1 if one fails again.

    Example: backstory retry
    """
    from backstory.cli.inputs import read_recorded_replies
    from backstory.cli.pages.tables import extracted_lines

    answers = read_recorded_replies(replies)
    with (
        session.memory() as memory,
        session.when_interrupted(lambda: _stays(memory.status().parked, thread, "parked", "retry")),
    ):
        result = memory.retry(thread, replies=answers)
        parked = memory.status().parked
    none = "nothing was retried"
    session.answer(result, lambda page, retried: extracted_lines(page, retried, none=none, parked=parked))
    if result.failed:
        raise typer.Exit(1)


def discard(
    session: Session, thread: Annotated[str, typer.Option(help="Conversation whose parked updates to discard.")]
) -> None:
    """Discard parked updates. Their turns stay recorded, and no facts are extracted from them.

    Example: backstory discard --thread monday
    """
    from backstory.cli.pages.tables import extracted_lines

    with session.memory() as memory:
        result = memory.discard(thread)
    session.answer(result, extracted_lines)


def threads(session: Session) -> None:
    """List the conversations.

    Example: backstory threads
    """
    from backstory.cli.pages.tables import thread_table

    with session.memory() as memory:
        session.answer(memory.threads(), thread_table)


def turns(
    session: Session,
    thread: Annotated[str, typer.Argument(help="The conversation; see `threads`.")],
    restored: Annotated[
        list[str] | None, typer.Argument(metavar="[restore THREAD [TURN...]]", help="Restore superseded turns.")
    ] = None,
    *,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Show the summaries of a long conversation instead of its turns.")
    ] = False,
    superseded: Annotated[bool, typer.Option("--superseded", help="Show the superseded turns, and why.")] = False,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Show what a harness had put before the words of the user.")
    ] = False,
) -> None:
    """Show the turns of a conversation.

    `turns restore THREAD [TURN...]` restores superseded turns by the ids that --superseded shows. Without ids it
    restores the turns that a delivery superseded without proof that it was the whole conversation.

    Example: backstory turns restore monday t3 t4
    """
    from backstory.cli.pages.tables import restored_lines, skipped_lines, summary_lines, superseded_lines, turn_lines

    if restored:
        if thread != "restore" or summaries or superseded or skipped:
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
        elif skipped:
            session.answer(memory.skipped(thread), skipped_lines)
        else:
            session.answer(memory.transcript(thread), turn_lines)


def status(session: Session, every: _All = False) -> None:
    """Show the state of memory, its pending turns and its parked updates.

    Example: backstory status
    """
    from backstory.cli.pages.tables import status_page, status_table

    with session.opened() as bs:
        if every:
            states = [bs.memory_of(owner).status() for owner in bs.owners()]
            session.answer(states, status_table)
        else:
            session.answer(session.named(bs).status(), lambda page, state: status_page(page, state, session.origins))
