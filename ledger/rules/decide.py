"""Decider: the events that each command leads to. Reading about the rules starts here.

`decide(memory, command)` is a pure function: it reads no clock and writes nothing. A candidate that is refused, whether
it comes from a model, a document or a person, becomes a CandidateRejected event that names one of RULES.

Where each command is decided:

    Extract                          merge; it calls screening, then admission
    AddFact, EditFact, RemoveFact    by_hand; a tool's facts are screened as a model's
    ImportDocument, SaveDocument     document
    Revert, RollBack                 undo
    Expire                           review
    Summarize                        core.summaries
    ShareSummaries, MoveSections     shared_sections
    FailUpdate, Clear, ChangePolicy  here

`admission` holds the threshold, duplicates and the cap for all of them; `ranking` and `review` serve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    Expire,
    Extract,
    FailUpdate,
    ImportDocument,
    MoveSections,
    RemoveFact,
    Revert,
    RollBack,
    SaveDocument,
    ShareSummaries,
    Summarize,
)
from backstory.ledger.core.errors import CapError
from backstory.ledger.core.events import (
    FactRemoved,
    LedgerEvent,
    PolicyChanged,
    Removal,
    Section,
    SummaryUpdated,
    UpdateFailed,
)
from backstory.ledger.core.kinds import Rule
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import check_policy
from backstory.ledger.core.summaries import sum_up
from backstory.ledger.rules.admission import sweep
from backstory.ledger.rules.by_hand import add_fact, edit_fact, remove_fact
from backstory.ledger.rules.document import import_document, save_document
from backstory.ledger.rules.merge import merge_update
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import expiry
from backstory.ledger.rules.shared_sections import move_sections, receive_summaries
from backstory.ledger.rules.undo import plan_rollback, revert

RULES: Mapping[Rule, str] = MappingProxyType(
    {
        "malformed": "the item does not have the agreed shape",
        "too_long": "a text of it is longer than memory keeps",
        "gate": "its labels say that it is not a lasting statement about the user",
        "empty": "it has no text",
        "upload": "it only says that a file was uploaded",
        "threshold": "its confidence is below the policy's threshold",
        "duplicate": "a live fact, or a stronger one of the same batch, says the same",
        "cap": "memory is full, and its facts rank higher or may not be evicted",
        "unknown_fact": "it refers to a fact that is not live or was not shown to the model",
        "by_hand": "it would change a fact that a person entered",
        "repeated": "another candidate of the same update asks for the same",
        "replacement_refused": "it removes a fact whose replacement was refused",
        "removal_refused": "it replaces a fact whose removal was refused by the gate or for its older evidence",
        "not_due": "the fact it reviews is not due for review",
        "sources": "the facts it would merge may not be merged",
        "limit": "the update has reached the limit for this kind of change",
        "gone": "the fact it confirms or extends leaves memory in the same update",
        "unchanged": "memory already says exactly this",
        "older": "the section is older than the one in memory",
        "disabled": "the policy does not enable this kind of change",
        "basis": "a clear, forget, revert or rollback was committed after the model was asked",
        "covered": "another update covered the same turns first",
        "removed_by_hand": "a person took it away, and the user has not said it again since",
        "expired": "its `expiresAt` has passed",
        "erased": "its text was erased, and the user has not said it again since; nothing of it is kept",
        "older_evidence": "its words are older than those that the fact rests on, or that took the same text away",
        "assistant_only": "only an assistant said it, and the policy asks for a user's words",
        "topic": "the policy's instructions leave it out; of what they say never to keep, no text is kept",
    }
)
"""Every rule that can refuse a candidate, and what a refusal by it means."""


def decide(memory: Memory, command: Command) -> tuple[LedgerEvent, ...]:  # noqa: C901, PLR0912 one case for each command
    """Return the events that a command leads to; they belong to one commit.

    Args:
        memory: the state that the command is decided on.
        command: what is asked, with its time and all that it needs.

    Raises:
        NotFoundError: A single fact to remove is not in memory.
        ConflictError: An undo would overwrite later work and is not forced; an import was made for another commit; or
            sections were received or moved already.
        CapError: A new policy's `max_facts` is lower than the number of facts entered by hand.
        ConfigError: A policy has a value outside its range.
    """
    match command:
        case Extract():
            return tuple(merge_update(memory, command))
        case FailUpdate():
            return (_fail_update(memory, command),)
        case AddFact():
            return tuple(add_fact(memory, command))
        case EditFact():
            return tuple(edit_fact(memory, command))
        case RemoveFact():
            return tuple(remove_fact(memory, command))
        case Expire():
            return tuple(expiry(memory, command.at))
        case Clear():
            return tuple(_clear(memory))
        case ImportDocument():
            return tuple(import_document(memory, command))
        case SaveDocument():
            return tuple(save_document(memory, command))
        case ShareSummaries():
            return tuple(receive_summaries(memory, command))
        case MoveSections():
            return tuple(move_sections(memory, command))
        case ChangePolicy():
            return tuple(_change_policy(memory, command))
        case Revert():
            return revert(memory, command)
        case RollBack():
            return plan_rollback(memory, command).events
        case Summarize():
            return sum_up(memory, command)
        case _:
            assert_never(command)


def may_rank(memory: Memory, command: Command) -> bool:
    """Whether deciding a command may rank facts for eviction, which it cannot while memory has room."""
    match command:
        case (
            EditFact()
            | RemoveFact()
            | Expire()
            | Clear()
            | FailUpdate()
            | Summarize()
            | ShareSummaries()
            | MoveSections()
        ):
            return False
        case AddFact():
            most = 1
        case Extract(proposal=proposal):
            # A review that asks for more removals than are allowed ranks facts, too.
            if any(isinstance(candidate, Removal) for candidate in proposal.candidates):
                return True
            most = len(proposal.candidates)
        case ImportDocument(candidates=candidates, replace=False) | SaveDocument(candidates=candidates):
            most = len(candidates)
        case ImportDocument() | ChangePolicy() | Revert() | RollBack():
            return True
        case _:
            assert_never(command)
    return len(memory.facts) + most > memory.policy.max_facts


def _fail_update(memory: Memory, command: FailUpdate) -> UpdateFailed:
    # An error text may quote the question, so it is dropped if content was erased after the question.
    erased = command.basis is not None and memory.barriers.get("redaction", 0) > command.basis
    detail = "the model failed after an erasure; what it said is not kept" if erased else command.detail
    return UpdateFailed(command.reason, detail, command.attempts, command.turns)


def _clear(memory: Memory) -> list[LedgerEvent]:
    facts = [FactRemoved(fact, "clear") for fact in memory.in_order()]
    return [*facts, *(SummaryUpdated(name, section, Section()) for name, section in memory.sections.items())]


def _change_policy(memory: Memory, command: ChangePolicy) -> list[LedgerEvent]:
    policy = check_policy(command.policy)
    dropped = sweep(memory.facts.values(), Ranking(policy, command.at, command.heat), by_hand_too=False)
    if len(memory.facts) - len(dropped) > policy.max_facts:
        by_hand = sum(fact.by_hand for fact in memory.facts.values())
        raise CapError(
            f"{by_hand} facts were entered by hand and max_facts would be {policy.max_facts}: remove some first"
        )
    return [*dropped, PolicyChanged(memory.policy if memory.seq else None, policy, command.source)]
