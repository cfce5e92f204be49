"""What DeerFlow remembered before: taken over once, on the first use of a memory, and left as it is.

DeerFlow's files are only read. Whose they are goes by DeerFlow's own names for people, so that nobody gets another's
memory: what a home holds for nobody in particular is nobody's but the global memory's.
"""

from __future__ import annotations

import errno
import logging
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import CorruptLogError, InputError, ScopeError, UnavailableError
from backstory.ledger.core.events import Candidate, CandidateRejected, FactAdded, NewSummary
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.importing import read_home_if_any, read_import
from backstory.ledger.importing.deerflow_paths import users_folders

__all__ = ["agents_in", "bring_over", "settle"]

_log = logging.getLogger(__name__)

_DUE = "import.due"
"""Beside memory.json where DeerFlow's memory is there and could not be read yet: it is waited for whatever comes."""


def bring_over(bs: Backstory, deerflow_home: str | Path, user: str | None, agent: str | None) -> bool:
    """Take over what DeerFlow's own files hold of a memory that was never used; tell whether anything came.

    To be called before a memory is used, every time: after the first it costs nothing. `deerflow_home` is the folder in
    which DeerFlow keeps memory, or the one file that it does. For an agent the user's memory is taken over as well,
    which it reads until it has its own. A memory that was cleared or emptied is not filled again.

    Never raises for a fault of DeerFlow's files or of the store: it is noted, see `status`, and tried again with the
    next call. What of the files is refused is recorded in the commit that takes them over, with the reason.

    Raises:
        ScopeError: a name that cannot be one.
        UsageError: the home was closed.
    """
    came = False
    for scope in (Scope.of(user), Scope.of(user, agent))[agent is None :]:
        try:
            came = settle(bs, Path(deerflow_home).expanduser(), scope)
        except (InputError, UnavailableError, OSError) as error:
            bs.faults.note(scope, "import", error)
            came = False
    return came


def settle(bs: Backstory, source: Path, scope: Scope) -> bool:
    """Take one memory over as `bring_over` does, and raise what stands in the way of it.

    Raises:
        InputError, OSError: DeerFlow's files cannot be read.
        StoreError, LockTimeoutError, CorruptLogError: ours cannot be read or written.
    """
    with _lock:
        settled = _settled.setdefault(bs, _Settled())
    if scope in settled.scopes:
        return False
    with settled.lock:
        if scope in settled.scopes:
            return False
        try:
            commit = _bring(bs, source, scope, late=scope in settled.due)
        except CorruptLogError:
            # It was in use before, and nobody knows for what.
            raise
        except (InputError, UnavailableError, OSError):
            settled.due.add(scope)
            raise
        settled.scopes.add(scope)
    return commit is not None


def agents_in(source: Path, user: str | None) -> tuple[str, ...]:
    """Name the agents of which DeerFlow's own files may hold a memory of this user, in lower case.

    Raises:
        OSError: they cannot be looked through.
    """
    try:
        names = [path.name for path in (_folder_of(source, user) / "agents").iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted({name.lower() for name in names if _names_an_agent(name)}))


def _names_an_agent(name: str) -> bool:
    try:
        Scope.of(agent=name)
    except ScopeError:
        return False
    return True


def _folder_of(source: Path, user: str | None) -> Path:
    # Without a folder of their own a person has no memory there; the one of the root is not theirs.
    return source if user is None else source / "users" / users_folders(user)[0]


class _Settled:
    """The memories of one opened home of which there is nothing more to bring over."""

    def __init__(self) -> None:
        self.scopes: set[Scope] = set()
        self.due: set[Scope] = set()
        """Those of which something is still to come, also where that could not be noted on disk."""
        self.lock = ForkLock()


_settled: weakref.WeakKeyDictionary[Backstory, _Settled] = weakref.WeakKeyDictionary()
_lock = ForkLock()


def _bring(bs: Backstory, source: Path, scope: Scope, *, late: bool) -> Commit | None:
    """Take a memory over if it is to be; whoever comes late may find that others learned in between.

    Raises:
        InputError, OSError: DeerFlow's files cannot be read. UnavailableError: ours cannot be read or written.
    """
    own = bs.memory(scope.user, scope.agent).own
    due = bs.home / scope.folder / _DUE
    late = late or due.exists()
    commit = None
    if not own.taken_over(late=late):
        try:
            candidates = _found(bs, source, scope)
            if candidates:
                # Who only reads is here, too: where the log is locked this comes with a later use.
                with bs.store.locked(scope.stream(LEDGER), wait=False):
                    pass
            commit = own.take_over(candidates, str(source), late=late) if candidates else None
        except (InputError, UnavailableError, OSError):
            _expect(due)
            raise
    due.unlink(missing_ok=True)
    if commit is not None:
        _report(commit, source, scope)
    return commit


def _expect(due: Path) -> None:
    """Note that something is still to come, for what is learned meanwhile would look like a memory in use."""
    try:
        due.parent.mkdir(parents=True, exist_ok=True)
        due.touch(mode=0o600)
    except OSError as error:
        _log.warning("cannot write %s: %s; check the disk", due, error.strerror or error)


def _found(bs: Backstory, source: Path, scope: Scope) -> Sequence[Candidate]:
    """Read what DeerFlow holds of a memory; empty where it holds nothing.

    Raises:
        InputError: it cannot be read.
    """
    if source.suffix == ".json" or source.is_file():
        candidates = read_import(source, scope) if _is_there(source) else ()
    else:
        folder = _folder_of(source, scope.user)
        ours = bs.home.resolve()
        if not _is_there(folder) or ours in (folder.resolve(), *folder.resolve().parents):
            return ()
        candidates = read_home_if_any(folder, scope) or ()
    return [c for c in candidates if not isinstance(c, NewSummary) or c.summary]


def _is_there(path: Path) -> bool:
    """Whether a file or folder is there; one that may not be looked into is there, and an error.

    Raises:
        InputError: it may not be read.
    """
    try:
        path.stat()
        if path.is_dir():
            # Whether a file is in it could not be told.
            folders = (path, path / "agents") if (path / "agents").is_dir() else (path,)
            for folder in folders:
                next(folder.iterdir(), None)
                (folder / "memory.json").exists()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        told = (
            f"cannot read {error.filename or path}: {error.strerror or error}; let this process read DeerFlow's files"
        )
        raise InputError(told) from error
    return True


def _report(commit: Commit, source: Path, scope: Scope) -> None:
    came = sum(isinstance(event, FactAdded) for event in commit.events)
    refused = Counter(event.rule for event in commit.events if isinstance(event, CandidateRejected))
    told = ", ".join(f"{count} {rule}" for rule, count in sorted(refused.items()))
    _log.log(
        logging.WARNING if refused else logging.INFO,
        "%s: DeerFlow's memory in %s was taken over; facts taken over: %d; refused: %s; commit %d has it all",
        scope,
        source,
        came,
        told or "none",
        commit.seq,
    )
