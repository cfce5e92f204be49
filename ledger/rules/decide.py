"""What happens when something is asked of a memory: every rule, on one screen.

`decide(memory, command) -> events` is pure. It never raises over content: what a model, a document or a person proposed
and did not get is a CandidateRejected event, under one of these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    Extract,
    FailUpdate,
    ImportDocument,
    RemoveFact,
    Revert,
    RollBack,
    SaveDocument,
    Summarize,
)
from backstory.ledger.core.errors import CapError, ConflictError, NotFoundError
from backstory.ledger.core.events import FactRemoved, LedgerEvent, PolicyChanged, Section, SummaryUpdated, UpdateFailed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy, check_policy
from backstory.ledger.core.summaries import sum_up
from backstory.ledger.rules.admission import sweep
from backstory.ledger.rules.by_hand import add_by_hand, edit_by_hand, merge_document, replace_document
from backstory.ledger.rules.document_save import save_document
from backstory.ledger.rules.merge import merge_update
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.undo import plan_revert, plan_rollback

__all__ = ["RULES", "decide"]

RULES: Mapping[str, str] = MappingProxyType(
    {
        "malformed": "the item is not in the agreed shape",
        "gate": "its labels say that it is no lasting statement about the user",
        "empty": "it says nothing",
        "upload": "it only says that a file was uploaded",
        "threshold": "its confidence is under the policy's threshold",
        "duplicate": "a live fact, or a stronger one of the same batch, says the same",
        "cap": "memory is full, and what is there ranks higher or may not be evicted",
        "unknown_fact": "it refers to a fact that is not live or was not shown to the model",
        "by_hand": "a person entered the fact it refers to, so a model may not touch it",
        "repeated": "the same update already asks for it",
        "replacement_refused": "what was to replace the fact was itself refused",
        "removal_refused": "the fact that it was to replace stays, for its removal was refused by the gate",
        "not_due": "the fact it reviews is not up for review",
        "sources": "the facts it would merge may not be merged",
        "limit": "an update may do this only so often, and others come first",
        "gone": "the fact it confirms or extends leaves memory in the same update",
        "unchanged": "memory already says exactly this",
        "older": "the imported section is older than the one in memory",
        "disabled": "this kind of change is not enabled",
        "basis": "a clear, forget, revert or rollback came between the question and the answer",
        "covered": "another update covered the same turns first",
    }
)


def decide(memory: Memory, command: Command) -> tuple[LedgerEvent, ...]:
    """Return the events that a command leads to on this memory; they belong to one commit.

    Raises:
        NotFoundError: a fact to remove by hand is not there.
        ConflictError: an undo would overwrite later work, and force was not given; or a document was to be imported
            into another memory than the one there is.
        CapError: a policy too small for the facts entered by hand.
        ConfigError: a policy with a value outside its range.
    """
    match command:
        case Extract():
            return tuple(merge_update(memory, command))
        case FailUpdate():
            return (_failure(memory, command),)
        case AddFact():
            return tuple(add_by_hand(memory, command))
        case EditFact():
            return tuple(edit_by_hand(memory, command))
        case RemoveFact():
            return _remove_by_hand(memory, command)
        case Clear():
            return _clear(memory)
        case ImportDocument() | SaveDocument():
            return _take_in(memory, command)
        case ChangePolicy():
            return _change_policy(memory, command)
        case Revert():
            return _revert(memory, command)
        case RollBack():
            return plan_rollback(memory, command).events
        case Summarize():
            return sum_up(memory, command)


def _failure(memory: Memory, command: FailUpdate) -> UpdateFailed:
    """What was erased meanwhile must not come back in the words of a complaint, which may quote the question."""
    erased = command.basis is not None and memory.barriers.get("redaction", 0) > command.basis
    detail = "the model failed after an erasure; what it said is not kept" if erased else command.detail
    return UpdateFailed(command.reason, detail, command.attempts, command.turns)


def _remove_by_hand(memory: Memory, command: RemoveFact) -> tuple[LedgerEvent, ...]:
    fact = memory.facts.get(command.fact_id)
    if fact is None:
        raise NotFoundError(f"there is no live fact {command.fact_id}: see `fact list` for those there are")
    return (FactRemoved(fact, "hand"),)


def _take_in(memory: Memory, command: ImportDocument | SaveDocument) -> tuple[LedgerEvent, ...]:
    if isinstance(command, SaveDocument):
        return tuple(save_document(memory, command))
    if command.basis not in (None, memory.seq):
        raise ConflictError(
            f"the document was to be imported after commit {command.basis}, and the last is {memory.seq}: look again"
        )
    return tuple((replace_document if command.replace else merge_document)(memory, command))


def _clear(memory: Memory) -> tuple[LedgerEvent, ...]:
    facts = [FactRemoved(fact, "clear") for fact in memory.in_order()]
    sections = [SummaryUpdated(name, section, Section()) for name, section in memory.sections.items()]
    return (*facts, *sections)


def _change_policy(memory: Memory, command: ChangePolicy) -> tuple[LedgerEvent, ...]:
    policy = check_policy(command.policy)
    ranking = Ranking(policy, command.at, command.heat)
    dropped = sweep(memory.facts.values(), ranking, by_hand_too=False)
    if len(memory.facts) - len(dropped) > policy.max_facts:
        kept = sum(fact.by_hand for fact in memory.facts.values())
        raise CapError(
            f"{kept} facts were entered by hand and max_facts would be {policy.max_facts}: remove some first"
        )
    before: Policy | None = memory.policy if memory.seq else None
    return (
        *(FactRemoved(drop.fact, drop.rule, detail=drop.detail) for drop in dropped),
        PolicyChanged(before, policy, command.source),
    )


def _revert(memory: Memory, command: Revert) -> tuple[LedgerEvent, ...]:
    plan = plan_revert(memory, command)
    if plan.conflicts and not command.force:
        first = plan.conflicts[0]
        more = f" and {len(plan.conflicts) - 1} more" if len(plan.conflicts) > 1 else ""
        raise ConflictError(
            f"commit {command.target} cannot be reverted as it is: {first.fact} {first.detail}{more}; "
            "look with --dry-run, then --force"
        )
    return plan.events
