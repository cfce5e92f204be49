"""Reading memory: as it is, as it was, why it is so, and what if."""

from __future__ import annotations

import contextlib
from itertools import islice, takewhile

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import CorruptLogError, InputError, NotFoundError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import PolicyValue
from backstory.operations.scope_base import Progress, ScopeBase, begun_fact, known_policy
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.audit import Refusal, Why, why, why_not
from backstory.projections.history.history import Diff, LogEntry, diff, entry
from backstory.projections.history.replay import read_moment
from backstory.projections.integrity.verify import Problem, Verification, verify
from backstory.projections.integrity.witnessed import NOTE, Heads, Witnessed
from backstory.projections.what_if.what_if import WhatIfRun, decide_again, overrides_for
from backstory.results import PolicyResult, SignedHead, WhatIf

__all__ = ["Reading"]


class Reading(ScopeBase):
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
        return self._writer.store.durable_head(self._writer.ledger)

    def sign_head(self, key: str) -> SignedHead:
        """Sign the heads of both streams as a note, to keep elsewhere; see `verify`.

        Args:
            key: The private key, `PRIVATE+KEY+name+id+base64`; `backstory keygen` makes one.

        Returns:
            The ledger's head and the note, which names the transcript's head, too.

        Raises:
            InputError: the key is none.
            ConfigError: the extra [signing] is not installed.
        """
        from backstory.witness.signing import head_text, sign_text

        writer = self._writer
        ledger, transcript = map(writer.store.durable_head, (writer.ledger, writer.transcript_stream))
        return SignedHead(ledger.seq, ledger.hash, sign_text(head_text(self.scope, ledger, transcript), key))

    def verify(
        self, *, expect_head: str | None = None, note: str | None = None, key: str | None = None
    ) -> Verification:
        """Check both chains, what they say of each other, and memory.json and the index against them.

        Where a witness file is configured, every head in it has to be in its chain.

        Args:
            expect_head: A hash that has to be in the ledger's chain.
            note: A signed note over heads of this memory, which have to be in the chains.
            key: The key that has to have signed it, `name+id+base64`.

        Returns:
            What was checked and what was found.

        Raises:
            UsageError: a note without a key, or the other way round.
            InputError: the note or the key is none, or the note is about another memory.
            ConfigError: the extra [signing] is not installed.
        """
        # Before the logs are read: they have what was put down before, and perhaps more.
        elsewhere, problems = self._elsewhere(note, key)
        # Whoever reads on mends an index that is damaged, and with it what is to be told here.
        differing = self._logs(self._writer).differs()
        if not differing:
            with contextlib.suppress(CorruptLogError):
                self._services.projector.flush_if_free(self._writer)
        found = verify(
            self._writer.store,
            self.scope,
            document=self._services.document(self.scope),
            index=lambda: differing,
            expect_head=expect_head,
            witnessed=elsewhere,
            clock=self._writer.clock,
        )
        if not problems:
            return found
        return msgspec.structs.replace(found, ok=False, problems=(*found.problems, *problems))

    def _elsewhere(self, note: str | None, key: str | None) -> tuple[list[Witnessed], list[Problem]]:
        """What was put down of heads outside of the log, and what is wrong with a note."""
        if (note is None) != (key is None):
            raise UsageError("a note is verified with a key: give both, note and key")
        witnessed = [] if self._services.witness is None else [self._services.witness.read(self.scope)]
        if note is None or key is None:
            return witnessed, []
        from backstory.witness.signing import open_note, origin_of, read_head_text

        text = open_note(note, key)
        if text is None:
            told = f"the note is not signed by {key.partition('+')[0]} with this key, or was changed since"
            return witnessed, [Problem("bad_signature", NOTE, 0, 0, told)]
        stated = read_head_text(text)
        if stated.origin != origin_of(self.scope):
            raise InputError(
                f"the note is about {stated.origin}, and this memory is {origin_of(self.scope)}: "
                "name the user and agent that it is about"
            )
        ledger, transcript = Heads(), Heads()
        ledger.add(stated.ledger)
        if stated.transcript is not None:
            transcript.add(stated.transcript)
        return [*witnessed, Witnessed("the signed note", ledger, transcript)], []

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
        would_be = decide_again(WhatIfRun(writer.store, writer.ledger, today.seq), overrides, progress=progress)
        return WhatIf.of(diff(today, would_be), len(would_be.facts))

    def policy(self) -> PolicyResult:
        """Return the policy in force."""
        memory = self._writer.memory()
        return PolicyResult(memory.policy, memory.configured)
