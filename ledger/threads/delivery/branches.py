"""Branches of a conversation: which turns a host gave up, when it went on from an earlier message with another one.

An edited message gets a new id, as does an answer that is given again. So what was said before the edit is known by its
ids alone: the delivery begins with messages that the thread holds, one after another, and goes on with another message
than the thread does. A part of the thread proves nothing by what it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backstory.ledger.core.events import Turn
from backstory.ledger.threads.transcript import Thread

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept


def given_up(thread: Thread, messages: Sequence[Kept], is_covered: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the ordinals of pending turns behind a known beginning that goes on with another message.

    Nothing is given up where an id is missing, or where the delivery holds any turn from behind the beginning.

    Args:
        thread: what is recorded of the conversation.
        messages: the delivery, in order.
        is_covered: whether a turn was learned from; such a one stands.
    """
    if any(message.id is None for message in messages):
        return ()
    behind = _last_in_common(thread, messages)
    if behind is None:
        return ()
    rest = thread.standing(behind + 1)
    sent = {message.id for message in messages}
    if any(turn.anonymous or turn.id in sent for turn in rest):
        return ()
    return tuple(turn.n for turn in rest if not is_covered(turn.n))


def _last_in_common(thread: Thread, messages: Sequence[Kept]) -> int | None:
    """Return the ordinal behind which the delivery goes on in another way; None where it does not, or at once."""
    last = None
    for message in messages:
        turn = _standing(thread, message)
        if turn is None:
            if _stays_out(thread, message):
                continue
            return last
        if last is not None and next(thread.walk(last + 1, turn.n - 1), None) is not None:
            return None
        if (turn.role, turn.content) != (message.role, message.content):
            # An answer grows under its id while it is written; a person's words with the same id were edited.
            return turn.n if last is not None and turn.role == message.role == "user" else None
        last = turn.n
    return None


def _standing(thread: Thread, message: Kept) -> Turn | None:
    n = thread.latest.get(message.id or "", 0)
    return thread.turns[n - 1] if thread.stands(n) else None


def _stays_out(thread: Thread, message: Kept) -> bool:
    """Whether the words of a message were erased or taken back, so that it says nothing of the others."""
    return message.id in thread.erased_ids or thread.latest.get(message.id or "") in thread.withdrawn
