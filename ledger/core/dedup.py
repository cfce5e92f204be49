"""Dedup key: two facts whose texts have the same key say the same."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

_JOINED = "[\u0600-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
"""Letters and marks of scripts in which a joiner changes a word: Arabic and Persian, Indic, Khmer, Mongolian."""
_PICTURED = "[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]"
"""Emoji and their modifiers, which a joiner makes one picture."""
_TRAILING = ".。．!！?？,，;；:：…、~ \t"


@cache
def _unseen() -> re.Pattern[str]:
    return re.compile(
        "(\U0001f3f4[\U000e0020-\U000e007f]+)"  # the flag of a region is spelled in tags
        "|[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
        "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
    )


@cache
def _joiners() -> re.Pattern[str]:
    return re.compile(
        f"(?:(?<={_JOINED})([\u200c\u200d])[\u200c\u200d]*(?={_JOINED})"
        f"|(?<={_PICTURED})(\u200d)[\u200c\u200d]*(?={_PICTURED}))|[\u200c\u200d]+"
    )


# Cached, because every decision asks for the key of every live fact.
@lru_cache(maxsize=4096)
def dedup_key(content: str, mode: str = "normalized") -> str:
    """Return the dedup key of a text.

    Args:
        content: the text of a fact.
        mode: one of `policy.DEDUP_KEYS`. `exact` strips the text. `casefold` also ignores case. `normalized` also
            applies NFKC (so NFC and NFD, full-width and half-width agree), collapses white space and drops trailing
            punctuation, unless the text is punctuation alone. `visible` also leaves out invisible characters.
    """
    if mode == "exact":
        return content.strip()
    if mode == "casefold":
        return content.strip().casefold()
    if mode == "visible" and not content.isascii():
        content = _visible(content)
    if content.isascii():
        folded = content.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", content).casefold())
    collapsed = " ".join(folded.split())
    return collapsed.rstrip(_TRAILING) or collapsed


def mark_key(content: str) -> str:
    """Return the key under which a text is marked as taken away: of all spellings, whatever the policy's mode is."""
    return dedup_key(content, "visible")


def _visible(text: str) -> str:
    """Return a text without invisible characters; joiners stay where they change what is read."""
    seen = _unseen().sub(lambda found: found[1] or "", text)
    return _joiners().sub(lambda found: found[1] or found[2] or "", seen)
