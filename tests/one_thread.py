"""One thread that deliveries lead to, without a disk; `says` and `chat` spell what is delivered."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.events import Redacted, TurnRestored, TurnSuperseded
from backstory.ledger.erasure.digest import sealing
from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.told import Told
from backstory.ledger.threads.delivery.turn_dedup import Mode, align
from backstory.ledger.threads.transcript import Thread, Transcript

__all__ = ["AT", "Conversation", "after", "chat", "says", "unnamed"]

AT = "2026-03-01T12:00:00.000000Z"


def says(content: str, turn_id: str | None = None, role: str = "user") -> Kept:
    return Kept(role=role, content=content, id=turn_id)


def chat(*contents: str) -> list[Kept]:
    """Messages without ids, a user and an agent in turn."""
    return [says(content, role=("user", "assistant")[i % 2]) for i, content in enumerate(contents)]


class Conversation:
    """One thread that deliveries lead to, without a disk."""

    def __init__(self, key: bytes | None = b"k" * 32) -> None:
        self.transcript = Transcript()
        self.at = AT
        self.seal = None if key is None else sealing(key)

    @property
    def thread(self) -> Thread:
        return self.transcript.threads.get("t", Thread("t"))

    def send(
        self, *messages: Kept, mode: Mode | Told = "conversation", at_most: int = 200, crash_after: int | None = None
    ) -> int:
        """Deliver; returns how many turns were recorded. `crash_after` so many commits the rest is lost."""
        arrival = align(self.thread, messages, self.at, mode=mode, seal=self.seal)
        done = 0
        for number, (turns, events) in enumerate(arrival.commits(at_most)):
            if number == crash_after:
                break
            seq = self.transcript.head.seq + 1
            self.transcript.apply(
                Commit(seq, self.at, Cause(kind="record", thread="t", turns=turns), tuple(events), "", f"{seq}")
            )
            done += 0 if turns is None else turns.last - turns.first + 1
        return done

    def erase(self, *ordinals: int, what: str = "turn") -> None:
        """Erase turns, as their redaction says."""
        for n in ordinals:
            turn = self.thread.turns[n - 1]
            assert turn is not None
            digest = None if self.seal is None else self.seal(turn.role, turn.content)
            size = len(turn.content)
            self.thread.redact(Redacted("transcript", 1, 0, what, None, None, "t", n, turn.id, size, digest))

    def withdraw(self, *ordinals: int) -> None:
        """Take turns back."""
        seq, events = self.transcript.head.seq + 1, tuple(map(TurnSuperseded, ordinals))
        self.transcript.apply(Commit(seq, AT, Cause(kind="withdrawal", thread="t"), events, "", f"{seq}"))

    def restore(self, *ordinals: int) -> None:
        """Bring superseded turns back."""
        seq, events = self.transcript.head.seq + 1, tuple(map(TurnRestored, ordinals))
        self.transcript.apply(Commit(seq, AT, Cause(kind="restore", thread="t"), events, "", f"{seq}"))

    @property
    def standing(self) -> list[str]:
        return [turn.content for turn in self.thread.standing()]

    @property
    def everything(self) -> list[str]:
        return [turn.content for turn in self.thread.turns if turn is not None]


def after(*deliveries: Sequence[Kept]) -> Conversation:
    conversation = Conversation()
    for delivery in deliveries:
        conversation.send(*delivery)
    return conversation


def unnamed(contents: Sequence[str]) -> list[Kept]:
    return [says(content) for content in contents]
