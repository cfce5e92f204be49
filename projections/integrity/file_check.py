"""File check of `doctor`: torn tails, clocks, locks and files moved aside, found without reading whole logs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import UNREADABLE, inspect
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.disk.files import last_line
from backstory.ledger.disk.locks import kept_free
from backstory.ledger.engines.jsonl.removal import left_by_removals
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.projections.integrity.remedies import Check, some

LOGS = (f"{LEDGER}.jsonl", f"{TRANSCRIPT}.jsonl")
"""The log files of a scope."""

_AHEAD = timedelta(minutes=1)
_STALE_SECONDS = 60.0
_LOCK_PATIENCE = (0.01, 20)
_UNDECIDED = re.compile(r"(ledger|transcript)\.damaged-\d+|memory\.json\.edited-\d+")
_SCRAPS = re.compile(r"(ledger|transcript)\.torn-\d+")
_HALF_MADE = re.compile(r"\..+\.(new|erasing|mending|copying)")


def scope_folders(home: Path, files: Sequence[str] = LOGS) -> Iterator[Path]:
    """Yield the folders of scopes that hold one of some files: the home, agents, users, and all agents of users."""
    if any((home / name).exists() for name in files):
        yield home
    for folder in (*_below(home / "agents"), *_below(home / "users")):
        if any((folder / name).exists() for name in files):
            yield folder
        if folder.parent == home / "users":
            yield from _below(folder / "agents")


def _below(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return  # the disk check or the log check reports it
    yield from (folder / name for name in names)


def examine_files(home: Path, folders: Iterable[Path], clock: Clock) -> list[Check]:
    """Check the files of scopes: readable, torn tails, files moved aside or left over, locks and the clock."""
    store = JsonlStore(home)
    undecided: list[str] = []
    scraps: list[str] = []
    left: list[str] = []
    torn: list[str] = []
    held: list[str] = []
    unread: list[str] = []
    links: list[str] = []
    newest = ""
    for folder in folders:
        try:
            files = sorted(path for path in folder.iterdir() if path.is_file())
        except OSError as error:
            unread.append(f"{folder}: {error.strerror}")
            continue
        links += [path.relative_to(home).as_posix() for path in (folder, *files) if path != home and path.is_symlink()]
        for path in files:
            name = path.relative_to(home).as_posix()
            if _UNDECIDED.fullmatch(path.name):
                undecided.append(name)
            elif _SCRAPS.fullmatch(path.name):
                scraps.append(name)
            elif _HALF_MADE.fullmatch(path.name) and _is_stale(path, clock):
                left.append(name)
            elif path.suffix == ".lock" and _is_held(path, clock):
                held.append(name)
            elif path.name in LOGS:
                try:
                    if store.torn_tail(name.removesuffix(".jsonl")) is not None:
                        torn.append(name)
                    newest = max(newest, _last_time(path))
                except (BackstoryError, OSError) as error:
                    unread.append(f"{name}: {error}")
    cut = "its last line was cut short by a crash; the next write or `repair` moves it aside"
    keep = "moved aside: check it, `import` an edited memory.json if it is right, then delete it"
    gone = [path.relative_to(home).as_posix() for path in left_by_removals(home) if _is_stale(path, clock)]
    left += gone
    half = "left by a killed process; the next write of the file replaces it, or delete it"
    if gone:
        half = "left by a removal of a user that was killed; run `forget --whole-user` again, or delete it"
    busy = "held by another process for long, so writers time out; end that process if it hangs"
    elsewhere = "a link, so that nothing is erased or removed there; move the file or folder to the place of the link"
    return [
        Check("readable", not unread, some(unread) or "every folder and log can be read"),
        Check("torn tails", not torn, f"{some(torn)}: {cut}" if torn else "none"),
        Check("moved aside", not undecided, f"{some(undecided)}: {keep}" if undecided else "nothing"),
        Check("torn pieces", True, f"{some(scraps)}: never acknowledged; delete them" if scraps else "none"),
        Check("left over", not left, f"{some(left)}: {half}" if left else "nothing"),
        Check("links", not links, f"{some(links)}: {elsewhere}" if links else "none"),
        Check("locks", not held, f"{some(held)}: {busy}" if held else "none is held"),
        _time_check(newest, clock),
    ]


def _is_stale(path: Path, clock: Clock) -> bool:
    with suppress(OSError):
        return clock.now().timestamp() - path.stat().st_mtime > _STALE_SECONDS
    return False


def _is_held(path: Path, clock: Clock) -> bool:
    """Whether a lock is held for longer than a write takes."""
    pause, times = _LOCK_PATIENCE
    try:
        for _ in range(times):
            with kept_free(str(path)) as free:
                if free:
                    return False
            clock.sleep(pause)
    except OSError:
        return False
    return True


def _last_time(path: Path) -> str:
    """Return the time of a log's last commit, or "" where it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        line, _ = last_line(descriptor, os.fstat(descriptor).st_size)
        found = inspect(line)
    except UNREADABLE:
        return ""
    finally:
        os.close(descriptor)
    return found.at if found.intact else ""


def _time_check(newest: str, clock: Clock) -> Check:
    now = spell_moment(clock.now())
    if newest > spell_moment(clock.now() + _AHEAD):
        ahead = f"the newest commit is dated {newest}, and this clock says {now}: set this clock, or the writer's"
        return Check("clock", False, f"{ahead}; until then new commits get the date {newest[:10]}, too")
    return Check("clock", True, f"it is {now}, and no commit is later" if newest else f"it is {now}")
