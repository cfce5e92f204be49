"""What if another policy had been in force: the whole history decided again; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy, PolicyValue, check_policy
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import read_commits
from backstory.projections.what_if.counterfactual import Counterfactual

__all__ = ["WhatIfRun", "decide_again", "overrides_for"]

_WEIGHTS = {"eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight"}


class WhatIfRun:
    """A ledger as far as one of its commits, to be walked as often as need be without keeping it."""

    def __init__(self, store: EventStore, stream: str, until: int) -> None:
        self._store = store
        self._stream = stream
        self._until = until

    def __iter__(self) -> Iterator[Commit]:
        return takewhile(lambda commit: commit.seq <= self._until, read_commits(self._store, self._stream))


def overrides_for(changes: Mapping[str, PolicyValue], policy: Policy) -> dict[str, PolicyValue]:
    """Return what has to be changed in every policy of a history so that these changes of `policy` hold in it.

    The weights of the hybrid ranking come to 1 only together: where one is given, the others are those of `policy`.

    Raises:
        ConfigError: a value outside its range.
    """
    changed = check_policy(msgspec.structs.replace(policy, **changes))
    weights = _WEIGHTS if _WEIGHTS & changes.keys() else set()
    return {name: getattr(changed, name) for name in {*changes, *weights}}


def decide_again(
    commits: Iterable[Commit],
    overrides: Mapping[str, PolicyValue],
    *,
    progress: Callable[[int], None] | None = None,
) -> Memory:
    """Decide every commit's command again, with `overrides` in every policy, and return the memory it leads to.

    It is the memory of a ledger that had these policies from the start, was asked the same and got the same answers,
    as long as nothing that was committed would have been refused outright there: an undo that conflicts without force,
    the removal of a fact that the other policy kept out, a policy too small for the facts entered by hand. Such a
    command changes nothing here and keeps its number; there it would be no commit, and later facts bear other numbers.
    An answer refers to what the model was shown and asked to review then, an eviction counts the uses recorded then.

    What was erased cannot be decided again, nor what was decided on it; there the recorded outcome stands. `commits`
    is walked twice; `progress` is told each seq.

    Raises:
        ConfigError: an override is outside its range, or does not go with another value of its time.
    """
    walk = list(commits) if isinstance(commits, Iterator) else commits
    history = Counterfactual(walk, overrides)
    for commit in walk:
        history.take(commit, history.decide(commit))
        if progress is not None:
            progress(commit.seq)
    return history.memory
