"""Keyed digest of an erased turn: recognises its text when it is sent again, and tells nobody without the key.

HMAC-SHA256 over role and normalised text. The key is the transcript's own, 32 random bytes, kept outside the log
(`EventStore.key`): who holds the log alone can test no guess. Who holds the key as well can, so it is destroyed when
everything is forgotten.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Seal", "sealing"]

Seal: TypeAlias = Callable[[str, str], str]
"""Returns the digest of a role and a text, in hex."""


def sealing(key: bytes) -> Seal:
    """Return the digest under a key; texts that differ in case, white space or Unicode form alone share one."""

    def seal(role: str, content: str) -> str:
        # No cache as in `dedup_key`: it would keep what is to be gone.
        text = " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", content).casefold()).split())
        return hmac.digest(key, f"{role}\0{text}".encode("utf-8", "surrogatepass"), "sha256").hex()

    return seal
