"""Moments: one spelling of a point in time, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["parse_moment", "spell_moment"]


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
