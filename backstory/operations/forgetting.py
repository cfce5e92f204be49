"""Erasure in one scope: content goes from both logs and from all that is derived from them, for good."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.core.errors import NotFoundError, StoreError
from backstory.ledger.erasure.requests import Erasure, ForgetEverything, Plan
from backstory.ledger.log.writer import Writer
from backstory.operations.services import ScopeServices
from backstory.results import ErasedContent, Forgotten


def forget(services: ScopeServices, request: Erasure, *, dry_run: bool) -> Forgotten:
    """Erase what is asked for from the memory of one scope; see `MemoryHandle.forget`."""
    seq, plan = _erase(services, services.writer, request, dry_run=dry_run)
    return _forgotten([plan], seq)


def forget_everything(services: ScopeServices, *, dry_run: bool) -> Forgotten:
    """Empty all logs of a user, the agents' first, so that an interrupted call can be repeated."""
    alone = services.scope.user is None or services.scope.agent is not None
    plans: list[Plan] = []
    seq: int | None = None
    for writer in (*(() if alone else services.agents()), services.writer):
        try:
            seq, plan = _erase(services, writer, ForgetEverything(), dry_run=dry_run)
        except NotFoundError:
            if writer is services.writer and not plans:
                raise
            seq = None
        else:
            plans.append(plan)
    return _forgotten(plans, seq)


def _erase(services: ScopeServices, writer: Writer, request: Erasure, *, dry_run: bool) -> tuple[int | None, Plan]:
    if dry_run:
        return None, writer.plan_erasure(request)
    if left := services.home.outbox.let_in(writer.scope):
        raise StoreError(
            f"{left} deliveries still wait to be recorded in the memory of {writer.scope}, and would bring back "
            "what is to be forgotten: mend what `status` shows under faults, then forget again"
        )
    commit, plan = writer.forget(request, actor=services.actor)
    services.home.projector.flush(writer)
    return commit.seq, plan


def _forgotten(plans: Sequence[Plan], seq: int | None) -> Forgotten:
    return Forgotten(
        tuple(
            ErasedContent(event.stream, event.seq, event.what, event.fact, event.section)
            for plan in plans
            for event in plan.redacted
        ),
        tuple(sharing for plan in plans for sharing in plan.also),
        seq,
    )
