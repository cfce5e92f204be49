"""Evidence of facts: turns with their positions, those a fact was learned from, and the facts it was merged from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Fact, FactRemoved, Redacted, Turn, TurnRange, TurnRecorded
from backstory.ledger.core.kinds import ErasedKind
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.erasure.requests import Walk


class PlacedTurn(msgspec.Struct, frozen=True):
    """A turn, and the commit and index at which it was recorded."""

    seq: int
    index: int
    at: str
    thread: str
    turn: Turn


def turns_of(transcript: Iterable[Commit]) -> Iterator[PlacedTurn]:
    """Yield the turns of a transcript with their positions."""
    for commit in transcript:
        for index, event in enumerate(commit.events):
            if isinstance(event, TurnRecorded):
                yield PlacedTurn(commit.seq, index, commit.at, commit.cause.thread or "", event.turn)


class EvidenceTurns:
    """The turns that erased content was learned from, and those of them that are erased.

    `evidence` holds thread and ordinal, `ids` thread and id of all of them; `redacted` the events of the erased ones by
    seq and index, and `erased` their ordinals by thread.
    """

    def __init__(self, stream: str, seal: ContentSeal | None) -> None:
        self._stream = stream
        self._seal = seal
        self.redacted: dict[tuple[int, int], Redacted] = {}
        self.erased: dict[str, set[int]] = {}
        self.evidence: set[tuple[str, int]] = set()
        self.ids: set[tuple[str, str]] = set()

    def add(self, placed: PlacedTurn) -> None:
        """Add a turn that erased content was learned from."""
        self.evidence.add((placed.thread, placed.turn.n))
        self.ids.add((placed.thread, placed.turn.id))

    def erase(self, placed: PlacedTurn, what: ErasedKind = "turn") -> None:
        """Add a turn to erase; its event keeps its position, id, length and, with a key, its digest."""
        turn = placed.turn
        self.erased.setdefault(placed.thread, set()).add(turn.n)
        self.redacted[placed.seq, placed.index] = Redacted(
            self._stream,
            placed.seq,
            placed.index,
            what,
            thread=placed.thread,
            n=turn.n,
            turn=turn.id,
            size=len(turn.content),
            digest=None if self._seal is None else self._seal(turn.role, turn.content),
        )


class FactSources:
    """The turns that one fact was learned from: those it cites, or all of its updates if it cites none."""

    def __init__(self) -> None:
        self.cited: set[tuple[str, str]] = set()
        """The turns that the fact cites, as thread and id."""
        self.updates: list[tuple[str, TurnRange]] = []
        self._found_cited: list[PlacedTurn] = []
        self._found_in_updates: list[PlacedTurn] = []

    @property
    def names(self) -> Iterator[str]:
        """The ids of the cited turns, and the threads of the updates."""
        yield from (turn_id for _, turn_id in self.cited)
        yield from (thread for thread, _ in self.updates)

    def collect(self, turn: PlacedTurn) -> None:
        """Keep a turn if the fact was learned from it."""
        if (turn.thread, turn.turn.id) in self.cited:
            self._found_cited.append(turn)
        elif not self._found_cited and any(
            turn.thread == thread and turns.first <= turn.turn.n <= turns.last for thread, turns in self.updates
        ):
            self._found_in_updates.append(turn)

    def found(self) -> list[PlacedTurn]:
        """Return the turns that were kept: only cited ones, if there are any."""
        return self._found_cited or self._found_in_updates


class Lineage:
    """The facts that were merged into each fact; the ledger is read once, when the first merged fact is asked for.

    Args:
        ledger: starts reading the ledger from its first commit at each call.
    """

    def __init__(self, ledger: Walk) -> None:
        self._ledger = ledger

    @cached_property
    def _sources(self) -> dict[str, tuple[Fact, str]]:
        """Return each merged fact, by id, with the id of the fact that it was last merged into."""
        return {
            event.fact.id: (event.fact, event.detail or "")
            for commit in self._ledger(lambda _, line: b'"consolidated"' in line)
            for event in commit.events
            if isinstance(event, FactRemoved) and event.reason == "consolidated"
        }

    def ancestors(self, fact: Fact) -> dict[str, Fact | None]:
        """Return all facts that went into a fact, by id, nearest first; None for one whose removal was erased."""
        found: dict[str, Fact | None] = {}
        queue = list(fact.consolidated_from)
        while queue:
            source = queue.pop(0)
            if source in found:
                continue
            known = self._sources.get(source)
            found[source] = None if known is None else known[0]
            if known is not None:
                queue += known[0].consolidated_from
        return found

    def origins(self, fact: Fact) -> Iterator[Fact]:
        """Yield the facts whose evidence says where a fact was learned: itself, or the unmerged facts it comes from.

        A merged fact's own evidence names turns without their threads. So the fact itself is only yielded if it was not
        merged or an ancestor is unknown.
        """
        ancestors = self.ancestors(fact)
        if None in ancestors.values() or not ancestors:
            yield fact
        yield from (known for known in ancestors.values() if known is not None and not known.consolidated_from)

    def merged_into(self, facts: Iterable[str]) -> Iterator[Fact]:
        """Yield the facts that were merged into one of these, through all levels, and are not among them."""
        reached = set(facts)
        while True:
            new = [fact for fact, into in self._sources.values() if into in reached and fact.id not in reached]
            if not new:
                return
            reached.update(fact.id for fact in new)
            yield from new
