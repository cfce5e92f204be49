"""Resend detection: which messages of a delivery without ids the thread holds already, and which turns it edits.

Losing is worse than doubling, so a message counts as known only where the delivery proves that it is sent again:

- the delivery begins with the whole thread;
- it begins with the end of the thread, and what both share is no coincidence: it holds a text of substance that was
  said once, or a message whose id is known, or it is the last question and its answer follows;
- it holds the end of the thread, or all of it, wherever that stands, with texts of substance from both sides;
- it is the beginning of the thread, three messages or more.

One message alone is said again, unless it is the whole thread and of substance. An edit takes the standing away from
turns only where the delivery holds the end of the thread but for them, with texts of substance from both sides: another
answer to the same question, or a question rephrased. Everything else is recorded. See docs/reference/messages.md.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backstory.ledger.core.events import Turn
from backstory.ledger.erasure.digest import Seal
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_columns import Trace
from backstory.ledger.threads.turn_match import Piece, Said, Walk, is_reasoning, matched, matches
from backstory.ledger.threads.words import has_substance

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


class Alignment(msgspec.Struct, frozen=True):
    """What a delivery shares with its thread: indexes of messages that are known, ordinals of turns it supersedes."""

    known: frozenset[int] = frozenset()
    superseded: tuple[int, ...] = ()


NOTHING_KNOWN = Alignment()


class _Sent(NamedTuple):
    """A message without an id, at an index of its delivery.

    `after` is the first ordinal under the last known id before it, 0 where there is none.
    """

    place: int
    role: str
    content: str
    after: int
    said: Said


def align_delivery(
    thread: Thread,
    messages: Sequence[Kept],
    seal: Seal | None = None,
    *,
    forgotten: Collection[int] = (),
    sent_before: bool = False,
) -> Alignment:
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
    thread: Thread, messages: Sequence[Kept], seal: Seal | None = None, *, forgotten: Collection[int] = ()
) -> Alignment:
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
    return Alignment(frozenset(known), tuple(n for n in behind if thread.stands(n)))


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
            found.append(_Sent(index, message.role, message.content, after, Said.of(message)))
        elif message.id in thread.earliest:
            after = thread.earliest[message.id]
        elif message.id not in thread.erased_ids:
            break
    return found


def _is(piece: Piece | None, message: Kept, seal: Seal | None) -> bool:
    """Whether a message is this turn sent again: by its id where it has one, by its words otherwise."""
    if piece is None:
        return False
    if message.id is None:
        recognised = isinstance(piece, Turn) or (piece.digest is not None and seal is not None)
        return piece.anonymous and recognised and matches(piece, Said.of(message), seal)
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
        if thread.stands(n):
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
        seal: Seal | None,
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
        self._walk = Walk(self._pieces, thread.withdrawn, seal)

    def aligned(self) -> Alignment:
        """Return what is known and what is superseded."""
        if not self._pieces:
            return NOTHING_KNOWN
        end = len(self._pieces)
        ways = list(enumerate(self._walk.along(1, self._said))) if self._whole else []
        counted = max((count for count, places in ways if places >> end), default=0)
        if (
            counted
            and self._holds_all(counted)
            and (known := self._known(counted, self._pieces, from_end=True)) is not None
        ):
            return known
        shared = self._shared(end)
        if shared is not None and self._tells_both_sides(self._said[: len(shared.known)]):
            return shared
        found = [shared, *(self._rearranged(self._sent[start:]) for start in (0, 1))]
        return max(filter(None, found), key=lambda one: len(one.known), default=None) or self._beginning()

    def _shared(self, end: int) -> Alignment | None:
        """Recognise the end of the thread at the beginning of the delivery."""
        everywhere = (1 << (end + 1)) - 1
        shared = [n for n, places in enumerate(self._walk.along(everywhere, self._said)) if n and places >> end]
        for count in reversed(shared):
            if self._is_no_coincidence(count):
                known = self._known(count, self._pieces, from_end=True)
                if known is not None:
                    return known
        return None

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

    def _first_evidence(self, walk: Walk) -> int:
        for number, message in enumerate(self._sent):
            if message.after or (walk.times(message.said) == 1 and has_substance(message.content)):
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

    def _rearranged(self, sent: Sequence[_Sent]) -> Alignment | None:
        """Recognise the end of the thread wherever the delivery holds it, whole but for what an edit replaced.

        What replaced an earlier turn stands behind turns that it precedes in the delivery, so the order proves nothing.
        """
        places = self._walk.scattered([message.said for message in sent])
        in_order = _longest_rise(places)
        reached = -1
        for number, (message, place) in enumerate(zip(sent, places, strict=True)):
            if number in in_order:
                reached = place or 0
            elif place is not None and place < reached and not self._is_telling(message.said):
                # Small talk behind turns that it preceded is said again.
                places[number] = None
        matched = [(message, place) for message, place in zip(sent, places, strict=True) if place is not None]
        if any(self._pieces[place].n < message.after for message, place in matched):
            return None
        held = {place for _, place in matched}
        stand = [place for place, piece in enumerate(self._pieces) if not self._passes(piece)]
        first = min((place for place in stand if place in held), default=None)
        told = [message.said for message, place in matched]
        if first is None or not (self._tells_both_sides(told) or any(message.after for message, _ in matched)):
            return None
        missing = [place for place in stand if place > first and place not in held]
        last = max(n for n, place in enumerate(places) if place is not None)
        between = [n for n, place in enumerate(places[:last]) if place is None]
        if not missing:
            # A summary may stand in the place of the beginning.
            proven = not between or between == [0] or (self._whole and first == stand[0])
        else:
            middle, ending = missing[: len(between)], missing[len(between) :]
            proven = (sent[0].after > 0 or between[:1] != [0]) and self._are_replaced(
                middle, [sent[n] for n in between]
            )
            if ending and proven:
                proven = ending[0] > (places[last] or 0) and self._is_replaced(ending, sent[last:])
        if not proven and not self._mixed:
            return None
        if not proven:
            # Behind a question with an id, its answers are known wherever they stand.
            told = [message.said for message, _ in matched if message.after and self._is_telling(message.said)]
            missing = []
        count = Counter(told)
        known = set()
        for message in sent:
            # Of equal messages the first ones are known.
            if count[message.said]:
                count[message.said] -= 1
                known.add(message.place)
        return Alignment(frozenset(known), tuple(self._pieces[place].n for place in missing))

    def _turns(self, places: Sequence[int]) -> list[Turn]:
        return [piece for place in places if isinstance(piece := self._pieces[place], Turn)]

    def _are_replaced(self, places: Sequence[int], new: Sequence[_Sent]) -> bool:
        """Whether as many messages stand in the midst of what is told again as turns are left out of it."""
        turns = self._turns(places)
        return len(turns) == len(new) and all(map(self._replaces, new, turns))

    def _replaces(self, message: _Sent, turn: Turn) -> bool:
        before = self._messages[message.place - 1] if message.place else None
        if before is None or turn.role != message.role:
            return False
        return resemble(turn.content, message.content) if turn.role == "user" else before.role == "user"

    def _is_replaced(self, places: Sequence[int], behind: Sequence[_Sent]) -> bool:
        """Whether the last answer is given again, or the last question rephrased."""
        if len(behind) == 1:
            return False
        new = behind[1]
        before = self._messages[new.place - 1]
        turns = self._turns(places)
        roles = [turn.role for turn in turns]
        if new.role == "assistant" and "user" not in roles:
            return before.role == "user" and (before.id is not None or not self._mixed)
        if self._mixed:
            return False
        question = roles.index("assistant") if "assistant" in roles else len(roles)
        one_exchange = question > 0 and "user" not in roles[question:]
        return one_exchange and new.role == "user" and resemble(turns[0].content, new.content)

    def _tells_both_sides(self, said: Sequence[Said]) -> bool:
        """Whether both sides have said something of substance there that was said once."""
        return {one.role for one in said if self._is_telling(one)} >= {"user", "assistant"}

    def _is_telling(self, said: Said) -> bool:
        return self._walk.times(said) == 1 and has_substance(said.content)

    def _beginning(self) -> Alignment:
        """Recognise the beginning of the thread, as of a host that went back to an earlier state."""
        if len(self._sent) < _BEGINNING or len(self._sent) < len(self._messages):
            return NOTHING_KNOWN
        pieces, walk = self._pieces, self._walk
        if not self._whole:
            pieces = list(_head(self._thread, self._said[0], len(self._sent)))
            walk = Walk(pieces, self._thread.withdrawn, self._seal)
        alike = sum(1 for _ in walk.along(1, self._said)) - 1
        if alike < len(self._sent) or self._first_evidence(walk) == len(self._sent):
            return NOTHING_KNOWN
        return self._known(alike, pieces) or NOTHING_KNOWN

    def _known(self, count: int, pieces: Sequence[Piece], *, from_end: bool = False) -> Alignment | None:
        """Take the first messages for known; None where one would stand before an id that it follows.

        A message that may be an erased turn by its length alone (no digest was kept, or the key is destroyed) is known
        only between two that match turns.
        """
        sent = self._sent[:count]
        if not self._mixed and not self._walk.has_unsealed:
            return Alignment(frozenset(message.place for message in sent))
        step = -1 if from_end else 1
        found = matched([message.said for message in sent][::step], pieces[::step], self._passes, self._seal)
        if found is None:
            return None
        found = found[::step]
        if any(piece.n < message.after for message, piece in zip(sent, found, strict=True)):
            return None
        beside = [isinstance(piece, Turn) for piece in found]
        return Alignment(
            frozenset(
                message.place
                for number, (message, piece) in enumerate(zip(sent, found, strict=True))
                if self._is_recognised(piece) or (0 < number < count - 1 and beside[number - 1] and beside[number + 1])
            )
        )

    def _is_recognised(self, piece: Piece) -> bool:
        return isinstance(piece, Turn) or (piece.digest is not None and self._seal is not None)

    def _passes(self, piece: Piece) -> bool:
        return isinstance(piece, Trace) or piece.n in self._thread.withdrawn or self._is_reasoning(piece)

    def _is_reasoning(self, turn: Turn) -> bool:
        following = self._thread.remembered(turn.n + 1) if turn.n < len(self._thread.turns) else None
        return is_reasoning(turn, following)


def _longest_rise(places: Sequence[int | None]) -> set[int]:
    """Return the indexes of the most places that stand in rising order."""
    ends: list[int] = []
    indexes: list[int] = []
    before: dict[int, int | None] = {}
    for index, place in enumerate(places):
        if place is None:
            continue
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        indexes[length : length + 1] = [index]
        before[index] = indexes[length - 1] if length else None
    rise = set()
    last = indexes[-1] if indexes else None
    while last is not None:
        rise.add(last)
        last = before[last]
    return rise


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
