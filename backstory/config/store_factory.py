"""From configuration to the engine that keeps the log: one of ours by its address, or anybody's class by its name.

Whatever cannot be had is an error; nothing else is ever taken in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from backstory.ledger.core.errors import BackstoryError, ConfigError
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.store.jsonl import JsonlStore

if TYPE_CHECKING:
    from backstory.config.loading import Loaded

__all__ = ["open_store"]

_METHODS = tuple(name for name, value in vars(EventStore).items() if not name.startswith("_") and callable(value))


def open_store(loaded: Loaded, home: Path) -> EventStore:
    """Return the engine that `event_store` or `storage_class` names, on a home folder, which need not exist yet.

    Raises:
        ConfigError: there is no such engine or class, it is no EventStore, or both keys are stated.
    """
    settings, origin = loaded.settings, loaded.origin
    if settings.storage_class:
        if origin["event_store"] != "default":
            raise ConfigError(
                f"event_store (from the {origin['event_store']}) and storage_class (from the "
                f"{origin['storage_class']}) both say what keeps the log: leave one of them out"
            )
        return _made(settings.storage_class, home, f"{settings.storage_class} (from the {origin['storage_class']})")
    if settings.event_store == "jsonl:":
        return JsonlStore(home, lock_timeout=settings.file_lock_timeout_seconds)
    engine = settings.event_store.partition(":")[0]
    raise ConfigError(f"there is no event store {engine!r} in this version; it is jsonl:")


def _made(path: str, home: Path, told: str) -> EventStore:
    factory = _class(path, told)
    try:
        store = factory(home)
    except BackstoryError:
        raise
    except Exception as error:
        raise ConfigError(
            f"storage_class {told} could not be made with the home folder alone ({type(error).__name__}): {error}"
        ) from error
    if not _is_store(store):
        raise ConfigError(f"storage_class {told} is no event store: {_lacking(store)}")
    return store


def _class(path: str, told: str) -> Callable[[Path], object]:
    """Load a class by its dotted path.

    Raises:
        ConfigError: it cannot be loaded, is no class or lacks methods of an event store.
    """
    place, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not place or not name or place.startswith("."):
        raise ConfigError(f"storage_class {told} is no dotted path: write package.module:Class, or leave it out")
    try:
        found: object = import_module(place)
    except Exception as error:  # whatever a module does while it is imported
        raise ConfigError(
            f"storage_class {told} does not load, the module {place} failed ({type(error).__name__}): {error}"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ConfigError(f"storage_class {told} does not load: the module {place} has no {name}")
    if not isinstance(found, type):
        raise ConfigError(f"storage_class {told} is no class, but a {type(found).__name__}: name the class itself")
    if lacking := _lacking(found):
        raise ConfigError(f"storage_class {told} is no event store: {lacking}")
    return found


def _is_store(store: object) -> TypeGuard[EventStore]:
    return not _lacking(store)


def _lacking(found: object) -> str:
    missing = [name for name in _METHODS if not callable(getattr(found, name, None))]
    return f"it lacks {', '.join(missing)} (see EventStore in ledger/store)" if missing else ""
