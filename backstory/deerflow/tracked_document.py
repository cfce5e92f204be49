"""Documents lent to a host that will hand them back changed: each knows what it said when it was lent.

The host copies them as it likes, flat or deep, so the mark is in the parts that are carried along. It is no field, or
the host would show and store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import msgspec

from backstory.ledger.core.events import Candidate
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing import read_document
from backstory.projections.document.document import Document

__all__ = ["TrackedDocument", "is_very_one", "lend", "lent"]


class TrackedDocument:
    """What a document said when it was lent, or saved last; whose memory it is.

    `saves` is how many saves of that memory there had been by then, as far as it is the very document that was lent.
    """

    def __init__(
        self, scope: Scope, document: Document | Mapping[str, object] | Sequence[Candidate], saves: int = 0
    ) -> None:
        self.scope = scope
        self.saves = saves
        self._document = document

    @property
    def said(self) -> Sequence[Candidate]:
        """The document, read into candidates; most are never handed back, so that is done when it is asked for."""
        if isinstance(self._document, Document):
            self._document = read_document(msgspec.to_builtins(self._document))
        elif isinstance(self._document, Mapping):
            self._document = read_document(self._document)
        return self._document

    def go_on_from(self, document: Mapping[str, object], saves: int = 0) -> None:
        """Note that the host saved this one, and will tell the next changes from there."""
        self._document = deepcopy(dict(document))
        self.saves = saves

    def __deepcopy__(self, memo: dict[int, object]) -> TrackedDocument:
        """Whoever copies a document goes on from it alone; what it said is never changed in place."""
        memo[id(self)] = copied = TrackedDocument(self.scope, self._document)
        return copied


class _Marked(dict[str, object]):
    """A part of a lent document: a dict like any other, with the mark."""

    lent: TrackedDocument


class _Whole(_Marked):
    """The document as it was lent; a copy of it, of whatever kind, has the mark alone."""

    def __reduce__(
        self,
    ) -> tuple[Callable[[dict[str, object], TrackedDocument], _Marked], tuple[dict[str, object], TrackedDocument]]:
        """See `object`; `copy` goes by it."""
        return _marked, (dict(self), self.lent)


def lend(scope: Scope, document: Document, saves: int = 0) -> dict[str, object]:
    """Make a document for a host to change; `saves` as in `TrackedDocument`."""
    mark = TrackedDocument(scope, document, saves)
    # By way of JSON, for a host appends to its lists.
    plain = msgspec.json.decode(msgspec.json.encode(document), type=dict[str, object])
    for name in ("user", "history"):
        part = plain[name]
        plain[name] = _marked(part, mark) if isinstance(part, dict) else part
    whole = _Whole(plain)
    whole.lent = mark
    return whole


def is_very_one(document: object) -> bool:
    """Whether it is the very object that was lent, and no copy of it."""
    return isinstance(document, _Whole)


def lent(document: object, scope: Scope) -> TrackedDocument | None:
    """Find what a document said when it was lent; None where it was not, or was the document of another memory."""
    if not isinstance(document, Mapping):
        return None
    parts = (document, document.get("user"), document.get("history"))
    marks = [part.lent for part in parts if isinstance(part, _Marked)]
    return marks[0] if marks and marks[0].scope == scope else None


def _marked(part: dict[str, object], mark: TrackedDocument) -> _Marked:
    marked = _Marked(part)
    marked.lent = mark
    return marked
