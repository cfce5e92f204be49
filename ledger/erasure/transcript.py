"""The transcript's part of an erasure: which turns go, and which words occur in turns that stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.memory import Memory
from backstory.ledger.erasure.content import ErasedWords, all_fact_texts, folded, may_name, may_say, turn_texts
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.erasure.evidence import PlacedTurn, turn_redacted, turns_of
from backstory.ledger.erasure.requests import ForgetFact, Walk
from backstory.ledger.erasure.target import ErasureTarget
from backstory.ledger.text.acknowledgements import has_substance


class EvidenceTurns:
    """The turns that erased content was learned from, and those of them that are erased.

    `evidence` holds thread and ordinal, `ids` thread and id of all of them; `redacted` the events of the erased ones by
    seq and index.
    """

    def __init__(self, seal: ContentSeal | None = None) -> None:
        self._seal = seal
        self.redacted: dict[tuple[int, int], Redacted] = {}
        self.evidence: set[tuple[str, int]] = set()
        self.ids: set[tuple[str, str]] = set()

    def erased(self) -> dict[str, set[int]]:
        """Return the ordinals of the erased turns, by thread."""
        found: dict[str, set[int]] = {}
        for event in self.redacted.values():
            if event.thread is not None and event.n is not None:
                found.setdefault(event.thread, set()).add(event.n)
        return found

    def add(self, stream: str, turn: PlacedTurn, *, erased: bool) -> None:
        """Add a turn that erased content was learned from."""
        self.evidence.add((turn.thread, turn.turn.n))
        self.ids.add((turn.thread, turn.turn.id))
        if erased:
            self.redacted[turn.seq, turn.index] = turn_redacted(stream, turn, "turn", self._seal)


def read_transcript(target: ErasureTarget, transcript: Walk, stream: str, seal: ContentSeal | None) -> EvidenceTurns:
    """Find the turns that belong to a target, and add the words of the erased ones to it."""
    found = EvidenceTurns(seal)
    if target.shared is not None:
        return found
    if isinstance(target.request, ForgetFact):
        names = set(chain.from_iterable(sources.names for sources in target.sources.values()))
        for turn in turns_of(transcript(lambda _, line: may_name(line, names))):
            for sources in target.sources.values():
                sources.collect(turn)
        cited = list(chain.from_iterable(sources.found() for sources in target.sources.values()))
        again = _told_again(cited, transcript) if target.request.with_evidence else ()
        for turn in chain(cited, again):
            found.add(stream, turn, erased=target.request.with_evidence)
            if target.request.with_evidence:
                target.seek(turn_texts(turn.turn), phrases=False)
        return found
    only = None if target.everything or target.thread is not None else target.phrases.may_occur
    for turn in turns_of(transcript(only)):
        if target.everything or turn.thread == target.thread or target.says(turn_texts(turn.turn)):
            found.add(stream, turn, erased=True)
            if target.thread is not None:
                target.seek(turn_texts(turn.turn), phrases=False)
    return found


def _told_again(cited: Sequence[PlacedTurn], transcript: Walk) -> Iterator[PlacedTurn]:
    """Yield the turns that say what cited ones say in their threads: they would teach the fact once more."""
    words = {_words(turn) for turn in cited if has_substance(turn.turn.content)}
    texts = {folded(turn.turn.content) for turn in cited}
    if words:
        said = turns_of(transcript(lambda _, line: may_say(line, texts)))
        yield from (turn for turn in said if _words(turn) in words)


def _words(turn: PlacedTurn) -> tuple[str, str, str]:
    return turn.thread, turn.turn.role, turn.turn.content


def words_in_staying_turns(target: ErasureTarget, transcript: Walk, turns: EvidenceTurns) -> set[str]:
    """Return the words of the target that occur in a turn that stays."""
    left = ErasedWords(target.words)

    def may_say_more(_: int, line: bytes) -> bool:
        return may_say(line, left.all)

    for turn in turns_of(transcript(may_say_more)) if left else ():
        if (turn.seq, turn.index) not in turns.redacted and (used := left.used_in(turn_texts(turn.turn))):
            left = ErasedWords(left.all - used)
    return target.words - left.all


def words_used(words: frozenset[str], memory: Memory, transcript: Iterable[Commit]) -> frozenset[str]:
    """Return those of some words that occur in a live fact of a memory or in a turn of its transcript."""
    left = ErasedWords(words)
    texts = chain(map(all_fact_texts, memory.facts.values()), (turn_texts(turn.turn) for turn in turns_of(transcript)))
    for each in texts:
        if not left:
            break
        if used := left.used_in(each):
            left = ErasedWords(left.all - used)
    return words - left.all
