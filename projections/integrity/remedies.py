"""What may be wrong with a memory, and how each kind is mended: the words of `doctor` and `repair`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from backstory.projections.integrity.verify import Problem

__all__ = ["REMEDIES", "Check", "counted", "some", "told"]

_NAMED = 5


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at; `hint` says what was found and, where it is not ok, how to mend it."""

    check: str
    ok: bool
    hint: str


REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "torn_tail": "nobody was told it was there; the next write moves it aside, and so does `repair`",
        "altered": "restore the file from a copy; or `repair` keeps the commits before it and moves the file aside",
        "missing": "restore the file from a copy; or `repair` keeps the commits before the gap, where there is one",
        "reordered": "`repair` puts the lines back in order and keeps the file as it was beside it",
        "duplicate_seq": "`repair` keeps the line that the others follow and moves the file as it was aside",
        "broken_prev": "restore the file from a copy; or `repair` keeps the commits before it and moves the file aside",
        "unexplained_redaction": "an interrupted erasure is completed when the memory is opened; else restore a copy",
        "impossible": "a hand wrote this commit: restore the file from a copy, or undo what it did with `revert`",
        "document_differs": "`repair` writes it anew and moves an edited one aside; `import` adopts an edit",
        "index_differs": "`repair` builds it anew; it can also be deleted, nothing is lost",
        "head_not_found": "restore the log from a copy that has this commit",
        "bad_signature": "get the note again from where it is kept, and the key from who signed it",
        "witness_unreadable": "put the witness file back; or name a new one, and keep the old one as it is",
    }
)
"""How to mend each kind of problem that `verify` tells."""


def told(problem: Problem) -> Check:
    """Turn a finding of `verify` into a check that failed, with its remedy."""
    place = f", line {problem.line}, byte {problem.byte}" if problem.line else ""
    return Check(problem.kind, False, f"{problem.stream}{place}: {problem.message}; {REMEDIES[problem.kind]}")


def some(names: list[str]) -> str:
    """Name the first few of many."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def counted(number: int, one: str, many: str) -> str:
    """Spell a number of things."""
    return f"{number:,} {one if number == 1 else many}"
