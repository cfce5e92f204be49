"""Keyed commits: those that were made under a key, so that a repeated request changes nothing more."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from itertools import takewhile

import msgspec

from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.moments import spell_moment
from backstory.projections.index.index import ScopeIndex
from backstory.projections.read_model import ReadModel

KEPT_HOURS = 24
"""How long a key is recognised, at least."""

_KEYS = 10_000
"""How many keys of a scope are kept at most, the newest first."""


def digest_of(key: str) -> str:
    """Return the digest of a key, as a commit's cause records it."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class _Read(msgspec.Struct, frozen=True):
    """The commits by their keys, up to a head."""

    head: Head
    seqs: dict[str, int]


class KeyedCommits(ReadModel):
    """Finds the commit of a memory that was made under a key. Safe for threads.

    The keys are in the log, so they hold in every process and after a restart. What was read is kept, and the next
    search reads only newer commits.
    """

    def __init__(self, logs: ScopeIndex) -> None:
        self._logs = logs
        self.start_over()

    def start_over(self) -> None:
        """Drop what was read."""
        self._read = _Read(EMPTY, {})

    def find(self, head: Head, key: str, now: datetime) -> Commit | None:
        """Return the commit that was made under a key.

        Args:
            head: The head of the ledger; later commits are not read.
            key: The digest of the key.
            now: The time; commits more than 24 hours older may be left out.

        Returns:
            The commit; None if there is none up to the head.
        """
        known, logs = self._read, self._logs
        if known.head.seq and not _follows(logs, known.head, head):
            known = _Read(EMPTY, {})
        if known.head.seq < head.seq:
            oldest = spell_moment(now - timedelta(hours=KEPT_HOURS))
            newer: dict[str, int] = {}
            for commit in logs.newest(known.head.seq + 1):
                if commit.at < oldest:
                    break
                if commit.cause.key is not None and commit.seq <= head.seq:
                    newer[commit.cause.key] = commit.seq
            kept = list({**newer, **known.seqs}.items())[:_KEYS]
            known = _Read(head, dict(kept))
            self._read = known
        seq = known.seqs.get(key)
        return None if seq is None else logs.commit(seq)


def delivered(logs: ScopeIndex, thread: str, key: str, now: datetime) -> list[Commit]:
    """Return the commits of a delivery that was recorded in a thread under a key, the newest first.

    Args:
        logs: The index of the scope.
        thread: The thread.
        key: The digest of the key.
        now: The time; commits more than 24 hours older may be left out.
    """
    oldest = spell_moment(now - timedelta(hours=KEPT_HOURS))
    recent = takewhile(lambda commit: commit.at >= oldest, logs.deliveries_of(thread))
    return [commit for commit in recent if commit.cause.key == key]


def _follows(logs: ScopeIndex, known: Head, head: Head) -> bool:
    """Whether the known head is still in the log: after a removal or a repair it may not be."""
    return known == head or (known.seq < head.seq and logs.commit(known.seq).hash == known.hash)
