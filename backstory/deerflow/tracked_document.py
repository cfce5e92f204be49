"""Tracked documents: loaded documents that remember their original content, so that a save can find the changes.

A host makes shallow or deep copies, so the mark is in the parts that copies keep. It is not a field, since the host
would show and store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import msgspec

from backstory.ledger.core.events import Candidate
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing import read_document
from backstory.projections.document.document import Document


def said_in(document: Document) -> tuple[Candidate, ...]:
    """Return the content of a document as candidates."""
    return read_document(msgspec.to_builtins(document))


class TrackedDocument:
    """The content of a document at its load or last save.

    Args:
        scope: The scope of the memory.
        document: The content.
        saves: The number of saves of the memory by then; 0 for copies.
    """

    def __init__(
        self, scope: Scope, document: Document | Mapping[str, object] | Sequence[Candidate], saves: int = 0
    ) -> None:
        self.scope = scope
        self.saves = saves
        self._document = document

    @property
    def said(self) -> Sequence[Candidate]:
        """The content as candidates; read on first use, since most documents are never saved."""
        if isinstance(self._document, Document):
            self._document = said_in(self._document)
        elif isinstance(self._document, Mapping):
            self._document = read_document(self._document)
        return self._document

    def saved(self, document: Mapping[str, object], saves: int = 0) -> None:
        """Take a saved document as the base of the next changes."""
        self._document = deepcopy(dict(document))
        self.saves = saves

    def __deepcopy__(self, memo: dict[int, object]) -> TrackedDocument:
        """Copy the mark, so that a copy of the document has its own base."""
        memo[id(self)] = copied = TrackedDocument(self.scope, self._document)
        return copied


class _Marked(dict[str, object]):
    """A part of a tracked document: a dict with the mark."""

    mark: TrackedDocument


class _Whole(_Marked):
    """The loaded document itself; a copy of it is a `_Marked`."""

    def __reduce__(
        self,
    ) -> tuple[Callable[[dict[str, object], TrackedDocument], _Marked], tuple[dict[str, object], TrackedDocument]]:
        """Make copies `_Marked`."""
        return _marked, (dict(self), self.mark)


def track(scope: Scope, document: Document, saves: int = 0) -> dict[str, object]:
    """Return a document for a host to change; `saves` as in `TrackedDocument`."""
    mark = TrackedDocument(scope, document, saves)
    # Through JSON, since the host needs lists instead of tuples.
    plain = msgspec.json.decode(msgspec.json.encode(document), type=dict[str, object])
    for name in ("user", "history"):
        part = plain[name]
        plain[name] = _marked(part, mark) if isinstance(part, dict) else part
    whole = _Whole(plain)
    whole.mark = mark
    return whole


def is_original(document: object) -> bool:
    """Whether it is the loaded object itself, not a copy."""
    return isinstance(document, _Whole)


def tracked(document: object, scope: Scope) -> TrackedDocument | None:
    """Return the mark of a document; None if it has none, or belongs to another memory."""
    if not isinstance(document, Mapping):
        return None
    parts = (document, document.get("user"), document.get("history"))
    marks = [part.mark for part in parts if isinstance(part, _Marked)]
    return marks[0] if marks and marks[0].scope == scope else None


def _marked(part: dict[str, object], mark: TrackedDocument) -> _Marked:
    marked = _Marked(part)
    marked.mark = mark
    return marked
