"""Verification of one scope: its chains, what is derived from them, and heads that were signed or sent elsewhere."""

from __future__ import annotations

import contextlib

import msgspec

from backstory.ledger.core.errors import CorruptLogError, InputError, UsageError
from backstory.operations.services import Progress, ScopeServices
from backstory.projections.integrity.stream_check import Problem
from backstory.projections.integrity.verify import Verification
from backstory.projections.integrity.verify import verify as verify_scope
from backstory.projections.integrity.witnessed import NOTE, Heads, Witnessed
from backstory.results import SignedHead


def sign_head(services: ScopeServices, key: str) -> SignedHead:
    """Sign the heads of both streams as a note; see `MemoryHandle.sign_head`."""
    from backstory.witness.signing import head_text, sign_text

    writer = services.writer
    ledger, transcript = map(writer.store.durable_head, (writer.ledger, writer.transcript_stream))
    return SignedHead(ledger.seq, ledger.hash, sign_text(head_text(services.scope, ledger, transcript), key))


def verify(
    services: ScopeServices,
    *,
    expect_head: str | None,
    note: str | None,
    key: str | None,
    progress: Progress | None = None,
) -> Verification:
    """Check both chains and what is derived from them; see `MemoryHandle.verify`."""
    # Before the logs are read: then they hold every head that was written down, and perhaps more.
    elsewhere, problems = _elsewhere(services, note, key)
    # Reading through a damaged index mends it, and would hide what is to be reported here.
    writer = services.writer
    differing = services.logs(writer).differs()
    if not differing:
        with contextlib.suppress(CorruptLogError):
            services.home.projector.flush_if_free(writer)
    found = verify_scope(
        writer.store,
        services.scope,
        document=services.home.document(services.scope),
        index=lambda: differing,
        expect_head=expect_head,
        witnessed=elsewhere,
        clock=writer.clock,
        progress=progress,
    )
    if not problems:
        return found
    return msgspec.structs.replace(found, ok=False, problems=(*found.problems, *problems))


def _elsewhere(services: ScopeServices, note: str | None, key: str | None) -> tuple[list[Witnessed], list[Problem]]:
    """Return the heads that are known from outside of the log, and what is wrong with a note."""
    if (note is None) != (key is None):
        raise UsageError("a note is verified with a key: give both, note and key")
    witness = services.home.witness
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
