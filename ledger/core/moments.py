"""Moments: points in time as texts of one format, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def spell_moment(moment: datetime) -> str:
    """Return a moment in the format of the logs: ISO 8601, UTC, microseconds, `Z`; the texts sort by time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_moment(text: str) -> datetime | None:
    """Parse an ISO 8601 moment, as UTC if it has no zone; None if the text is not a moment."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
