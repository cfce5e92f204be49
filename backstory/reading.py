"""Reading memory: as it is, as it was, why it is so, and what if."""

from __future__ import annotations

import msgspec

from backstory.results import PolicyResult, WhatIf
from backstory.scoped import Progress, Scoped, known_policy, live_fact
from ledger.commit import Head
from ledger.events import Fact
from ledger.policy import Policy, check_policy
from projections.audit import Refusal, Why, find_fact, why, why_not
from projections.document import Document, document_of
from projections.history import Diff, LogEntry, concerns, diff, entry
from projections.replay import memory_at, read_moment
from projections.verify import Verification, verify
from projections.what_if import PolicyValue, decide_again

__all__ = ["Reading"]


class Reading(Scoped):
    """The part of a handle that answers questions and writes nothing."""

    def document(self, at: int | str | None = None) -> Document:
        """Return memory.json's content, now or as it was after a commit or at a time.

        Raises:
            UsageError: `at` is neither a seq nor a time.
            NotFoundError: the ledger has no such commit.
        """
        return document_of(self._memory(at))

    def export(self) -> Document:
        """Return the document, to keep or to import elsewhere."""
        return self.document()

    def facts(self) -> tuple[Fact, ...]:
        """Return the live facts, oldest first."""
        return tuple(self._memory().in_order())

    def fact(self, fact_id: str) -> Fact:
        """Return a live fact by its id or a unique beginning of it.

        Raises:
            NotFoundError: no live fact begins so.
            UsageError: several do.
        """
        return live_fact(self._memory(), fact_id)

    def log(
        self, *, limit: int | None = None, fact: str | None = None, thread: str | None = None, since: str | None = None
    ) -> tuple[LogEntry, ...]:
        """Return the commits, newest first; `fact`, `thread` and `since` (a time, or a seq) narrow them.

        Raises:
            NotFoundError: there is and was no such fact.
            UsageError: `since` is neither a seq nor a time.
        """
        commits = self._commits(self._reading())
        if fact is not None:
            wanted = find_fact(commits, fact)
            commits = [commit for commit in commits if concerns(commit, wanted)]
        if thread is not None:
            commits = [commit for commit in commits if commit.cause.thread == thread]
        if since is not None:
            moment = read_moment(since)
            commits = [c for c in commits if (c.seq >= moment if isinstance(moment, int) else c.at >= moment)]
        newest = commits[::-1]
        return tuple(map(entry, newest if limit is None else newest[:limit]))

    def why(self, fact_id: str) -> Why:
        """Explain a fact, live or gone, down to the words that were said; a unique beginning of its id will do.

        Raises:
            NotFoundError: there is and was no such fact.
            UsageError: several begin so.
        """
        writer = self._reading()
        commits = self._commits(writer)
        wanted = find_fact(commits, fact_id)
        with writer.state() as state:
            return why(commits, state.transcript, state.memory, wanted)

    def why_not(self, text: str) -> tuple[Refusal, ...]:
        """Find candidates like a text that were refused, and facts like it that were removed, the best match first."""
        writer = self._reading()
        return why_not(self._commits(writer), writer.memory(), text)

    def diff(self, a: int | str, b: int | str) -> Diff:
        """Compare memory at two moments: what `b` has that `a` has not is added.

        Raises:
            UsageError: one is neither a seq nor a time.
            NotFoundError: the ledger has no such commit.
        """
        return diff(self._memory(a), self._memory(b))

    def head(self) -> Head:
        """Return seq and hash of the last commit, to sign or pin elsewhere."""
        return self._writer.store.head(self._writer.ledger)

    def verify(self, *, expect_head: str | None = None) -> Verification:
        """Check both chains, what they say of each other, and memory.json against the replay."""
        document = self._engine.document(self.scope)
        return verify(self._writer.store, self.scope, document=document, expect_head=expect_head)

    def what_if(self, *, until: int | None = None, progress: Progress | None = None, **policy: PolicyValue) -> WhatIf:
        """Decide the whole history again under another policy, and compare: today against what would be.

        `until` leaves out the commits after a seq, on both sides. Nothing is written.

        Raises:
            ConfigError: an unknown policy key, or a value outside its range.
        """
        known_policy(policy)
        check_policy(msgspec.structs.replace(Policy(), **policy))
        writer = self._reading()
        commits = self._commits(writer)
        commits = commits if until is None else [commit for commit in commits if commit.seq <= until]
        would_be = decide_again(commits, policy, progress=progress)
        today = writer.memory() if until is None else memory_at(writer.store, writer.scope, until)
        return WhatIf.of(diff(today, would_be), len(would_be.facts))

    def policy(self) -> PolicyResult:
        """Return the policy in force."""
        memory = self._writer.memory()
        return PolicyResult(memory.policy, memory.configured)
