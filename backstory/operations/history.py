"""History of one scope: its commits, where a fact came from, and what another policy would have made of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import islice, takewhile

from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import PolicyValue
from backstory.operations.services import Progress, ScopeServices, begun_fact, known_policy
from backstory.projections.history.history import LogEntry, diff, entry
from backstory.projections.history.replay import read_moment
from backstory.projections.what_if.what_if import WhatIfRun, decide_again, overrides_for
from backstory.results import WhatIf

__all__ = ["fact", "log", "what_if"]


def fact(services: ScopeServices, fact_id: str) -> Fact:
    """Return a live fact by its id or a unique beginning of it; see `MemoryHandle.fact`."""
    found = begun_fact(services.memory(), fact_id)
    if found.id != fact_id:
        with contextlib.suppress(UsageError):
            if services.fact_id(services.reading(), fact_id) == fact_id:
                raise NotFoundError(f"fact {fact_id} is gone from memory: see `why`")
    return found


def log(
    services: ScopeServices, *, limit: int | None, fact: str | None, thread: str | None, since: str | None
) -> tuple[LogEntry, ...]:
    """Return the commits, newest first; see `MemoryHandle.log`."""
    reading = services.reading()
    logs = services.logs(reading)
    wanted = None if fact is None else services.fact_id(reading, fact)
    moment = 1 if since is None else read_moment(since)
    first = logs.first_since(moment)
    if wanted is not None:
        commits = logs.commits_about(wanted, newest_first=True)
    elif thread is not None:
        commits = logs.commits_of(thread, newest_first=True)
    else:
        commits = logs.newest(first)
    found = (
        commit
        for commit in takewhile(lambda commit: commit.seq >= first, commits)
        if thread in (None, commit.cause.thread) and (isinstance(moment, int) or commit.at >= moment)
    )
    return tuple(map(entry, islice(found, limit)))


def what_if(
    services: ScopeServices, policy: Mapping[str, PolicyValue], *, until: int | None, progress: Progress | None
) -> WhatIf:
    """Decide the whole history again under another policy; see `MemoryHandle.what_if`."""
    known_policy(policy)
    writer = services.reading()
    now = writer.memory()
    overrides = overrides_for(policy, now.policy)
    today = now if until is None else services.logs(writer).memory_at(read_moment(until))
    would_be = decide_again(WhatIfRun(writer.store, writer.ledger, today.seq), overrides, progress=progress)
    return WhatIf.of(diff(today, would_be), len(would_be.facts))
