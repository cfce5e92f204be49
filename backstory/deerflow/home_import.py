"""Import of DeerFlow's own memory files, once per memory, on its first use.

DeerFlow's files are only read. They are matched to users by DeerFlow's own folder names, so that no user gets the
memory of another; files without a user go to the global memory.
"""

from __future__ import annotations

import errno
import functools
import logging
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import CorruptLogError, InputError, ScopeError, UnavailableError
from backstory.ledger.core.events import Candidate, CandidateRejected, FactAdded
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.importing import read_home_if_any, read_import, without_empty_sections
from backstory.ledger.importing.deerflow_paths import users_folders
from backstory.outbox.fail_safe import FailSafeMemory

_log = logging.getLogger(__name__)

_DUE = "import.due"
"""A marker file beside memory.json: DeerFlow has a memory that could not be read yet and is still to be imported."""


def import_once(fail_safe: FailSafeMemory, bs: Backstory, source: Path, scope: Scope) -> bool:
    """Import DeerFlow's files into a memory that was never used.

    Call it before each use of a memory; after the first call it costs nothing. For an agent it also imports the user's
    memory, which the agent reads until it has its own. A memory that was cleared is not filled again.

    A fault of DeerFlow's files or of the store is not raised. It is counted (see `status`), and the next call tries
    again. The commit of the import records each refused item with the reason.

    Args:
        fail_safe: Counts the faults.
        bs: The home to import into.
        source: The folder, or the one file, in which DeerFlow keeps memory.
        scope: The memory.

    Returns:
        Whether anything was imported into the last of the memories.
    """
    came = False
    for one in (Scope(scope.user), scope)[scope.agent is None :]:
        came = fail_safe.guarded(one, "import", functools.partial(import_if_due, bs, source, one), otherwise=False)
    return came


def import_if_due(bs: Backstory, source: Path, scope: Scope) -> bool:
    """Import one memory as `import_once` does, and raise its errors.

    Raises:
        InputError, OSError: DeerFlow's files cannot be read.
        StoreError, LockTimeoutError, CorruptLogError: The home cannot be read or written.
    """
    with _lock:
        imports = _imports.setdefault(bs, _Imports())
    if scope in imports.scopes:
        return False
    with imports.lock:
        if scope in imports.scopes:
            return False
        try:
            commit = _bring(bs, source, scope, late=scope in imports.due)
        except CorruptLogError:
            # A damaged log was in use before, so nothing is due for it.
            raise
        except (InputError, UnavailableError, OSError):
            imports.due.add(scope)
            raise
        imports.scopes.add(scope)
    return commit is not None


def agents_in(source: Path, user: str | None) -> tuple[str, ...]:
    """Return the agents for which DeerFlow's files may hold a memory of this user, in lower case.

    Raises:
        OSError: The folders cannot be read.
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
    # A user without a folder has no memory; the memory of the root folder belongs to no user.
    return source if user is None else source / "users" / users_folders(user)[0]


class _Imports:
    """The memories of one open home whose import is complete."""

    def __init__(self) -> None:
        self.scopes: set[Scope] = set()
        self.due: set[Scope] = set()
        """Memories whose import is still due, even if no marker file could be written."""
        self.lock = ForkLock()


_imports: weakref.WeakKeyDictionary[Backstory, _Imports] = weakref.WeakKeyDictionary()
_lock = ForkLock()


def _bring(bs: Backstory, source: Path, scope: Scope, *, late: bool) -> Commit | None:
    """Import a memory if it is due. A `late` import is made even if the memory was used since.

    Raises:
        InputError, OSError: DeerFlow's files cannot be read.
        UnavailableError: The home cannot be read or written.
    """
    own = bs.memory_of(scope).own
    due = bs.home / scope.folder / _DUE
    late = late or due.exists()
    commit = None
    if not own.taken_over(late=late):
        try:
            candidates = _found(bs, source, scope)
            if candidates:
                # Readers get here, too, and must not wait: if the log is locked, a later use imports.
                with bs.store.locked(scope.stream(LEDGER), wait=False):
                    pass
            commit = own.take_over(candidates, str(source), late=late) if candidates else None
        except (InputError, UnavailableError, OSError):
            _mark_due(due)
            raise
    due.unlink(missing_ok=True)
    if commit is not None:
        _report(commit, source, scope)
    return commit


def _mark_due(due: Path) -> None:
    """Write the marker file, so that later commits do not make the memory look used."""
    try:
        due.parent.mkdir(parents=True, exist_ok=True)
        due.touch(mode=0o600)
    except OSError as error:
        _log.warning("cannot write %s: %s; check the disk", due, error.strerror or error)


def _found(bs: Backstory, source: Path, scope: Scope) -> Sequence[Candidate]:
    """Read DeerFlow's memory of a scope; empty if there is none.

    Raises:
        InputError: It cannot be read.
    """
    if source.suffix == ".json" or source.is_file():
        candidates = read_import(source, scope) if _is_there(source) else ()
    else:
        folder = _folder_of(source, scope.user)
        ours = bs.home.resolve()
        if not _is_there(folder) or ours in (folder.resolve(), *folder.resolve().parents):
            return ()
        shared = bs.config.settings.shared_summaries
        candidates = read_home_if_any(folder, scope, users_sections=not shared) or ()
    return without_empty_sections(candidates)


def _is_there(path: Path) -> bool:
    """Whether a file or a readable folder exists.

    Raises:
        InputError: It exists and cannot be read.
    """
    try:
        path.stat()
        if path.is_dir():
            # An unreadable folder would look empty otherwise.
            folders = (path, path / "agents") if (path / "agents").is_dir() else (path,)
            for folder in folders:
                next(folder.iterdir(), None)
                (folder / "memory.json").exists()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise InputError(
            f"cannot read {error.filename or path}: {error.strerror or error}; let this process read DeerFlow's files"
        ) from error
    return True


def _report(commit: Commit, source: Path, scope: Scope) -> None:
    added = sum(isinstance(event, FactAdded) for event in commit.events)
    refused = Counter(event.rule for event in commit.events if isinstance(event, CandidateRejected))
    by_rule = ", ".join(f"{count} {rule}" for rule, count in sorted(refused.items()))
    _log.log(
        logging.WARNING if refused else logging.INFO,
        "%s: DeerFlow's memory in %s was imported; facts imported: %d; refused: %s; see commit %d",
        scope,
        source,
        added,
        by_rule or "none",
        commit.seq,
    )
