"""Superseded turns of a transcript: which no longer stand, since when, why, and whether the delivery proved it.

Until turns were compared as `resend` does, a delivery that merely began as the thread did took the standing away
from the rest. What was cut so is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Turn, TurnRecorded, TurnSuperseded
from backstory.ledger.threads.delivery.resend import align_delivery
from backstory.ledger.threads.transcript import Transcript

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

Reason: TypeAlias = Literal["revised", "edited", "replaced", "withdrawn"]


class SupersededTurn(msgspec.Struct, frozen=True):
    """A turn that no longer stands.

    `reason`: `revised`, its id was sent with another text; `edited`, a delivery repeated its conversation with another
    end; `replaced`, its host sent the conversation in mode `replace`; `withdrawn`, it was taken back.
    `seq` and `since` are the transcript's commit and its time. `proven` is false where a delivery without ids does not
    show that it held the whole conversation: the turn may have been cut by mistake.
    """

    id: str
    role: str
    content: str
    at: str
    n: int
    thread: str
    seq: int
    since: str
    reason: Reason
    proven: bool = True


def superseded_turns(transcript: Iterable[Commit], thread: str | None = None) -> tuple[SupersededTurn, ...]:
    """Return the superseded turns of a thread, or of all threads, that can be restored, in the order they were said.

    Args:
        transcript: the commits of the transcript, from the first.
        thread: the name of a thread; None for all.

    Raises:
        CorruptLogError: As the commits are read.
    """
    folded = Transcript()
    found: dict[tuple[str, int], SupersededTurn] = {}
    for commit in transcript:
        name = commit.cause.thread
        ordinals = [event.n for event in commit.events if isinstance(event, TurnSuperseded)]
        if name is not None and thread in (None, name):
            for superseded in _of(folded, name, commit, ordinals) if ordinals else ():
                found[name, superseded.n] = superseded
            folded.apply(commit)
    return tuple(
        superseded for (name, n), superseded in sorted(found.items()) if folded.threads[name].may_be_restored(n)
    )


def _of(folded: Transcript, name: str, commit: Commit, ordinals: Sequence[int]) -> list[SupersededTurn]:
    known = folded.threads.get(name)
    recorded = [event.turn for event in commit.events if isinstance(event, TurnRecorded)]
    ids = {turn.id for turn in recorded if not turn.anonymous}
    gone = [known.turns[n - 1] for n in ordinals if 0 < n <= len(known.turns)] if known is not None else []
    reasons = {turn.n: _reason(commit, turn, ids) for turn in gone if turn is not None}
    # Ids prove an edit themselves, and what a proxy hears is compared by the words of the user.
    edited = [
        n for n, reason in reasons.items() if reason == "edited" and commit.cause.action not in ("branch", "told")
    ]
    proven = True
    if known is not None and edited:
        # What the delivery must have begun with, for it to have been taken for an edit.
        sent = [*known.standing(1, min(edited) - 1), *recorded]
        proven = set(edited) <= set(align_delivery(known, list(map(_sent, sent))).superseded)
    return [
        SupersededTurn(
            turn.id,
            turn.role,
            turn.content,
            turn.at,
            turn.n,
            name,
            commit.seq,
            commit.at,
            reasons[turn.n],
            proven or turn.n not in edited,
        )
        for turn in gone
        if turn is not None
    ]


def _reason(commit: Commit, turn: Turn, ids: set[str]) -> Reason:
    if commit.cause.kind == "withdrawal":
        return "withdrawn"
    if commit.cause.action == "replace":
        return "replaced"
    return "revised" if not turn.anonymous and turn.id in ids else "edited"


def _sent(turn: Turn) -> Kept:
    from backstory.ledger.messages import Kept

    return Kept(turn.role, turn.content, None if turn.anonymous else turn.id)
