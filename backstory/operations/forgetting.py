"""Forgetting for good: content goes from both logs and from everything derived of them, and cannot be brought back."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.core.errors import NotFoundError, StoreError, UsageError
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.erasure.plan import Erasure, ForgetEverything, ForgetFact, ForgetMatching, ForgetThread, Plan
from backstory.ledger.log.writer import Writer
from backstory.operations.scope_base import ScopeBase
from backstory.results import ErasedContent, Forgotten

__all__ = ["Forgetting"]


class Forgetting(ScopeBase):
    """The part of a handle that erases."""

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
        """Erase content for good: a fact, a conversation, whatever holds a text, or everything.

        A fact may be gone from memory, and is named by its whole id: what cannot be undone guesses nothing. With
        `with_evidence` the turns it was learned from are erased as well. A text is found in any case and Unicode form.
        Everything of a user is also what the user's agents remember. Words that nothing else uses go from sections and
        refusals, too. With `dry_run` nothing is written; `also` in the result names what was learned from the same
        turns and stays.

        Raises:
            UsageError: not exactly one of the four, or an empty text.
            NotFoundError: there is nothing of that to erase.
            StoreError: what memory's faults have kept waiting cannot be recorded, and so not be looked through.
        """
        chosen = [fact_id is not None, thread_id is not None, matching is not None, everything]
        if sum(chosen) != 1:
            raise UsageError("say what to forget, and one thing at a time: a fact, a thread, a text, or everything")
        if with_evidence and fact_id is None:
            raise UsageError("with_evidence is about a fact: name one, or forget the whole thread")
        if everything:
            return self._forget_everything(dry_run=dry_run)
        request: Erasure
        if fact_id is not None:
            request = ForgetFact(self._known_fact(self._writer, fact_id, whole=True), with_evidence)
        elif thread_id is not None:
            request = ForgetThread(safe_text(thread_id))
        else:
            request = ForgetMatching(safe_text(matching or ""))
        seq, plan = self._erase(self._writer, request, dry_run=dry_run)
        return _told([plan], seq)

    def _forget_everything(self, *, dry_run: bool) -> Forgotten:
        """Empty the agents' logs before the user's own, so that whoever is interrupted finds something to ask again."""
        alone = self.scope.user is None or self.scope.agent is not None
        plans: list[Plan] = []
        seq: int | None = None
        for writer in (*(() if alone else self._agents()), self._writer):
            try:
                seq, plan = self._erase(writer, ForgetEverything(), dry_run=dry_run)
            except NotFoundError:
                if writer is self._writer and not plans:
                    raise
                seq = None
            else:
                plans.append(plan)
        return _told(plans, seq)

    def _erase(self, writer: Writer, request: Erasure, *, dry_run: bool) -> tuple[int | None, Plan]:
        if dry_run:
            return None, writer.plan_erasure(request)
        if left := self._services.waiting.let_in(writer.scope):
            raise StoreError(
                f"{left} deliveries still wait to be recorded in the memory of {writer.scope}, and would bring back "
                "what is to be forgotten: mend what `status` shows under faults, then forget again"
            )
        commit, plan = writer.forget(request, actor=self._services.actor)
        self._services.projector.flush(writer)
        return commit.seq, plan


def _told(plans: Sequence[Plan], seq: int | None) -> Forgotten:
    return Forgotten(
        tuple(
            ErasedContent(event.stream, event.seq, event.what, event.fact, event.section)
            for plan in plans
            for event in plan.redacted
        ),
        tuple(sharing for plan in plans for sharing in plan.also),
        seq,
    )
