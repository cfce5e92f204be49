"""Answer of an upstream, and its words, of which no more are kept than fits."""

from __future__ import annotations

import msgspec

MOST_BYTES = 4 * 2**20
"""The most that is read of one event or document, and kept of the text of an answer."""


class Answer(msgspec.Struct, frozen=True):
    """What an upstream said.

    `text` is empty for an answer that only calls tools; `calls` are the ids of the calls. `whole` is false where the
    answer broke off, `cut` is true where it was too long to be kept.
    """

    text: str = ""
    id: str | None = None
    calls: tuple[str, ...] = ()
    whole: bool = False
    cut: bool = False


class Words:
    """A text that grows, up to a limit."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.cut = False
        self._size = 0

    def add(self, part: object) -> None:
        """Add words; anything else than a text, or a list of parts with one, says nothing."""
        if isinstance(part, list):
            # As some servers send it: a list of parts, like the content of a message.
            for one in part:
                self.add(one.get("text") if isinstance(one, dict) else None)
        elif isinstance(part, str) and part:
            self.cut = self.cut or self._size + len(part) > MOST_BYTES
            if not self.cut:
                self.parts.append(part)
                self._size += len(part)

    @property
    def joined(self) -> str:
        """All that was said."""
        return "".join(self.parts)


def name_of(value: object) -> str | None:
    """Return an id; None where it is none."""
    return value if isinstance(value, str) and value else None
