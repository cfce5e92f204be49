"""Time as the write side sees it: an injected clock, and one spelling of a moment."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "parse_moment", "spell_moment"]


class Clock(Protocol):
    """What may be asked about time."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass."""
        time.sleep(seconds)


def spell_moment(moment: datetime) -> str:
    """Spell a moment as the logs do: UTC, microseconds, `Z`; such texts sort as the moments do."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_moment(text: str) -> datetime | None:
    """Read an ISO 8601 moment; a time without a zone is taken as UTC; None where the text is no moment."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
