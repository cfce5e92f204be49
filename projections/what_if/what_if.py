"""What-if: decides the whole history again under another policy; writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy, PolicyValue, check_policy
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.projections.what_if.counterfactual import Counterfactual

_WEIGHTS = {"eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight"}


class WhatIfRun:
    """The commits of a ledger up to a seq; each iteration reads them from the log."""

    def __init__(self, store: EventStore, stream: str, until: int) -> None:
        self._store = store
        self._stream = stream
        self._until = until

    def __iter__(self) -> Iterator[Commit]:
        return takewhile(lambda commit: commit.seq <= self._until, read_commits(self._store, self._stream))


def overrides_for(changes: Mapping[str, PolicyValue], policy: Policy) -> dict[str, PolicyValue]:
    """Return the values to override in every policy of a history so that `changes` of `policy` apply to it.

    The weights of the hybrid ranking add up to 1: where one is given, the others are those of `policy`.

    Raises:
        ConfigError: a value is outside its range.
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
    """Decide every commit's command again, with `overrides` in every policy.

    The result is the memory of a ledger that had these policies from the start and got the same commands and answers.
    It differs from such a ledger where a command would have been refused outright: an undo with conflicts and without
    force, the removal of a fact that the other policy kept out, a policy too small for the facts entered by hand. Such
    a command changes nothing here, but keeps its seq, so later facts have other ids than in such a ledger. Answers
    refer to the facts that the model was shown, and evictions count the recorded uses.

    Erased content, and commits decided on it, cannot be decided again: they keep their recorded outcome.

    Args:
        commits: the ledger's commits; iterated twice.
        overrides: values for every policy.
        progress: called with each seq.

    Returns:
        The memory at the end.

    Raises:
        ConfigError: an override is outside its range, or contradicts another value of a recorded policy.
    """
    history_commits = list(commits) if isinstance(commits, Iterator) else commits
    history = Counterfactual(history_commits, overrides)
    for commit in history_commits:
        history.advance(commit, history.decide(commit))
        if progress is not None:
            progress(commit.seq)
    return history.memory
