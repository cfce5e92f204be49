"""What came of a run: counted from the commits and the calls, and spelled as the rows of a table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from backstory.ledger.core.commit import Cause
from backstory.ledger.core.events import (
    CandidateRejected,
    Event,
    FactAdded,
    FactRemoved,
    FactRevised,
    SummaryUpdated,
    UpdateFailed,
)
from benchmarks.live.wire import Call

__all__ = ["Report", "Update", "report_of", "rows"]

_OK = 200
_SERVER_AT_FAULT = frozenset({"unavailable", "rejected"})


class Update(msgspec.Struct, frozen=True):
    """One commit of a model's: why it was made and what it says."""

    cause: Cause
    events: tuple[Event, ...]


class Report(msgspec.Struct, frozen=True):
    """One run: `calls` by form and status, refusals by rule, failures by reason; seconds of the calls and of it all."""

    calls: Mapping[str, int]
    tokens_in: int
    tokens_out: int
    updates: int
    facts: int
    sections: int
    changed: int
    refused: Mapping[str, int]
    failed: Mapping[str, int]
    details: tuple[str, ...]
    asking: float
    seconds: float
    left: int
    verified: bool

    @property
    def passed(self) -> bool:
        """Whether the path works: the model answered, no failure was the server's, and both chains hold.

        That a tiny model's answers are broken is no fault of the path.
        """
        answered = any(name.endswith(f" {_OK}") for name in self.calls)
        return answered and self.verified and _SERVER_AT_FAULT.isdisjoint(self.failed)


def report_of(updates: Sequence[Update], calls: Iterable[Call], *, seconds: float, left: int, verified: bool) -> Report:
    """Count a run; `left` are the turns that still wait because only some threads were asked about."""
    calls = list(calls)
    events = [event for update in updates for event in update.events]
    failures = [event for event in events if isinstance(event, UpdateFailed)]
    return Report(
        calls=Counter(f"{call.form} {call.status or 'broken off'}" for call in calls),
        tokens_in=sum(update.cause.tokens_in or 0 for update in updates),
        tokens_out=sum(update.cause.tokens_out or 0 for update in updates),
        updates=len(updates),
        facts=sum(isinstance(event, FactAdded) for event in events),
        sections=sum(isinstance(event, SummaryUpdated) for event in events),
        changed=sum(isinstance(event, FactRemoved | FactRevised) for event in events),
        refused=Counter(event.rule for event in events if isinstance(event, CandidateRejected)),
        failed=Counter(failure.reason for failure in failures),
        details=tuple(failure.detail for failure in failures),
        asking=sum(call.seconds for call in calls),
        seconds=seconds,
        left=left,
        verified=verified,
    )


def rows(report: Report) -> list[tuple[str, str]]:
    """Spell a report: what, and how much of it."""
    speed = f" ({report.tokens_out / report.asking:.0f} a second)" if report.asking else ""
    return [
        ("calls", f"{sum(report.calls.values())}{_by(report.calls)}"),
        ("tokens in", str(report.tokens_in)),
        ("tokens out", f"{report.tokens_out}{speed}"),
        ("updates", str(report.updates)),
        ("accepted: facts", str(report.facts)),
        ("accepted: sections", str(report.sections)),
        ("removed, evicted or revised", str(report.changed)),
        ("refused, by rule", f"{sum(report.refused.values())}{_by(report.refused)}"),
        ("failed, by reason", f"{sum(report.failed.values())}{_by(report.failed)}"),
        ("turns not asked about", str(report.left)),
        ("seconds asking", f"{report.asking:.1f}"),
        ("seconds in all", f"{report.seconds:.1f}"),
        ("verify", "ok" if report.verified else "NOT ok"),
    ]


def _by(counts: Mapping[str, int]) -> str:
    """Spell counts, the largest first: ` (3 × duplicate, 1 × cap)`."""
    named = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return f" ({', '.join(f'{count} × {name}' for name, count in named)})" if named else ""
