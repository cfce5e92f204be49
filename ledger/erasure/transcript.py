"""What of the transcript goes, and which of the words looked for are used in what stays."""

from __future__ import annotations

from itertools import chain

from backstory.ledger.core.content import Words, turn_texts
from backstory.ledger.core.events import Redacted
from backstory.ledger.erasure.digest import Seal
from backstory.ledger.erasure.evidence import PlacedTurn, turn_redacted, turns_of
from backstory.ledger.erasure.requests import ForgetFact, Walk
from backstory.ledger.erasure.target import ErasureTarget

__all__ = ["Said", "read_transcript", "used_in_turns"]


class Said:
    """What of the transcript goes, and the turns that were the evidence, gone or not."""

    def __init__(self, seal: Seal | None = None) -> None:
        self._seal = seal
        self.redacted: dict[tuple[int, int], Redacted] = {}
        self.evidence: set[tuple[str, int]] = set()
        self.ids: set[tuple[str, str]] = set()

    def gone(self) -> dict[str, set[int]]:
        """The turns that go, by thread and ordinal."""
        found: dict[str, set[int]] = {}
        for event in self.redacted.values():
            if event.thread is not None and event.n is not None:
                found.setdefault(event.thread, set()).add(event.n)
        return found

    def take(self, stream: str, said: PlacedTurn, *, goes: bool) -> None:
        """Take in a turn that was the evidence; `goes`: it is to be erased."""
        self.evidence.add((said.thread, said.turn.n))
        self.ids.add((said.thread, said.turn.id))
        if goes:
            self.redacted[said.seq, said.index] = turn_redacted(stream, said, "turn", self._seal)


def read_transcript(target: ErasureTarget, transcript: Walk, stream: str, seal: Seal | None) -> Said:
    """Find the turns that go, and what they say; nothing is asked of the ledger any more."""
    said = Said(seal)
    if isinstance(target.request, ForgetFact):
        for turn in turns_of(transcript):
            for sources in target.sources.values():
                sources.look_at(turn)
        for turn in chain.from_iterable(sources.found() for sources in target.sources.values()):
            said.take(stream, turn, goes=target.request.with_evidence)
            if target.request.with_evidence:
                target.seek(turn_texts(turn.turn), phrases=False)
        return said
    for turn in turns_of(transcript):
        if target.everything or turn.thread == target.thread or target.says(turn_texts(turn.turn)):
            said.take(stream, turn, goes=True)
            if target.thread is not None:
                target.seek(turn_texts(turn.turn), phrases=False)
    return said


def used_in_turns(target: ErasureTarget, transcript: Walk, said: Said) -> set[str]:
    """The words looked for that a turn uses which stays."""
    used: set[str] = set()
    words = Words(target.sought)
    for turn in turns_of(transcript) if words else ():
        if (turn.seq, turn.index) not in said.redacted and (new := words.used_in(turn_texts(turn.turn))):
            used |= new
            words = Words(words.all - new)
    return used
