"""Writers of a round of faults: a process of threads that append to shared streams and note what each was told.

Run as `python -m rounds.writers URL OUT THREADS COUNT STREAM...`. Each line of OUT is one `Note`, written before the
next request is sent; so a process that is killed has noted all that it was told but the last.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Literal

import msgspec

from backstory.config.loading import load_settings
from backstory.config.store_factory import open_store
from backstory.ledger.core.commit import Head, head_of
from backstory.ledger.core.errors import BackstoryError, WrongExpectedVersionError
from backstory.ledger.log.store import EventStore
from backstory.testing.lines import sealed, turn

TIMEOUT_SECONDS = 20
"""For which a store tries again what got no answer."""


Said = Literal["read", "sent", "kept", "refused", "unknown"]


class Note(msgspec.Struct, frozen=True):
    """What one writer was told.

    Attributes:
        writer: Which thread of which process.
        said: `read` a head; a line was `sent`, and then `kept`, `refused`, or its outcome is `unknown`.
        stream: The stream.
        seq: The seq of the head that was read, or of the line that was sent.
        hash: The same.
    """

    writer: str
    said: Said
    stream: str
    seq: int
    hash: str


def open_engine(url: str) -> EventStore:
    """Open a store on an engine, by its URL."""
    settings = {"event_store": url, "file_lock_timeout_seconds": TIMEOUT_SECONDS}
    return open_store(load_settings(None, settings), Path(os.devnull))


class Writers:
    """Threads that append until each has been told of `count` lines that they are kept."""

    def __init__(self, store: EventStore, out: Path, streams: list[str]) -> None:
        self._store = store
        self._streams = streams
        self._out = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def run(self, threads: int, count: int) -> None:
        working = [threading.Thread(target=self._write, args=(number, count)) for number in range(threads)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()

    def _write(self, number: int, count: int) -> None:
        name = f"{os.getpid()}-{number}"
        kept = sent = 0
        while kept < count:
            stream = self._streams[(number + sent) % len(self._streams)]
            sent += 1
            try:
                head = self._store.head(stream)
            except BackstoryError:
                # There is nothing to know of a read that was not answered.
                continue
            self._note(name, "read", stream, head)
            line = sealed(turn(f"{name} says {sent}"), after=head)
            new = head_of(line)
            self._note(name, "sent", stream, new)
            try:
                self._store.append(stream, line, head.seq)
            except WrongExpectedVersionError:
                self._note(name, "refused", stream, new)
            except BackstoryError:
                self._note(name, "unknown", stream, new)
            else:
                kept += 1
                self._note(name, "kept", stream, new)

    def _note(self, writer: str, said: Said, stream: str, head: Head) -> None:
        # One write, so that notes of several threads do not mix.
        os.write(self._out, msgspec.json.encode(Note(writer, said, stream, head.seq, head.hash)) + b"\n")


if __name__ == "__main__":
    URL, OUT, THREADS, COUNT, *STREAMS = sys.argv[1:]
    Writers(open_engine(URL), Path(OUT), STREAMS).run(int(THREADS), int(COUNT))
