"""When two facts say the same: one key, computed from the text alone."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

__all__ = ["dedup_key"]

_TRAILING = ".。．!！?？,，;；:：…、~ \t"


# Every decision asks it of every live fact, and their texts hardly ever change.
@lru_cache(maxsize=4096)
def dedup_key(content: str, notion: str = "normalized") -> str:
    """Return what two facts share when they say the same, by one of the notions in `policy.DEDUP_KEYS`.

    `exact` is the text without the space around it; `casefold` besides ignores case; `normalized` is NFKC (so NFC and
    NFD, full-width and half-width agree), case folded, white space collapsed, trailing punctuation dropped. A text of
    punctuation alone is its own key.
    """
    if notion == "exact":
        return content.strip()
    if notion == "casefold":
        return content.strip().casefold()
    if content.isascii():
        folded = content.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", content).casefold())
    collapsed = " ".join(folded.split())
    return collapsed.rstrip(_TRAILING) or collapsed
