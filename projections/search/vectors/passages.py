"""Passages: the text of each entry for an embedding model, with its speaker and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from backstory.projections.search.lexical.entry import Entry

_BEFORE_CHARS = 300
"""So much of the turn before is enough to know what is answered: its end, where a question stands."""


class Passage(msgspec.Struct, frozen=True):
    """A text to embed for what its key names; `digest` is blake2b of the text, 16 bytes."""

    key: str
    text: str
    digest: bytes


def passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """Return the text to embed for each entry; those of one group come whole and in order."""
    before: Entry | None = None
    for entry in entries:
        text = _spoken(entry.speaker, entry.text)
        if before is not None and entry.group and before.group == entry.group:
            text = f"{_spoken(before.speaker, before.text[-_BEFORE_CHARS:])}\n{text}"
        yield Passage(entry.key, text, blake2b(text.encode(), digest_size=16).digest())
        before = entry


def _spoken(speaker: str, text: str) -> str:
    return f"{speaker}: {text}" if speaker else text
