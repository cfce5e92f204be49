"""Words of a message, compared in spite of what a client does to them when it sends them again.

Clients strip and rewrap what was said, cut it short, and put context around a question, or take it away again.
"""

from __future__ import annotations

from backstory.ledger.text.acknowledgements import has_substance

_CUT = ("…", "...", "[truncated]")
_MOST_PLACES = 100
"""Places of a text in another that are looked at."""


def plain_words(text: str) -> str:
    """Return a text with single spaces between its words, and none around them."""
    return " ".join(text.split())


def may_be_same(one: str, other: str) -> bool:
    """Say whether two texts in plain words may be one message, spelled in two ways.

    They are equal; or one is the other cut short; or one holds the other between whole words, as a question with
    context around it. A text of no substance is looked for at the end alone.
    """
    if one == other:
        return True
    part, whole = sorted((one, other), key=len)
    return _is_cut(one, other) or _is_cut(other, one) or (bool(part) and part in whole and _holds(whole, part))


def _is_cut(part: str, whole: str) -> bool:
    rest = next((part.removesuffix(mark).rstrip() for mark in _CUT if part.endswith(mark)), "")
    return bool(rest) and whole.startswith(rest)


def _holds(whole: str, part: str) -> bool:
    if not has_substance(part):
        return whole.endswith(part) and not whole[-len(part) - 1].isalnum()
    start = -1
    for _ in range(_MOST_PLACES):
        start = whole.find(part, start + 1)
        if start < 0:
            return False
        end = start + len(part)
        before, after = whole[start - 1 : start], whole[end : end + 1]
        if not (before.isalnum() and part[0].isalnum()) and not (after.isalnum() and part[-1].isalnum()):
            return True
    return False
