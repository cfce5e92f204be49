"""Log check of `doctor`: verifies the scopes of a store, up to a total size of logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.projections.integrity.remedies import Check, failed_check
from backstory.projections.integrity.stream_check import Problem
from backstory.projections.integrity.verify import INDEX, verify
from backstory.projections.turns.superseded import superseded_turns

Differing = Callable[[Scope], Sequence[str]]
"""Returns the differences between a scope's index and its logs."""

_VERIFIED_BYTES = 64 << 20
_PROBLEMS = 100


def examine_logs(
    store: EventStore,
    home: Path,
    folders: Iterable[str],
    clock: Clock,
    *,
    differing: Differing,
    all_of: str | None,
) -> tuple[list[Check], list[Scope]]:
    """Verify scopes until 64 MiB of logs were read.

    Args:
        store: holds the logs.
        home: the folder of the read models.
        folders: the folders of the scopes, as their streams name them; "" is that of the global memory.
        clock: gives a document that lags the time to be written.
        differing: compares a scope's index with its logs.
        all_of: a folder to verify whatever its size.

    Returns:
        The checks, and the scopes without a finding.
    """
    checks: list[Check] = []
    sound: list[Scope] = []
    left, verified, skipped = _VERIFIED_BYTES, 0, 0
    for folder in folders:
        size = _size(store, folder)
        if size > left and folder != all_of:
            skipped += 1
            continue
        left -= size
        verified += 1
        found, scope = _examine_scope(store, home, folder, clock, differing)
        checks += found
        if scope is not None:
            sound.append(scope)
    more = f"; {skipped} larger ones were not: run `verify --all`" if skipped else ""
    summary = Check("logs", not checks, f"{verified} scopes were verified{more}")
    return [summary, *checks], sound


def _examine_scope(
    store: EventStore, home: Path, below: str, clock: Clock, differing: Differing
) -> tuple[list[Check], Scope | None]:
    """Return the checks of one scope, and the scope where there are no findings."""
    folder = home / below
    try:
        scope = _scope_in(store, below)
        if scope is None:
            return [Check("owner", False, f"{folder} is not the folder of a scope; move it where it belongs")], None
        index = partial(differing, scope)
        result = verify(store, scope, document=folder / "memory.json", index=index, clock=clock)
    except BackstoryError as error:
        return [Check("logs", False, str(error))], None
    found = [failed_check(_placed(problem, below)) for problem in result.problems[:_PROBLEMS]]
    if len(result.problems) > _PROBLEMS:
        found.append(Check("logs", False, f"{folder}: {len(result.problems) - _PROBLEMS} more findings: run `verify`"))
    if found:
        return found, None
    return list(_cut_threads(store, scope)), scope


def _cut_threads(store: EventStore, scope: Scope) -> Iterator[Check]:
    """Yield a check for each thread with turns superseded by a delivery that may not be the whole conversation."""
    cut = Counter(
        turn.thread for turn in superseded_turns(read_commits(store, scope.stream(TRANSCRIPT))) if not turn.proven
    )
    for thread, count in cut.items():
        turns = "1 turn" if count == 1 else f"{count} turns"
        yield Check(
            "superseded turns",
            False,
            f"{turns} of thread {thread} of {scope} superseded by a delivery that may not be the whole conversation: "
            f"`turns {thread} --superseded` lists them, and `turns restore {thread}` restores them",
        )


def _placed(problem: Problem, below: str) -> Problem:
    """Add the scope's folder to a problem of memory.json or the index."""
    if below and problem.stream in ("memory.json", INDEX):
        return msgspec.structs.replace(problem, stream=f"{below}/{problem.stream}")
    return problem


def _scope_in(store: EventStore, below: str) -> Scope | None:
    """Return the scope of a folder, from its name or, where the name is shortened, from the first commit."""
    scope = Scope.in_folder(below)
    if scope is not None:
        return scope
    for kind in (LEDGER, TRANSCRIPT):
        first = next(read_commits(store, f"{below}/{kind}"), None)
        if first is not None:
            owner = Scope(first.cause.user, first.cause.agent)
            return owner if owner.folder == below else None
    return None


def _size(store: EventStore, below: str) -> int:
    """Return the size of both logs; a log that cannot be read has none, and verifying it reports that."""
    try:
        return sum(store.state(f"{below}/{kind}".lstrip("/")).size for kind in (LEDGER, TRANSCRIPT))
    except BackstoryError:
        return 0
