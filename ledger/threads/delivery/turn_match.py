"""Matching of messages with turns, of which erased and withdrawn ones may be passed over.

Clients strip and rewrap what was said, cut it short, and put context around a question, or take it away again, when
they send it again. So words are compared in spite of that (`may_be_same`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from backstory.ledger.core.events import Turn
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.text.acknowledgements import has_substance
from backstory.ledger.text.blocks import SpokenText, spoken
from backstory.ledger.threads.turn_columns import Trace

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept


_CUT = ("…", "...", "[truncated]")
_MOST_PLACES = 100
"""Places of a text in another that are looked at."""


def plain_words(text: str) -> str:
    """Return a text with single spaces between its words, and none around them."""
    return " ".join(text.split())


def may_be_same(one: str, other: str) -> bool:
    """Say whether two texts in plain words may be one message, spelled in two ways.

    They are equal; or one is the other cut short; or one holds the other between whole words, as a question with
    context around it. A text of no substance is looked for at the end alone.
    """
    if one == other:
        return True
    part, whole = sorted((one, other), key=len)
    return _is_cut(one, other) or _is_cut(other, one) or (bool(part) and part in whole and _holds(whole, part))


def _is_cut(part: str, whole: str) -> bool:
    rest = next((part.removesuffix(mark).rstrip() for mark in _CUT if part.endswith(mark)), "")
    return bool(rest) and whole.startswith(rest)


def _holds(whole: str, part: str) -> bool:
    if not has_substance(part):
        return whole.endswith(part) and not whole[-len(part) - 1].isalnum()
    start = -1
    for _ in range(_MOST_PLACES):
        start = whole.find(part, start + 1)
        if start < 0:
            return False
        end = start + len(part)
        before, after = whole[start - 1 : start], whole[end : end + 1]
        if not (before.isalnum() and part[0].isalnum()) and not (after.isalnum() and part[-1].isalnum()):
            return True
    return False


class Said(msgspec.Struct, frozen=True, gc=False):
    """A role and a text, and the text with the reasoning that was left out of it.

    Turns that were recorded before reasoning was left out hold it. So a message is compared in both forms, and a turn
    without its reasoning, too.
    """

    role: str
    content: str
    told: str | None = None

    @classmethod
    def of(cls, message: Kept) -> Said:
        """Return what a message says."""
        return cls(message.role, message.content, message.told)

    @property
    def forms(self) -> tuple[str, ...]:
        """The texts that an earlier delivery of it may have been recorded with."""
        return (self.content,) if self.told is None else (self.content, self.told)

    def is_in(self, turn: Turn) -> bool:
        """Whether a turn says this."""
        return turn.role == self.role and (turn.content in self.forms or spoken_in(turn) == self.content)

    def is_sealed_in(self, digest: str, seal: ContentSeal) -> bool:
        """Whether a digest is that of this."""
        return any(seal(self.role, form) == digest for form in self.forms)

    def has_size(self, size: int) -> bool:
        """Whether this has that number of characters."""
        return any(len(form) == size for form in self.forms)


def spoken_in(turn: Turn) -> str:
    """Return what is said in a turn, which may have been recorded with reasoning."""
    return spoken(turn.content).text if turn.role == "assistant" else turn.content


def is_reasoning(turn: Turn, following: Piece | None) -> bool:
    """Whether a turn holds nothing but reasoning, which is recorded no more: with its end, or with an answer after it.

    Args:
        turn: the turn.
        following: the turn after it.
    """
    return turn.role == "assistant" and _is_passed_over(spoken(turn.content), following)


def _is_passed_over(said: SpokenText, following: Piece | None) -> bool:
    if not said.is_open:
        return not said.text.strip()
    if isinstance(following, Turn):
        return following.role == "assistant" and not spoken(following.content).is_open
    # What was erased may have been the answer.
    return following is not None


Piece: TypeAlias = Turn | Trace
"""A turn, or what is left of an erased one."""


def matches(piece: Piece, said: Said, seal: ContentSeal | None) -> bool:
    """Say whether a message may be a turn: by its words, by the digest of an erased one, or else by its length."""
    if isinstance(piece, Turn):
        return said.is_in(piece)
    if piece.digest is not None and seal is not None:
        return said.is_sealed_in(piece.digest, seal)
    return said.has_size(piece.size)


def recognises(piece: Piece, said: Said, seal: ContentSeal | None) -> bool:
    """Say whether a message is a turn: by its words, or by the digest of an erased one; a length proves too little."""
    return (isinstance(piece, Turn) or (piece.digest is not None and seal is not None)) and matches(piece, said, seal)


def matched(
    said: Sequence[Said], pieces: Sequence[Piece], passes: Callable[[Piece], bool], seal: ContentSeal | None
) -> list[Piece] | None:
    """Match messages one after the other with pieces, of which some may be passed over."""
    found: list[Piece] = []
    place = 0
    for one in said:
        while place < len(pieces) and not matches(pieces[place], one, seal):
            if not passes(pieces[place]):
                return None
            place += 1
        if place == len(pieces):
            return None
        found.append(pieces[place])
        place += 1
    return found


class TurnWalk:
    """Matches messages with turns of which some may be passed over: erased, taken back, or nothing but reasoning.

    The turns before which the match may stand are the bits of one number, so that all ways are followed at once, in
    time linear in the messages for threads of a few thousand turns.
    """

    def __init__(self, pieces: Sequence[Piece], withdrawn: Container[int], seal: ContentSeal | None) -> None:
        self._count = len(pieces)
        self._seal = seal
        self._said: dict[tuple[str, str], list[int]] = {}
        self._digests: dict[str, list[int]] = {}
        self._sizes: dict[int, list[int]] = {}
        """Erased turns of which no digest is kept, by their length."""
        passable = []
        for place, piece in enumerate(pieces):
            if isinstance(piece, Turn):
                said = spoken(piece.content) if piece.role == "assistant" else None
                self._said.setdefault((piece.role, piece.content), []).append(place)
                if said is not None and said.text != piece.content:
                    self._said.setdefault((piece.role, said.text), []).append(place)
                after = pieces[place + 1] if place + 1 < len(pieces) else None
                if piece.n in withdrawn or (said is not None and _is_passed_over(said, after)):
                    passable.append(place)
                continue
            passable.append(place)
            if piece.digest is not None and seal is not None:
                self._digests.setdefault(piece.digest, []).append(place)
            else:
                self._sizes.setdefault(piece.size, []).append(place)
        self._passable = _bits(passable)
        self._known: dict[Said, int] = {}

    @property
    def has_unsealed(self) -> bool:
        """Whether a turn was erased of which only the length is known."""
        return bool(self._sizes)

    def times(self, said: Said) -> int:
        """How many of the turns may be this message."""
        return self._saying(said).bit_count()

    def along(self, places: int, new: Sequence[Said]) -> Iterator[int]:
        """Yield before which turns the match may stand after no message, after one, and so on, as long as it can."""
        places = self._passing(places)
        yield places
        for message in new:
            places = self._passing((places & self._saying(message)) << 1)
            if not places:
                return
            yield places

    def ending(self, new: Sequence[Said], *, anywhere: bool = False) -> list[int]:
        """Return with how many messages the turns may end; the first is the first turn, or `anywhere` among them."""
        places = (2 << self._count) - 1 if anywhere else 1
        return [count for count, ends in enumerate(self.along(places, new)) if ends >> self._count]

    def _saying(self, message: Said) -> int:
        known = self._known.get(message)
        if known is None:
            places = []
            for form in message.forms:
                places += [*self._said.get((message.role, form), ()), *self._sizes.get(len(form), ())]
                if self._seal is not None and self._digests:
                    places += self._digests.get(self._seal(message.role, form), ())
            known = _bits(places)
            if len(places) > 1:
                # Each is as long as the thread, so those that cost next to nothing to make are not kept.
                self._known[message] = known
        return known

    def _passing(self, places: int) -> int:
        # A one that is added to a run of ones turns over all from there to the first behind the run.
        return places | (self._passable ^ (self._passable + (places & self._passable)))


def _bits(places: Iterable[int]) -> int:
    found = bytearray()
    for place in places:
        byte, bit = divmod(place, 8)
        if byte >= len(found):
            found.extend(bytes(byte + 1 - len(found)))
        found[byte] |= 1 << bit
    return int.from_bytes(found, "little")
