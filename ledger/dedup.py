"""When two facts say the same: one key, computed from the text alone."""

from __future__ import annotations

import unicodedata

__all__ = ["dedup_key"]

_TRAILING = ".。．!！?？,，;；:：…、~ \t"


def dedup_key(content: str) -> str:
    """Return what two facts share when they say the same.

    NFKC (so NFC and NFD, full-width and half-width agree), case folded, white space collapsed, trailing punctuation
    dropped. A text of punctuation alone is its own key.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", content).casefold())
    collapsed = " ".join(folded.split())
    return collapsed.rstrip(_TRAILING) or collapsed
