"""Dedup key: two facts whose texts have the same key say the same."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_TRAILING = ".。．!！?？,，;；:：…、~ \t"


# Cached, because every decision asks for the key of every live fact.
@lru_cache(maxsize=4096)
def dedup_key(content: str, mode: str = "normalized") -> str:
    """Return the dedup key of a text.

    Args:
        content: the text of a fact.
        mode: one of `policy.DEDUP_KEYS`. `exact` strips the text. `casefold` also ignores case. `normalized` also
            applies NFKC (so NFC and NFD, full-width and half-width agree), collapses white space and drops trailing
            punctuation, unless the text is punctuation alone.
    """
    if mode == "exact":
        return content.strip()
    if mode == "casefold":
        return content.strip().casefold()
    if content.isascii():
        folded = content.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", content).casefold())
    collapsed = " ".join(folded.split())
    return collapsed.rstrip(_TRAILING) or collapsed
