"""Resend detection: which messages of a delivery without ids the thread holds already, and which turn it edits.

Losing is worse than doubling, so a message counts as known only where the delivery proves that it is sent again:

- the delivery begins with the whole thread;
- it begins with the end of the thread, and what both share is no coincidence: it holds a text of substance that was
  said once, or a message whose id is known, or it is the last question and its answer follows;
- it is the beginning of the thread, three messages or more.

One message alone is said again, unless it is the whole thread and of substance. An edit takes the standing away from
turns only where the delivery holds the whole thread and differs in one place: an answer given again, or the last
question rephrased. What follows an earlier answer is recorded once more behind the new one, so that the turns that
stand are in the order of the conversation. Everything else is recorded. See docs/reference/messages.md for examples.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.events import Turn
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.text.acknowledgements import has_substance
from backstory.ledger.threads.delivery.turn_match import Piece, Said, TurnWalk, is_reasoning, matched, recognises
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_columns import Trace

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

_LAST_EXCHANGE = 8
"""Turns that the last exchange may have beyond a question and its answer."""
_PASSED_OVER = 1_000
"""Erased or withdrawn turns that are compared beyond as many as there are messages."""
_BEGINNING = 3
_RESEMBLANCE = 0.6
_COMPARED_CHARACTERS = 2_000
_NUMBER = re.compile(r"\d+")


class ResendAlignment(msgspec.Struct, frozen=True):
    """What a delivery shares with its thread: indexes of messages that are known, ordinals of turns it supersedes."""

    known: frozenset[int] = frozenset()
    superseded: tuple[int, ...] = ()


NOTHING_KNOWN = ResendAlignment()


class _Sent(msgspec.Struct, frozen=True):
    """A message without an id, at an index of its delivery.

    `after` is the first ordinal under the last known id before it, 0 where there is none.
    """

    place: int
    said: Said
    after: int


def align_delivery(
    thread: Thread,
    messages: Sequence[Kept],
    seal: ContentSeal | None = None,
    *,
    forgotten: Collection[int] = (),
    sent_before: bool = False,
) -> ResendAlignment:
    """Align the messages without ids of a delivery with the end of a thread.

    Args:
        thread: what is recorded; only its end is looked at, about as many turns as there are messages.
        messages: the delivery, in order.
        seal: the keyed digest by which erased turns are recognised; None where the scope has no key.
        forgotten: indexes of messages that stay out in any case, as if they were not there.
        sent_before: the messages may have been recorded already, so whatever the end of the thread shares is known.
    """
    if not len(thread.turns):
        return NOTHING_KNOWN
    # What was forgotten may stand where it was said, between turns that were sent with it, or have left no place.
    ways = [_sent(thread, messages, left_out) for left_out in (((), forgotten) if forgotten else ((),))]
    found = [_Delivery(thread, messages, sent, seal, sent_before=sent_before).aligned() for sent in ways if sent]
    return max(found, key=lambda alignment: len(alignment.known), default=NOTHING_KNOWN)


def align_whole(
    thread: Thread, messages: Sequence[Kept], seal: ContentSeal | None = None, *, forgotten: Collection[int] = ()
) -> ResendAlignment:
    """Align a delivery that replaces the thread: what both begin with stays, everything behind it is superseded."""
    known: set[int] = set()
    ordinal = 0
    for index, message in enumerate(messages):
        if index in forgotten:
            continue
        n = ordinal + 1
        while n <= len(thread.turns) and _may_be_passed(thread, n) and not _is(thread.remembered(n), message, seal):
            n += 1
        if n > len(thread.turns) or not _is(thread.remembered(n), message, seal):
            break
        known.add(index)
        ordinal = n
    behind = range(ordinal + 1, len(thread.turns) + 1)
    return ResendAlignment(frozenset(known), tuple(n for n in behind if thread.stands(n)))


def _may_be_passed(thread: Thread, n: int) -> bool:
    """Whether a delivery of the whole thread need not hold a turn."""
    turn = thread.turns[n - 1] if thread.stands(n) else None
    return turn is None or is_reasoning(turn, thread.remembered(n + 1) if n < len(thread.turns) else None)


def _sent(thread: Thread, messages: Sequence[Kept], forgotten: Collection[int]) -> list[_Sent]:
    """The messages without ids up to the first id that is new: what comes behind that is new as well."""
    found = []
    after = 0
    for index, message in enumerate(messages):
        if index in forgotten:
            continue
        if message.id is None:
            found.append(_Sent(index, Said.of(message), after))
        elif message.id in thread.earliest:
            after = thread.earliest[message.id]
        elif message.id not in thread.erased_ids:
            break
    return found


def _is(piece: Piece | None, message: Kept, seal: ContentSeal | None) -> bool:
    """Whether a message is this turn sent again: by its id where it has one, by its words otherwise."""
    if piece is None:
        return False
    if message.id is None:
        return piece.anonymous and recognises(piece, Said.of(message), seal)
    if piece.anonymous or piece.id != message.id:
        return False
    return isinstance(piece, Trace) or Said.of(message).is_in(piece)


def _tail(thread: Thread, count: int, *, anonymous: bool) -> tuple[list[Piece], bool]:
    """The last turns that stand, at least `count` of them, with what is left of others between; True: that is all."""
    pieces: list[Piece] = []
    standing, passed = 0, 0
    for n in range(len(thread.turns), 0, -1):
        piece = thread.remembered(n)
        if piece is None or (anonymous and not piece.anonymous):
            continue
        if standing > count or passed > count + _PASSED_OVER:
            return pieces[::-1], False
        pieces.append(piece)
        if isinstance(piece, Turn) and n not in thread.superseded:
            standing += 1
        else:
            passed += 1
    return pieces[::-1], True


class _Delivery:
    """One delivery against the end of one thread."""

    def __init__(
        self,
        thread: Thread,
        messages: Sequence[Kept],
        sent: Sequence[_Sent],
        seal: ContentSeal | None,
        *,
        sent_before: bool,
    ) -> None:
        self._sent_before = sent_before
        self._thread = thread
        self._messages = messages
        self._sent = sent
        self._mixed = any(message.id is not None for message in messages)
        self._seal = seal
        self._said = [message.said for message in sent]
        # A host that gives ids to some leaves the same messages without one each time.
        self._pieces, self._whole = _tail(thread, len(sent) + _LAST_EXCHANGE, anonymous=self._mixed)
        self._walk = TurnWalk(self._pieces, thread.withdrawn, seal)

    def aligned(self) -> ResendAlignment:
        """Return what is known and what is superseded."""
        if not self._pieces:
            return self._answered_again() or NOTHING_KNOWN
        end = len(self._pieces)
        ways = list(enumerate(self._walk.along(1, self._said))) if self._whole else []
        counted = max((count for count, places in ways if places >> end), default=0)
        if (
            counted
            and self._holds_all(counted)
            and (known := self._known(counted, self._pieces, from_end=True)) is not None
        ):
            return known
        for count in reversed(self._walk.ending(self._said, anywhere=True)):
            if count and self._is_no_coincidence(count):
                known = self._known(count, self._pieces, from_end=True)
                if known is not None:
                    return known
        if ways:
            alike, places = ways[-1]
            rest = self._pieces[places.bit_length() - 1 :]
            edited = self._edited(alike, rest) or self._answered_earlier(alike, rest)
            if edited is not None:
                return edited
        return self._answered_again() or self._beginning()

    def _holds_all(self, count: int) -> bool:
        """Whether messages that hold the whole thread prove it: a single exchange may be said again word for word."""
        if self._sent_before or self._evident < count:
            return True
        return not self._mixed and (count < len(self._messages) or count >= _BEGINNING)

    def _is_no_coincidence(self, count: int) -> bool:
        if self._sent_before:
            return True
        if count == len(self._messages) == 1:
            return False
        return self._evident < count or self._is_answered(self._sent[count - 1])

    @cached_property
    def _evident(self) -> int:
        """The index of the first message that proves a resend."""
        return self._first_evidence(self._walk)

    def _first_evidence(self, walk: TurnWalk) -> int:
        for number, message in enumerate(self._sent):
            if message.after or (walk.times(message.said) == 1 and has_substance(message.said.content)):
                return number
        return len(self._sent)

    def _is_answered(self, message: _Sent) -> bool:
        """Whether the thread ends with this question, and its answer follows in the delivery."""
        last = self._pieces[-1]
        behind = self._messages[message.place + 1 : message.place + 2]
        return (
            bool(behind)
            and behind[0].role == "assistant"
            and isinstance(last, Turn)
            and last.role == "user"
            and last.n == _last_remembered(self._thread)
        )

    def _edited(self, alike: int, rest: Sequence[Piece]) -> ResendAlignment | None:
        """Recognise the whole thread with its last answer given again, or its last question rephrased."""
        replaced = [turn for turn in rest if isinstance(turn, Turn) and self._thread.stands(turn.n)]
        if self._mixed or alike == len(self._sent) or not replaced or not self._tells_both_sides(self._sent[:alike]):
            return None
        roles = [turn.role for turn in replaced]
        new = self._sent[alike]
        if new.said.role == "assistant" and "user" not in roles:
            proven = self._sent[alike - 1].said.role == "user"
        else:
            question = roles.index("assistant") if "assistant" in roles else len(roles)
            one_exchange = question > 0 and "user" not in roles[question:]
            proven = one_exchange and new.said.role == "user"
            proven = proven and resemble(replaced[0].content, new.said.content)
        if not proven:
            return None
        known = self._known(alike, self._pieces)
        return None if known is None else ResendAlignment(known.known, tuple(turn.n for turn in replaced))

    def _answered_earlier(self, alike: int, rest: Sequence[Piece]) -> ResendAlignment | None:
        """Recognise the whole thread with an earlier answer given again: all that followed it is sent again."""
        if self._mixed or alike == len(self._sent) or not alike:
            return None
        if (self._sent[alike - 1].said.role, self._sent[alike].said.role) != ("user", "assistant"):
            return None
        answers = list(takewhile(lambda piece: isinstance(piece, Trace) or piece.role == "assistant", rest))
        behind = rest[len(answers) :]
        walk = TurnWalk(behind, self._thread.withdrawn, self._seal)
        told = self._sent[alike + 1 :]
        ends = walk.ending([one.said for one in told])
        again = told[: ends[-1]] if ends and answers else []
        found = matched([one.said for one in again], behind, self._passes, self._seal)
        known = self._known(alike, self._pieces)
        if not found or known is None or not self._tells_both_sides([*self._sent[:alike], *again]):
            return None
        # What was erased or taken back in between stays out.
        out = [one.place for one, piece in zip(again, found, strict=True) if not self._thread.stands(piece.n)]
        return ResendAlignment(known.known.union(out), tuple(piece.n for piece in rest if self._thread.stands(piece.n)))

    def _tells_both_sides(self, sent: Sequence[_Sent]) -> bool:
        """Whether both sides have said something of substance there that was said once."""
        telling = {
            message.said.role
            for message in sent
            if self._walk.times(message.said) == 1 and has_substance(message.said.content)
        }
        return telling >= {"user", "assistant"}

    def _answered_again(self) -> ResendAlignment | None:
        """Recognise another answer to the last question, where the question has an id."""
        last = self._sent[-1]
        question = self._messages[last.place - 1].id if last.place else None
        if last.said.role != "assistant" or question is None or last.place != len(self._messages) - 1:
            return None
        asked = self._thread.latest.get(question, 0)
        if not self._thread.stands(asked) or len(self._thread.turns) - asked > _PASSED_OVER:
            return None
        answers = self._thread.standing(asked + 1)
        if not answers or any(turn.role != "assistant" for turn in answers):
            return None
        left = [piece for piece in self._pieces if piece.n < asked]
        walk = TurnWalk(left, self._thread.withdrawn, self._seal)
        before = len(self._sent) - 1
        ends = walk.ending(self._said[:-1], anywhere=True)
        known = self._known(before, left, from_end=True) if ends[-1:] == [before] else None
        if known is None:
            return None
        if any(last.said.is_in(turn) for turn in answers):
            # The answer is the one that stands; another role has said more since.
            return ResendAlignment(known.known | {last.place})
        return ResendAlignment(known.known, tuple(turn.n for turn in answers))

    def _beginning(self) -> ResendAlignment:
        """Recognise the beginning of the thread, as of a host that went back to an earlier state."""
        if len(self._sent) < _BEGINNING or len(self._sent) < len(self._messages):
            return NOTHING_KNOWN
        pieces, walk = self._pieces, self._walk
        if not self._whole:
            pieces = list(_head(self._thread, self._said[0], len(self._sent)))
            walk = TurnWalk(pieces, self._thread.withdrawn, self._seal)
        alike = sum(1 for _ in walk.along(1, self._said)) - 1
        if alike < len(self._sent) or self._first_evidence(walk) == len(self._sent):
            return NOTHING_KNOWN
        return self._known(alike, pieces) or NOTHING_KNOWN

    def _known(self, count: int, pieces: Sequence[Piece], *, from_end: bool = False) -> ResendAlignment | None:
        """Take the first messages for known; None where one would stand before an id that it follows.

        A message that may be an erased turn by its length alone (no digest was kept, or the key is destroyed) is known
        only between two that match turns.
        """
        sent = self._sent[:count]
        if not self._mixed and not self._walk.has_unsealed:
            return ResendAlignment(frozenset(message.place for message in sent))
        step = -1 if from_end else 1
        found = matched([message.said for message in sent][::step], pieces[::step], self._passes, self._seal)
        if found is None:
            return None
        found = found[::step]
        if any(piece.n < message.after for message, piece in zip(sent, found, strict=True)):
            return None
        beside = [isinstance(piece, Turn) for piece in found]
        return ResendAlignment(
            frozenset(
                message.place
                for number, (message, piece) in enumerate(zip(sent, found, strict=True))
                if recognises(piece, message.said, self._seal)
                or (0 < number < count - 1 and beside[number - 1] and beside[number + 1])
            )
        )

    def _passes(self, piece: Piece) -> bool:
        return isinstance(piece, Trace) or piece.n in self._thread.withdrawn or self._is_reasoning(piece)

    def _is_reasoning(self, turn: Turn) -> bool:
        following = self._thread.remembered(turn.n + 1) if turn.n < len(self._thread.turns) else None
        return is_reasoning(turn, following)


def _last_remembered(thread: Thread) -> int:
    return next((n for n in range(len(thread.turns), 0, -1) if thread.remembered(n) is not None), 0)


def _head(thread: Thread, first: Said, count: int) -> Iterator[Piece]:
    """The first turns, at least `count` that stand; none where the very first is another text."""
    standing = 0
    for n in range(1, len(thread.turns) + 1):
        piece = thread.remembered(n)
        if piece is None:
            continue
        stands = thread.stands(n)
        if stands and not standing and isinstance(piece, Turn) and not first.is_in(piece):
            return
        yield piece
        standing += stands
        if standing >= count or n > 2 * count + _PASSED_OVER:
            return


def resemble(before: str, after: str) -> bool:
    """Whether a text may be another one rephrased: with another number it says something else."""
    if _NUMBER.findall(before) != _NUMBER.findall(after):
        return False
    a, b = (text.casefold()[:_COMPARED_CHARACTERS] for text in (before, after))
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return matcher.quick_ratio() >= _RESEMBLANCE and matcher.ratio() >= _RESEMBLANCE
