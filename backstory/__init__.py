"""Long-term memory for LLM agents, kept as an event-sourced ledger.

    from backstory import Backstory

    with Backstory.open("~/.backstory") as bs:
        memory = bs.memory(user_id="ada")
        memory.record("thread-1", [{"role": "user", "content": "I live in Oslo."}, …])

Importing this package costs next to nothing: a name is loaded when it is first used. The name
`deerflow:LedgerMemoryStorage` is the attribute of a module, for hosts that split a dotted path at its last dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.home import Backstory as Backstory
    from backstory.ledger.core.commit import Cause as Cause
    from backstory.ledger.core.commit import Head as Head
    from backstory.ledger.core.errors import BackstoryError as BackstoryError
    from backstory.ledger.core.errors import CapError as CapError
    from backstory.ledger.core.errors import ConfigError as ConfigError
    from backstory.ledger.core.errors import ConflictError as ConflictError
    from backstory.ledger.core.errors import CorruptLogError as CorruptLogError
    from backstory.ledger.core.errors import DuplicateFactError as DuplicateFactError
    from backstory.ledger.core.errors import InputError as InputError
    from backstory.ledger.core.errors import LockTimeoutError as LockTimeoutError
    from backstory.ledger.core.errors import ModelError as ModelError
    from backstory.ledger.core.errors import ModelRejectedError as ModelRejectedError
    from backstory.ledger.core.errors import ModelUnavailableError as ModelUnavailableError
    from backstory.ledger.core.errors import NoModelError as NoModelError
    from backstory.ledger.core.errors import NotFoundError as NotFoundError
    from backstory.ledger.core.errors import RefusedError as RefusedError
    from backstory.ledger.core.errors import ReplyError as ReplyError
    from backstory.ledger.core.errors import ScopeError as ScopeError
    from backstory.ledger.core.errors import StoreError as StoreError
    from backstory.ledger.core.errors import UnavailableError as UnavailableError
    from backstory.ledger.core.errors import UsageError as UsageError
    from backstory.ledger.core.errors import WitnessError as WitnessError
    from backstory.ledger.core.errors import WrongExpectedVersionError as WrongExpectedVersionError
    from backstory.ledger.core.events import Fact as Fact
    from backstory.ledger.core.policy import Policy as Policy
    from backstory.ledger.core.scope import Scope as Scope
    from backstory.ledger.core.summaries import ThreadSummaryText as ThreadSummaryText
    from backstory.ledger.erasure.requests import Sharing as Sharing
    from backstory.ledger.extraction.recorded import RecordedReply as RecordedReply
    from backstory.ledger.learning.observing import CallEnded as CallEnded
    from backstory.ledger.learning.observing import CallStarted as CallStarted
    from backstory.ledger.learning.observing import Observer as Observer
    from backstory.ledger.learning.observing import UpdateSettled as UpdateSettled
    from backstory.memory import MemoryHandle as MemoryHandle
    from backstory.metagpt.turns import Turns as Turns
    from backstory.operations.document_access import DocumentAccess as DocumentAccess
    from backstory.operations.recording import Intake as Intake
    from backstory.otel import OpenTelemetryObserver as OpenTelemetryObserver
    from backstory.projections.context import Context as Context
    from backstory.projections.document.document import Document as Document
    from backstory.projections.document.document import DocumentFact as DocumentFact
    from backstory.projections.document.document import DocumentSection as DocumentSection
    from backstory.projections.graph import Graph as Graph
    from backstory.projections.graph import MessageFlow as MessageFlow
    from backstory.projections.history.audit import Birth as Birth
    from backstory.projections.history.audit import Evidence as Evidence
    from backstory.projections.history.audit import HistoryItem as HistoryItem
    from backstory.projections.history.audit import Refusal as Refusal
    from backstory.projections.history.audit import Removed as Removed
    from backstory.projections.history.audit import Why as Why
    from backstory.projections.history.history import Diff as Diff
    from backstory.projections.history.history import LogEntry as LogEntry
    from backstory.projections.history.history import Revision as Revision
    from backstory.projections.history.history import SectionChange as SectionChange
    from backstory.projections.history.preview import UndoResult as UndoResult
    from backstory.projections.integrity.stream_check import Problem as Problem
    from backstory.projections.integrity.verify import Verification as Verification
    from backstory.projections.search.results import Explanation as Explanation
    from backstory.projections.search.results import Found as Found
    from backstory.projections.search.results import Hit as Hit
    from backstory.projections.search.vectors.background_embedding import Embedded as Embedded
    from backstory.projections.what_if.reextract import UpdateCounts as UpdateCounts
    from backstory.results import ErasedContent as ErasedContent
    from backstory.results import Extracted as Extracted
    from backstory.results import FactChange as FactChange
    from backstory.results import FaultCount as FaultCount
    from backstory.results import Forgotten as Forgotten
    from backstory.results import ParkedThread as ParkedThread
    from backstory.results import PendingThread as PendingThread
    from backstory.results import PolicyResult as PolicyResult
    from backstory.results import RecordResult as RecordResult
    from backstory.results import Reextracted as Reextracted
    from backstory.results import Restored as Restored
    from backstory.results import ScopeSummary as ScopeSummary
    from backstory.results import SignedHead as SignedHead
    from backstory.results import Status as Status
    from backstory.results import SupersededTurn as SupersededTurn
    from backstory.results import ThreadSummary as ThreadSummary
    from backstory.results import TurnView as TurnView
    from backstory.results import WhatIf as WhatIf
    from backstory.version import __version__ as __version__

__all__ = [
    "Backstory",
    "BackstoryError",
    "Birth",
    "CallEnded",
    "CallStarted",
    "CapError",
    "Cause",
    "ConfigError",
    "ConflictError",
    "Context",
    "CorruptLogError",
    "Diff",
    "Document",
    "DocumentAccess",
    "DocumentFact",
    "DocumentSection",
    "DuplicateFactError",
    "Embedded",
    "ErasedContent",
    "Evidence",
    "Explanation",
    "Extracted",
    "Fact",
    "FactChange",
    "FaultCount",
    "Forgotten",
    "Found",
    "Graph",
    "Head",
    "HistoryItem",
    "Hit",
    "InputError",
    "Intake",
    "LockTimeoutError",
    "LogEntry",
    "MemoryHandle",
    "MessageFlow",
    "ModelError",
    "ModelRejectedError",
    "ModelUnavailableError",
    "NoModelError",
    "NotFoundError",
    "Observer",
    "OpenTelemetryObserver",
    "ParkedThread",
    "PendingThread",
    "Policy",
    "PolicyResult",
    "Problem",
    "RecordResult",
    "RecordedReply",
    "Reextracted",
    "Refusal",
    "RefusedError",
    "Removed",
    "ReplyError",
    "Restored",
    "Revision",
    "Scope",
    "ScopeError",
    "ScopeSummary",
    "SectionChange",
    "Sharing",
    "SignedHead",
    "Status",
    "StoreError",
    "SupersededTurn",
    "ThreadSummary",
    "ThreadSummaryText",
    "TurnView",
    "Turns",
    "UnavailableError",
    "UndoResult",
    "UpdateCounts",
    "UpdateSettled",
    "UsageError",
    "Verification",
    "WhatIf",
    "Why",
    "WitnessError",
    "WrongExpectedVersionError",
    "__version__",
]

_MODULES = {
    "backstory.home": ("Backstory",),
    "backstory.ledger.core.commit": ("Cause", "Head"),
    "backstory.ledger.core.errors": (
        "BackstoryError",
        "CapError",
        "ConfigError",
        "ConflictError",
        "CorruptLogError",
        "DuplicateFactError",
        "InputError",
        "LockTimeoutError",
        "ModelError",
        "ModelRejectedError",
        "ModelUnavailableError",
        "NoModelError",
        "NotFoundError",
        "RefusedError",
        "ReplyError",
        "ScopeError",
        "StoreError",
        "UnavailableError",
        "UsageError",
        "WitnessError",
        "WrongExpectedVersionError",
    ),
    "backstory.ledger.core.events": ("Fact",),
    "backstory.ledger.core.policy": ("Policy",),
    "backstory.ledger.core.scope": ("Scope",),
    "backstory.ledger.core.summaries": ("ThreadSummaryText",),
    "backstory.ledger.erasure.requests": ("Sharing",),
    "backstory.ledger.extraction.recorded": ("RecordedReply",),
    "backstory.ledger.learning.observing": ("CallEnded", "CallStarted", "Observer", "UpdateSettled"),
    "backstory.memory": ("MemoryHandle",),
    "backstory.metagpt.turns": ("Turns",),
    "backstory.operations.document_access": ("DocumentAccess",),
    "backstory.operations.recording": ("Intake",),
    "backstory.otel": ("OpenTelemetryObserver",),
    "backstory.projections.context": ("Context",),
    "backstory.projections.document.document": ("Document", "DocumentFact", "DocumentSection"),
    "backstory.projections.graph": ("Graph", "MessageFlow"),
    "backstory.projections.history.audit": ("Birth", "Evidence", "HistoryItem", "Refusal", "Removed", "Why"),
    "backstory.projections.history.history": ("Diff", "LogEntry", "Revision", "SectionChange"),
    "backstory.projections.history.preview": ("UndoResult",),
    "backstory.projections.integrity.stream_check": ("Problem",),
    "backstory.projections.integrity.verify": ("Verification",),
    "backstory.projections.search.results": ("Explanation", "Found", "Hit"),
    "backstory.projections.search.vectors.background_embedding": ("Embedded",),
    "backstory.projections.what_if.reextract": ("UpdateCounts",),
    "backstory.results": (
        "ErasedContent",
        "Extracted",
        "FactChange",
        "FaultCount",
        "Forgotten",
        "ParkedThread",
        "PendingThread",
        "PolicyResult",
        "RecordResult",
        "Reextracted",
        "Restored",
        "ScopeSummary",
        "SignedHead",
        "Status",
        "SupersededTurn",
        "ThreadSummary",
        "TurnView",
        "WhatIf",
    ),
    "backstory.version": ("__version__",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


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
