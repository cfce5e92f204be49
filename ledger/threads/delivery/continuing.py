"""Continued threads: which threads a conversation goes on that comes without the name of its thread.

A host that keeps the conversation itself sends all of it each time. `told` finds its place in a thread. Of several
threads these come first, in this order: those of the conversation that the client names; one where the question stands
without an answer; one that holds nothing else; one where the answer is the same, too; and the newest.

A first question begins a new conversation, unless a thread holds this question alone: two conversations often begin
alike. For the same reason a thread that goes on with another question is not continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from backstory.ledger.erasure.digest import ContentSeal
from backstory.ledger.threads.delivery.told import TellingOf, ThreadPlace
from backstory.ledger.threads.transcript import Thread

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept

_LAST_TURNS = 16
"""Turns at the end of a thread that are searched for an id."""


def continued(
    threads: Iterable[Thread],
    messages: Sequence[Kept],
    seal: Callable[[], ContentSeal | None] = lambda: None,
    now: str = "",
) -> list[tuple[str, ThreadPlace]]:
    """Return the threads that a conversation may continue, the likeliest first, each with its place there.

    Args:
        threads: the threads to consider, the newest first.
        messages: the whole conversation up to now, as it would be recorded.
        seal: returns the keyed digest by which erased turns are recognised; None where the scope has no key.
        now: the time, for a first question that is asked again; empty if that is no proof.
    """
    found = []
    telling = TellingOf(messages)
    for thread in threads if telling.said else ():
        place = telling.place_in(thread, seal=seal() if thread.is_redacted else None, now=now)
        if place is not None:
            found.append((thread.name, place))
    return sorted(found, key=lambda one: one[1].rank)


def holds(thread: Thread, turn_id: str) -> bool:
    """Whether one of the last turns of a thread has this id, given by the host."""
    return any(turn.id == turn_id and not turn.anonymous for turn in islice(thread.walk(back=True), _LAST_TURNS))
