"""Checks of a set-up and its memories, and their repair. Of the network only Redis is asked, and a model on request."""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from importlib import metadata
from itertools import groupby, islice
from pathlib import Path
from typing import TypeVar

from backstory.config.loading import Loaded, base_folder, check_folders, load_settings
from backstory.config.settings import AgentReads, Settings
from backstory.config.store_factory import open_store
from backstory.copies import COPIES
from backstory.home import Backstory
from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.errors import BackstoryError, ConfigError, CorruptLogError, ModelError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import EventStore
from backstory.ledger.extraction.models.model import Prompt, public_address
from backstory.ledger.extraction.models.openai import OpenAIModel
from backstory.projections.integrity.disk_check import examine_disk
from backstory.projections.integrity.file_check import examine_files, scope_folders
from backstory.projections.integrity.log_check import examine_logs
from backstory.projections.integrity.remedies import Check, counted, some
from backstory.projections.integrity.repair import DerivedIndex, repair
from backstory.projections.integrity.verify import INDEX
from backstory.users.owners import agents_of
from backstory.witness.witness import examine_witness

_log = logging.getLogger(__name__)

_Replaced = TypeVar("_Replaced")

_ASIDE = "*.damaged-*"
_KINDS = (LEDGER, TRANSCRIPT)
_FOLDERS = 1_000
_AGENTS = "/agents/"
_READS: Mapping[AgentReads, str] = {
    "both": "each reads its user's facts beside its own",
    "fallback": "each reads its user's facts until it has a memory of its own, and then no more",
    "own": "each reads its own facts only",
}
_QUESTION = Prompt(
    system="You answer with one JSON object and nothing else.",
    user='Answer with exactly this: {"newFacts": []}',
    digest="0" * 64,
    schema={"type": "object", "properties": {"newFacts": {"type": "array", "items": {"type": "object"}}}},
)
_NAME_AND_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def doctor(
    home: str | Path | None = None,
    *,
    config: str | Path | Mapping[str, object] | None = None,
    store: str | None = None,
    scope: Scope | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    ask: bool = False,
) -> tuple[Check, ...]:
    """Say of everything that was looked at whether it is in order, and how to mend what is not.

    It looks at the machine, the configuration, the home, and at the memories in it as far as 1,000 folders and 64 MiB
    go; at the `scope` named in any case. With `ask` the model is asked one short question. Nothing that is wrong keeps
    it from going on.
    """
    env = os.environ if environ is None else environ
    clock = clock or SystemClock()
    checks = [Check("python", True, f"{platform.python_version()}, {sys.executable}")]
    loaded, check = _configuration(home, config, store, env)
    checks.append(check)
    checks += [_model(loaded, env, ask=ask)] if loaded is not None else []
    checks.append(_extras())
    checks += [_redis(loaded.settings)] if loaded is not None and loaded.settings.redis_url else []
    try:
        folder = base_folder(home, loaded.settings if loaded is not None else Settings(), env)
        checks += examine_disk(folder)
    except (BackstoryError, OSError) as error:
        return (*checks, Check("home", False, str(error)))
    engine: EventStore = JsonlStore(folder)
    if loaded is not None and _kept_elsewhere(loaded.settings):
        engine = open_store(loaded, folder)
    elif not folder.is_dir():
        return tuple(checks)
    with closing(engine):
        checks += _looked("seal", lambda: _seal(engine))
        checks += _looked("engine", lambda: _risks(engine))
        found, sound = _memories(engine, folder, scope, clock, None if loaded is None else loaded.settings)
        checks += found
        if loaded is not None:
            checks.append(_parked(folder, config, store, sound))
            if loaded.settings.witness:
                checks.append(examine_witness(engine, folder, loaded.settings.witness, sound, clock))
    return tuple(checks)


def _looked(name: str, look: Callable[[], Check | None]) -> list[Check]:
    """Return what a look finds, if anything, or why it failed."""
    try:
        found = look()
    except BackstoryError as error:
        return [Check(name, False, str(error))]
    return [] if found is None else [found]


def _memories(
    store: EventStore, home: Path, scope: Scope | None, clock: Clock, settings: Settings | None
) -> tuple[list[Check], list[Scope]]:
    """Look at the memories of a store; return the checks, and the scopes without a finding."""
    named = None if scope is None else scope.folder
    try:
        folders = _folders(store, home, named)
    except BackstoryError as error:
        return [Check("readable", False, str(error))], []
    if isinstance(store, JsonlStore):
        checks = examine_files(home, [home / below for below in folders], clock)
    else:
        # Its server looks after its own files.
        checks = _looked("copies", lambda: _copies(store, home))

    def differs(scope: Scope) -> Sequence[str]:
        index = _index(store, home, scope)
        return () if index is None else index.differs()

    found, sound = examine_logs(store, home, folders, clock, differing=differs, all_of=named)
    checks += [_alike(folders), *found]
    if settings is not None and any(_AGENTS in f"/{below}" for below in folders):
        reads = settings.agent_reads
        checks.append(Check("agents", True, f"{_READS[reads]} (agent_reads: {reads})"))
    if len(folders) > _FOLDERS:
        checks.append(
            Check("more", True, f"only {len(folders)} memories were looked at: name others with --user, --agent")
        )
    return checks, sound


def _alike(folders: Iterable[str]) -> Check:
    """Look for user ids that differ only in their Unicode form, and for agents that differ only in case."""
    spelled: dict[tuple[str, str], list[str]] = {}
    for scope in filter(None, map(Scope.in_folder, folders)):
        alike = unicodedata.normalize("NFC", scope.user or ""), (scope.agent or "").casefold()
        spelled.setdefault(alike, []).append(scope.folder)
    twice = [" and ".join(names) for names in spelled.values() if len(names) > 1]
    hint = (
        f"{some(twice)}: each is a memory of its own, because names are taken exactly; if both mean the same, let the "
        "host spell them in one way, and `export` one memory and `import` it into the other"
    )
    return Check("alike", not twice, hint if twice else "no two users or agents differ only in Unicode form or case")


def _copies(store: EventStore, home: Path) -> Check:
    """Look for copies of memories that the store does not have."""
    folders = (folder.relative_to(home).as_posix().removeprefix(".") for folder in scope_folders(home, COPIES))
    left = [below or "." for below in islice(folders, _FOLDERS) if not _has_log(store, below)]
    gone = f"{store} has no such memory: it was removed on another machine, or the home was used with another store"
    hint = f"{some(left)}: {gone}; delete memory.json, index.sqlite and what is beside them, if nothing of it is missed"
    return Check("copies", not left, hint if left else "each is of a memory in the store")


def _has_log(store: EventStore, below: str) -> bool:
    return any(store.head(f"{below}/{kind}".lstrip("/")).seq for kind in _KINDS)


def _index(store: EventStore, home: Path, scope: Scope) -> DerivedIndex | None:
    """The index of a scope that has one; to lack one is no fault."""
    path = home / scope.folder / INDEX
    if not path.exists():
        return None
    from backstory.projections.index.index import ScopeIndex

    return ScopeIndex(store, scope, path)


def _folders(store: EventStore, home: Path, named: str | None) -> list[str]:
    """Return the folders of the scopes to look at, the one that was named first."""
    if isinstance(store, JsonlStore):
        # A log that is no stream, as one that may not be read, is to be found, too.
        every = (folder.relative_to(home).as_posix().removeprefix(".") for folder in scope_folders(home))
        is_there = named is not None and (home / named).is_dir()
    else:
        every = (folder for folder, _ in groupby(stream.rpartition("/")[0] for stream in store.streams()))
        is_there = named is not None and _has_log(store, named)
    others = (folder for folder in every if folder != named)
    return [*([named] if named is not None and is_there else []), *islice(others, _FOLDERS + 1)]


def _configuration(
    home: str | Path | None,
    config: str | Path | Mapping[str, object] | None,
    store: str | None,
    environ: Mapping[str, str],
) -> tuple[Loaded | None, Check]:
    try:
        loaded = load_settings(config, {"event_store": store}, environ, home=home, as_hosted=True)
        if _kept_elsewhere(loaded.settings):
            Backstory.open(home, config=config, event_store=store, background=False, as_hosted=True).close()
    except BackstoryError as error:
        return None, Check("configuration", False, f"{error}; `config` shows what each key is set to once it loads")
    try:
        check_folders(loaded.settings)
    except BackstoryError as error:
        return loaded, Check("configuration", False, str(error))
    return loaded, Check("configuration", True, "; ".join(_stated(loaded)) or "all defaults")


def _stated(loaded: Loaded) -> Iterator[str]:
    """Say which keys are stated, and what a host states, whose file has no secrets."""
    stated = sorted(key for key, origin in loaded.origin.items() if origin in ("file", "environment", "argument"))
    if stated:
        yield f"stated: {', '.join(stated)}"
    if loaded.host is not None:
        hosts = sorted(key for key, origin in loaded.origin.items() if origin.startswith("host ("))
        yield f"as in {loaded.host.host}: {', '.join(f'{key}={getattr(loaded.settings, key)}' for key in hosts)}"
        if loaded.host.withheld:
            yield f"not copied from it, since they hold secrets: {', '.join(loaded.host.withheld)}"


def _kept_elsewhere(settings: Settings) -> bool:
    """Whether another engine than files keeps the logs."""
    return settings.event_store != "jsonl:" or bool(settings.storage_class)


def _redis(settings: Settings) -> Check:
    """Say whether the configured Redis answers, if it is used."""
    from backstory.projections.shared.redis_cache import RedisCache

    if not _kept_elsewhere(settings):
        return Check("redis", True, "not used: the log is kept in files, beside which lies an index")
    try:
        cache = RedisCache(settings.redis_url or "")
    except ConfigError as error:
        return Check("redis", False, str(error))
    wrong = cache.ping()
    cache.close()
    said = "it answers" if wrong is None else f"it does not answer, so memories are read from the log: {wrong}"
    return Check("redis", wrong is None, said)


def _risks(store: EventStore) -> Check | None:
    """Say how an engine's servers may lose what was acknowledged."""
    risks = store.capabilities().risks
    if risks is None:
        return None
    found = risks()
    return Check("engine", not found, "; ".join(found) or f"{store} keeps what it has acknowledged")


def _seal(store: EventStore) -> Check | None:
    """Say why a home takes no changes; most have no seal."""
    seal = store.seal()
    return None if seal is None else Check("seal", False, str(seal.refusal(str(store))))


def _model(loaded: Loaded, environ: Mapping[str, str], *, ask: bool) -> Check:
    """Say what would be asked, and ask it if that is wanted; to have no model is a choice."""
    if loaded.no_model is not None:
        return Check("model", False, loaded.no_model)
    if loaded.foreign is not None:
        return Check("model", True, f"{loaded.foreign} would be asked, as in the host; it was not tried")
    stated, name = loaded.settings.model, loaded.settings.named_model
    address = stated.base_url or environ.get("OPENAI_BASE_URL")
    if not (stated.api_key or environ.get("OPENAI_API_KEY") or address):
        none = "none: what is said is kept and not learned from; set OPENAI_API_KEY or OPENAI_BASE_URL"
        return Check("model", not ask, f"{none}, or use `extract --replies`")
    if importlib.util.find_spec("openai") is None:
        return Check("model", False, f"{name}: the package openai is missing; install backstory again")
    if address and public_address(address) is None:
        return Check("model", False, f"{name}: its base URL has to begin with http:// or https://")
    shown = _NAME_AND_PASSWORD.sub("…@", address) if address else "its maker's own address"
    if not ask:
        return Check("model", True, f"{name} at {shown} would be asked; `doctor --model` asks it")
    key = stated.api_key or environ.get("OPENAI_API_KEY")
    model = OpenAIModel(name, api_key=key, base_url=address, temperature=stated.temperature)
    with closing(model):
        try:
            answer = model.ask(_QUESTION)
        except ModelError as error:
            return Check("model", False, str(error))
    if "newFacts" not in answer.text:
        return Check(
            "model", False, f"{name} at {shown} answered without the JSON that it was asked for: choose a larger model"
        )
    return Check("model", True, f"{name} at {shown} answers, as {answer.model}")


def _extras() -> Check:
    """Say which optional parts are there; to lack one is no fault."""
    try:
        needs = metadata.requires("backstory") or []
    except metadata.PackageNotFoundError:
        return Check("extras", False, "backstory is not installed as a package: install it, or its extras stay unknown")
    missing: set[str] = set()
    there: set[str] = set()
    for need in needs:
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", need)
        package = re.match(r"[A-Za-z0-9._-]+", need)
        if extra is None or package is None or extra[1] == "dev":
            continue
        try:
            metadata.version(package[0])
            there.add(extra[1])
        except metadata.PackageNotFoundError:
            missing.add(extra[1])
    states = [f"there: {', '.join(sorted(there - missing))}"] if there - missing else []
    if missing:
        states += [f"not there: {', '.join(sorted(missing))} (pip install 'backstory[{min(missing)}]' adds one)"]
    return Check("extras", True, "; ".join(states) or "this version has none")


def _parked(
    home: Path, config: str | Path | Mapping[str, object] | None, store: str | None, scopes: Iterable[Scope]
) -> Check:
    """Look for updates that failed and wait for a person, where the logs are sound."""
    waiting = []
    try:
        # To look asks no network, so nothing is sent to a witness.
        with Backstory.open(home, config=config, background=False, event_store=store, witness="", as_hosted=True) as bs:
            for scope in scopes:
                with suppress(ConfigError):
                    waiting += list(_parked_in(bs, scope))
    except (BackstoryError, OSError) as error:
        return Check("parked updates", False, f"they cannot be read: {error}")
    listed = f"{'; '.join(waiting[:5])}: `retry`, or give them up with `discard --thread T`"
    return Check("parked updates", not waiting, listed if waiting else "none")


def _parked_in(bs: Backstory, scope: Scope) -> Iterator[str]:
    for parked in bs.memory_of(scope).status().parked:
        turns, attempts = counted(parked.turns, "turn", "turns"), counted(parked.attempts, "attempt", "attempts")
        yield f"{turns} of thread {parked.thread} of {scope} ({parked.reason}, {attempts})"


def repair_scope(bs: Backstory, scope: Scope, *, dry_run: bool = False) -> tuple[Check, ...]:
    """Mend a scope's files by moving aside; see `backstory.projections.integrity.repair.repair`.

    Handles on this scope that were used before have to be opened again, with the home.

    Raises:
        ConfigError: The engine keeps no files.
        StoreError, LockTimeoutError: As `backstory.projections.integrity.repair.repair`.
    """
    if not isinstance(bs.store, JsonlStore):
        raise ConfigError(f"repair mends files, and {bs.store} keeps none: use that engine's own means")
    document = bs.home / scope.folder / "memory.json"
    return repair(bs.store, scope, document=document, index=_index(bs.store, bs.home, scope), dry_run=dry_run)


def replace_beyond_damage(
    bs: Backstory, scope: Scope, replace: Callable[[], _Replaced], *, whole_user: bool = False
) -> tuple[_Replaced, tuple[str, ...] | None]:
    """Replace a memory, even if its logs are damaged: then these are repaired first.

    What is intact of them stays in force, so that its history can be read. The log of the process names the files that
    were moved aside.

    Args:
        bs: The home.
        scope: The memory.
        replace: Replaces it.
        whole_user: Whether this also concerns the agents of the user.

    Returns:
        The result of `replace`, and the paths of the damaged files as they are now; None where nothing was damaged.

    Raises:
        ConfigError: A log is damaged, and the engine keeps no files.
        StoreError, LockTimeoutError: A file cannot be moved, or a log is locked.
    """
    # `owners` would list every user, and fail where the log of one is damaged that alone says whose it is.
    owners = [scope, *(agents_of(bs.store, scope.user) if whole_user else ())]
    try:
        for owner in owners:
            # To replace it may read the ledger alone, and the next conversation would meet a damaged transcript.
            bs.memory_of(owner).threads()
        return replace(), None
    except CorruptLogError as damage:
        moved = tuple(path for owner in owners for path in _repaired(bs, owner, damage))
    return replace(), moved


def _repaired(bs: Backstory, scope: Scope, damage: CorruptLogError) -> list[str]:
    """Repair the files of a memory; return the paths of those that were moved aside."""
    folder = bs.home / scope.folder
    before = set(folder.glob(_ASIDE))
    checks = repair_scope(bs, scope)
    moved = sorted(map(str, set(folder.glob(_ASIDE)) - before))
    if moved:
        said = "; ".join(f"{check.check}: {check.hint}" for check in checks)
        _log.warning("%s is replaced although %s. Moved aside: %s. %s", scope, damage, ", ".join(moved), said)
    return moved
