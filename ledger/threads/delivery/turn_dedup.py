"""Deduplication of a delivery: which of its messages are new to a thread, and which turns they supersede.

A host sends either the whole conversation each time or only what is new. A message with an id is known by (thread, id);
messages without one are compared with the end of the thread (`resend`). Of a turn that was erased the id and a
keyed digest of its text are known, so that it stays out when it is sent again. A turn that was taken back stays out,
too, unless it is said to be new.

A host that lets people edit messages gives up turns (`given_up`). An edited message gets a new id, as does an answer
that is given again. So what was said before the edit is known by its ids alone: the delivery begins with messages that
the thread holds, one after another, and goes on with another message than the thread does. A part of the thread proves
nothing by what it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from backstory.ledger.core.events import Event, Turn, TurnRange, TurnRecorded, TurnSuperseded
from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.text.acknowledgements import has_substance
from backstory.ledger.threads.delivery.resend import NOTHING_KNOWN, align_delivery, align_whole
from backstory.ledger.threads.delivery.told import Told, align_told
from backstory.ledger.threads.delivery.turn_match import Said
from backstory.ledger.threads.transcript import Thread

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept


def given_up(thread: Thread, messages: Sequence[Kept], is_covered: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the ordinals of pending turns behind a known beginning that goes on with another message.

    Nothing is given up where an id is missing, or where the delivery holds any turn from behind the beginning.

    Args:
        thread: what is recorded of the conversation.
        messages: the delivery, in order.
        is_covered: whether a turn was learned from; such a one stands.
    """
    if any(message.id is None for message in messages):
        return ()
    behind = _last_in_common(thread, messages)
    if behind is None:
        return ()
    rest = thread.standing(behind + 1)
    sent = {message.id for message in messages}
    if any(turn.anonymous or turn.id in sent for turn in rest):
        return ()
    return tuple(turn.n for turn in rest if not is_covered(turn.n))


def _last_in_common(thread: Thread, messages: Sequence[Kept]) -> int | None:
    """Return the ordinal behind which the delivery goes on in another way; None where it does not, or at once."""
    last = None
    for message in messages:
        turn = _standing(thread, message)
        if turn is None:
            if _stays_out(thread, message):
                continue
            return last
        if last is not None and next(thread.walk(last + 1, turn.n - 1), None) is not None:
            return None
        if (turn.role, turn.content) != (message.role, message.content):
            # An answer grows under its id while it is written; a person's words with the same id were edited.
            return turn.n if last is not None and turn.role == message.role == "user" else None
        last = turn.n
    return None


def _standing(thread: Thread, message: Kept) -> Turn | None:
    n = thread.latest.get(message.id or "", 0)
    return thread.turns[n - 1] if thread.stands(n) else None


def _stays_out(thread: Thread, message: Kept) -> bool:
    """Whether the words of a message were erased or taken back, so that it says nothing of the others."""
    return message.id in thread.erased_ids or thread.latest.get(message.id or "") in thread.withdrawn


Mode: TypeAlias = Literal["conversation", "branch", "append", "replace"]
"""What a host says of a delivery.

`conversation`: the whole conversation, or a part of it; a message without an id is known only where that is certain.
`branch`: the same of a host that lets people edit messages: where messages with ids begin as the thread does and go on
otherwise, the pending turns behind that stand no longer.
`append`: every message without an id is new. `replace`: the whole conversation as it stands now; what of the thread is
not in it stands no longer.
"""


class Arrival(msgspec.Struct, frozen=True):
    """What of a delivery is new: those messages, the ordinals they take, and the ordinals they supersede."""

    fresh: tuple[Kept, ...]
    first: int
    superseded: tuple[int, ...]
    at: str

    def commits(self, at_most: int) -> Iterator[tuple[TurnRange | None, tuple[Event, ...]]]:
        """Cut the arrival into commits of a number of turns; no range where nothing is new and turns are superseded.

        What is superseded stands in the same commit as the first of what replaces it, so that no crash can part them.
        """
        events: list[Event] = [TurnSuperseded(n) for n in self.superseded]
        for start in range(0, len(self.fresh), at_most):
            part = self.fresh[start : start + at_most]
            first = self.first + start
            events += [TurnRecorded(_turn(message, n, self.at)) for n, message in enumerate(part, first)]
            yield TurnRange(first, first + len(part) - 1), tuple(events)
            events = []
        if events:
            yield None, tuple(events)


def align(
    thread: Thread,
    messages: Sequence[Kept],
    at: str,
    *,
    mode: Mode | Told = "conversation",
    highest: int = 0,
    seal: ContentSeal | None = None,
    elsewhere: AbstractSet[str] = frozenset(),
    sent_before: bool = False,
    is_covered: Callable[[int], bool] = lambda _: False,
) -> Arrival:
    """Find what of a delivery is new to a thread, and what it supersedes.

    Same id and text: known. Same id, new text: a new revision. What was taken back is known, too: a host that sends it
    among the rest does not mean to say it again. With `append` it does.

    Args:
        thread: what is recorded of the conversation.
        messages: the delivery, in order.
        at: the time of recording, for messages that carry none.
        mode: what the host says of the delivery.
        highest: the highest ordinal that is taken, also by turns that the thread has lost.
        seal: the keyed digest of a role and a text; None where the scope has no key.
        elsewhere: the digests of what was forgotten on request in other threads, and stays out of this one, too.
        sent_before: the delivery may have been recorded already, as one that is tried again.
        is_covered: whether a turn of the thread was learned from, by its ordinal.
    """
    by_id = {message.id: message for message in messages if message.id is not None}
    forgotten = frozenset() if mode == "append" else _forgotten(thread, elsewhere, messages, seal)
    aligned = NOTHING_KNOWN
    if isinstance(mode, Told):
        aligned = align_told(thread, messages, mode, seal=seal, now=at)
    elif mode == "replace":
        aligned = align_whole(thread, messages, seal, forgotten=forgotten)
    elif mode != "append":
        aligned = align_delivery(thread, messages, seal, forgotten=forgotten, sent_before=sent_before)
    superseded = dict.fromkeys(aligned.superseded)
    if mode == "branch":
        superseded |= dict.fromkeys(given_up(thread, messages, is_covered))
    fresh: list[Kept] = []
    for index, message in enumerate(messages):
        if message.id is None:
            if index not in aligned.known and index not in forgotten:
                fresh.append(message)
        elif by_id[message.id] is message and index not in forgotten and not _was_erased(thread, message, seal):
            n = thread.latest.get(message.id)
            remembered = n is not None and (thread.stands(n) or (n in thread.withdrawn and mode != "append"))
            before = thread.turns[n - 1] if n is not None and remembered else None
            if before is None or before.n in superseded:
                fresh.append(message)
            elif not Said.of(message).is_in(before):
                fresh.append(message)
                if thread.stands(before.n):
                    superseded[before.n] = None
    return Arrival(tuple(fresh), max(len(thread.turns), highest) + 1, tuple(superseded), at)


def _forgotten(
    thread: Thread, elsewhere: AbstractSet[str], messages: Sequence[Kept], seal: ContentSeal | None
) -> frozenset[int]:
    """The messages that were forgotten on request, by index; of this thread those without ids. A bare "yes" is kept."""
    here = frozenset() if seal is None else thread.forgotten | elsewhere
    if seal is None or not here:
        return frozenset()
    return frozenset(
        index
        for index, message in enumerate(messages)
        if (digests := here if message.id is None else elsewhere)
        and has_substance(message.content)
        and any(seal(message.role, form) in digests for form in Said.of(message).forms)
    )


def _was_erased(thread: Thread, message: Kept, seal: ContentSeal | None) -> bool:
    """Whether a message with an id is an erased turn sent again: by its digest, or else by its id and its length.

    Without a digest they prove nothing where the id may have been ours, or where a later text stands under it.
    """
    said = Said.of(message)
    for trace in thread.erased_ids.get(message.id or "", ()):
        if trace.digest is not None and seal is not None:
            if said.is_sealed_in(trace.digest, seal):
                return True
        elif not trace.anonymous and message.id not in thread.latest and said.has_size(trace.size):
            return True
    return False


def _turn(message: Kept, n: int, at: str) -> Turn:
    return Turn(
        n=n,
        id=message.id or f"t{n}",
        role=message.role,
        content=message.content,
        at=message.at or at,
        offset=message.offset,
        anonymous=message.id is None,
        name=message.name,
        cause_by=message.cause_by,
        sent_from=message.sent_from,
        send_to=message.send_to,
        metadata=message.metadata,
        tags=message.tags,
    )
