"""Streams of many tenants, one commit each, as a writer seals them.

A user has two streams. The ledger has its first commit (1.1 kB). The transcript has one exchange of two messages of the
usual length (0.95 kB).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, seal
from backstory.ledger.core.events import PolicyChanged, Turn, TurnRange, TurnRecorded
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope

__all__ = ["USERS_OF_A_TENANT", "chosen", "first_line", "lines", "stream", "tenant", "user"]

USERS_OF_A_TENANT = 500
_AT = "2026-03-01T12:00:00.000000Z"
_SAID = (
    "I am going to the mountains with two friends in late autumn, and I have never walked for three days in a row "
    "before. What should I take along?"
)
_ANSWERED = (
    "Take layers rather than one thick coat, shoes that you have walked in before, and a map on paper. At that time of "
    "the year it is dark by five, so plan short days."
)


def tenant(number: int) -> str:
    """Return what the ids of a tenant's users begin with."""
    return f"tenant{number:05}-"


def user(number: int) -> str:
    """Return a user's id."""
    return f"{tenant(number // USERS_OF_A_TENANT)}user{number % USERS_OF_A_TENANT:03}"


def stream(number: int) -> str:
    """Return a stream's name: the even ones are ledgers, the odd ones transcripts."""
    return Scope(user(number // 2)).stream(TRANSCRIPT if number % 2 else LEDGER)


def first_line(number: int, salts: Callable[[], str]) -> bytes:
    """Return the first commit of a stream."""
    name = user(number // 2)
    if number % 2 == 0:
        return seal(Draft(_AT, Cause(kind="genesis", user=name), (PolicyChanged(None, Policy()),)), EMPTY, salts)
    return exchange(name, EMPTY, salts)


def exchange(name: str, after: Head, salts: Callable[[], str]) -> bytes:
    """Return a commit of a transcript that records two messages after a head."""
    n = 2 * after.seq + 1
    turns = tuple(
        TurnRecorded(Turn(n=n + place, id=f"t{n + place}", role=role, content=text, at=_AT, anonymous=True))
        for place, (role, text) in enumerate((("user", _SAID), ("assistant", _ANSWERED)))
    )
    return seal(Draft(_AT, Cause(kind="record", user=name, thread="t", turns=TurnRange(n, n + 1)), turns), after, salts)


def salts_of(seed: int) -> Callable[[], str]:
    """Return salts that a seed determines."""
    source = random.Random(seed)
    return lambda: f"{source.getrandbits(128):032x}"


def lines(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield so many streams with their first commits; two of a user after each other."""
    salts = salts_of(1)
    for number in range(count):
        yield stream(number), first_line(number, salts)


def chosen(count: int, of: int) -> list[int]:
    """Return the numbers of so many streams, drawn by chance."""
    return random.Random(7).sample(range(of), min(count, of))
