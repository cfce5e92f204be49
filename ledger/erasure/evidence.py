"""Turns of a transcript with their positions, and the turns that a fact was learned from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Redacted, Turn, TurnRange, TurnRecorded
from backstory.ledger.core.kinds import ErasedKind
from backstory.ledger.erasure.digest import ContentSeal


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


def turn_redacted(stream: str, placed: PlacedTurn, what: ErasedKind, seal: ContentSeal | None) -> Redacted:
    """Return the event that erases a turn; it keeps the turn's position, id, length and, with a key, its digest."""
    turn = placed.turn
    return Redacted(
        stream,
        placed.seq,
        placed.index,
        what,
        thread=placed.thread,
        n=turn.n,
        turn=turn.id,
        size=len(turn.content),
        digest=None if seal is None else seal(turn.role, turn.content),
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
