"""Moments: points in time as texts of one format, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def spell_moment(moment: datetime) -> str:
    """Return a moment in the format of the logs: ISO 8601, UTC, microseconds, `Z`; the texts sort by time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_moment(text: str) -> datetime | None:
    """Parse an ISO 8601 moment, as UTC if it has no zone; None if the text is not a moment."""
    moment = parse_local(text)
    return None if moment is None else moment.astimezone(UTC)


def parse_local(text: str) -> datetime | None:
    """Parse an ISO 8601 moment and keep its offset; as `parse_moment` otherwise."""
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment.astimezone(UTC)  # no log can hold a moment that is out of range in UTC
    except (ValueError, OverflowError):
        return None
    return moment


def spell_offset(moment: datetime) -> str | None:
    """Return the offset of a moment from UTC, such as `-07:00`; None for UTC."""
    return moment.isoformat()[len(moment.replace(tzinfo=None).isoformat()) :] if moment.utcoffset() else None


def local_moment(at: str, offset: str | None) -> datetime | None:
    """Return a moment at an offset as `spell_offset` gives it; None if one of the two is not valid."""
    zone = parse_local(f"2000-01-01T00:00{offset or 'Z'}")
    moment = parse_local(at)
    if moment is None or zone is None:
        return None
    try:
        return moment.astimezone(zone.tzinfo)
    except OverflowError:
        return None
