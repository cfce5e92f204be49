"""Store factory: the configured engine for the log, built in or by the name of its class.

A store that cannot be created is an error; there is no fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from backstory.ledger.core.errors import BackstoryError, ConfigError
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Capabilities, EventStore

if TYPE_CHECKING:
    from backstory.config.loading import Loaded
    from backstory.config.settings import Settings
    from backstory.projections.shared.memories import SharedMemories

_EARLIER_PORT = "backstory.ledger.log.store"
_CHANGED = {
    "state": "state takes the place of edition and size, and append takes several lines, as append_all did",
    "set_key": "set_key takes the place of restore_key, and with None of destroy_key",
    "capabilities": "add `def capabilities(self): return Capabilities()`, and name there which of "
    f"{', '.join(Capabilities.__struct_fields__)} it has",
}
"""What to change in a store that was written for an earlier port, by the method that it lacks."""
_METHODS = tuple(name for name, value in vars(EventStore).items() if not name.startswith("_") and callable(value))


def open_store(loaded: Loaded, home: Path) -> EventStore:
    """Create the store that `event_store` or `storage_class` names.

    Args:
        loaded: The configuration.
        home: The home folder, which need not exist.

    Raises:
        ConfigError: The engine or class is unknown, is not an EventStore, or both keys are set.
    """
    settings, origin = loaded.settings, loaded.origin
    if settings.storage_class:
        if origin["event_store"] != "default":
            raise ConfigError(
                f"event_store (from the {origin['event_store']}) and storage_class (from the "
                f"{origin['storage_class']}) both name the store: leave one of them out"
            )
        return _made(settings.storage_class, home, f"{settings.storage_class} (from the {origin['storage_class']})")
    if settings.event_store == "jsonl:":
        return JsonlStore(home, lock_timeout=settings.file_lock_timeout_seconds)
    if _is_postgres(settings.event_store):
        _must_load("postgres", "psycopg", "psycopg_pool")
        from backstory.ledger.engines.postgres.store import PostgresStore

        return PostgresStore(settings.event_store, lock_timeout=settings.file_lock_timeout_seconds)
    if settings.event_store.startswith(("nats://", "tls://")):
        _must_load("nats", "nats")
        from backstory.ledger.engines.nats.store import NatsStore

        return NatsStore(settings.event_store, lock_timeout=settings.file_lock_timeout_seconds)
    engine = _engine(settings.event_store)
    raise ConfigError(f"event_store must be jsonl:, postgresql://… or nats://…, got {engine!r}")


def shared_memories(settings: Settings, store: EventStore) -> SharedMemories | None:
    """Make the shared memories that `redis_url` asks for; None without it, and for files.

    Beside files lies an index, which every process on that machine reads as fast.

    Raises:
        ConfigError: The package for Redis is missing, or the URL is none of Redis.
    """
    if not settings.redis_url or isinstance(store, JsonlStore):
        return None
    from backstory.projections.shared.memories import SharedMemories
    from backstory.projections.shared.redis_cache import RedisCache

    return SharedMemories(store, RedisCache(settings.redis_url), settings.redis_ttl_seconds)


def migrate_store(loaded: Loaded) -> Sequence[str]:
    """Bring the tables of the configured database up to this version.

    Args:
        loaded: The configuration.

    Returns:
        The names of the migrations that were run, oldest first.

    Raises:
        ConfigError: The engine keeps no tables.
        StoreError: The database cannot be reached, or refuses.
    """
    url = loaded.settings.event_store
    if loaded.settings.storage_class or not _is_postgres(url):
        raise ConfigError(
            f"only a database is migrated, and event_store is {_engine(url)!r}: name one, with --store postgresql://…"
        )
    _must_load("postgres", "psycopg", "psycopg_pool")
    from backstory.ledger.engines.postgres.migrating import migrate

    return migrate(url)


def _is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def _engine(url: str) -> str:
    """Return the part of an address that names the engine; the rest may hold a password."""
    return url.partition(":")[0]


def _must_load(extra: str, *modules: str) -> None:
    """Check that the library of an engine is installed."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"event_store names an engine whose library does not load ({error}): pip install 'backstory[{extra}]'"
            ) from error


def _made(path: str, home: Path, label: str) -> EventStore:
    factory = _class(path, label)
    try:
        return factory(home)
    except BackstoryError:
        raise
    except Exception as error:
        raise ConfigError(
            f"storage_class {label} could not be created with the home folder alone ({type(error).__name__}): {error}"
        ) from error


def _class(path: str, label: str) -> Callable[[Path], EventStore]:
    """Load a class by its dotted path.

    Raises:
        ConfigError: It cannot be loaded, is not a class, or lacks methods of an event store.
    """
    place, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not place or not name or place.startswith("."):
        raise ConfigError(f"storage_class {label} must be package.module:Class: correct it, or leave it out")
    try:
        found: object = import_module(place)
    except Exception as error:  # a module can raise anything on import
        moved = isinstance(error, ModuleNotFoundError) and error.name == _EARLIER_PORT
        hint = f": the port is now {EventStore.__module__}, import it from there" if moved else ""
        raise ConfigError(
            f"storage_class {label} does not load, the module {place} failed ({type(error).__name__}): {error}{hint}"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ConfigError(f"storage_class {label} does not load: the module {place} has no {name}")
    if not isinstance(found, type):
        raise ConfigError(f"storage_class {label} must be a class, got a {type(found).__name__}: name the class")
    if not _makes_stores(found):
        raise ConfigError(f"storage_class {label} is not an event store: {_lacking(found)}")
    return found


def _makes_stores(found: object) -> TypeGuard[Callable[[Path], EventStore]]:
    return not _lacking(found)


def _lacking(found: object) -> str:
    missing = [name for name in _METHODS if not callable(getattr(found, name, None))]
    if missing and _CHANGED.keys() >= set(missing):
        return (
            f"it lacks {', '.join(missing)}, so it was written for an earlier port: "
            f"{'; '.join(_CHANGED[name] for name in missing)} (see ledger/engines/port.py)"
        )
    return f"it lacks {', '.join(missing)} (see EventStore in ledger/engines/port.py)" if missing else ""
