"""Verification of one scope: its chains, what is derived from them, and heads that were signed or sent elsewhere."""

from __future__ import annotations

import contextlib

import msgspec

from backstory.aio import in_thread
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import CorruptLogError, InputError, UsageError
from backstory.projections.integrity.stream_check import Problem
from backstory.projections.integrity.verify import Verification
from backstory.projections.integrity.verify import verify as verify_scope
from backstory.projections.integrity.witnessed import NOTE, Heads, Witnessed
from backstory.results import SignedHead
from backstory.services.services import HeadsSeen, Operations, Progress, ScopeServices


def _elsewhere(services: ScopeServices, note: str | None, key: str | None) -> tuple[list[Witnessed], list[Problem]]:
    """Return the heads that are known from outside of the log, and what is wrong with a note."""
    if (note is None) != (key is None):
        raise UsageError("a note is verified with a key: give both, note and key")
    witness = services.home.states.witness
    witnessed = [] if witness is None else [witness.read(services.scope)]
    if note is None or key is None:
        return witnessed, []
    from backstory.witness.signing import open_note, origin_of, read_head_text

    text = open_note(note, key)
    if text is None:
        message = f"the note is not signed by {key.partition('+')[0]} with this key, or was changed since"
        return witnessed, [Problem("bad_signature", NOTE, 0, 0, message)]
    stated = read_head_text(text)
    if stated.origin != origin_of(services.scope):
        raise InputError(
            f"the note is about {stated.origin}, and this memory is {origin_of(services.scope)}: "
            "name the user and agent that it is about"
        )
    ledger, transcript = Heads(), Heads()
    ledger.add(stated.ledger)
    if stated.transcript is not None:
        transcript.add(stated.transcript)
    return [*witnessed, Witnessed("the signed note", ledger, transcript)], []


class Verifying(Operations):
    """What verifies a memory, and signs its heads; see `MemoryHandle`."""

    # Verifying.

    def head(self) -> Head:
        """Return the head of the ledger, to sign or pin elsewhere.

        Returns:
            The number and hash of the last commit.
        """
        writer = self._services.writer
        return writer.store.durable_head(writer.ledger)

    def heads(self, *, turns: bool = False) -> tuple[Head, ...]:
        """Return the heads that a read depends on: what is read stays the same as long as they do.

        Args:
            turns: Whether turns are read, too.

        Returns:
            The head of the ledger that is read; for an agent that reads its user's memory, or shares sections with it,
            that of the user's ledger; with `turns`, that of the transcript.
        """
        return self.heads_seen(turns=turns).heads

    def heads_seen(self, *, turns: bool = False) -> HeadsSeen:
        """Return the heads that a read depends on, as a value that shows later whether they still stand.

        Args:
            turns: Whether turns are read, too.

        Returns:
            The heads. Where agents share sections, and on an engine that cannot tell at once, they never stand.
        """
        return self._services.heads(turns=turns)

    def sign_head(self, key: str) -> SignedHead:
        """Sign the heads of both streams as a note, to keep elsewhere; see `verify`.

        Args:
            key: The private key, `PRIVATE+KEY+name+id+base64`; `backstory keygen` makes one.

        Returns:
            The ledger's head and the note, which states the transcript's head too.

        Raises:
            InputError: The key is none.
            ConfigError: The extra [signing] is not installed.
        """
        from backstory.witness.signing import head_text, sign_text

        services = self._services
        writer = services.writer
        ledger, transcript = map(writer.store.durable_head, (writer.ledger, writer.transcript_stream))
        return SignedHead(ledger.seq, ledger.hash, sign_text(head_text(services.scope, ledger, transcript), key))

    def verify(
        self,
        *,
        expect_head: str | None = None,
        note: str | None = None,
        key: str | None = None,
        progress: Progress | None = None,
    ) -> Verification:
        """Verify both hash chains, and memory.json and the index against them.

        Where a witness file is configured, every head in it has to be in its chain.

        Args:
            expect_head: A hash that has to be in the ledger's chain.
            note: A signed note over heads of this memory, which have to be in the chains.
            key: The key that has to have signed the note, `name+id+base64`.
            progress: Gets the number of commits of both logs that are checked.

        Returns:
            What was checked, and the problems found.

        Raises:
            UsageError: A note is given without a key, or a key without a note.
            InputError: The note or the key is none, or the note is about another memory.
            ConfigError: The extra [signing] is not installed.
        """
        services = self._services
        # Before the logs are read: then they hold every head that was written down, and perhaps more.
        elsewhere, problems = _elsewhere(services, note, key)
        # Reading through a damaged index mends it, and would hide what is to be reported here.
        writer = services.writer
        differing = services.logs(writer).differs()
        if not differing:
            with contextlib.suppress(CorruptLogError):
                services.home.states(writer.scope).document.flush_if_free()
        found = verify_scope(
            writer.store,
            services.scope,
            document=services.home.states.document(services.scope),
            index=lambda: differing,
            expect_head=expect_head,
            witnessed=elsewhere,
            clock=writer.clock,
            progress=progress,
        )
        if not problems:
            return found
        return msgspec.structs.replace(found, ok=False, problems=(*found.problems, *problems))

    ahead = in_thread(head)
    aheads = in_thread(heads)
    aheads_seen = in_thread(heads_seen)
    asign_head = in_thread(sign_head)
    averify = in_thread(verify)
