"""Document access: one memory by itself, for hosts that hand whole documents back or kept memory elsewhere before.

It never shows the user's memory, which an agent otherwise reads until it has one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.core.commands import ImportDocument, SaveDocument
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import Candidate
from backstory.projections.document.document import Document, document_of
from backstory.services.services import Operations

_BY_ITSELF = ("genesis", "policy")
"""Kinds of commit that no use of a memory leads to."""


class DocumentAccess(Operations):
    """What a host's own bookkeeping needs of a memory; get it from `MemoryHandle.own`."""

    def document(self) -> Document:
        """Return the document of this memory alone."""
        return document_of(self._services.writer.memory())

    def save(self, candidates: Sequence[Candidate]) -> Document:
        """Take in what a host changed in a document, in one commit, and return the document as it is then.

        What is refused is recorded there, with the reason. Where nothing was changed nothing is written.
        """
        if candidates:
            command = SaveDocument(at="", candidates=tuple(candidates))
            self._services.writer.commit(command, self._services.cause("import", action="save"))
        return self.document()

    def take_over(self, candidates: Sequence[Candidate], origin: str, *, late: bool = False) -> Commit | None:
        """Take in another program's memory, once, in one commit; None where that was done, or something else before.

        `origin` says from where. When it comes `late`, what was learned meanwhile is no hindrance; a memory that was
        cleared or erased meanwhile stays so. A fact that is less sure than our threshold was sure enough for the other
        program, so the import insists on it.
        """
        cause = self._services.cause("import", action="home", origin=origin, insist=True)
        candidates = tuple(candidates)
        while True:
            self._services.writer.put_policy_in_force()
            memory = self._services.writer.memory()
            if self.taken_over(late=late):
                return None
            try:
                command = ImportDocument(at="", candidates=candidates, basis=memory.seq, insist=True)
                return self._services.writer.commit(command, cause)
            except ConflictError:
                # Another process wrote in between, perhaps this very import: look again.
                continue

    def taken_over(self, *, late: bool = False) -> bool:
        """Whether `take_over` would find that there is nothing for it to do."""
        if self._services.writer.memory().seq == 0:
            return False
        commits = self._services.commits(self._services.writer)
        return any(_settles_it(commit.cause, late=late) for commit in commits)


def _settles_it(cause: Cause, *, late: bool) -> bool:
    if not late:
        return cause.kind not in _BY_ITSELF
    # What only grew old was not to be forgotten.
    is_forgotten = cause.kind == "redaction" and cause.action != "expired"
    return cause.kind == "clear" or is_forgotten or (cause.kind == "import" and cause.action == "home")
