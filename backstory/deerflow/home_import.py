"""Import of DeerFlow's own memory files, once per memory, on its first use.

DeerFlow's files are only read. They are matched to users by DeerFlow's own folder names, so that no user gets the
memory of another; files without a user go to the global memory.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
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


class HomeImport:
    """Import of DeerFlow's own memory files into one open home. Safe for threads.

    Args:
        bs: The home.
    """

    def __init__(self, bs: Backstory) -> None:
        self._bs = bs
        self._fail_safe = FailSafeMemory(bs)
        self._complete: set[Scope] = set()
        """The memories whose import is complete."""
        self._due: set[Scope] = set()
        """Memories whose import is still due, even if no marker file could be written."""
        self._lock = ForkLock()

    def once(self, source: Path, scope: Scope) -> bool:
        """Import DeerFlow's files into a memory that was never used.

        Call it before each use of a memory; after the first call it costs nothing. For an agent it also imports the
        user's memory, which the agent reads until it has its own. A memory that was cleared is not filled again.

        A fault of DeerFlow's files or of the store is not raised. It is counted (see `status`), and the next call tries
        again. The commit of the import records each refused item with the reason.

        Args:
            source: The folder, or the one file, in which DeerFlow keeps memory.
            scope: The memory.

        Returns:
            Whether anything was imported into the last of the memories.
        """
        came = False
        for one in (Scope(scope.user), scope)[scope.agent is None :]:
            came = self._fail_safe.guarded(one, "import", partial(self.if_due, source, one), otherwise=False)
        return came

    def if_due(self, source: Path, scope: Scope) -> bool:
        """Import one memory as `once` does, and raise its errors.

        Raises:
            InputError, OSError: DeerFlow's files cannot be read.
            StoreError, LockTimeoutError, CorruptLogError: The home cannot be read or written.
        """
        if scope in self._complete:
            return False
        with self._lock:
            if scope in self._complete:
                return False
            try:
                commit = self._bring(source, scope)
            except CorruptLogError:
                # A damaged log was in use before, so nothing is due for it.
                raise
            except (InputError, UnavailableError, OSError):
                self._due.add(scope)
                raise
            self._complete.add(scope)
        return commit is not None

    def _bring(self, source: Path, scope: Scope) -> Commit | None:
        """Import a memory if it is due; if it was due before, even if the memory was used since.

        Raises:
            InputError, OSError: DeerFlow's files cannot be read.
            UnavailableError: The home cannot be read or written.
        """
        own = self._bs.memory_of(scope).own
        due = self._bs.home / scope.folder / _DUE
        late = scope in self._due or due.exists()
        commit = None
        if not own.taken_over(late=late):
            try:
                candidates = self._found(source, scope)
                if candidates:
                    # Readers get here, too, and must not wait: if the log is locked, a later use imports.
                    with self._bs.store.locked(scope.stream(LEDGER), wait=False):
                        pass
                commit = own.take_over(candidates, str(source), late=late) if candidates else None
            except (InputError, UnavailableError, OSError):
                _mark_due(due)
                raise
        due.unlink(missing_ok=True)
        if commit is not None:
            _report(commit, source, scope)
        return commit

    def _found(self, source: Path, scope: Scope) -> Sequence[Candidate]:
        """Read DeerFlow's memory of a scope; empty if there is none.

        Raises:
            InputError: It cannot be read.
        """
        if source.suffix == ".json" or source.is_file():
            candidates = read_import(source, scope) if _is_there(source) else ()
        else:
            folder = _folder_of(source, scope.user)
            ours = self._bs.home.resolve()
            if not _is_there(folder) or ours in (folder.resolve(), *folder.resolve().parents):
                return ()
            shared = self._bs.config.settings.shared_summaries
            candidates = read_home_if_any(folder, scope, users_sections=not shared) or ()
        return without_empty_sections(candidates)


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


def _mark_due(due: Path) -> None:
    """Write the marker file, so that later commits do not make the memory look used."""
    try:
        due.parent.mkdir(parents=True, exist_ok=True)
        due.touch(mode=0o600)
    except OSError as error:
        _log.warning("cannot write %s: %s; check the disk", due, error.strerror or error)


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
