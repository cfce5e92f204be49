"""Reading memory: as it is, as it was, why it is so, and what if."""

from __future__ import annotations

import contextlib
from itertools import islice, takewhile

from backstory.results import PolicyResult, WhatIf
from backstory.scoped import Progress, Scoped, begun_fact, known_policy
from ledger.commit import Head
from ledger.errors import CorruptLogError, NotFoundError, UsageError
from ledger.events import Fact
from ledger.policy import PolicyValue
from projections.audit import Refusal, Why, why, why_not
from projections.document import Document, document_of
from projections.history import Diff, LogEntry, diff, entry
from projections.replay import read_moment
from projections.verify import Verification, verify
from projections.what_if import Walk, decide_again, overrides_for

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
        """Return a live fact by its id or a unique beginning of it; the id of one that is gone is no beginning.

        Raises:
            NotFoundError: no live fact begins so.
            UsageError: several do.
        """
        found = begun_fact(self._memory(), fact_id)
        if found.id != fact_id:
            with contextlib.suppress(UsageError):
                if self.fact_id(fact_id) == fact_id:
                    raise NotFoundError(f"fact {fact_id} is gone from memory: see `why`")
        return found

    def log(
        self, *, limit: int | None = None, fact: str | None = None, thread: str | None = None, since: str | None = None
    ) -> tuple[LogEntry, ...]:
        """Return the commits, newest first; `fact`, `thread` and `since` (a time, or a seq) narrow them.

        Raises:
            NotFoundError: there is and was no such fact.
            UsageError: `since` is neither a seq nor a time.
        """
        logs = self._logs(self._reading())
        wanted = None if fact is None else self.fact_id(fact)
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

    def why(self, fact_id: str) -> Why:
        """Explain a fact, live or gone, down to the words that were said; a unique beginning of its id will do.

        Raises:
            NotFoundError: there is and was no such fact.
            UsageError: several begin so.
        """
        logs = self._logs(self._reading())
        return why(logs, self.fact_id(fact_id))

    def fact_id(self, prefix: str) -> str:
        """Return the id of the one fact, live or gone, that an id or its unique beginning names.

        Raises:
            NotFoundError: there is and was no such fact; a complete id is never taken for a beginning.
            UsageError: several begin so.
        """
        return self._known_fact(self._reading(), prefix)

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
        """Check both chains, what they say of each other, and memory.json and the index against them."""
        # Whoever reads on mends an index that is damaged, and with it what is to be told here.
        differing = self._logs(self._writer).differs()
        if not differing:
            with contextlib.suppress(CorruptLogError):
                self._engine.keeper.flush(self._writer)
        return verify(
            self._writer.store,
            self.scope,
            document=self._engine.document(self.scope),
            index=lambda: differing,
            expect_head=expect_head,
            clock=self._writer.clock,
        )

    def what_if(self, *, until: int | None = None, progress: Progress | None = None, **policy: PolicyValue) -> WhatIf:
        """Decide the whole history again under another policy, and compare: today against what would be.

        `until` leaves out the commits after a seq, on both sides. Nothing is written.

        Raises:
            ConfigError: an unknown policy key, or a value outside its range.
            NotFoundError: the ledger has no commit `until`.
        """
        known_policy(policy)
        writer = self._reading()
        now = writer.memory()
        overrides = overrides_for(policy, now.policy)
        today = now if until is None else self._logs(writer).memory_at(read_moment(until))
        would_be = decide_again(Walk(writer.store, writer.ledger, today.seq), overrides, progress=progress)
        return WhatIf.of(diff(today, would_be), len(would_be.facts))

    def policy(self) -> PolicyResult:
        """Return the policy in force."""
        memory = self._writer.memory()
        return PolicyResult(memory.policy, memory.configured)
