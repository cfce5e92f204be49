"""Check of a round: what writers and followers were told against what the streams hold in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from rounds.writers import Note

from backstory.ledger.core.commit import head_of
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits


def notes_in(*files: Path) -> list[Note]:
    """Read what writers have noted; the last line of a process that was killed may be cut short."""
    found: list[Note] = []
    for file in files:
        *whole, _ = file.read_bytes().split(b"\n")
        found += [msgspec.json.decode(line, type=Note) for line in whole]
    return found


def problems_of(
    store: EventStore, streams: Iterable[str], notes: Sequence[Note], followed: Mapping[str, Sequence[bytes]]
) -> list[str]:
    """Say what is wrong: lines that were lost, doubled or refused and yet there, reads that went back, followers."""
    problems: list[str] = []
    for stream in streams:
        lines = [record.line for record in store.read(stream)]
        # Raises where the chain is broken.
        seqs = [commit.seq for commit in read_commits(store, stream)]
        if seqs != list(range(1, len(lines) + 1)):
            problems.append(f"{stream} has the seqs {seqs}")
        hashes = [head_of(line).hash for line in lines]
        problems += _problems_of_writes(stream, hashes, [note for note in notes if note.stream == stream])
        if list(followed.get(stream, lines)) != lines:
            got = [head_of(line).seq for line in followed[stream]]
            problems.append(f"a follower of {stream} got {got}, and there are {len(lines)}")
    return problems


def _problems_of_writes(stream: str, hashes: Sequence[str], notes: Sequence[Note]) -> Iterable[str]:
    counted = Counter(hashes)
    newest: dict[str, int] = defaultdict(int)
    for note in notes:
        who = f"{note.writer}, {stream} {note.seq}"
        if note.said == "kept" and (counted[note.hash] != 1 or hashes[note.seq - 1] != note.hash):
            yield f"{who}: kept, and there {counted[note.hash]} times"
        if note.said in ("refused", "failed") and note.hash in counted:
            yield f"{who}: {note.said}, and there: {note.why}"
        if note.said == "read":
            if note.seq < newest[note.writer]:
                yield f"{who}: read after {newest[note.writer]}"
            if note.seq and (note.seq > len(hashes) or hashes[note.seq - 1] != note.hash):
                yield f"{who}: read, and not there"
        if note.said in ("read", "kept"):
            newest[note.writer] = max(newest[note.writer], note.seq)
    sent = {note.hash for note in notes if note.said == "sent"}
    yield from (f"{stream} {seq}: nobody sent it" for seq, one in enumerate(hashes, 1) if one not in sent)
