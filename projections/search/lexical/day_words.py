"""The words by which people ask for a day."""

from __future__ import annotations

from datetime import date

from backstory.projections.search.lexical.tokenizer import words_of

__all__ = ["words_of_day"]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def words_of_day(day: str) -> list[str]:
    """Spell out a day (YYYY-MM-DD, UTC) as it is asked for, in English and Chinese; nothing where it is no day."""
    try:
        on = date.fromisoformat(day)
    except ValueError:
        return []
    return words_of(f"{on.day} {_MONTHS[on.month - 1]} {on.year} {on.year}年 {on.month}月 {on.day}日 {on.day}号")
