"""The async twins: each runs its namesake in a thread, so that an event loop never waits for a disk or a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from backstory.checks import When
from backstory.ledger.core.commit import Head
from backstory.ledger.core.events import Fact
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.operations.changing import Changing
from backstory.operations.context import Injecting
from backstory.operations.forgetting import Forgetting
from backstory.operations.graph import Picturing
from backstory.operations.history import Reading
from backstory.operations.learning import Learning, Mode, Recorded
from backstory.operations.recording import Unreadable
from backstory.operations.reextraction import Reextraction
from backstory.operations.scope_base import Progress
from backstory.operations.search import Searching, Within
from backstory.projections.context import Context
from backstory.projections.document.document import Document
from backstory.projections.history.audit import Refusal, Why
from backstory.projections.history.history import Diff, LogEntry
from backstory.projections.history.preview import UndoResult
from backstory.projections.integrity.verify import Verification
from backstory.projections.search.results import Found
from backstory.projections.search.services import Embedded
from backstory.results import (
    Extracted,
    FactChange,
    Forgotten,
    PolicyResult,
    RecordResult,
    Reextracted,
    Restored,
    SignedHead,
    Status,
    SupersededTurn,
    ThreadSummary,
    TurnView,
    WhatIf,
)

if TYPE_CHECKING:
    from pathlib import Path

    from backstory.config.model_factory import ModelLike
    from backstory.ledger.extraction.recorded import RecordedReply
    from backstory.ledger.messages import KeepHidden
    from backstory.projections.graph import Graph, MessageFlow

__all__ = ["AsyncTwins"]


_P = ParamSpec("_P")
_T = TypeVar("_T")


async def _in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Whoever has no event loop should not pay for importing one."""
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)


class AsyncTwins(Learning, Reading, Injecting, Reextraction, Searching, Changing, Forgetting, Picturing):
    """Every method that does I/O, once more with an `a` before its name."""

    async def arecord(
        self,
        thread: str,
        messages: Iterable[object],
        *,
        mode: Mode = "conversation",
        immediate: bool = False,
        keep_hidden: KeepHidden | None = None,
        on_unreadable: Unreadable | None = None,
    ) -> RecordResult:
        """See `record`."""
        return await _in_thread(
            self.record,
            thread,
            messages,
            mode=mode,
            immediate=immediate,
            keep_hidden=keep_hidden,
            on_unreadable=on_unreadable,
        )

    async def aflush(self, timeout: float = 30.0) -> bool:  # noqa: ASYNC109 the twin keeps its namesake's words
        """See `flush`."""
        return await _in_thread(self.flush, timeout)

    async def aextract(
        self,
        replies: Sequence[Recorded] | None = None,
        *,
        thread: str | None = None,
        backdate: bool = False,
        on_skipped: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> Extracted:
        """See `extract`."""
        return await _in_thread(
            self.extract, replies, thread=thread, backdate=backdate, on_skipped=on_skipped, progress=progress
        )

    async def aretry(self, thread: str | None = None, *, replies: Sequence[Recorded] | None = None) -> Extracted:
        """See `retry`."""
        return await _in_thread(self.retry, thread, replies=replies)

    async def adiscard(self, thread: str) -> Extracted:
        """See `discard`."""
        return await _in_thread(self.discard, thread)

    async def athreads(self) -> tuple[ThreadSummary, ...]:
        """See `threads`."""
        return await _in_thread(self.threads)

    async def atranscript(self, thread: str) -> tuple[TurnView, ...]:
        """See `transcript`."""
        return await _in_thread(self.transcript, thread)

    async def asuperseded(self, thread: str) -> tuple[SupersededTurn, ...]:
        """See `superseded`."""
        return await _in_thread(self.superseded, thread)

    async def arestore(self, thread: str, turns: Sequence[str | int] | None = None) -> Restored:
        """See `restore`."""
        return await _in_thread(self.restore, thread, turns)

    async def asummaries(self, thread: str) -> tuple[ThreadSummaryText, ...]:
        """See `summaries`."""
        return await _in_thread(self.summaries, thread)

    async def astatus(self) -> Status:
        """See `status`."""
        return await _in_thread(self.status)

    async def adocument(self, at: int | str | None = None) -> Document:
        """See `document`."""
        return await _in_thread(self.document, at)

    async def aexport(self) -> Document:
        """See `export`."""
        return await _in_thread(self.export)

    async def afacts(self) -> tuple[Fact, ...]:
        """See `facts`."""
        return await _in_thread(self.facts)

    async def afact(self, fact_id: str) -> Fact:
        """See `fact`."""
        return await _in_thread(self.fact, fact_id)

    async def afact_id(self, prefix: str) -> str:
        """See `fact_id`."""
        return await _in_thread(self.fact_id, prefix)

    async def alog(
        self, *, limit: int | None = None, fact: str | None = None, thread: str | None = None, since: str | None = None
    ) -> tuple[LogEntry, ...]:
        """See `log`."""
        return await _in_thread(self.log, limit=limit, fact=fact, thread=thread, since=since)

    async def awhy(self, fact_id: str) -> Why:
        """See `why`."""
        return await _in_thread(self.why, fact_id)

    async def awhy_not(self, text: str) -> tuple[Refusal, ...]:
        """See `why_not`."""
        return await _in_thread(self.why_not, text)

    async def agraph(
        self,
        *,
        thread: str | None = None,
        fact: str | None = None,
        since: int | When | None = None,
        limit: int = 200,
    ) -> Graph:
        """See `graph`."""
        return await _in_thread(self.graph, thread=thread, fact=fact, since=since, limit=limit)

    async def aletters(self, *, thread: str | None = None, since: When | None = None, limit: int = 200) -> MessageFlow:
        """See `letters`."""
        return await _in_thread(self.letters, thread=thread, since=since, limit=limit)

    async def adiff(self, a: int | str, b: int | str) -> Diff:
        """See `diff`."""
        return await _in_thread(self.diff, a, b)

    async def ahead(self) -> Head:
        """See `head`."""
        return await _in_thread(self.head)

    async def asign_head(self, key: str) -> SignedHead:
        """See `sign_head`."""
        return await _in_thread(self.sign_head, key)

    async def averify(
        self, *, expect_head: str | None = None, note: str | None = None, key: str | None = None
    ) -> Verification:
        """See `verify`."""
        return await _in_thread(self.verify, expect_head=expect_head, note=note, key=key)

    async def awhat_if(
        self, *, until: int | None = None, progress: Progress | None = None, **policy: PolicyValue
    ) -> WhatIf:
        """See `what_if`."""
        return await _in_thread(self.what_if, until=until, progress=progress, **policy)

    async def areextract(
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
        """See `reextract`."""
        return await _in_thread(
            self.reextract,
            model,
            prompts,
            thread=thread,
            replies=replies,
            max_calls=max_calls,
            max_tokens=max_tokens,
            progress=progress,
        )

    async def asearch(
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
        """See `search`."""
        return await _in_thread(
            self.search,
            query,
            top_k=top_k,
            category=category,
            within=within,
            thread=thread,
            since=since,
            until=until,
            min_similarity=min_similarity,
            explain=explain,
        )

    async def aembed(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 the twin keeps its namesake's words
        progress: Callable[[int, int], None] | None = None,
    ) -> Embedded:
        """See `embed`."""
        return await _in_thread(self.embed, timeout=timeout, progress=progress)

    async def apolicy(self) -> PolicyResult:
        """See `policy`."""
        return await _in_thread(self.policy)

    async def arevert(self, seq: int | str = "HEAD", *, dry_run: bool = False, force: bool = False) -> UndoResult:
        """See `revert`."""
        return await _in_thread(self.revert, seq, dry_run=dry_run, force=force)

    async def arollback(self, to: int | str, *, dry_run: bool = False) -> UndoResult:
        """See `rollback`."""
        return await _in_thread(self.rollback, to, dry_run=dry_run)

    async def acontext(
        self,
        messages: str | Iterable[object] | None = None,
        max_tokens: int | None = None,
        *,
        thread: str | None = None,
        facts: bool = True,
    ) -> Context:
        """See `context`."""
        return await _in_thread(self.context, messages, max_tokens, thread=thread, facts=facts)

    async def aadd_fact(self, content: str, category: str = "context", confidence: float = 0.9) -> FactChange:
        """See `add_fact`."""
        return await _in_thread(self.add_fact, content, category, confidence)

    async def aedit_fact(
        self, fact_id: str, content: str | None = None, category: str | None = None, confidence: float | None = None
    ) -> FactChange:
        """See `edit_fact`."""
        return await _in_thread(self.edit_fact, fact_id, content, category, confidence)

    async def aremove_fact(self, fact_id: str) -> FactChange:
        """See `remove_fact`."""
        return await _in_thread(self.remove_fact, fact_id)

    async def aclear(self, *, all_agents: bool = False) -> Document:
        """See `clear`."""
        return await _in_thread(self.clear, all_agents=all_agents)

    async def aimport_document(self, document: object, *, replace: bool = False) -> Document:
        """See `import_document`."""
        return await _in_thread(self.import_document, document, replace=replace)

    async def areload(self) -> Document:
        """See `reload`."""
        return await _in_thread(self.reload)

    async def atouch(self, *fact_ids: str) -> int:
        """See `touch`."""
        return await _in_thread(self.touch, *fact_ids)

    async def aforget(
        self,
        fact_id: str | None = None,
        *,
        thread_id: str | None = None,
        matching: str | None = None,
        everything: bool = False,
        with_evidence: bool = False,
        dry_run: bool = False,
    ) -> Forgotten:
        """See `forget`."""
        return await _in_thread(
            self.forget,
            fact_id,
            thread_id=thread_id,
            matching=matching,
            everything=everything,
            with_evidence=with_evidence,
            dry_run=dry_run,
        )

    async def aset_policy(self, **changes: PolicyValue) -> PolicyResult:
        """See `set_policy`."""
        return await _in_thread(self.set_policy, **changes)
