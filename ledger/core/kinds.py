"""Kinds: the closed sets of words that commits, events and policies hold.

mypy reads each as a Literal: a misspelt word is an error, and so is a `match` that leaves one out. At run time each is
a str, because the log of a later program may hold a word that is not listed here, and is read all the same.
"""

# ruff: noqa: F722, F821 it takes the words for annotations, because of the class below

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args


def words_of(kind: object) -> tuple[str, ...]:
    """Return the words of a set of this module."""
    found: tuple[str, ...] = get_args(kind)[1]
    return found


if TYPE_CHECKING:
    from typing import Literal
else:

    class Literal:
        """A str, annotated with the words of a set."""

        def __class_getitem__(cls, words: object) -> object:
            found: list[str] = []
            for part in words if isinstance(words, tuple) else (words,):
                found += [part] if isinstance(part, str) else words_of(part)
            return Annotated[str, tuple(found)]


LedgerCauseKind: TypeAlias = Literal[
    "genesis",
    "extraction",
    "summary",
    "manual",
    "import",
    "revert",
    "rollback",
    "clear",
    "policy",
    "redaction",
    "share",
    "expiry",
]
TranscriptCauseKind: TypeAlias = Literal["record", "withdrawal", "restore"]
CauseKind: TypeAlias = Literal[LedgerCauseKind, TranscriptCauseKind, "erased"]
"""The kind of a commit; `erased` is the stub of a cause."""
Barrier: TypeAlias = Literal["clear", "redaction", "revert", "rollback"]
"""The kinds of commit after which a model's answer is discarded if it was asked for before."""
Overtaking: TypeAlias = Literal[Barrier, "covered"]
"""What makes an answer late: a barrier, or another update that covered its turns."""

ManualAction: TypeAlias = Literal["add", "edit", "remove", "discard"]
ImportAction: TypeAlias = Literal["save", "home"]
RecordAction: TypeAlias = Literal["replace", "branch", "told"]
RedactionAction: TypeAlias = Literal["fact", "thread", "matching", "shared", "expired", "everything"]
CauseAction: TypeAlias = Literal[ManualAction, ImportAction, RecordAction, RedactionAction, "all_agents", "move"]
"""What was asked for, of a manual commit, an import, a record, a redaction, a clear or a share."""

Sweep: TypeAlias = Literal["threshold", "duplicate", "cap"]
"""The rules by which a fact leaves memory without being asked for."""
RemovalReason: TypeAlias = Literal[
    Sweep, "model", "stale", "consolidated", "hand", "clear", "import", "revert", "rollback", "ended", "expired"
]
"""Why a fact left memory: `ended` and `expired` say that it was true until then, the others that it is not kept."""
RevisionKind: TypeAlias = Literal["confirmed", "edited", "extended", "restored", "ending", "tagged"]
Rule: TypeAlias = Literal[
    Sweep,
    "malformed",
    "too_long",
    "gate",
    "empty",
    "upload",
    "unknown_fact",
    "by_hand",
    "repeated",
    "replacement_refused",
    "removal_refused",
    "not_due",
    "sources",
    "limit",
    "gone",
    "unchanged",
    "older",
    "disabled",
    "basis",
    "covered",
    "removed_by_hand",
    "expired",
    "erased",
    "older_evidence",
    "assistant_only",
    "topic",
]
"""The rules that can refuse a candidate; `rules.decide.RULES` says what each means."""
FailureReason: TypeAlias = Literal["unavailable", "rejected", "reply", "discarded", "basis", "covered"]
ErasedKind: TypeAlias = Literal["fact", "section", "shared", "candidate", "proposal", "failure", "turn", "expired"]

Speaker: TypeAlias = Literal["user", "assistant"]
"""The role of a turn."""

PolicySource: TypeAlias = Literal["config", "manual"]
EvictionRanking: TypeAlias = Literal["confidence", "hybrid"]
DedupKey: TypeAlias = Literal["visible", "normalized", "casefold", "exact"]
RequiredEvidence: TypeAlias = Literal["any", "user"]
