"""Keyed digest of an erased turn, by which its text is recognised when it is sent again.

HMAC-SHA256 over the role and the normalised text. Each transcript has its own key of 32 random bytes, which is stored
outside the log (`EventStore.key`), so the log alone cannot confirm a guessed text. With the key it could, so the key is
destroyed when everything is forgotten.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Callable
from typing import TypeAlias

ContentSeal: TypeAlias = Callable[[str, str], str]
"""Returns the digest of a role and a text, in hex."""


MARKED = "fact"
"""The role under which the `mark_key` of an erased text is sealed, to keep it from coming back; no turn has it."""


def sealing(key: bytes) -> ContentSeal:
    """Return the digest function of a key; texts that differ only in case, white space or Unicode form agree."""

    def seal(role: str, content: str) -> str:
        # Not cached like `dedup_key`, because a cache would keep the text that has to go.
        text = " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", content).casefold()).split())
        return hmac.digest(key, f"{role}\0{text}".encode("utf-8", "surrogatepass"), "sha256").hex()

    return seal
