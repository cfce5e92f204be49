"""Removal of a folder of streams: it is moved out of the way at once, marked, and then deleted.

A process that has read a log cannot tell a removed log from a lost one by itself. So `HOME/removed/<hash>.json` marks
each removed log, by the hash of its first commit. A hash is salted: a mark names no user, and holds only the time and
the last head. A crash leaves a folder `HOME/removed/<random>.gone` behind, which the next removal deletes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import EMPTY, UNREADABLE, Head, inspect
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.disk.files import last_line, make_folder, sync_folder, translated
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.disk.side_file import SideFile
from backstory.ledger.engines.port import RemovedLog
from backstory.ledger.engines.promises import RemovalMark, in_lock_order

_FOLDER = "removed"
_GONE = ".gone"
_ATTEMPTS = 3
_HASH = re.compile(r"[0-9a-f]{64}")
_DOCUMENT_LOCK = "memory.lock"
"""Keeps writers of memory.json off each other where no log lies beside it, whose lock would."""


class Removals:
    """Removes folders below a home; the locks are those of the streams.

    `must_allow` is called while all of them are held, and raises where nothing may be removed.
    """

    def __init__(
        self, home: Path, locks: FileLocks, clock: Clock, must_allow: Callable[[], None] = lambda: None
    ) -> None:
        self._home = home
        self._folder = home / _FOLDER
        self._locks = locks
        self._clock = clock
        self._must_allow = must_allow

    def is_removed(self, first: str) -> bool:
        """Whether the log whose first commit has this hash was removed."""
        return _HASH.fullmatch(first) is not None and (self._folder / f"{first}.json").exists()

    def marks(self) -> Iterator[RemovedLog]:
        """Yield the marks of all removed logs, sorted; see `EventStore.removed_logs`."""
        with translated(self._folder, "read"):
            for path in sorted(self._folder.glob("*.json")):
                if _HASH.fullmatch(path.stem) and (mark := _mark(path).read()):
                    yield RemovedLog(path.stem, mark.at, mark.kind, mark.head)

    def restore(self, log: RemovedLog) -> None:
        """Put the mark of a log that was removed elsewhere; see `EventStore.restore_removed`."""
        with translated(self._folder, "write"):
            self._put(log)

    def _put(self, log: RemovedLog) -> None:
        make_folder(self._folder)
        _mark(self._folder / f"{log.first}.json").write(RemovalMark(1, log.at, log.kind, log.head))
        sync_folder(self._folder)

    def remove(self, folder: str) -> bool:
        """Remove a folder with all that is in it, and what an interrupted removal has left.

        Returns:
            Whether there was anything to remove.

        Raises:
            StoreError: It cannot be removed.
            LockTimeoutError: Another process keeps a log locked.
        """
        path = self._home / folder
        with translated(path, "remove"):
            found = self._move(path)
            return self._sweep() or found

    def _move(self, path: Path) -> bool:
        """Move a folder out of the way; False if there is none."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError), ExitStack() as held:
                # It may vanish meanwhile: by another removal, or because a lock was all that it held.
                if not path.exists():
                    return False
                must_hold_no_links(path)
                self._mark(path, held)
                make_folder(self._folder)
                path.rename(self._folder / f"{os.urandom(8).hex()}{_GONE}")
                sync_folder(self._folder)
                sync_folder(path.parent)
                return True
        raise FileNotFoundError(errno.ENOENT, "it changes all the time")

    def _sweep(self) -> bool:
        """Delete the folders that were moved out of the way."""
        swept = False
        for gone in left_by_removals(self._home):
            if gone.is_symlink():
                continue  # an older version moved the link of a user; `doctor` names it
            self._delete(gone)
            swept = True
        if swept:
            sync_folder(self._folder)
        return swept

    def _delete(self, gone: Path) -> None:
        for left in reversed(range(_ATTEMPTS)):
            # It may vanish meanwhile, by another removal.
            with suppress(FileNotFoundError), ExitStack() as held:
                # A log that another process began while the others were marked is removed, too.
                self._mark(gone, held)
            try:
                shutil.rmtree(gone, onerror=_unless_missing)
            except OSError as error:
                # Another removal has just made a lock file there.
                if error.errno != errno.ENOTEMPTY or not left:
                    raise
            else:
                return

    def _mark(self, path: Path, held: ExitStack) -> None:
        """Lock what is written in a folder, and mark each log."""
        # A stream that is locked may get its first line at any moment.
        found = [log for pattern in ("*.jsonl", "*.lock") for log in path.rglob(pattern)]
        streams = {str(log.with_suffix("")) for log in found if log.stem in (TRANSCRIPT, LEDGER)}
        logs = [Path(f"{stream}.jsonl") for stream in sorted(streams, key=in_lock_order)]
        for log in logs:
            held.enter_context(self._locks.held(str(log.with_suffix(".lock"))))
        for lock in sorted(path.rglob(_DOCUMENT_LOCK)):
            held.enter_context(self._locks.held(str(lock)))
        self._must_allow()
        for log in logs:
            self._mark_log(log)

    def _mark_log(self, log: Path) -> None:
        with suppress(FileNotFoundError), log.open("rb") as file:
            first = _head_of(file.readline().rstrip(b"\n"))
            last = _head_of(last_line(file.fileno(), os.fstat(file.fileno()).st_size)[0])
            if not _HASH.fullmatch(first.hash) or self.is_removed(first.hash):
                return
            self._put(RemovedLog(first.hash, spell_moment(self._clock.now()), log.stem, last))


def must_hold_no_links(folder: Path) -> None:
    """Refuse to remove a folder that is a link, or has links in it: what they point at would stay.

    Raises:
        StoreError: It does.
    """
    links = [path for path in (folder, *sorted(folder.rglob("*"))) if path.is_symlink()]
    if links:
        raise StoreError(
            f"{links[0]} is a link to {links[0].readlink()}, whose content would stay, so nothing was removed: move it "
            "to the place of the link, or delete both, then run this again"
        )


def left_by_removals(home: Path) -> list[Path]:
    """Return the folders that removals have moved out of the way and not deleted yet."""
    return sorted((home / _FOLDER).glob(f"*{_GONE}"))


def _mark(path: Path) -> SideFile[RemovalMark]:
    return SideFile(path, RemovalMark, "the mark of a removal")


def _head_of(line: bytes) -> Head:
    """Return the head that a line states; the empty one where it is damaged."""
    try:
        found = inspect(line)
    except UNREADABLE:
        return EMPTY
    return Head(found.seq, found.hash)


def _unless_missing(function: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    """Raise the error of a deletion, unless another process was faster."""
    del function, path
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
