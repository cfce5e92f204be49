"""Branches of a conversation: which turns a host gave up, when it went on from an earlier message with another one.

An edited message gets a new id, as does an answer that is given again. So what was said before the edit is known by its
ids alone: the delivery begins with messages that the thread holds, one after another, and goes on with another message
than the thread does. A part of the thread proves nothing by what it leaves out.

A question that is known by its id tells more: what follows it is its answer. So its answers are known without ids, and
another answer takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from backstory.ledger.core.events import Turn
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_match import Said
from backstory.ledger.threads.words import has_substance

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


class _Answered(NamedTuple):
    """A question that is known by its id: the messages that answer it, and the answers that stand behind it.

    `goes_on`: the thread has no words of the user behind these answers, or the same that the delivery has.
    """

    place: int
    given: Sequence[Kept]
    answers: Sequence[Turn]
    goes_on: bool

    def same(self, message: Kept) -> Turn | None:
        """Return the answer that a message is: by the id where both have one, else by the words."""
        for turn in self.answers:
            both = message.id is not None and not turn.anonymous
            if turn.id == message.id if both else Said.of(message).is_in(turn):
                return turn
        return None


def known_answers(thread: Thread, messages: Sequence[Kept]) -> frozenset[int]:
    """Return the indexes of messages without ids that a thread holds as answers to a question whose id is known."""
    known = set()
    for question in _answered(thread, messages):
        sent = {message.id for message in question.given}
        left = [turn for turn in question.answers if turn.anonymous or turn.id not in sent]
        for index, message in enumerate(question.given, question.place + 1):
            same = next((turn for turn in left if Said.of(message).is_in(turn)), None)
            if message.id is None and same is not None:
                left.remove(same)
                known.add(index)
    return frozenset(known)


def answered_again(thread: Thread, messages: Sequence[Kept], fresh: Collection[int]) -> tuple[int, ...]:
    """Return the ordinals of answers that another answer replaces, behind a question that is known by its id.

    Nothing is replaced where the delivery holds one of them, or where the thread goes on with other words of the user.

    Args:
        thread: what is recorded of the conversation.
        messages: the delivery, in order.
        fresh: the indexes of those that are new.
    """
    words = {(one.role, one.content) for one in messages if one.id is None and has_substance(one.content)}
    ids = {message.id for message in messages}
    return tuple(
        turn.n
        for question in _answered(thread, messages)
        if question.goes_on and question.place + 1 in fresh and not any(map(question.same, question.given))
        for turn in question.answers
        # One that took the place of an earlier answer stands behind a later question.
        if ((turn.role, turn.content) not in words if turn.anonymous else turn.id not in ids)
    )


def moved_answers(
    thread: Thread, messages: Sequence[Kept], fresh: Collection[int], superseded: Collection[int]
) -> tuple[int, ...]:
    """Return the ordinals of answers that took the place of earlier ones, and are now replaced themselves.

    Such a turn stands behind others that it precedes in the conversation. So the proof is that all else is told again,
    with as many new answers in between as are left out.

    Args:
        thread: what is recorded of the conversation.
        messages: the delivery, in order.
        fresh: the indexes of those that are new.
        superseded: the ordinals of turns that the delivery supersedes in any case.
    """
    known = [n for n in range(len(messages)) if n not in fresh]
    new = [n for n in fresh if known and known[0] < n < known[-1]]
    if not new or any(message.id is None for message in messages):
        return ()
    sent = {message.id for message in messages}
    first = thread.latest.get(messages[known[0]].id or "", 1)
    left = [turn for turn in thread.walk(first) if turn.n not in superseded and turn.id not in sent]
    gave = [n for n in new if messages[n].role == "assistant" and messages[n - 1].role == "user"]
    if len(new) != len(gave) or len(left) != len(gave) or any(turn.role != "assistant" for turn in left):
        return ()
    return tuple(turn.n for turn in left)


def _answered(thread: Thread, messages: Sequence[Kept]) -> Iterator[_Answered]:
    for place, question in enumerate(messages):
        if question.role != "user" or question.id is None or not thread.stands(thread.latest.get(question.id, 0)):
            continue
        end = next((n for n in range(place + 1, len(messages)) if messages[n].role == "user"), len(messages))
        following = messages[end].id if end < len(messages) else None
        # Under another text the question stands where it was revised, its answers where it was asked first.
        for asked in {thread.earliest[question.id], thread.latest[question.id]} if end > place + 1 else ():
            answers = list(takewhile(lambda turn: turn.role != "user", thread.walk(asked + 1)))
            behind = next(thread.walk(answers[-1].n + 1), None) if answers else None
            goes_on = behind is None or (not behind.anonymous and behind.id == following)
            yield _Answered(place, messages[place + 1 : end], answers, goes_on)


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
