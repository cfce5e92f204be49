"""What an answer is given of what was said, as quotes of turns; and the note of all that it was given, in its turn.

A quote is a line that its words cannot break out of: the day, the thread and the speaker, and an excerpt around the
words of the question. Before it stands the turn that it answers, where that is short. The note holds ids and a digest
in the metadata of the turn, and no text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.text.blocks import strip_memory_blocks
from backstory.projections.context.lines import bracketed, inline
from backstory.projections.turns.rows import TurnView

NOTED = "context"
"""The key of `metadata` under which a turn says what its answer was given."""


class GivenTurn(msgspec.Struct, frozen=True):
    """A turn that was put into a block."""

    thread: str
    id: str


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer was given to read, as its turn notes it.

    Attributes:
        seq: the commit that memory stood at.
        facts: the ids of the facts, in order.
        turns: the turns.
        digest: a digest of that commit and of these ids.
        of_user: whether the memory was that of the agent's user.
        users_seq: where the agent reads its user's facts beside its own, the commit that the user's memory stood at.
    """

    seq: int
    digest: str
    facts: tuple[str, ...]
    turns: tuple[GivenTurn, ...]
    of_user: bool = False
    users_seq: int = 0

    def noted(self) -> dict[str, object]:
        """Return the metadata of a turn that notes this."""
        return {NOTED: msgspec.to_builtins(self)}

    @classmethod
    def within(cls, metadata: Mapping[str, object]) -> Given | None:
        """Return what a turn notes; None where it notes nothing, or a host has put something else there."""
        try:
            return msgspec.convert(metadata[NOTED], cls)
        except (KeyError, msgspec.ValidationError):
            return None


def given_digest(heads: Iterable[Head], facts: Iterable[str], turns: Iterable[GivenTurn]) -> str:
    """Return the digest of what was given.

    The hashes of the commits stand for all content: they are made of salted digests, and the salts go with the content.
    A digest of the text itself would let an erased text be guessed.
    """
    ids = [*facts, "", *(f"{turn.thread}\0{turn.id}" for turn in turns)]
    return hashlib.sha256(
        "\n".join((*(head.hash for head in heads), *ids)).encode("utf-8", "surrogatepass")
    ).hexdigest()


EXCERPT = 250
"""Characters of an excerpt at most."""
_ANSWERED = 120
"""Characters of the turn before at most, for it to be quoted as well."""
_LEAD = 60
"""Characters of an excerpt before the first word that is like the question."""
_READ = 20_000
"""Characters of a turn that are looked through."""
_SPEAKERS = ("user", "assistant")


class FoundTurn(msgspec.Struct, frozen=True):
    """A turn that search found.

    Attributes:
        turn: the turn.
        before: the turn before it in its thread, where that stands.
        changed: whether all facts that cite it have ended, or were taken back.
    """

    turn: TurnView
    before: TurnView | None = None
    changed: bool = False


class Quote(msgspec.Struct, frozen=True):
    """A line with a turn.

    Attributes:
        text: the line.
        turns: the turns in it, in order.
    """

    text: str
    turns: tuple[GivenTurn, ...]


def quotes(found: Iterable[FoundTurn], words: Iterable[str]) -> Iterator[Quote]:
    """Yield the lines of the turns that were found; no turn is quoted twice, and neither are the same words.

    Args:
        found: the turns, the best first.
        words: the words of the question, as search compares them.
    """
    # Most turns are short enough to be quoted whole.
    pattern = cache(lambda: _pattern(words))
    quoted: set[str] = set()
    known: set[GivenTurn] = set()
    for said in found:
        turn = said.turn
        here = GivenTurn(turn.thread, turn.id)
        text = excerpt(turn.content, pattern)
        if turn.role not in _SPEAKERS or here in known or not text or text in quoted:
            continue
        before = "" if said.before is None or said.before.role not in _SPEAKERS else _short(said.before.content)
        if before in quoted:
            before = ""
        turns: tuple[GivenTurn, ...] = (here,)
        if before and said.before is not None:
            turns = (GivenTurn(said.before.thread, said.before.id), here)
            before = f"{_spoken(said.before, before)} "
        label = f"{inline(turn.at)[:10]} | {_name(turn.thread)}{' | since changed' if said.changed else ''}"
        quoted.add(text)
        known.update(turns)
        yield Quote(f"- [{label}] {before}{_spoken(turn, text)}\n", turns)


def _spoken(turn: TurnView, text: str) -> str:
    # The marks around an excerpt are not in it, so no text can end its quote and go on as another speaker.
    return f'{_named(turn)}: "{text}"'


def _named(turn: TurnView) -> str:
    return _name(turn.name or turn.role).replace(":", " ").strip() or turn.role


def _name(text: str) -> str:
    return bracketed(text).replace('"', "'")


def _short(content: str) -> str:
    return _quotable(content) if len(content) <= _ANSWERED else ""


def _quotable(text: str) -> str:
    return inline(strip_memory_blocks(text)).replace('"', "'")


def excerpt(content: str, pattern: Callable[[], re.Pattern[str] | None]) -> str:
    """Return the part of a turn that has the most words of a question, in one line; "…" stands for what is left out."""
    text = strip_memory_blocks(content)[:_READ]
    if len(text) <= EXCERPT:
        return _quotable(text)
    begin = _densest(text, pattern())
    end = begin + EXCERPT
    if begin:
        begin = _after_space(text, begin)
    if end < len(text):
        end = max(text.rfind(" ", begin + EXCERPT // 2, end), 0) or end
    cut = _quotable(text[begin:end])
    return f"{'…' if begin else ''}{cut}{'…' if end < len(content) else ''}" if cut else ""


def _densest(text: str, pattern: re.Pattern[str] | None) -> int:
    """Return where the excerpt begins that has the most different words."""
    hits = [] if pattern is None else [(found.start(), found[0].casefold()) for found in pattern.finditer(text)]
    most, begin, first = 0, 0, 0
    for last, (at, _) in enumerate(hits):
        while at - hits[first][0] > EXCERPT - 2 * _LEAD:
            first += 1
        there = len({word for _, word in hits[first : last + 1]})
        if there > most:
            most, begin = there, max(0, hits[first][0] - _LEAD)
    return min(begin, max(0, len(text) - EXCERPT))


def _after_space(text: str, begin: int) -> int:
    space = text.find(" ", begin, begin + _LEAD)
    return begin if space < 0 else space + 1


def _pattern(words: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds the words of a question, and others that begin so."""
    # English stems end in "i" where their words end in "y".
    stems = sorted({re.escape(word.removesuffix("i") or word) for word in words}, key=len, reverse=True)
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(stems)})", re.IGNORECASE) if stems else None
