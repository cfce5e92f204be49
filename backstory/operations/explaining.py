"""History of one memory: its commits, graphs of facts and messages, and what another policy would have made of it."""

from __future__ import annotations

from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.core.scope import Scope
from backstory.projections.context import Given
from backstory.projections.context.joined import join
from backstory.projections.context.why_said import WhySaid, quoted_turns, said_without_note, why_said
from backstory.projections.history.audit import Evidence, Why, why
from backstory.projections.history.refusals import WhyNot, why_not
from backstory.projections.history.section_audit import WhySection, why_section
from backstory.projections.history.times import At, When
from backstory.projections.history.views import Diff, LogEntry, diff, entry
from backstory.projections.index.index import ScopeIndex
from backstory.projections.index.timeline import ModelUsage, Timeline
from backstory.projections.what_if.counterfactual import WhatIfRun, decide_again, overrides_for
from backstory.projections.what_if.needed import ExplainedRefusal, refusals_of
from backstory.results import WhatIf
from backstory.services.named import must_know, read_policy
from backstory.services.services import Operations, Progress, ScopeServices

if TYPE_CHECKING:
    from backstory.projections.graph import Graph, MessageFlow


def _why_given(services: ScopeServices, answer: Evidence, given: Given) -> WhySaid:
    """Explain an answer by the facts that its turn notes."""
    writer = services.user if given.of_user and services.user is not None else services.writer
    now = writer.memory()
    if not given.users_seq or services.user is None:
        if not 0 <= given.seq <= now.seq:
            return why_said(answer, given, (), Memory(), now)
        head = services.head_at(writer, given.seq)
        return why_said(answer, given, (head,), services.logs(writer).memory_at(given.seq), now)
    users = services.user.memory()
    if given.seq > now.seq or given.users_seq > users.seq:
        return why_said(answer, given, (), Memory(), join(now, users).memory)
    heads = (services.head_at(writer, given.seq), services.head_at(services.user, given.users_seq))
    then = join(services.logs(writer).memory_at(given.seq), services.logs(services.user).memory_at(given.users_seq))
    return why_said(answer, given, heads, then.memory, join(now, users).memory)


class Explaining(Operations):
    """What explains a memory; see `MemoryHandle`."""

    # Explaining.

    def log(
        self,
        *,
        limit: int | None = None,
        fact: str | None = None,
        thread: str | None = None,
        since: At | None = None,
        before: int | None = None,
    ) -> tuple[LogEntry, ...]:
        """Return the commits.

        Args:
            limit: How many at most.
            fact: Only commits about this fact; a unique beginning of its id is enough.
            thread: Only commits about this conversation.
            since: Only from this commit or the beginning of this time on.
            before: Only commits before this number, to go on from the last entry of an earlier answer.

        Returns:
            The entries, newest first.

        Raises:
            NotFoundError: There is and was no such fact.
            UsageError: `since` is neither a commit nor a time, or a number is none.
        """
        limit = None if limit is None else checks.whole("limit", limit, 0)
        thread = None if thread is None else checks.text("thread", thread)
        before = None if before is None else checks.whole("before", before, 1)
        services = self._services
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

    def timeline(self, since: At | None = None, until: At | None = None, *, buckets: int = 200) -> Timeline:
        """Count the commits by time and by kind, over the whole history or a part of it.

        Args:
            since: Only from this commit or the beginning of this time on.
            until: Only up to this commit or the end of this time, which is included.
            buckets: Into how many stretches of equal width the time between them is divided.

        Returns:
            The counts of the range and of each stretch with commits in it.

        Raises:
            UsageError: A bound is neither a commit nor a time, `until` is before `since`, or `buckets` is no number
                from 1 on.
        """
        services = self._services
        first = None if since is None else services.times().bound("since", since)
        last = None if until is None else services.times().bound("until", until, end=True)
        backwards = (isinstance(first, int) and isinstance(last, int) and first > last) or (
            isinstance(first, str) and isinstance(last, str) and first > last
        )
        if backwards:
            raise UsageError(f"until must not be before since, got {first} and {last}")
        return services.logs(services.reading()).timeline(first, last, checks.whole("buckets", buckets, 1))

    def usage(self, since: When | None = None, until: When | None = None) -> ModelUsage:
        """Return how many updates models made, and the tokens that they took, by day.

        Args:
            since: Only from the day of this time on; days are those of UTC.
            until: Only up to the day of this time, which is included.

        Returns:
            One entry for each day and model, the earliest day first.

        Raises:
            UsageError: A bound is no time, or `until` is on a day before `since`.
        """
        services = self._services
        times = services.times()
        first, last = (
            None if when is None else times.time(name, when)[: len("2026-03-02")]
            for name, when in (("since", since), ("until", until))
        )
        if first is not None and last is not None and first > last:
            raise UsageError(f"until must not be before since, got {first} and {last}")
        return services.logs(services.reading()).usage(first, last)

    def why(self, fact_id: str) -> Why:
        """Explain where a fact came from, down to the turns it was learned from.

        Args:
            fact_id: The id of a fact, live or gone, or a unique beginning of it.

        Returns:
            The fact, the commit that added it, its evidence and its history.

        Raises:
            NotFoundError: There is and was no such fact.
            UsageError: Several ids begin so.
        """
        reading = self._services.reading()
        with self._services.naming_the_owner(fact_id):
            named = self._services.fact_id(reading, fact_id)
            return why(self._services.logs(reading), named, spell_moment(reading.clock.now()))

    def why_said(self, turn: str, thread: str | None = None) -> WhySaid:
        """Explain what the agent had been given to read when it said something.

        Args:
            turn: The id of the turn of the answer.
            thread: The conversation's id, where several have a turn of this id.

        Returns:
            The turn, the facts as they were at that time, and the turns that were quoted. Where the turn notes nothing,
            `noted` is false: the host did not keep `Context.note()` with it, or memory was empty.

        Raises:
            NotFoundError: There is no such turn or thread.
            UsageError: Several threads have a turn of this id.
        """
        services = self._services
        named = checks.text("turn", turn)
        if thread is not None:
            must_know(services.writer, checks.text("thread", thread))
        turns = services.home.states(services.writer.scope).turns.standing(thread)
        found = {one.thread: one for one in turns if one.id == named}
        if not found:
            where = "memory" if thread is None else f"thread {thread}"
            raise NotFoundError(
                f"there is no turn {named} in this {where}: see `turns`; it may be superseded or erased"
            )
        if len(found) > 1:
            raise UsageError(f"{len(found)} threads have a turn {named}: say which of them, as {next(iter(found))}")
        (view,) = found.values()
        answer = Evidence(view.id, view.thread, view.role, view.content, view.at, view.name)
        given = Given.within(view.metadata)
        if given is None:
            return said_without_note(answer)
        quoted = quoted_turns(services.logs(services.writer), given.turns, answer.at)
        return msgspec.structs.replace(_why_given(services, answer, given), turns=quoted)

    def why_section(self, section: str) -> WhySection:
        """Explain where the text of a section came from, down to the turns of the update that wrote it.

        Args:
            section: Its name, such as `user.workContext`; the part after the dot is enough.

        Returns:
            The text, the update that wrote it, the turns this read, and the section's history. Where agents share their
            user's sections, each says which agent's update wrote it.

        Raises:
            UsageError: There is no such section.
            NotFoundError: It was never written.
        """
        named = checks.text("section", section)
        services = self._services
        services.memory()  # Delivers what is not received yet.
        writer = services.users or services.reading()
        user = services.scope.user

        def logs_of(agent: str | None) -> ScopeIndex:
            return services.logs(writer) if agent is None else services.home.states(Scope(user, agent)).index

        return why_section(services.commits(writer), writer.memory(), named, logs_of)

    def why_not(self, text: str) -> WhyNot:
        """Find refused candidates and removed facts that are like a text, and facts in memory that are like it.

        Args:
            text: What is missing from memory.

        Returns:
            A tuple of the refusals and removals with their rules, the best match first. Its `remembered` are the facts
            in memory.
        """
        writer = self._services.reading()
        return why_not(self._services.logs(writer), writer.memory(), checks.text("text", text))

    def refusals(self, seq: int | str) -> tuple[ExplainedRefusal, ...]:
        """Return what a commit refused, and what it would have taken to accept each candidate.

        The commit's command is decided again on the memory before it, with one value of the policy changed.

        Args:
            seq: The commit, by its number, `HEAD`, `HEAD~1`, or the beginning of its hash.

        Returns:
            The refused candidates, in the order of the commit's events; `needs` is the nearest policy value that
            accepts the candidate, and `unless` says why there is none.

        Raises:
            NotFoundError: There is no such commit.
            UsageError: `seq` is no commit.
        """
        services = self._services
        logs = services.logs(services.reading())
        commit = logs.commit(services.times().commit("seq", seq, 1))
        return refusals_of(commit, logs.memory_at(commit.seq - 1))

    def seq_of(self, commit: int | str) -> int:
        """Return the number of a commit.

        Args:
            commit: `HEAD`, `HEAD~1`, the beginning of its hash, or its number, which is not looked up.

        Returns:
            The number.

        Raises:
            NotFoundError: There is no such commit.
            UsageError: It is no commit, or the hashes of several commits begin so.
        """
        return self._services.times().commit("commit", commit)

    def diff(self, a: At, b: At) -> Diff:
        """Compare memory at two moments.

        Args:
            a: A commit, or a time that is no whole day; see docs/reference/times.md.
            b: Likewise; what memory at `b` has and memory at `a` has not is added.

        Returns:
            The facts added, removed and revised, and the sections that differ; of removed facts that have ended, until
            when they were true.

        Raises:
            UsageError: One is neither a commit nor a time, is in the future, or is a whole day.
            NotFoundError: The ledger has no such commit.
        """
        services = self._services
        before = services.memory(a, whole_days=False, name="a")
        found = diff(before, services.memory(b, whole_days=False, name="b"))
        if not found.removed:
            return found
        reading, gone = services.reading(), {fact.id for fact in found.removed}
        known = services.true_in(reading, services.times(reading).cut("b", b, whole_days=False), "", "~")
        ended = {fact.id: fact.valid_until for fact in known if fact.id in gone and fact.valid_until is not None}
        return msgspec.structs.replace(found, ended=ended)

    def graph(
        self,
        *,
        thread: str | None = None,
        fact: str | None = None,
        since: At | None = None,
        limit: int = 200,
    ) -> Graph:
        """Return the graph of facts, the updates and threads they came from, and what superseded what.

        Args:
            thread: Only what was learned from this conversation, and what became of it.
            fact: Only this fact, its sources and its successors; a unique beginning of its id is enough.
            since: Only updates from this commit or time on.
            limit: How many updates at most, the newest first.

        Returns:
            The graph: `dot()` and `mermaid()` write it for those programs, `backstory.page.graph_page` draws it.
            `left_out` counts the updates beyond `limit`.

        Raises:
            NotFoundError: There is no such thread or fact.
            UsageError: Several ids begin so, or a value cannot be one of its kind.
        """
        from backstory.projections.graph import Choice, graph_of

        services = self._services
        most = checks.whole("limit", limit, 1)
        moment = None if since is None else services.times().bound("since", since)
        named = None if fact is None else checks.text("fact", fact)
        writer = services.reading()
        if thread is not None:
            must_know(writer, checks.text("thread", thread))
        wanted = None if named is None else services.fact_id(writer, named)
        choice = Choice(thread, wanted, moment, most)
        return graph_of(services.logs(writer), writer.scope, choice, spell_moment(writer.clock.now()))

    def message_flow(self, *, thread: str | None = None, since: When | None = None, limit: int = 200) -> MessageFlow:
        """Return who sent what to whom, over the turns that stand.

        Args:
            thread: Only this conversation.
            since: Only turns from this time on.
            limit: How many routes at most, those with the most turns first.

        Returns:
            A count for each route, with `dot()` and `mermaid()` as a graph has. `left_out` counts the routes beyond
            `limit`.

        Raises:
            NotFoundError: There is no such thread.
            UsageError: `since` is no time, or a value cannot be one of its kind.
        """
        from backstory.projections.graph import message_flow_of

        services = self._services
        most = checks.whole("limit", limit, 1)
        moment = None if since is None else services.times().time("since", since)
        writer = services.reading()
        if thread is not None:
            must_know(writer, checks.text("thread", thread))
        with writer.reader.state() as state:
            threads = state.transcript.threads
            turns = {name: threads[name].standing() for name in (threads if thread is None else (thread,))}
        return message_flow_of(turns, writer.scope, thread=thread, since=moment, limit=most)

    # What would be.

    def what_if(
        self, /, *, until: int | str | None = None, progress: Progress | None = None, **policy: PolicyValue
    ) -> WhatIf:
        """Decide the whole history again under another policy, and compare. Nothing is written.

        Args:
            until: Leave out later commits than this one, on both sides.
            progress: Gets the number of commits that are done.
            **policy: The policy keys to change, with their values.

        Returns:
            Memory today against what it would be.

        Raises:
            ConfigError: A policy key is unknown, or a value is outside its range.
            NotFoundError: The ledger has no commit `until`.
        """
        services = self._services
        policy = read_policy(policy)
        writer = services.reading()
        now = writer.memory()
        overrides = overrides_for(policy, now.policy)
        today = now if until is None else services.logs(writer).memory_at(services.times(writer).commit("until", until))
        would_be = decide_again(WhatIfRun(writer.store, writer.ledger, today.seq), overrides, progress=progress)
        would_be = would_be.standing_at(spell_moment(writer.clock.now()) if until is None else today.at)
        found = diff(today, would_be)
        return WhatIf(found.added, found.removed, found.revised, found.sections, len(would_be.facts))

    alog = in_thread(log)
    atimeline = in_thread(timeline)
    ausage = in_thread(usage)
    awhy = in_thread(why)
    awhy_said = in_thread(why_said)
    awhy_section = in_thread(why_section)
    awhy_not = in_thread(why_not)
    arefusals = in_thread(refusals)
    aseq_of = in_thread(seq_of)
    adiff = in_thread(diff)
    agraph = in_thread(graph)
    amessage_flow = in_thread(message_flow)
    awhat_if = in_thread(what_if)
