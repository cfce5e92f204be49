"""Copy of a home: which engines two names mean, and the files beside the logs that go along from folder to folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from backstory.config.loading import base_folder, load_settings
from backstory.config.store_factory import open_store
from backstory.ledger.core.errors import UsageError
from backstory.ledger.disk.files import make_folder, put_in_place, translated
from backstory.ledger.engines.copying import CopyProgress, cancel_copy, copy_streams
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import EventStore

__all__ = ["CancelledCopy", "CopiedHome", "cancel", "copy_home"]

_JSONL = "jsonl:"
_OF_HOME = ("tokens.json", "host.json")
_OF_SCOPE = (
    "access.json",
    "agent.marker",
    "faults.json",
    "witness.json",
    "memory.json.edited-*",
    "*.torn-*",
    "*.damaged-*",
)
"""Files that no other can be made from. memory.json, the index and vectors are derived from the logs."""


class CopiedHome(msgspec.Struct, frozen=True):
    """What a finished copy holds.

    Attributes:
        source: The engine that was copied from; it takes no changes any more.
        target: The engine that was copied to.
        streams: The number of streams.
        commits: The number of their commits, of both ledgers and transcripts.
        new: How many of these the target did not have before.
        files: The files beside the logs that were copied, relative to the home folder.
        kept: Those of which the target had another one, which stays.
    """

    source: str
    target: str
    streams: int
    commits: int
    new: int
    files: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class CancelledCopy(msgspec.Struct, frozen=True):
    """The engines of a copy that was given up."""

    source: str
    target: str


def copy_home(
    source: str,
    target: str,
    *,
    home: str | Path | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    progress: CopyProgress = lambda _done, _total: None,
) -> CopiedHome:
    """Move a home to another folder or engine; see `copy_streams`.

    Args:
        source: A home folder, or the URL of an engine.
        target: The same, for the home to make.
        home: The home folder that belongs to the URLs.
        config: The configuration that belongs to the URLs.
        progress: Gets the number of commits that are copied, and of all.

    Returns:
        What the target holds.

    Raises:
        UsageError: Both are the same home, or one lies in the other.
        ConfigError: There is no such engine.
        ConflictError, NotFoundError, SealedError, CorruptLogError, StoreError: As `copy_streams`.
    """
    files: dict[str, bool] = {}

    def beside() -> None:
        if isinstance(ours, JsonlStore) and isinstance(theirs, JsonlStore):
            files.update(_copy_files(ours.home, theirs.home, ours))

    with _engines(source, target, home, config) as (ours, theirs):
        done = copy_streams(ours, theirs, progress, beside)
    return CopiedHome(
        str(ours),
        str(theirs),
        done.streams,
        done.commits,
        done.new,
        files=tuple(name for name, copied in files.items() if copied),
        kept=tuple(name for name, copied in files.items() if not copied),
    )


def cancel(
    source: str,
    target: str,
    *,
    home: str | Path | None = None,
    config: str | Path | Mapping[str, object] | None = None,
) -> CancelledCopy:
    """Give up an incomplete copy, so that the source takes changes again; see `cancel_copy`.

    Returns:
        The names of both engines.

    Raises:
        UsageError, ConfigError: As `copy_home`.
        ConflictError: There is no incomplete copy.
    """
    with _engines(source, target, home, config) as (ours, theirs):
        cancel_copy(ours, theirs)
    return CancelledCopy(str(ours), str(theirs))


@contextmanager
def _engines(
    source: str, target: str, home: str | Path | None, config: str | Path | Mapping[str, object] | None
) -> Iterator[tuple[EventStore, EventStore]]:
    """Open the engines of two homes for the length of a block."""
    with closing(_engine(source, home, config)) as ours, closing(_engine(target, home, config)) as theirs:
        if str(ours) == str(theirs):
            raise UsageError(f"{ours} cannot be copied to itself: name another folder or engine")
        if isinstance(ours, JsonlStore) and isinstance(theirs, JsonlStore):
            one, other = ours.home.resolve(), theirs.home.resolve()
            if one == other or one in other.parents or other in one.parents:
                raise UsageError(f"{ours} and {theirs} overlap: name a folder that is neither the same nor inside")
        yield ours, theirs


def _engine(name: str, home: str | Path | None, config: str | Path | Mapping[str, object] | None) -> EventStore:
    """Open the engine that a name means: a URL has `://`, all else is a folder."""
    if not name:
        raise UsageError("a home is named by its folder or by the URL of an engine, got an empty text")
    if "://" in name:
        loaded = load_settings(config, {"event_store": name}, home=home)
        return open_store(loaded, base_folder(home, loaded.settings))
    settings = load_settings(config).settings
    folder = base_folder(name.removeprefix(_JSONL) or home, settings)
    return JsonlStore(folder, lock_timeout=settings.file_lock_timeout_seconds)


def _copy_files(source: Path, target: Path, store: EventStore) -> Iterator[tuple[str, bool]]:
    """Copy the files beside the logs; yield the name of each, and False where the target has another one."""
    for name in _names(source, store):
        with translated(source / name, "copy"):
            data = (source / name).read_bytes()
            path = target / name
            if path.exists():
                if path.read_bytes() != data:
                    yield name, False
                continue
            make_folder(path.parent)
            put_in_place(path, data, durable=True)
            yield name, True


def _names(source: Path, store: EventStore) -> Iterator[str]:
    yield from (name for name in _OF_HOME if (source / name).is_file())
    for folder in dict.fromkeys((source / stream).parent for stream in store.streams()):
        for pattern in _OF_SCOPE:
            yield from sorted(str(path.relative_to(source)) for path in folder.glob(pattern) if path.is_file())
