"""Schema of the index: its tables, and what their keys and values are; `kv` has how keys are spelled."""

from __future__ import annotations

import hashlib
from enum import IntEnum

import msgspec

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.dedup import mark_key
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.threads.coverage import ThreadCoverage
from backstory.ledger.threads.ranges import Ranges, overlap
from backstory.projections.index.kv import pack

VERSION = 18
"""Raise it whenever what is kept changes, such as a field of Memory or of Fact: an index of another version is none."""

FOR_GOOD = b"e"
BACK_TO, REVERTS = b"b", b"r"
SAYING_BYTES = 16


class Table(IntEnum):
    """What keys are about, and what they are."""

    TIP = 0
    """One, empty: Tip."""
    MEMORY = 1
    """One, empty: Memory at the tip."""
    LEDGER_MARKS = 2
    """seq: ReadingMark."""
    TRANSCRIPT_MARKS = 3
    """seq: ReadingMark."""
    TIMES = 4
    """The latest time before a ledger mark, and its seq: nothing."""
    CHECKPOINTS = 5
    """seq: Checkpoint."""
    FACTS = 6
    """A fact's id and the seq of a commit about it: BORN if that added the fact or states its erasure, or nothing."""
    THREADS = 7
    """A thread's name: ThreadState."""
    LEARNED = 8
    """A thread's name and the seq of a ledger commit about it: the byte it begins at."""
    SAID = 9
    """A thread's name, the first ordinal recorded, the seq of the transcript's commit: SaidLine."""
    ORDER = 10
    """The transcript's seq of a thread's first words: the thread's name."""
    UNSETTLED = 11
    """As ORDER, for the threads in which a turn is not covered."""
    REDACTED = 12
    """A thread's name and the ordinal of an erased turn: Trace, or nothing where the redaction says too little."""
    TIMELINE = 13
    """The number of a block of the ledger's commits, from 0: TimelineBlock."""
    USAGE = 14
    """A day, and the name of a model ("" where none is stated): UsageCount."""
    ENDED = 15
    """As `periods.keys_of` spells them, two for each fact that ended: Period."""
    SAYINGS = 16
    """The digest of a fact's dedup key, and its id: nothing."""
    RETURNED = 17
    """A fact's id and the seq of a commit that brought it back or imported it: nothing; of one that states its erasure:
    FOR_GOOD."""
    REFUSED = 18
    """The number of a block of refusals and removals, from 0: RefusalBlock."""
    JUMPS = 19
    """The seq of a clear, a replacing import or a rollback: BACK_TO and the seq that it goes back to, 0 of the first
    two; of a revert of one, or of such a revert: REVERTS and the seq of what it reverts."""


class StreamPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream was taken in.

    `end` is the byte behind the last line, `at` the last commit's time and `latest` the latest time of any; `mark` is
    the byte of the last mark, `edition` the stream's when it was read, `first` the hash of its first commit.
    """

    head: Head = EMPTY
    end: int = 0
    at: str = ""
    latest: str = ""
    mark: int = 0
    edition: str = ""
    first: str = ""


class IndexPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where the index stands.

    `cleared` is the transcript's seq up to which clears have covered everything, `turns` how many were ever recorded,
    `checkpoint` the ledger's byte behind the last checkpoint. `settled` is false while content that a redaction names
    is still there: such an index is never written to a file.
    """

    version: int = VERSION
    scope: Scope = Scope()
    ledger: StreamPosition = StreamPosition()
    transcript: StreamPosition = StreamPosition()
    cleared: int = 0
    turns: int = 0
    checkpoint: int = 0
    settled: bool = True


class ReadingMark(msgspec.Struct, frozen=True, array_like=True):
    """A line to start reading at: the byte it begins at, and the hash it follows."""

    byte: int
    prev: str


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """The memory after a commit, that commit's hash, and the byte behind it."""

    hash: str
    end: int
    memory: Memory


class SaidLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of the transcript: the byte it begins at, and how many turns of its thread belong to it.

    The last of them are those that it records; `lost` more, before them, are missing: the transcript was cut short.
    """

    byte: int
    count: int
    lost: int = 0


class ThreadState(msgspec.Struct, array_like=True):
    """What is known of a thread.

    `first` is the seq of its first words (0: none), `turns` how many ordinals are taken; `said` and `learned` are the
    seqs of the last commits about it in either stream. `superseded` and `withdrawn` are the ordinals that stand no
    longer, `restored` those to be learned from again, with the commit that brought them back; `redacted`: a turn was
    erased. Clears cover the turns up to `cleared`, as far as the commits about the thread do not.
    """

    first: int = 0
    turns: int = 0
    said: int = 0
    learned: int = 0
    superseded: Ranges = []
    withdrawn: Ranges = []
    restored: dict[int, int] = {}
    redacted: bool = False
    cleared: int = 0
    coverage: ThreadCoverage = msgspec.field(default_factory=ThreadCoverage)

    @property
    def settled(self) -> bool:
        """Whether every turn is covered."""
        reopened = self.coverage.reopened(self.restored)
        return self.turns <= self.coverage.covered_from(self.cleared + 1) and not any(
            n > self.cleared for n in reopened
        )

    def simplify(self) -> None:
        """Let `cleared` say no more than the commits about the thread leave open.

        A clear that came where all was covered already is noted or not, depending on when its line was taken in.
        """
        found = overlap(self.coverage.covered, self.cleared, self.cleared)
        if found:
            self.cleared = found[0][0] - 1


def saying(content: str) -> bytes:
    """Return the beginning of the keys of the facts that say the same, in any spelling."""
    return hashlib.sha256(mark_key(content).encode(errors="surrogatepass")).digest()[:SAYING_BYTES]


NOTHING = msgspec.msgpack.decode(pack(Memory()), type=Memory)
"""The empty memory as it is when it was kept: what the policy's defaults leave whole are fractions then."""
