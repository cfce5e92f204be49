"""Writers of a round of faults: a process of threads that append to shared streams and note what each was told.

Run as `python -m rounds.writers URL OUT THREADS STREAM...`; it ends when its standard input does. Each line of OUT is
one `Note`, written before the next request is sent; so a process that is killed has noted all that it was told but the
last.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Literal

import msgspec

from backstory.config.loading import load_settings
from backstory.config.store_factory import open_store
from backstory.ledger.core.commit import Head, head_of
from backstory.ledger.core.errors import BackstoryError, UnknownOutcomeError, WrongExpectedVersionError
from backstory.ledger.engines.port import EventStore
from backstory.testing.lines import sealed, turn

TIMEOUT_SECONDS = 20
"""For which a store tries again what got no answer."""

_PAUSE_SECONDS = 0.03
"""Between two appends of a thread, so that a round of some seconds does not make lines by the ten thousand."""

Said = Literal["read", "sent", "kept", "refused", "failed", "unknown"]


class Note(msgspec.Struct, frozen=True):
    """What one writer was told.

    Attributes:
        writer: Which thread of which process.
        said: `read` a head; a line was `sent`, and then `kept`, `refused` because another line is there, `failed`
            without having been written, or its outcome is `unknown`.
        stream: The stream.
        seq: The seq of the head that was read, or of the line that was sent.
        hash: The same.
        why: The error, where there was one.
    """

    writer: str
    said: Said
    stream: str
    seq: int
    hash: str
    why: str = ""


def open_engine(url: str) -> EventStore:
    """Open a store on an engine, by its URL."""
    settings = {"event_store": url, "file_lock_timeout_seconds": TIMEOUT_SECONDS}
    return open_store(load_settings(None, settings), Path(os.devnull))


class Writers:
    """Threads that append until they are told that it is over."""

    def __init__(self, store: EventStore, out: Path, streams: list[str]) -> None:
        self._store = store
        self._streams = streams
        self._out = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._over = threading.Event()

    def run(self, threads: int) -> None:
        working = [threading.Thread(target=self._write, args=(number,)) for number in range(threads)]
        for thread in working:
            thread.start()
        sys.stdin.read()
        self._over.set()
        for thread in working:
            thread.join()

    def _write(self, number: int) -> None:
        name = f"{os.getpid()}-{number}"
        sent = 0
        while not self._over.is_set():
            time.sleep(_PAUSE_SECONDS)
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
                self._store.append(stream, [line], head.seq)
            except WrongExpectedVersionError as error:
                self._note(name, "refused", stream, new, error)
            except UnknownOutcomeError as error:
                self._note(name, "unknown", stream, new, error)
            except BackstoryError as error:
                self._note(name, "failed", stream, new, error)
            else:
                self._note(name, "kept", stream, new)

    def _note(self, writer: str, said: Said, stream: str, head: Head, error: BackstoryError | None = None) -> None:
        why = "" if error is None else str(error)
        # One write, so that notes of several threads do not mix.
        os.write(self._out, msgspec.json.encode(Note(writer, said, stream, head.seq, head.hash, why)) + b"\n")


if __name__ == "__main__":
    URL, OUT, THREADS, *STREAMS = sys.argv[1:]
    Writers(open_engine(URL), Path(OUT), STREAMS).run(int(THREADS))
