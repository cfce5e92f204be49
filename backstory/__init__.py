"""Long-term memory for LLM agents, kept as an event-sourced ledger.

    from backstory import Backstory

    with Backstory.open("~/.backstory") as bs:
        memory = bs.memory(user_id="ada")
        memory.record("thread-1", [{"role": "user", "content": "I live in Oslo."}, …])

Importing this package costs next to nothing: a name is loaded when it is first used. The name
`deerflow:LedgerMemoryStorage` is the attribute of a module, for hosts that split a dotted path at its last dot.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if os.name == "nt":
    raise ImportError("Backstory runs on Linux and macOS; on Windows install it in WSL, see `wsl --install`")

if TYPE_CHECKING:
    from backstory.checks import Unreadable as Unreadable
    from backstory.config.keys import SettingKeys as SettingKeys
    from backstory.config.model_factory import ModelLike as ModelLike
    from backstory.home import Backstory as Backstory
    from backstory.ledger.concurrency.clock import Clock as Clock
    from backstory.ledger.core.commit import Cause as Cause
    from backstory.ledger.core.commit import Head as Head
    from backstory.ledger.core.errors import BackstoryError as BackstoryError
    from backstory.ledger.core.errors import CapError as CapError
    from backstory.ledger.core.errors import ConfigError as ConfigError
    from backstory.ledger.core.errors import ConflictError as ConflictError
    from backstory.ledger.core.errors import CorruptLogError as CorruptLogError
    from backstory.ledger.core.errors import DuplicateFactError as DuplicateFactError
    from backstory.ledger.core.errors import ForbiddenError as ForbiddenError
    from backstory.ledger.core.errors import InputError as InputError
    from backstory.ledger.core.errors import KeyReusedError as KeyReusedError
    from backstory.ledger.core.errors import LockTimeoutError as LockTimeoutError
    from backstory.ledger.core.errors import ModelError as ModelError
    from backstory.ledger.core.errors import ModelRejectedError as ModelRejectedError
    from backstory.ledger.core.errors import ModelUnavailableError as ModelUnavailableError
    from backstory.ledger.core.errors import NoModelError as NoModelError
    from backstory.ledger.core.errors import NotFoundError as NotFoundError
    from backstory.ledger.core.errors import RefusedError as RefusedError
    from backstory.ledger.core.errors import ReplyError as ReplyError
    from backstory.ledger.core.errors import ScopeError as ScopeError
    from backstory.ledger.core.errors import SealedError as SealedError
    from backstory.ledger.core.errors import StoreError as StoreError
    from backstory.ledger.core.errors import UnavailableError as UnavailableError
    from backstory.ledger.core.errors import UnknownOutcomeError as UnknownOutcomeError
    from backstory.ledger.core.errors import UsageError as UsageError
    from backstory.ledger.core.errors import WitnessError as WitnessError
    from backstory.ledger.core.errors import WrongExpectedVersionError as WrongExpectedVersionError
    from backstory.ledger.core.events import Attribute as Attribute
    from backstory.ledger.core.events import Fact as Fact
    from backstory.ledger.core.policy import Policy as Policy
    from backstory.ledger.core.policy import PolicyValue as PolicyValue
    from backstory.ledger.core.scope import MemoryScope as MemoryScope
    from backstory.ledger.core.scope import Scope as Scope
    from backstory.ledger.core.summaries import ThreadSummaryText as ThreadSummaryText
    from backstory.ledger.erasure.requests import Sharing as Sharing
    from backstory.ledger.extraction.models.recorded import RecordedReply as RecordedReply
    from backstory.ledger.learning.flushed import Flushed as Flushed
    from backstory.ledger.learning.observing import CallEnded as CallEnded
    from backstory.ledger.learning.observing import CallStarted as CallStarted
    from backstory.ledger.learning.observing import Observer as Observer
    from backstory.ledger.learning.observing import UpdateSettled as UpdateSettled
    from backstory.ledger.log.pipeline import Salts as Salts
    from backstory.ledger.log.writer import Listener as Listener
    from backstory.ledger.messages.keeping import KeepHidden as KeepHidden
    from backstory.ledger.threads.delivery.turn_dedup import Mode as Mode
    from backstory.memory import MemoryHandle as MemoryHandle
    from backstory.metagpt.turns import Turns as Turns
    from backstory.operations.document_access import DocumentAccess as DocumentAccess
    from backstory.operations.learning import Recorded as Recorded
    from backstory.operations.recording import Intake as Intake
    from backstory.operations.undoing import ClearedAgent as ClearedAgent
    from backstory.operations.undoing import UndoResult as UndoResult
    from backstory.otel import OpenTelemetryObserver as OpenTelemetryObserver
    from backstory.projections.context import Context as Context
    from backstory.projections.context.why_said import WhySaid as WhySaid
    from backstory.projections.document.document import Document as Document
    from backstory.projections.document.document import DocumentFact as DocumentFact
    from backstory.projections.document.document import DocumentSection as DocumentSection
    from backstory.projections.graph import Graph as Graph
    from backstory.projections.graph import MessageFlow as MessageFlow
    from backstory.projections.history.audit import Birth as Birth
    from backstory.projections.history.audit import Evidence as Evidence
    from backstory.projections.history.audit import HistoryItem as HistoryItem
    from backstory.projections.history.audit import Removed as Removed
    from backstory.projections.history.audit import Why as Why
    from backstory.projections.history.moment import CommitChange as CommitChange
    from backstory.projections.history.moment import FactOrder as FactOrder
    from backstory.projections.history.moment import FactWindow as FactWindow
    from backstory.projections.history.moment import MemoryMoment as MemoryMoment
    from backstory.projections.history.moment import SectionText as SectionText
    from backstory.projections.history.refusals import Refusal as Refusal
    from backstory.projections.history.refusals import WhyNot as WhyNot
    from backstory.projections.history.section_audit import SectionHistoryItem as SectionHistoryItem
    from backstory.projections.history.section_audit import WhySection as WhySection
    from backstory.projections.history.times import At as At
    from backstory.projections.history.times import When as When
    from backstory.projections.history.views import Diff as Diff
    from backstory.projections.history.views import LogEntry as LogEntry
    from backstory.projections.history.views import Revision as Revision
    from backstory.projections.history.views import SectionChange as SectionChange
    from backstory.projections.index.builder import IndexProgress as IndexProgress
    from backstory.projections.index.timeline import CommitTime as CommitTime
    from backstory.projections.index.timeline import DayUsage as DayUsage
    from backstory.projections.index.timeline import ModelUsage as ModelUsage
    from backstory.projections.index.timeline import Timeline as Timeline
    from backstory.projections.index.timeline import TimelineBucket as TimelineBucket
    from backstory.projections.integrity.stream_check import Problem as Problem
    from backstory.projections.integrity.verify import Verification as Verification
    from backstory.projections.search.filters import Within as Within
    from backstory.projections.search.results import Explanation as Explanation
    from backstory.projections.search.results import Found as Found
    from backstory.projections.search.results import Hit as Hit
    from backstory.projections.search.vectors.background_embedding import Embedded as Embedded
    from backstory.projections.turns import TurnView as TurnView
    from backstory.projections.turns.superseded import SupersededTurn as SupersededTurn
    from backstory.projections.what_if.needed import ExplainedRefusal as ExplainedRefusal
    from backstory.projections.what_if.needed import NeededValue as NeededValue
    from backstory.projections.what_if.reextract import UpdateCounts as UpdateCounts
    from backstory.results import ArchivedMemory as ArchivedMemory
    from backstory.results import ArchivedUser as ArchivedUser
    from backstory.results import ErasedContent as ErasedContent
    from backstory.results import Eviction as Eviction
    from backstory.results import Extracted as Extracted
    from backstory.results import FactChange as FactChange
    from backstory.results import FaultCount as FaultCount
    from backstory.results import Forgotten as Forgotten
    from backstory.results import FoundOwners as FoundOwners
    from backstory.results import ImportedDocument as ImportedDocument
    from backstory.results import ParkedThread as ParkedThread
    from backstory.results import PendingThread as PendingThread
    from backstory.results import PolicyResult as PolicyResult
    from backstory.results import ReadFile as ReadFile
    from backstory.results import RecordResult as RecordResult
    from backstory.results import Reextracted as Reextracted
    from backstory.results import RefusedItem as RefusedItem
    from backstory.results import RemovedScope as RemovedScope
    from backstory.results import RemovedUser as RemovedUser
    from backstory.results import RenamedFact as RenamedFact
    from backstory.results import Restored as Restored
    from backstory.results import ScopeSummary as ScopeSummary
    from backstory.results import SignedHead as SignedHead
    from backstory.results import SkippedText as SkippedText
    from backstory.results import Status as Status
    from backstory.results import ThreadSummary as ThreadSummary
    from backstory.results import WhatIf as WhatIf
    from backstory.services.services import HeadsSeen as HeadsSeen
    from backstory.services.services import Progress as Progress
    from backstory.version import __version__ as __version__

_TABLE = """
checks Unreadable
config.keys SettingKeys
config.model_factory ModelLike
home Backstory
ledger.concurrency.clock Clock
ledger.core.commit Cause Head
ledger.core.errors BackstoryError CapError ConfigError ConflictError CorruptLogError DuplicateFactError
ledger.core.errors ForbiddenError InputError KeyReusedError
ledger.core.errors LockTimeoutError ModelError ModelRejectedError ModelUnavailableError NoModelError NotFoundError
ledger.core.errors RefusedError ReplyError ScopeError SealedError StoreError UnavailableError UnknownOutcomeError
ledger.core.errors UsageError WitnessError WrongExpectedVersionError
ledger.core.events Attribute Fact
ledger.core.policy Policy PolicyValue
ledger.core.scope MemoryScope Scope
ledger.core.summaries ThreadSummaryText
ledger.erasure.requests Sharing
ledger.extraction.models.recorded RecordedReply
ledger.learning.flushed Flushed
ledger.learning.observing CallEnded CallStarted Observer UpdateSettled
ledger.log.pipeline Salts
ledger.log.writer Listener
ledger.messages.keeping KeepHidden
ledger.threads.delivery.turn_dedup Mode
memory MemoryHandle
metagpt.turns Turns
operations.document_access DocumentAccess
operations.learning Recorded
operations.recording Intake
otel OpenTelemetryObserver
projections.context Context
projections.context.why_said WhySaid
projections.document.document Document DocumentFact DocumentSection
projections.graph Graph MessageFlow
projections.history.audit Birth Evidence HistoryItem Removed Why
projections.history.views Diff LogEntry Revision SectionChange
projections.history.moment CommitChange FactOrder FactWindow MemoryMoment SectionText
operations.undoing ClearedAgent UndoResult
projections.history.refusals Refusal WhyNot
projections.history.section_audit SectionHistoryItem WhySection
projections.history.times At When
projections.index.builder IndexProgress
projections.index.timeline DayUsage ModelUsage
projections.index.timeline CommitTime Timeline TimelineBucket
projections.integrity.stream_check Problem
projections.integrity.verify Verification
projections.search.filters Within
projections.search.results Explanation Found Hit
projections.search.vectors.background_embedding Embedded
projections.turns TurnView
projections.turns.superseded SupersededTurn
projections.what_if.needed ExplainedRefusal NeededValue
projections.what_if.reextract UpdateCounts
results ArchivedMemory ArchivedUser
results ErasedContent Eviction Extracted FactChange FaultCount Forgotten FoundOwners ImportedDocument ParkedThread
results PendingThread ReadFile
results PolicyResult RecordResult Reextracted RefusedItem RemovedScope RemovedUser RenamedFact Restored ScopeSummary
results SignedHead SkippedText Status ThreadSummary WhatIf
services.services HeadsSeen Progress
version __version__
"""
"""Each exported name after its module, for the interpreter; type checkers read the imports above."""
_MODULE_OF = {
    name: f"{__name__}.{module}" for module, *names in map(str.split, _TABLE.strip().splitlines()) for name in names
}
__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 it is a list


def __getattr__(name: str) -> object:
    from importlib import import_module

    module, _, attribute = name.partition(":")
    if attribute:
        return getattr(import_module(f"{__name__}.{module}"), attribute)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
