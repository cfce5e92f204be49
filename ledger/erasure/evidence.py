"""Where in the transcript the words stand: turns with their places, and those that a fact was learned from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from backstory.ledger.core.events import Redacted, Turn, TurnRange, TurnRecorded
from backstory.ledger.erasure.digest import Seal
from backstory.ledger.erasure.requests import Walk

__all__ = ["PlacedTurn", "Sources", "turn_redacted", "turns_of"]


class PlacedTurn(msgspec.Struct, frozen=True):
    """A turn, and where it was recorded."""

    seq: int
    index: int
    at: str
    thread: str
    turn: Turn


def turns_of(transcript: Walk) -> Iterator[PlacedTurn]:
    """Yield the turns of a transcript, with their places."""
    for commit in transcript():
        for index, event in enumerate(commit.events):
            if isinstance(event, TurnRecorded):
                yield PlacedTurn(commit.seq, index, commit.at, commit.cause.thread or "", event.turn)


def turn_redacted(stream: str, said: PlacedTurn, what: str, seal: Seal | None) -> Redacted:
    """Say that a turn goes: of it remain its place, its id, its length and, where there is a key, its keyed digest."""
    turn = said.turn
    return Redacted(
        stream,
        said.seq,
        said.index,
        what,
        thread=said.thread,
        n=turn.n,
        turn=turn.id,
        size=len(turn.content),
        digest=None if seal is None else seal(turn.role, turn.content),
    )


class Sources:
    """Turns that one fact was learned from: by id, or whole updates where none was cited."""

    def __init__(self) -> None:
        self.cited: set[tuple[str, str]] = set()
        self.updates: list[tuple[str, TurnRange]] = []
        self._named: list[PlacedTurn] = []
        self._shown: list[PlacedTurn] = []

    def cite(self, thread: str, ids: Iterable[str]) -> None:
        """Name turns that were cited."""
        self.cited |= {(thread, turn_id) for turn_id in ids}

    def look_at(self, turn: PlacedTurn) -> None:
        """Keep a turn where it is one of them."""
        if (turn.thread, turn.turn.id) in self.cited:
            self._named.append(turn)
        elif not self._named and any(
            turn.thread == thread and turns.first <= turn.turn.n <= turns.last for thread, turns in self.updates
        ):
            self._shown.append(turn)

    def found(self) -> list[PlacedTurn]:
        """Return those that were kept; where some were cited, no others."""
        return self._named or self._shown
