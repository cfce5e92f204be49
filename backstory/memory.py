"""Memory handle: the memory of one user and agent, with all of its operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.checks import Unreadable
from backstory.descriptors import translate_verbs
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.core.sanitize import MAX_NAME, bounded_name, safe_text
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.ledger.erasure.requests import Erasure, ForgetFact, ForgetMatching, ForgetThread
from backstory.ledger.learning.flushed import Flushed
from backstory.ledger.threads.turn_dedup import Mode
from backstory.metagpt.turns import Turns
from backstory.operations import (
    changing,
    context,
    conversations,
    forgetting,
    history,
    learning,
    reextraction,
    search,
    status,
    verification,
)
from backstory.operations.document_access import DocumentAccess
from backstory.operations.learning import Recorded
from backstory.operations.recording import Intake
from backstory.operations.search import Within
from backstory.operations.services import HeadsSeen, Progress, ScopeServices
from backstory.projections.context import Context
from backstory.projections.context.joined import parted
from backstory.projections.context.why_said import WhySaid
from backstory.projections.document.document import Document, document_of
from backstory.projections.history.audit import Why, WhyNot, why, why_not
from backstory.projections.history.history import Diff, LogEntry, diff
from backstory.projections.history.moment import FactOrder, FactQuery, MemoryMoment
from backstory.projections.history.preview import UndoResult
from backstory.projections.history.section_audit import WhySection
from backstory.projections.history.times import At, When
from backstory.projections.index.keyed_commits import digest_of
from backstory.projections.index.model_usage import ModelUsage
from backstory.projections.index.timeline import Timeline
from backstory.projections.integrity.verify import Verification
from backstory.projections.search.results import Found
from backstory.projections.search.vectors.background_embedding import Embedded
from backstory.projections.turns import TurnView
from backstory.projections.turns.superseded import SupersededTurn
from backstory.projections.what_if.needed import ExplainedRefusal
from backstory.results import (
    Extracted,
    FactChange,
    Forgotten,
    ImportedDocument,
    PolicyResult,
    RecordResult,
    Reextracted,
    Restored,
    SignedHead,
    SkippedText,
    Status,
    ThreadSummary,
    WhatIf,
)

if TYPE_CHECKING:
    from pathlib import Path

    from backstory.config.model_factory import ModelLike
    from backstory.ledger.extraction.recorded import RecordedReply
    from backstory.ledger.messages import KeepHidden
    from backstory.projections.graph import Graph, MessageFlow


@translate_verbs
class MemoryHandle:
    """The memory of one user and agent; get it from `Backstory.memory`.

    Every method reads the newest state, commits of other processes included. Every method raises StoreError,
    LockTimeoutError or CorruptLogError where the store cannot be used, and UsageError once the home is closed. Every
    method that does I/O has an async twin with an `a` before its name.
    """

    def __init__(self, services: ScopeServices) -> None:
        self._services = services

    def __repr__(self) -> str:
        return f"<MemoryHandle of {self.scope}>"

    # Whose memory it is.

    @property
    def scope(self) -> Scope:
        """The user and the agent whose memory this is."""
        return self._services.scope

    def by(self, actor: str, thread: str | None = None, *, by_model: bool = False) -> MemoryHandle:
        """Return the same memory for another actor: changes made through it are recorded as this actor's.

        With `by_model` they are a model's, made with a tool: a fact that it adds competes for room with the others,
        under the rules for facts of a model, and models may change it again. What a person entered stays as it is: to
        edit or remove it raises RefusedError, and the refusal is recorded.

        Args:
            actor: Who changes the memory, for example `agent:lead`.
            thread: The conversation in which the changes are made; `why` and `log` show it, and forgetting it erases
                them.
            by_model: Whether a model makes the changes, and not a person.

        Returns:
            Another handle on the same memory.

        Raises:
            UsageError: A value is no text, or the actor is empty or has more than 512 characters.
        """
        named = safe_text(checks.text("actor", actor).strip())
        if not named:
            raise UsageError("the actor is empty: say who changes the memory")
        if len(named) > MAX_NAME:
            raise UsageError(f"the actor has {len(named):,} characters: name who changes the memory in {MAX_NAME}")
        conversation = None if thread is None else bounded_name(checks.text("thread", thread)) or None
        services = msgspec.structs.replace(self._services, actor=named, conversation=conversation, by_model=by_model)
        return MemoryHandle(services)

    def expecting(self, head: Head | str) -> MemoryHandle:
        """Return the same memory for changes that hold only on a head that was seen.

        A commit by hand, an undo, an import, a clear, a change of the policy and an erasure raise
        WrongExpectedVersionError where the ledger has another head by then, and write nothing. So does `record` where
        the ledger has another head as it begins. What is extracted does not depend on the head.

        Args:
            head: The head, or its hash; see `head`.

        Returns:
            Another handle on the same memory.

        Raises:
            UsageError: The hash is no text.
        """
        seen = head.hash if isinstance(head, Head) else checks.text("head", head)
        return MemoryHandle(msgspec.structs.replace(self._services, expected=seen))

    def once(self, key: str) -> MemoryHandle:
        """Return the same memory for one delivery, or one change of a fact, that counts once however often it is sent.

        A repeated request returns what the first one did, or raises what it raised, also in another process and after a
        restart. The commit records a digest of the key.

        Args:
            key: Names the request, for example a UUID. It is recognised in this memory for 24 hours at least.

        Returns:
            Another handle on the same memory. Its `record`, `add_fact`, `edit_fact` and `remove_fact` raise
            KeyReusedError where the key was used for another request.

        Raises:
            UsageError: The key is no text, or empty.
        """
        if not checks.text("key", key):
            raise UsageError("the key is empty: give each change a key of its own, such as a UUID")
        return MemoryHandle(msgspec.structs.replace(self._services, key=digest_of(key)))

    # Recording.

    def record(
        self,
        thread: str,
        messages: Iterable[object],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        on_unreadable: Unreadable | None = None,
    ) -> RecordResult:
        """Record what is new of a conversation. It is durable on return and is extracted after the debounce.

        A user's last words wait for their answer, for `answer_wait_seconds` at most; `flush` and `extract` learn from
        them at once. With `enabled: false` nothing is kept, and every message counts as skipped.

        Args:
            thread: The conversation's id, 1 to 512 characters.
            messages: Dicts, LangChain or OpenAI messages: the whole conversation, or what is new of it.
            mode: `conversation` finds out what is new; `branch` does, too, and where messages with ids begin as the
                thread does and go on with another message, the pending turns behind that stand no longer; with
                `append` all messages are new; with `replace` they are the whole conversation as it stands now, and
                turns that they leave out stand no longer.
            immediate: Skip the debounce, for words that the agent is about to lose; a user's last words still wait for
                their answer.
            keep_hidden: Gets the `additional_kwargs` of a message that its host hides; True keeps it.
            on_unreadable: Gets the index in `messages` and the error of a message that cannot be read; the message is
                skipped.

        Returns:
            How many turns are new, skipped and superseded.

        Raises:
            InputError: `messages` is no list, or one cannot be read and there is no `on_unreadable`. Nothing is
                recorded.
            UsageError: The thread or the mode cannot be one.
        """
        if mode not in get_args(Mode):
            raise UsageError(f"mode must be conversation, branch, append or replace, got {mode!r}")
        sent = checks.messages_in(messages)
        kept = checks.kept_of(sent, keep_hidden, on_unreadable)
        taken = self.intake.take_in(thread, kept, mode=mode, immediate=immediate)
        return msgspec.structs.replace(taken, skipped=taken.skipped + len(sent) - len(kept))

    def threads(self) -> tuple[ThreadSummary, ...]:
        """Return the recorded conversations.

        Returns:
            One summary per thread, in the order of their first turns.
        """
        return conversations.threads(self._services.writer)

    def find_threads(self, messages: Iterable[object] = (), *, turn_id: str | None = None) -> tuple[str, ...]:
        """Return the threads that a conversation may continue, for a host that does not name its conversations.

        Only the newest 100 threads are looked at. A first question continues no thread, unless one holds this question
        alone and no answer to it.

        Args:
            messages: The whole conversation up to now, with the question at its end.
            turn_id: The id of one of the last turns of the thread; `messages` are not looked at then.

        Returns:
            The names of the threads, the likeliest first.

        Raises:
            InputError: `messages` is no list, or one cannot be read.
        """
        if turn_id is not None:
            checks.text("turn_id", turn_id)
        kept = () if turn_id is not None else checks.kept_of(checks.messages_in(messages))
        return conversations.find_threads(self._services.writer, kept, turn_id)

    def transcript(self, thread: str) -> tuple[TurnView, ...]:
        """Return the turns of a thread that stand, in order.

        Args:
            thread: The conversation's id.

        Returns:
            The turns, oldest first.

        Raises:
            NotFoundError: There is no such thread.
        """
        return conversations.transcript(self._services.writer, thread)

    def summaries(self, thread: str) -> tuple[ThreadSummaryText, ...]:
        """Return the summaries of a long thread.

        Args:
            thread: The conversation's id.

        Returns:
            The summaries without overlap, oldest turns first; none covers the newest turns yet.

        Raises:
            NotFoundError: There is no such thread.
        """
        return conversations.summaries(self._services.writer, thread)

    def superseded(self, thread: str) -> tuple[SupersededTurn, ...]:
        """Return the turns of a thread that no longer stand and can be restored.

        Args:
            thread: The conversation's id.

        Returns:
            The turns, oldest first.

        Raises:
            NotFoundError: There is no such thread.
        """
        return conversations.superseded(self._services.writer, thread)

    def skipped(self, thread: str) -> tuple[SkippedText, ...]:
        """Return what a harness had put before the words of a thread, and what the proxy has not recorded.

        Args:
            thread: The conversation's id.

        Returns:
            Each text by the turn that it came with, the oldest first. The text itself is not kept.

        Raises:
            NotFoundError: There is no such thread.
        """
        return conversations.skipped(self._services.writer, thread)

    def restore(self, thread: str, turns: Sequence[str | int] | None = None) -> Restored:
        """Restore superseded turns: they stand again, in their place, and are pending.

        Args:
            thread: The conversation's id.
            turns: Ids or ordinals, as `superseded` shows them; of several turns with one id the last. None: the turns
                that a delivery superseded without proof that it was the whole conversation.

        Returns:
            The turns that stand again.

        Raises:
            NotFoundError: There is no such thread; or a named turn is not superseded, is erased, or a later text stands
                under its id. Nothing is restored then.
        """
        return conversations.restore(self._services, thread, turns)

    @property
    def turns(self) -> Turns:
        """The recorded turns, with the operations of MetaGPT's Memory. They are read when they are asked for."""
        return Turns(self._services, self._append)

    # Extracting.

    def extract(
        self,
        replies: Sequence[Recorded] | None = None,
        *,
        thread: str | None = None,
        backdate: bool = False,
        on_skipped: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> Extracted:
        """Run every pending update now, then summarise threads that are long enough.

        It learns also from a user's last words, which have no answer yet. A bare acknowledgement alone waits for the
        next update.

        Args:
            replies: Recorded answers that take the model's place: a thread's pending turns make one update with its
                next reply. Recorded answers never lead to summaries.
            thread: Only this conversation.
            backdate: Date commits by the last turn they cover, for a backfill.
            on_skipped: Gets a line for each reply whose thread has nothing pending.
            progress: Gets the number of threads, or replies, that are done.

        Returns:
            The updates made, how many of them failed, and their commits.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
        """
        if replies is None:
            return learning.extract(self._services, thread=thread, backdate=backdate, progress=progress)
        return learning.answer(
            self._services, replies, thread=thread, backdate=backdate, on_skipped=on_skipped, progress=progress
        )

    def retry(self, thread: str | None = None, *, replies: Sequence[Recorded] | None = None) -> Extracted:
        """Run parked updates again.

        Args:
            thread: Only this conversation.
            replies: Recorded answers that take the model's place.

        Returns:
            The updates made, how many of them failed, and their commits.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
        """
        return learning.retry(self._services, thread, replies)

    def discard(self, thread: str) -> Extracted:
        """Give up a thread's parked updates: a commit covers their turns without learning from them.

        Args:
            thread: The conversation's id.

        Returns:
            The commits.

        Raises:
            NotFoundError: There is no such thread, or nothing of it is parked.
        """
        return learning.discard(self._services, thread)

    def flush(self, timeout: float = 30.0) -> Flushed:
        """Run everything pending now and bring memory.json up to date.

        It learns also from a user's last words, which have no answer yet. A bare acknowledgement alone waits for the
        next update. What an earlier failure has parked is left to `retry`.

        What is left of the time is given to the witness; whether it took the heads does not change the result: see
        `status`.

        Args:
            timeout: In seconds.

        Returns:
            True when everything is done and memory.json is exact. Otherwise a false result with its `reason`: there is
            no model, the time was over, an update failed, another process works on it, or memory.json cannot be
            written.
        """
        return learning.flush(self._services, checks.number("timeout", timeout, 0, math.inf))

    def status(self) -> Status:
        """Return where the memory stands: its head, what is pending or parked, and recent faults.

        Returns:
            The status; sizes are in bytes, times to wait in seconds.
        """
        return status.status(self._services)

    # Reading.

    def document(self, at: At | None = None) -> Document:
        """Return the content of memory.json, now or at an earlier moment.

        Args:
            at: A commit or a time, for its end; see docs/reference/times.md. None for now.

        Returns:
            The document, in DeerFlow's shape.

        Raises:
            UsageError: `at` is neither a commit nor a time, or in the future.
            NotFoundError: The ledger has no such commit.
        """
        return document_of(self._services.memory(at))

    def reload(self) -> Document:
        """Return the document afresh from the log and update memory.json.

        Where another process locks the ledger, memory.json follows with the next commit or flush.

        Returns:
            The document.
        """
        self._services.home.projector.flush_if_free(self._services.reading())
        return document_of(self._services.memory())

    def facts(self, at: At | None = None, *, joined: bool = True) -> tuple[Fact, ...]:
        """Return the live facts, now or at an earlier moment.

        An agent reads its user's facts, too, unless `agent_reads` says otherwise: then each is an `OwnedFact`, whose
        `owner` says whose it is, and of equal facts the agent's is there.

        Args:
            at: A commit or a time, for its end; see docs/reference/times.md. None for now.
            joined: False for the facts of this ledger alone.

        Returns:
            The facts, oldest first.

        Raises:
            UsageError: `at` is neither a commit nor a time, or in the future.
            NotFoundError: The ledger has no such commit.
        """
        both = self._services.joined(at) if joined else None
        return tuple(self._services.memory(at).in_order() if both is None else both.facts(self.scope))

    def moment(
        self,
        at: At | None = None,
        *,
        sort: FactOrder = "born",
        descending: bool = False,
        category: str | None = None,
        contains: str | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> MemoryMoment:
        """Return memory after a commit, as a window of its facts, and what that commit changed.

        Args:
            at: A commit or a time, for its end; see docs/reference/times.md. None for now.
            sort: What the facts are sorted by: born, confidence, content or category. Facts that are equal in it are in
                the order of their births.
            descending: The other way round.
            category: Only facts of this category.
            contains: Only facts with this text in them, in any case, width and Unicode form.
            offset: How many of the matching facts to skip.
            limit: How many to return at most.

        Returns:
            The sections and facts at that moment, with the numbers of all facts and of those that match.

        Raises:
            UsageError: `at` is neither a commit nor a time, or in the future, or another value is not of its kind.
            NotFoundError: The ledger has no such commit.
        """
        if sort not in get_args(FactOrder):
            raise UsageError(
                f"sort must be {', '.join(get_args(FactOrder)[:-1])} or {get_args(FactOrder)[-1]}, got {sort!r}"
            )
        query = FactQuery(
            sort,
            checks.flag("descending", descending),
            None if category is None else checks.text("category", category),
            None if contains is None else checks.text("contains", contains),
            checks.whole("offset", offset, 0),
            checks.whole("limit", limit, 0),
        )
        return history.moment(self._services, at, query)

    def fact(self, fact_id: str) -> Fact:
        """Return a live fact.

        Args:
            fact_id: Its id, or a unique beginning of it. The id of a fact that is gone is no beginning of another.

        Returns:
            The fact.

        Raises:
            NotFoundError: No live fact's id begins so.
            UsageError: Several do.
        """
        return history.fact(self._services, fact_id)

    def fact_id(self, prefix: str) -> str:
        """Return the full id of a fact, live or gone.

        Args:
            prefix: An id, or a unique beginning of one. A complete id is never a beginning of another.

        Returns:
            The id.

        Raises:
            NotFoundError: There is and was no such fact.
            UsageError: Several ids begin so.
        """
        return self._services.fact_id(self._services.reading(), prefix)

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        category: str | None = None,
        within: Within = "facts",
        thread: str | None = None,
        since: When | None = None,
        until: When | None = None,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Found:
        """Search live facts or standing turns, by words and by meaning.

        An agent finds its user's facts, too, unless `agent_reads` says otherwise: then the `owner` of a hit says whose
        it is. Turns are its own.

        Args:
            query: What to look for.
            top_k: How many hits at most; as configured unless given.
            category: Only facts of this category.
            within: `facts` or `turns`.
            thread: Only turns of this conversation, or facts learned from it.
            since: Only from this time on; see docs/reference/times.md.
            until: Only before this time, or up to the end of this day.
            min_similarity: The cosine, -1 to 1, that a hit by meaning alone needs; as configured unless given.
            explain: Say of each hit why it has its rank.

        Returns:
            The hits, the best first.

        Raises:
            UsageError: A value cannot be one of its kind, or nothing lies between `since` and `until`.
            NotFoundError: There is no such thread and, within facts, no live fact from it.
        """
        query = checks.text("query", query)
        most = None if top_k is None else checks.whole("top_k", top_k, 1)
        floor = None if min_similarity is None else checks.number("min_similarity", min_similarity, -1, 1)
        source = None if thread is None else checks.text("thread", thread)
        first, end = self._services.times().span(since, until)
        asked = search.Asked(query, most, within, category, source, first, end, floor, explain)
        return search.find(self._services, asked)

    def embed(self, *, timeout: float | None = None, progress: Callable[[int, int], None] | None = None) -> Embedded:
        """Embed every fact and turn that has no vector yet; otherwise this happens in the background.

        Args:
            timeout: In seconds; what is not embedded by then is left for later.
            progress: Gets how many of how many are done.

        Returns:
            How many were embedded, and how many are left.

        Raises:
            UsageError: `timeout` is no number from 0 on.
            NoModelError: There is no embedding model.
            ModelError: The model gave no usable answer.
        """
        return search.embed(self._services, timeout=timeout, progress=progress)

    def context(
        self,
        messages: str | Iterable[object] | None = None,
        max_tokens: int | None = None,
        *,
        thread: str | None = None,
        facts: bool = True,
    ) -> Context:
        """Return the block of memory to put before a model, in two parts.

        `standing` is for the system message: it depends on memory and policy alone (and, with `thread`, on that
        conversation's summaries), so it is the same text while memory is the same. `found` is what the question brings
        besides; it goes directly before the newest question. If all facts fit, all stand and nothing is found.
        `text` is both.

        The first block of a process waits until the vocabulary is loaded that counts its tokens, unless
        `Backstory.warm` was waited for.

        Args:
            messages: What the conversation is about, as messages or a text: it finds facts. With None those are found
                that rank next by themselves.
            max_tokens: The text never has more; `max_injection_tokens` unless given.
            thread: Add the summaries of this conversation.
            facts: Without them only sections and summaries are in the block, for an agent that searches facts itself.

        Returns:
            Both parts, their tokens and how they were counted, and the ids of the facts. Its `note()` is for the
            `metadata` of the answer, so that `why_said` can tell what the answer was given.

        Raises:
            InputError: `messages` is no list, or one of the last cannot be read.
            UsageError: `max_tokens` is no number above 0, or `thread` is no text.
        """
        return context.context(self._services, messages, max_tokens, thread=thread, facts=facts)

    def touch(self, *fact_ids: str) -> int:
        """Count live facts as used: with `fact_eviction_policy: hybrid`, facts in use stay longer.

        Args:
            *fact_ids: Ids of facts that a host has put in a prompt.

        Returns:
            How many of them are live.
        """
        own, users = parted(fact_ids)
        usage, beside = self._services.home.usage, self._services.beside()
        warmed = usage.touch(self._services.reading(), own)
        return warmed if beside is None else warmed + usage.touch(beside, users)

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
        most = None if limit is None else checks.whole("limit", limit, 0)
        named = None if thread is None else checks.text("thread", thread)
        end = None if before is None else checks.whole("before", before, 1)
        return history.log(self._services, limit=most, fact=fact, thread=named, since=since, before=end)

    def timeline(self, since: At | None = None, until: At | None = None, *, buckets: int = 200) -> Timeline:
        """Count the commits by time and by kind, over the whole history or a part of it.

        Args:
            since: Only from this commit or the beginning of this time on.
            until: Only up to this commit or the end of this time, which is included.
            buckets: Into how many stretches of equal width the time between them is divided.

        Returns:
            The counts of the range and of each stretch with commits in it.

        Raises:
            UsageError: A bound is neither a commit nor a time, `until` is before `since`, or `buckets` is no
                number from 1 on.
        """
        return history.timeline(self._services, since, until, buckets)

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
        return history.usage(self._services, since, until)

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
            return why(self._services.logs(reading), self._services.fact_id(reading, fact_id))

    def why_said(self, turn: str, thread: str | None = None) -> WhySaid:
        """Explain what the agent had been given to read when it said something.

        Args:
            turn: The id of the turn of the answer.
            thread: The conversation's id, where several have a turn of this id.

        Returns:
            The turn, and the facts as they were at that time. Where the turn notes nothing, `noted` is false: the host
            did not keep `Context.note()` with it, or memory was empty.

        Raises:
            NotFoundError: There is no such turn or thread.
            UsageError: Several threads have a turn of this id.
        """
        return history.said(self._services, turn, thread)

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
        return history.section_origin(self._services, checks.text("section", section))

    def why_not(self, text: str) -> WhyNot:
        """Find refused candidates and removed facts that are like a text, and facts in memory that are like it.

        Args:
            text: What is missing from memory.

        Returns:
            A tuple of the refusals and removals with their rules, the best match first. Its `remembered` are the facts
            in memory.
        """
        writer = self._services.reading()
        return why_not(self._services.commits(writer), writer.memory(), checks.text("text", text))

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
        return history.refusals(self._services, seq)

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
            The facts added, removed and revised, and the sections that differ.

        Raises:
            UsageError: One is neither a commit nor a time, is in the future, or is a whole day.
            NotFoundError: The ledger has no such commit.
        """
        before = self._services.memory(a, whole_days=False, name="a")
        return diff(before, self._services.memory(b, whole_days=False, name="b"))

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
        return history.graph(self._services, thread=thread, fact=fact, since=since, limit=limit)

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
        return history.message_flow(self._services, thread=thread, since=since, limit=limit)

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
        return history.what_if(self._services, policy, until=until, progress=progress)

    def reextract(
        self,
        model: ModelLike | None = None,
        prompts: str | Path | None = None,
        *,
        thread: str | None = None,
        replies: Sequence[RecordedReply] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> Reextracted:
        """Ask a model again over the recorded transcript, and compare. Nothing is written.

        Each recorded update is asked again on the memory that the new answers have led to so far, failed ones included;
        everything else is decided again, as for `what_if`. Pending turns are left out. Where the words are erased the
        recorded answer stands, and `notes` lists those commits.

        Args:
            model: What `Backstory.open` takes; the home's own unless given.
            prompts: A folder of templates in place of those configured.
            thread: Ask again about this conversation only.
            replies: Recorded answers that take the model's place: a thread's next update gets its next reply, and the
                recorded answer stands where none is left.
            max_calls: Stop after this number of calls, failed ones included.
            max_tokens: Stop before a call that would exceed this number of tokens.
            progress: Gets the number of commits that are done.

        Returns:
            Memory against what it would be, both as of the last commit reached, and what both cost.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
            UsageError: A cap is below 0, or a model and replies are both given.
            ConfigError: The folder of templates is missing, or one of them cannot be read.
        """
        return reextraction.reextract(
            self._services,
            model,
            prompts,
            thread=thread,
            replies=replies,
            max_calls=max_calls,
            max_tokens=max_tokens,
            progress=progress,
        )

    # Undoing.

    def revert(
        self, seq: int | str = "HEAD", *, dry_run: bool = False, force: bool = False, with_agents: bool = False
    ) -> UndoResult:
        """Undo what is still in force of one update; what it superseded lives again.

        Args:
            seq: A commit, by its number, `HEAD` for the last, `HEAD~1`, or the beginning of its hash.
            dry_run: Write nothing.
            force: Undo in spite of conflicts with later work.
            with_agents: Of a clear of the user and all agents, undo the agents', too. If one of them conflicts, nothing
                is written.

        Returns:
            The events; of such a clear also the `agents` that were cleared. Where later work conflicts nothing is
            written: `commit` is None, and `conflicts` gives the reasons.

        Raises:
            NotFoundError: There is no such commit.
            UsageError: It is the genesis, or no commit.
        """
        return changing.revert(self._services, seq, dry_run=dry_run, force=force, with_agents=with_agents)

    def rollback(self, to: At, *, dry_run: bool = False) -> UndoResult:
        """Bring back the facts and sections of an earlier moment, under today's policy.

        Args:
            to: A commit, or a time that is no whole day; see docs/reference/times.md.
            dry_run: Write nothing.

        Returns:
            The events, and the commit.

        Raises:
            NotFoundError: The ledger has no such commit.
            UsageError: `to` is neither a commit nor a time, is in the future, or is a whole day.
        """
        return changing.rollback(self._services, to, dry_run=dry_run)

    # Changing by hand.

    def add_fact(
        self,
        content: str,
        category: str = "context",
        confidence: float = 0.9,
        *,
        valid_from: str | None = None,
        valid_until: str | None = None,
        expires_at: str | None = None,
    ) -> FactChange:
        """Add a fact by hand. No model changes it from then on. A model's tools use `by`.

        Args:
            content: The fact.
            category: preference, knowledge, context, behavior, goal, correction, or a name of your own.
            confidence: From 0 to 1.
            valid_from: Since when it is true: a year, month, day or moment, such as 2026-03; the offset from UTC may
                stand behind it. None: unknown.
            valid_until: Until when it is true, to the end of that year, month or day.
            expires_at: Until when it is to be remembered, likewise.

        Returns:
            The commit, the fact, and the facts that the cap evicted for it.

        Raises:
            DuplicateFactError: A live fact says the same; the refusal is recorded.
            CapError: There is no room for it; the refusal is recorded.
            RefusedError: Another rule refuses a model's fact; the refusal is recorded.
            UsageError: The text or the category is empty, the confidence outside 0 to 1, or a time is none.
        """
        times = changing.GivenTimes(valid_from, valid_until, expires_at)
        return changing.add_fact(self._services, content, category, confidence, times)

    def edit_fact(
        self,
        fact_id: str,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
        *,
        valid_from: str | None = None,
        valid_until: str | None = None,
        expires_at: str | None = None,
    ) -> FactChange:
        """Change a fact by hand. No model changes it from then on. A model's tools use `by`.

        Args:
            fact_id: Its id, in full.
            content: The new text.
            category: The new category.
            confidence: The new confidence, from 0 to 1.
            valid_from: Since when it is true, as in `add_fact`; "" where that is not known after all.
            valid_until: Until when it is true, likewise.
            expires_at: Until when it is to be remembered, likewise.

        Returns:
            The commit and the fact as it is now.

        Raises:
            NotFoundError: There is no such live fact.
            DuplicateFactError: Another fact says the same.
            RefusedError: It is so already, or a model may not change it so; the refusal is recorded.
            UsageError: There is nothing to change, or a value cannot be one of its kind.
        """
        times = changing.GivenTimes(valid_from, valid_until, expires_at)
        return changing.edit_fact(
            self._services, fact_id, content=content, category=category, confidence=confidence, times=times
        )

    def remove_fact(self, fact_id: str, *, ended: bool = False, valid_until: str | None = None) -> FactChange:
        """Remove a fact, as wrong or, with `ended`, as true until now or until a time.

        Args:
            fact_id: Its id, in full.
            ended: Whether it was true until then.
            valid_until: Until when an ended fact was true, as in `add_fact`. If that is still to come, the fact says so
                and stays in memory until then.

        Returns:
            The commit and the fact as it was, or as it is until then.

        Raises:
            NotFoundError: There is no such live fact.
            RefusedError: A person entered it, and a model asks, or it would have ended before it began; the refusal is
                recorded.
            UsageError: The time is none, or is given for a fact that has not ended.
        """
        return changing.remove_fact(self._services, fact_id, ended=ended, valid_until=valid_until)

    def clear(self, *, all_agents: bool = False) -> Document:
        """Empty the memory and keep its history. Turns recorded so far are not extracted again.

        Args:
            all_agents: Empty the memories of all the user's agents too, each in a commit of its own.

        Returns:
            The empty document.

        Raises:
            UsageError: `all_agents` is given for an agent's memory.
        """
        return changing.clear(self._services, all_agents=all_agents)

    def import_document(self, document: object, *, replace: bool = False) -> ImportedDocument:
        """Import a memory in one commit. What is refused of it is recorded there, with the reason.

        Facts keep their ids, unless another fact here has or had the same one.

        Args:
            document: A document, a list of texts or facts, or the path of a JSON file or of a DeerFlow home, of which
                this scope's part is taken.
            replace: Put it in place of the memory, not beside it.

        Returns:
            The document as it is then, with the ids that were not kept, what was refused, and the facts that were
            removed here before and are back.

        Raises:
            InputError: It is no memory, or holds nothing of this scope.
        """
        return changing.import_document(self._services, document, replace=replace)

    def policy(self) -> PolicyResult:
        """Return the policy.

        Returns:
            The policy in force, and the configured one; before the first commit those that it will record.
        """
        return self._services.policy()

    def set_policy(self, /, **changes: PolicyValue) -> PolicyResult:
        """Change the policy. Facts that it does not allow leave memory in the same commit.

        Ranges are the ledger's, which are wider than those of the configuration.

        Args:
            **changes: Policy keys with their values.

        Returns:
            The policy in force; `commit` is None where it was in force already.

        Raises:
            ConfigError: A key is unknown, or a value is outside its range.
            CapError: More facts were entered by hand than `max_facts` would allow.
        """
        return changing.set_policy(self._services, changes)

    # Erasing.

    def forget(
        self,
        fact_id: str | None = None,
        *,
        thread_id: str | None = None,
        matching: str | None = None,
        everything: bool = False,
        with_evidence: bool = False,
        dry_run: bool = False,
    ) -> Forgotten:
        """Erase content for good, from both logs and everything derived from them: one of four things at a time.

        Words that nothing else uses go from sections and refusals, too.

        Args:
            fact_id: A fact, live or gone, by its full id.
            thread_id: A conversation, and what was learned from it.
            matching: Everything that holds this text, in any case and Unicode form.
            everything: All of it; for a user, also what the user's agents remember.
            with_evidence: With a fact, erase also the turns it was learned from.
            dry_run: Write nothing.

        Returns:
            What is erased; `also` lists what was learned from the same turns and stays.

        Raises:
            UsageError: Not exactly one of the four is given, or the text is empty.
            NotFoundError: There is nothing of that to erase.
            StoreError: Deliveries in the outbox cannot be recorded, so they cannot be searched.
        """
        if sum((fact_id is not None, thread_id is not None, matching is not None, everything)) != 1:
            raise UsageError("say what to forget, and one thing at a time: a fact, a thread, a text, or everything")
        if with_evidence and fact_id is None:
            raise UsageError("with_evidence is about a fact: name one, or forget the whole thread")
        services = self._services
        if everything:
            return forgetting.forget_everything(services, dry_run=dry_run)
        request: Erasure
        if fact_id is not None:
            named = services.fact_id(services.writer, checks.text("fact_id", fact_id), whole=True)
            request = ForgetFact(named, with_evidence)
        elif thread_id is not None:
            request = ForgetThread(safe_text(checks.text("thread_id", thread_id)))
        else:
            request = ForgetMatching(safe_text(checks.text("matching", matching)))
        return forgetting.forget(services, request, dry_run=dry_run)

    # Verifying.

    def head(self) -> Head:
        """Return the head of the ledger, to sign or pin elsewhere.

        Returns:
            The number and hash of the last commit.
        """
        writer = self._services.writer
        return writer.store.durable_head(writer.ledger)

    def heads(self, *, turns: bool = False) -> tuple[Head, ...]:
        """Return the heads that a read depends on: what is read stays the same as long as they do.

        Args:
            turns: Whether turns are read, too.

        Returns:
            The head of the ledger that is read; for an agent that reads its user's memory, or shares sections with it,
            that of the user's ledger; with `turns`, that of the transcript.
        """
        return self.heads_seen(turns=turns).heads

    def heads_seen(self, *, turns: bool = False) -> HeadsSeen:
        """Return the heads that a read depends on, as a value that tells later whether they still stand.

        Args:
            turns: Whether turns are read, too.

        Returns:
            The heads. Where agents share sections, and on an engine that cannot tell at once, they never stand.
        """
        return self._services.heads(turns=turns)

    def sign_head(self, key: str) -> SignedHead:
        """Sign the heads of both streams as a note, to keep elsewhere; see `verify`.

        Args:
            key: The private key, `PRIVATE+KEY+name+id+base64`; `backstory keygen` makes one.

        Returns:
            The ledger's head and the note, which states the transcript's head too.

        Raises:
            InputError: The key is none.
            ConfigError: The extra [signing] is not installed.
        """
        return verification.sign_head(self._services, key)

    def verify(
        self,
        *,
        expect_head: str | None = None,
        note: str | None = None,
        key: str | None = None,
        progress: Progress | None = None,
    ) -> Verification:
        """Verify both hash chains, and memory.json and the index against them.

        Where a witness file is configured, every head in it has to be in its chain.

        Args:
            expect_head: A hash that has to be in the ledger's chain.
            note: A signed note over heads of this memory, which have to be in the chains.
            key: The key that has to have signed the note, `name+id+base64`.
            progress: Gets the number of commits of both logs that are checked.

        Returns:
            What was checked, and the problems found.

        Raises:
            UsageError: A note is given without a key, or a key without a note.
            InputError: The note or the key is none, or the note is about another memory.
            ConfigError: The extra [signing] is not installed.
        """
        return verification.verify(self._services, expect_head=expect_head, note=note, key=key, progress=progress)

    # For hosts.

    @property
    def intake(self) -> Intake:
        """Takes in messages that were read before, for a host whose delivery had to wait."""
        return Intake(self._services)

    @property
    def own(self) -> DocumentAccess:
        """This memory alone, for a host that hands whole documents back or takes over another program's memory."""
        return DocumentAccess(self._services.alone())

    # Async twins.

    arecord = in_thread(record)
    athreads = in_thread(threads)
    afind_threads = in_thread(find_threads)
    atranscript = in_thread(transcript)
    asummaries = in_thread(summaries)
    asuperseded = in_thread(superseded)
    askipped = in_thread(skipped)
    arestore = in_thread(restore)
    aextract = in_thread(extract)
    aretry = in_thread(retry)
    adiscard = in_thread(discard)
    aflush = in_thread(flush)
    astatus = in_thread(status)
    adocument = in_thread(document)
    areload = in_thread(reload)
    afacts = in_thread(facts)
    amoment = in_thread(moment)
    afact = in_thread(fact)
    afact_id = in_thread(fact_id)
    asearch = in_thread(search)
    aembed = in_thread(embed)
    acontext = in_thread(context)
    atouch = in_thread(touch)
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
    areextract = in_thread(reextract)
    arevert = in_thread(revert)
    arollback = in_thread(rollback)
    aadd_fact = in_thread(add_fact)
    aedit_fact = in_thread(edit_fact)
    aremove_fact = in_thread(remove_fact)
    aclear = in_thread(clear)
    aimport_document = in_thread(import_document)
    apolicy = in_thread(policy)
    aset_policy = in_thread(set_policy)
    aforget = in_thread(forget)
    ahead = in_thread(head)
    aheads = in_thread(heads)
    aheads_seen = in_thread(heads_seen)
    asign_head = in_thread(sign_head)
    averify = in_thread(verify)

    # What `turns` works on.

    def _append(self, thread: str, messages: Sequence[object]) -> RecordResult:
        return self.record(thread, messages, mode="append")
