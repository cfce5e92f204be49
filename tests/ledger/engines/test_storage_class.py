"""An engine of one's own: `storage_class` gets the class it names, or says which of them it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fakes import open_home

from backstory.config.loading import load_settings
from backstory.config.store_factory import open_store
from backstory.ledger.core.errors import ConfigError, StoreError
from backstory.ledger.engines.jsonl.store import JsonlStore

MODULE = """
from pathlib import Path
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.port import EventStore
from backstory.ledger.engines.jsonl.store import JsonlStore

class Own(JsonlStore):
    def __init__(self, home: Path) -> None:
        assert isinstance(home, Path)
        super().__init__(home / "own")

class Earlier:
    # A store written for an earlier port.
    def __init__(self, home: Path) -> None:
        self.inner = JsonlStore(home)

for _name, _value in vars(EventStore).items():
    if callable(_value) and not _name.startswith("_") and _name not in ("state", "set_key", "capabilities"):
        setattr(Earlier, _name, getattr(JsonlStore, _name))

class Outer:
    class Inner(Own):
        pass

class Partial:
    def append(self): ...
    def read(self): ...
    head = 7

class Choosy(EventStore):
    def __init__(self, home, flavour):
        raise AssertionError

class Broken(EventStore):
    def __init__(self, home):
        raise RuntimeError("no such\\tcluster")

class Unreachable(EventStore):
    def __init__(self, home):
        raise StoreError("the cluster is away")

def make(home):
    return JsonlStore(home)

something = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "path" / "own_engines"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "engine.py").write_text(MODULE, encoding="utf-8")
    (folder / "broken.py").write_text("import a_package_that_is_not_there", encoding="utf-8")
    (folder / "earlier.py").write_text("from backstory.ledger.log.store import EventStore", encoding="utf-8")
    (folder / "garbled.py").write_text("class", encoding="utf-8")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith("own_engines")]:
        monkeypatch.delitem(sys.modules, name)


def refusal(path: str, home: Path) -> str:
    with pytest.raises(ConfigError) as told:
        open_store(load_settings({"storage_class": path}, None, {}), home)
    message = str(told.value)
    assert message.startswith(f"storage_class {path} (from the file) ")
    return message.removeprefix(f"storage_class {path} (from the file) ")


@pytest.mark.parametrize("path", ["own_engines.engine:Own", "own_engines.engine.Own", "own_engines.engine:Outer.Inner"])
def test_the_named_class_keeps_the_log(tmp_path: Path, path: str) -> None:
    with open_home(tmp_path / "home", storage_class=path) as bs:
        bs.memory(scope="global").add_fact("User likes tea")
        assert type(bs.store).__name__ == path.replace(":", ".").rpartition(".")[2]
    assert (tmp_path / "home" / "own" / "ledger.jsonl").exists()
    assert not (tmp_path / "home" / "ledger.jsonl").exists()


def test_without_one_it_is_the_jsonl_engine(tmp_path: Path) -> None:
    assert type(open_store(load_settings({"storage_class": ""}, None, {}), tmp_path)) is JsonlStore


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("own_engines.nowhere:Own", "does not load, the module own_engines.nowhere failed (ModuleNotFoundError)"),
        ("nowhere.at.all.Own", "does not load, the module nowhere.at.all failed (ModuleNotFoundError)"),
        ("own_engines.broken:Own", "does not load, the module own_engines.broken failed (ModuleNotFoundError)"),
        ("own_engines.garbled:Own", "does not load, the module own_engines.garbled failed (SyntaxError)"),
        ("own_engines.engine:Owl", "does not load: the module own_engines.engine has no Owl"),
        ("own_engines.engine.Own.Inner", "does not load, the module own_engines.engine.Own failed"),
        ("own_engines.engine:make", "must be a class, got a function: name the class"),
        ("own_engines.engine:something", "must be a class, got a int: name the class"),
        ("own_engines.engine:Choosy", "could not be created with the home folder alone (TypeError)"),
        ("own_engines.engine:Broken", "could not be created with the home folder alone (RuntimeError): no such"),
        ("backstory.ledger.engines.port:EventStore", "could not be created with the home folder alone (TypeError)"),
        (
            "builtins:dict",
            "is not an event store: it lacks append, read, head, durable_head, settled_head, streams",
        ),
        ("Own", "must be package.module:Class"),
        ("own_engines.engine:", "must be package.module:Class"),
        (":Own", "must be package.module:Class"),
        (".engine:Own", "must be package.module:Class"),
        ("cassandra://host", "does not load, the module cassandra failed"),
    ],
)
def test_a_class_that_cannot_be_had_is_an_error_that_says_why(tmp_path: Path, path: str, why: str) -> None:
    assert refusal(path, tmp_path).startswith(why)


def test_a_class_that_lacks_methods_is_told_which(tmp_path: Path) -> None:
    assert refusal("own_engines.engine:Partial", tmp_path) == (
        "is not an event store: it lacks head, durable_head, settled_head, streams, folders, follow, "
        "key, set_key, redact, remove, is_removed, removed_logs, restore_removed, seal, set_seal, "
        "state, torn_tail, locked, lease, capabilities, close "
        "(see EventStore in ledger/engines/port.py)"
    )


def test_a_store_of_the_earlier_port_is_refused_with_what_to_change(tmp_path: Path) -> None:
    why = refusal("own_engines.engine:Earlier", tmp_path)
    assert why.startswith(
        "is not an event store: it lacks set_key, state, capabilities, so it was written for an earlier"
    )
    assert "state takes the place of edition and size, and append takes several lines, as append_all did" in why
    assert "set_key takes the place of restore_key, and with None of destroy_key" in why
    assert "add `def capabilities(self): return Capabilities()`" in why
    assert "path, was_repaired, head_at_once, looks, changed, risks, must_erase" in why
    assert "the port is now backstory.ledger.engines.port" in refusal("own_engines.earlier:Own", tmp_path)


def test_what_an_engine_says_of_itself_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the cluster is away"):
        open_store(load_settings({"storage_class": "own_engines.engine:Unreachable"}, None, {}), tmp_path)


def test_nothing_else_is_taken_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_home(tmp_path / "home", storage_class="own_engines.engine:Owl")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("url", ["jsonl:", "postgresql://db/x"])
def test_a_class_and_an_engines_address_are_one_too_many(tmp_path: Path, url: str) -> None:
    loaded = load_settings({"storage_class": "own_engines.engine:Own"}, {"event_store": url}, {})
    with pytest.raises(ConfigError) as told:
        open_store(loaded, tmp_path)
    assert str(told.value) == (
        "event_store (from the argument) and storage_class (from the file) both name the store: leave one of them out"
    )
    assert open_store(load_settings({"event_store": "jsonl:", "storage_class": ""}, None, {}), tmp_path)
