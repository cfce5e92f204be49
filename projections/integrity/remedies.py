"""Remedies: how to mend each kind of problem, as `doctor` and `repair` state it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from backstory.projections.integrity.stream_check import Problem

_NAMED = 5


class Check(msgspec.Struct, frozen=True):
    """The result of one check; `hint` states the finding and, where it is not ok, the remedy."""

    check: str
    ok: bool
    hint: str


REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "torn_tail": "it was never acknowledged; the next write or `repair` moves it aside",
        "altered": "restore the file from a copy; or `repair` keeps the commits before it and moves the file aside",
        "missing": "restore the file from a copy; or `repair` keeps the commits before the gap",
        "reordered": "`repair` restores the order and keeps the old file beside it",
        "duplicate_seq": "`repair` keeps the line that the others follow and moves the old file aside",
        "broken_prev": "restore the file from a copy; or `repair` keeps the commits before it and moves the file aside",
        "unexplained_redaction": "opening the memory completes an interrupted erasure; otherwise restore a copy",
        "impossible": "the commit was forged: restore the file from a copy, or undo it with `revert`",
        "document_differs": "`repair` rewrites it and moves an edited one aside; `import` adopts an edit",
        "index_differs": "`repair` rebuilds it; deleting it is safe, too",
        "head_not_found": "restore the log from a copy that has this commit",
        "bad_signature": "fetch the note again, and get the public key from its signer",
        "witness_unreadable": "restore the witness file; or configure a new one, and keep the old one unchanged",
    }
)
"""The remedy for each kind of problem that `verify` reports."""


def failed_check(problem: Problem) -> Check:
    """Return a failed check for a problem, with its remedy."""
    place = f", line {problem.line}, byte {problem.byte}" if problem.line else ""
    return Check(problem.kind, False, f"{problem.stream}{place}: {problem.message}; {REMEDIES[problem.kind]}")


def some(names: list[str]) -> str:
    """Join the first five names, and count the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the singular or the plural noun."""
    return f"{number:,} {one if number == 1 else many}"
