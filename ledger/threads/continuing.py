"""Continued threads: which threads a conversation goes on that comes without the name of its thread.

A host that keeps the conversation itself sends all of it each time. These threads are continued, in this order:

1. The thread ends with words of the question, and the conversation begins with the whole thread: the question was
   asked before, without an answer.
2. The conversation up to the question is the whole thread.
3. The conversation is the whole thread but for the answer at its end: the answer is to be given again. Or the question
   at the end of the thread was rephrased.
4. The conversation up to the question is the end of the thread, of which the host has left out the beginning. Or all
   of it is known to the thread, of which turns were erased or taken back, and which has to keep them out.

A first question begins a new conversation, unless a thread holds this question alone: two conversations often begin
alike. For the same reason a thread that goes on with another question is not continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from backstory.ledger.core.events import Turn
from backstory.ledger.erasure.digest import Seal
from backstory.ledger.threads.resend import align_delivery, has_substance
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_dedup import align
from backstory.ledger.threads.turn_match import Said

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

_LAST_EXCHANGE = 8
"""Turns that may follow what the conversation holds: an answer in parts, or a question and its answer."""
_LAST_TURNS = 16
"""Turns at the end of a thread that are searched for an id."""

_ASKED, _ANSWERED, _AGAIN, _SHORTENED = range(4)


def begin_of_question(messages: Sequence[Kept]) -> int:
    """Return the index of the first message of the question: of the users' words that have no answer yet."""
    return next((n for n in range(len(messages), 0, -1) if messages[n - 1].role != "user"), 0)


def continued(
    threads: Iterable[Thread], messages: Sequence[Kept], seal: Callable[[], Seal | None] = lambda: None
) -> list[str]:
    """Return the names of the threads that a conversation may continue, the likeliest first.

    Args:
        threads: the threads to consider, the newest first.
        messages: the whole conversation up to now, as it would be recorded.
        seal: returns the keyed digest by which erased turns are recognised; None where the scope has no key.
    """
    if not messages:
        return []
    asked = begin_of_question(messages)
    found = []
    for thread in threads:
        rank = _rank(thread, messages, asked)
        if rank is None and asked and (thread.traces or thread.withdrawn) and _knows(thread, messages, asked, seal()):
            rank = _SHORTENED
        if rank is not None:
            found.append((rank, thread.name))
    return [name for _, name in sorted(found, key=lambda one: one[0])]


def holds(thread: Thread, turn_id: str) -> bool:
    """Whether one of the last turns of a thread has this id, given by the host."""
    return any(turn.id == turn_id and not turn.anonymous for turn in islice(thread.walk_back(), _LAST_TURNS))


def _rank(thread: Thread, messages: Sequence[Kept], asked: int) -> int | None:
    first = next(thread.walk(), None)
    last = next(thread.walk_back(), None)
    if first is None or last is None:
        return None
    if _same(first, messages[0]):
        turns = list(islice(thread.walk(), len(messages) + _LAST_EXCHANGE + 1))
        alike = _alike(turns, messages)
        if alike == len(turns):
            # The thread is a beginning of the conversation.
            return _ASKED if alike > asked else _ANSWERED if alike == asked else None
        behind = turns[alike:]
        if (
            len(behind) <= _LAST_EXCHANGE
            and asked
            and (
                (alike == len(messages) and all(turn.role == "assistant" for turn in behind))
                or (alike == asked and align_delivery(thread, messages).superseded)
            )
        ):
            return _AGAIN
    if asked and _same(last, messages[asked - 1]):
        end = list(islice(thread.walk_back(), asked))[::-1]
        if len(end) == asked == _alike(end, messages) and _is_told_at_length(end):
            return _SHORTENED
    return None


def _knows(thread: Thread, messages: Sequence[Kept], asked: int, seal: Seal | None) -> bool:
    """Whether all before the question is known to a thread, also by turns that stand no longer."""
    arrival = align(thread, messages, "", seal=seal)
    return not arrival.superseded and all(any(new is message for message in messages[asked:]) for new in arrival.fresh)


def _same(turn: Turn, message: Kept) -> bool:
    return Said.of(message).is_in(turn)


def _alike(turns: Sequence[Turn], messages: Sequence[Kept]) -> int:
    """How many turns and messages are the same, from the first on."""
    pairs = zip(turns, messages, strict=False)
    return next(
        (n for n, (turn, message) in enumerate(pairs) if not _same(turn, message)), min(len(turns), len(messages))
    )


def _is_told_at_length(turns: Sequence[Turn]) -> bool:
    """Whether both sides have said something of substance: "hi" and "Hello!" end many conversations."""
    return {turn.role for turn in turns if has_substance(turn.content)} >= {"user", "assistant"}
