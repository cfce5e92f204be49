"""History of one scope: its commits, graphs of facts and messages, and what another policy would have made of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING

from backstory import checks
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.core.scope import Scope
from backstory.operations.services import Progress, ScopeServices, begun_fact, known_policy, must_know
from backstory.projections.context import Given
from backstory.projections.context.joined import join
from backstory.projections.context.why_said import WhySaid, said_without_note, why_said
from backstory.projections.history.audit import Evidence
from backstory.projections.history.history import LogEntry, diff, entry
from backstory.projections.history.moment import FactQuery, MemoryMoment, memory_moment
from backstory.projections.history.section_audit import WhySection, why_section
from backstory.projections.history.times import At, When
from backstory.projections.index.index import ScopeIndex
from backstory.projections.index.model_usage import ModelUsage
from backstory.projections.index.timeline import Timeline
from backstory.projections.what_if.needed import ExplainedRefusal, refusals_of
from backstory.projections.what_if.what_if import WhatIfRun, decide_again, overrides_for
from backstory.results import WhatIf

if TYPE_CHECKING:
    from backstory.projections.graph import Graph, MessageFlow


def fact(services: ScopeServices, fact_id: str) -> Fact:
    """Return a live fact by its id or a unique beginning of it; see `MemoryHandle.fact`."""
    with services.naming_the_owner(fact_id):
        found = begun_fact(services.memory(), fact_id)
    if found.id != fact_id:
        with contextlib.suppress(UsageError):
            if services.fact_id(services.reading(), fact_id) == fact_id:
                raise NotFoundError(f"fact {fact_id} is gone from memory: see `why`")
    return found


def log(
    services: ScopeServices,
    *,
    limit: int | None,
    fact: str | None,
    thread: str | None,
    since: At | None,
    before: int | None,
) -> tuple[LogEntry, ...]:
    """Return the commits, newest first; see `MemoryHandle.log`."""
    reading = services.reading()
    logs = services.logs(reading)
    wanted = None if fact is None else services.fact_id(reading, fact)
    moment = 1 if since is None else services.times(reading).bound("since", since)
    first = logs.first_since(moment)
    if wanted is not None:
        commits = logs.commits_about(wanted, newest_first=True)
    elif thread is not None:
        commits = logs.commits_of(thread, newest_first=True)
    else:
        commits = logs.newest(first, before)
    if before is not None:
        commits = dropwhile(lambda commit: commit.seq >= before, commits)
    found = (
        commit
        for commit in takewhile(lambda commit: commit.seq >= first, commits)
        if thread in (None, commit.cause.thread) and (isinstance(moment, int) or commit.at >= moment)
    )
    return tuple(map(entry, islice(found, limit)))


def moment(services: ScopeServices, at: At | None, query: FactQuery) -> MemoryMoment:
    """Return memory after a commit, and what that commit changed; see `MemoryHandle.moment`."""
    if at is None:
        services.memory()  # Delivers what is not received yet.
    reading = services.reading()
    wanted = None if at is None else services.times(reading).cut("at", at)
    found = services.logs(reading).around(wanted)
    when = (
        spell_moment(reading.clock.now()) if wanted is None else found.after.at if isinstance(wanted, int) else wanted
    )
    if services.users is None:
        shown = found.after.standing_at(when)
        return memory_moment(shown, found.commit, diff(found.before, found.after), query)
    users = services.logs(services.users)
    before = found.before.with_sections_of(users.memory_at(found.before.at))
    after = found.after.with_sections_of(users.memory_at(found.after.at))
    # Between two commits of the agent the sections of its user may have changed.
    shown = after
    if not isinstance(wanted, int):
        shown = found.after.with_sections_of(users.memory() if wanted is None else users.memory_at(wanted))
    return memory_moment(shown.standing_at(when), found.commit, diff(before, after), query)


def timeline(services: ScopeServices, since: At | None, until: At | None, buckets: int) -> Timeline:
    """Count the commits by time and kind; see `MemoryHandle.timeline`."""
    first = None if since is None else services.times().bound("since", since)
    last = None if until is None else services.times().bound("until", until, end=True)
    backwards = (isinstance(first, int) and isinstance(last, int) and first > last) or (
        isinstance(first, str) and isinstance(last, str) and first > last
    )
    if backwards:
        raise UsageError(f"until must not be before since, got {first} and {last}")
    return services.logs(services.reading()).timeline(first, last, checks.whole("buckets", buckets, 1))


def usage(services: ScopeServices, since: When | None, until: When | None) -> ModelUsage:
    """Return what models did by day; see `MemoryHandle.usage`."""
    times = services.times()
    first, last = (
        None if when is None else times.time(name, when)[: len("2026-03-02")]
        for name, when in (("since", since), ("until", until))
    )
    if first is not None and last is not None and first > last:
        raise UsageError(f"until must not be before since, got {first} and {last}")
    return services.logs(services.reading()).usage(first, last)


def section_origin(services: ScopeServices, name: str) -> WhySection:
    """Explain the text of a section; see `MemoryHandle.why_section`."""
    services.memory()  # Delivers what is not received yet.
    writer = services.users or services.reading()
    user = services.scope.user

    def logs_of(agent: str | None) -> ScopeIndex:
        return services.logs(writer) if agent is None else services.home.states(Scope(user, agent)).index

    return why_section(services.commits(writer), writer.memory(), name, logs_of)


def said(services: ScopeServices, turn: str, thread: str | None) -> WhySaid:
    """Explain what an answer had been given; see `MemoryHandle.why_said`."""
    named = checks.text("turn", turn)
    if thread is not None:
        must_know(services.writer, checks.text("thread", thread))
    turns = services.home.states(services.writer.scope).turns.standing(thread)
    found = {one.thread: one for one in turns if one.id == named}
    if not found:
        where = "memory" if thread is None else f"thread {thread}"
        raise NotFoundError(f"there is no turn {named} in this {where}: see `turns`; it may be superseded or erased")
    if len(found) > 1:
        raise UsageError(f"{len(found)} threads have a turn {named}: say which of them, as {next(iter(found))}")
    (view,) = found.values()
    answer = Evidence(view.id, view.thread, view.role, view.content, view.at, view.name)
    given = Given.within(view.metadata)
    if given is None:
        return said_without_note(answer)
    writer = services.user if given.of_user and services.user is not None else services.writer
    now = writer.memory()
    if not given.users_seq or services.user is None:
        if not 0 < given.seq <= now.seq:
            return why_said(answer, given, (), Memory(), now)
        head = services.head_at(writer, given.seq)
        return why_said(answer, given, (head,), services.logs(writer).memory_at(given.seq), now)
    users = services.user.memory()
    if given.seq > now.seq or given.users_seq > users.seq:
        return why_said(answer, given, (), Memory(), join(now, users).memory)
    heads = (services.head_at(writer, given.seq), services.head_at(services.user, given.users_seq))
    then = join(services.logs(writer).memory_at(given.seq), services.logs(services.user).memory_at(given.users_seq))
    return why_said(answer, given, heads, then.memory, join(now, users).memory)


def what_if(
    services: ScopeServices, policy: Mapping[str, PolicyValue], *, until: int | str | None, progress: Progress | None
) -> WhatIf:
    """Decide the whole history again under another policy; see `MemoryHandle.what_if`."""
    known_policy(policy)
    writer = services.reading()
    now = writer.memory()
    overrides = overrides_for(policy, now.policy)
    today = now if until is None else services.logs(writer).memory_at(services.times(writer).commit("until", until))
    would_be = decide_again(WhatIfRun(writer.store, writer.ledger, today.seq), overrides, progress=progress)
    found = diff(today, would_be)
    return WhatIf(found.added, found.removed, found.revised, found.sections, len(would_be.facts))


def refusals(services: ScopeServices, seq: int | str) -> tuple[ExplainedRefusal, ...]:
    """Return what a commit refused, and what it would take; see `MemoryHandle.refusals`."""
    logs = services.logs(services.reading())
    commit = logs.commit(services.times().commit("seq", seq, 1))
    return refusals_of(commit, logs.memory_at(commit.seq - 1))


def graph(services: ScopeServices, *, thread: str | None, fact: str | None, since: At | None, limit: int) -> Graph:
    """Return the graph of facts, updates and threads; see `MemoryHandle.graph`."""
    from backstory.projections.graph import Choice, graph_of

    most = _some(limit)
    moment = None if since is None else services.times().bound("since", since)
    named = None if fact is None else checks.text("fact", fact)
    writer = services.reading()
    if thread is not None:
        must_know(writer, checks.text("thread", thread))
    wanted = None if named is None else services.fact_id(writer, named)
    return graph_of(services.logs(writer), writer.scope, Choice(thread, wanted, moment, most))


def message_flow(services: ScopeServices, *, thread: str | None, since: When | None, limit: int) -> MessageFlow:
    """Return who sent what to whom; see `MemoryHandle.message_flow`."""
    from backstory.projections.graph import message_flow_of

    most = _some(limit)
    moment = None if since is None else services.times().time("since", since)
    writer = services.reading()
    if thread is not None:
        must_know(writer, checks.text("thread", thread))
    with writer.reader.state() as state:
        threads = state.transcript.threads
        turns = {name: threads[name].standing() for name in (threads if thread is None else (thread,))}
    return message_flow_of(turns, writer.scope, thread=thread, since=moment, limit=most)


def _some(limit: int) -> int:
    return checks.whole("limit", limit, 1, "a whole number")
