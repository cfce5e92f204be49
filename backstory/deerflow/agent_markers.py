"""Markers of agents: they show that DeerFlow deleted an agent and made another of the same name.

DeerFlow does not notify its memory when an agent is deleted. Both of its stores of agents, files and database, remove
the agent's folder, though. So a marker file with a random number is kept in that folder, and the number also beside the
agent's memory. Where the agent exists and the marker is gone or another, the memory is of a deleted agent.

A missing folder alone proves nothing: the agent may be in a database, or in the older layout that all users share.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import msgspec

from backstory.home import Backstory
from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.disk.files import lock_beside, put_in_place, sync_folder
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.importing.deerflow_paths import users_folders

_log = logging.getLogger(__name__)

MARKER = ".backstory"
"""The file in DeerFlow's folder of an agent."""
RECORD = "agent.marker"
"""The file beside the agent's memory."""

_CONFIG = "config.yaml"
_NUMBER = re.compile(r"[0-9a-f]{32}", re.ASCII)


class _Agent(msgspec.Struct, frozen=True):
    """An agent in DeerFlow's store of agents.

    Attributes:
        exists: Whether there is an agent of this name.
        markable: Whether a file may be put in its folder. In file mode a folder without an agent in it would keep the
            name from being used.
    """

    exists: bool
    markable: bool


class AgentMarkers:
    """The markers of a home's agents. Safe for threads and processes."""

    def __init__(self, home: Backstory, lock_timeout: float) -> None:
        self._home = home
        self._locks = FileLocks(lock_timeout, SystemClock())

    def settle(self, scope: Scope, clear: Callable[[], object]) -> bool:
        """Clear the memory of an agent that was deleted, before the new agent of its name uses it.

        Call it before each use of an agent's memory; an agent with its marker costs the reading of two small files.
        A fault of DeerFlow's files is counted (see `status`), and nothing is cleared.

        Args:
            scope: The memory.
            clear: Clears it.

        Returns:
            Whether it was cleared.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: It cannot be cleared.
        """
        if scope.user is None or scope.agent is None:
            return False
        record = self._home.home / scope.folder / RECORD
        try:
            folder = _folder_of(scope.user, scope.agent)
            if folder is None or _is_settled(folder / MARKER, record):
                return False
            agent = _agent(scope.user, scope.agent, folder)
        except Exception as error:  # noqa: BLE001 DeerFlow's store of agents can raise anything
            self._home.faults.note(scope, "agent", error)
            return False
        if not agent.exists or (not agent.markable and _number_in(record) is None):
            return False
        with self._locks.held(lock_beside(record)):
            known, found = _number_in(record), _number_in(folder / MARKER)
            if known and found is None and not folder.parent.is_dir():
                # Not one agent's folder is gone but that of all the user's agents: a disk may be missing.
                return False
            cleared = False
            if known and found not in (known, ""):
                cleared = self._clear(scope, clear)
                # If this process ends before, memory is cleared again, and nothing was learned in between.
                record.unlink(missing_ok=True)
            try:
                if agent.markable:
                    _mark(folder / MARKER, record)
            except OSError as error:
                self._home.faults.note(scope, "agent", error)
                return cleared
        self._home.faults.recovered(scope, "agent")
        return cleared

    def _clear(self, scope: Scope, clear: Callable[[], object]) -> bool:
        if not any(self._home.store.state(scope.stream(kind)).edition for kind in (LEDGER, TRANSCRIPT)):
            return False
        clear()
        _log.warning(
            "%s: DeerFlow deleted this agent, and there is a new one of its name: its memory was cleared; "
            "`revert` of that commit brings it back",
            scope,
        )
        return True


def _folder_of(user: str, agent: str) -> Path | None:
    """Return DeerFlow's folder of an agent; None in a DeerFlow that has no such folders."""
    try:
        paths = import_module("deerflow.config.paths").get_paths()
    except ModuleNotFoundError:
        return None
    return Path(paths.base_dir) / "users" / users_folders(user)[0] / "agents" / agent.lower()


def _agent(user: str, agent: str, folder: Path) -> _Agent:
    if _is_in_database():
        store = import_module("deerflow.persistence.agents").get_agent_store()
        row = bool(store.exists(agent, user_id=users_folders(user)[0]))
        return _Agent(row, row)
    own = (folder / _CONFIG).exists()
    shared = folder.parents[3] / "agents" / folder.name / _CONFIG
    return _Agent(own or shared.exists(), own)


def _is_in_database() -> bool:
    try:
        config = import_module("deerflow.config.app_config").get_app_config()
    except Exception:  # noqa: BLE001 without a configuration DeerFlow itself takes the files
        return False
    stated = getattr(config, "agent_storage", None)
    return getattr(stated, "backend", None) == "db"


def _is_settled(marker: Path, record: Path) -> bool:
    known = _number_in(record)
    return bool(known) and _number_in(marker) in (known, "")


def _number_in(file: Path) -> str | None:
    """Return the number in a marker; None where there is no file, and "" where it holds no number."""
    try:
        text = file.read_text("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return text if _NUMBER.fullmatch(text) else ""


def _mark(marker: Path, record: Path) -> None:
    """Write the marker where it is missing, and then the record: a record without its marker clears memory."""
    number = _number_in(marker)
    if not number:
        number = uuid4().hex
        marker.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(marker, f"{number}\n".encode(), durable=True)
        sync_folder(marker.parent)
        sync_folder(marker.parent.parent)
    if _number_in(record) != number:
        put_in_place(record, f"{number}\n".encode())
