"""Shared memories: what is found is the memory at the engine's head, whatever the cache does or holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from doubles.other_engine import OtherEngine
from fakes import open_home

from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import Cause, Head
from backstory.ledger.core.events import NewFact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import Seal
from backstory.ledger.log.reader import Reader
from backstory.ledger.log.writer import Writer
from backstory.projections.shared.memories import FEWEST_COMMITS, SharedMemories

ADA = Scope("ada")


class FakeCache:
    """A cache in this process; while it is `down` it has and does nothing."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.down = False
        self.after_put: Callable[[], None] = lambda: None

    def get(self, key: str) -> bytes | None:
        return None if self.down else self.values.get(key)

    def put(self, key: str, value: bytes, seconds: int) -> bool:
        assert seconds == 60
        if not self.down:
            self.values[key] = value
            self.after_put()
        return not self.down

    def delete(self, key: str) -> bool:
        if not self.down:
            self.values.pop(key, None)
        return not self.down

    def close(self) -> None:
        self.values.clear()


class World:
    """An engine with one long ledger, a cache, and what became of each read."""

    def __init__(self, home: Path, cache: FakeCache, *, user: Scope = ADA) -> None:
        self.home = home
        self.cache = cache
        self.opened: list[SharedMemories] = []
        self.engine = OtherEngine(home)
        self.shared = self.memories()
        self.writer = Writer(self.engine, user)
        for number in range(FEWEST_COMMITS):
            self.add(f"Ada has {number} cats")
        self.memory, self.head = self.writer.reader.standing()

    def memories(self) -> SharedMemories:
        """As another process has them."""
        self.opened.append(SharedMemories(OtherEngine(self.home), self.cache, 60))
        return self.opened[-1]

    @property
    def outcomes(self) -> list[str]:
        return [outcome for shared in self.opened for outcome in shared.reads.elements()]

    def add(self, content: str) -> None:
        fact = NewFact(place="facts/0", content=content, confidence=0.9)
        self.writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", actor="ada"))

    def key(self) -> str:
        (key,) = self.cache.values
        return key


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "home", FakeCache())


def test_what_was_kept_is_found_at_the_same_head(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    assert world.memories().find(ADA, world.head) == world.memory
    assert world.outcomes == ["hit"]
    assert len(world.memory.facts) == FEWEST_COMMITS


def test_another_head_finds_nothing(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    for head in (Head(world.head.seq, "0" * 64), Head(world.head.seq + 1, world.head.hash), Head(64, world.head.hash)):
        assert world.memories().find(ADA, head) is None
    assert world.outcomes == ["stale"] * 3


def test_a_short_ledger_is_not_kept_and_not_looked_for(world: World) -> None:
    few = Head(FEWEST_COMMITS - 1, world.head.hash)
    world.shared.keep(ADA, world.memory, few)
    assert world.shared.find(ADA, few) is None
    assert (world.cache.values, world.outcomes) == ({}, [])


@pytest.mark.parametrize(
    "change",
    [
        lambda value: b"",
        lambda value: b"garbage",
        lambda value: value[:-1],
        lambda value: value + b"\0",
        lambda value: value[:32] + value[32:].replace(b"Ada has 7 cats", b"Ada has 9 dogs"),
        lambda value: bytes(32) + value[32:],
    ],
    ids=["empty", "garbage", "cut", "longer", "content", "signature"],
)
def test_a_value_that_was_changed_is_refused(world: World, change: Callable[[bytes], bytes]) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    world.cache.values[world.key()] = change(world.cache.values[world.key()])
    assert world.memories().find(ADA, world.head) is None
    assert world.outcomes == ["refused"]


def test_every_changed_byte_is_found(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    key, value = world.key(), world.cache.values[world.key()]
    for place in range(0, len(value), 97):
        world.cache.values[key] = value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
        assert world.shared.find(ADA, world.head) is None


def test_a_forger_who_knows_the_code_and_not_the_secret_is_refused(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    content = world.cache.values[world.key()][32:].replace(b"Ada has 7 cats", b"Ada has 9 dogs")
    world.cache.values[world.key()] = world.shared._signature(ADA, b"a guess".ljust(32), content) + content
    assert world.memories().find(ADA, world.head) is None
    assert world.outcomes == ["refused"]
    secret = world.engine.key(ADA.stream(LEDGER))  # type: ignore[attr-defined]
    world.cache.values[world.key()] = world.shared._signature(ADA, secret, content) + content
    assert world.memories().find(ADA, world.head) is not None


def test_a_value_of_another_scope_is_refused_at_this_one(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    bob = Scope("bob")
    world.engine.set_key(bob.stream(LEDGER), world.engine.key(ADA.stream(LEDGER)))  # type: ignore[attr-defined]
    ours, theirs = world.shared._key(ADA), world.shared._key(bob)
    world.cache.values[theirs] = world.cache.values[ours]
    assert world.shared.find(bob, world.head) is None
    assert world.outcomes == ["refused"]


def test_homes_with_the_same_users_have_other_keys(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other", world.cache)
    for each in (world, other):
        each.shared.keep(ADA, each.memory, each.head)
    assert len(world.cache.values) == 2
    for each in (world, other):
        assert each.memories().find(ADA, each.head) == each.memory


@pytest.mark.parametrize(
    ("scope", "end"),
    [
        (Scope(), "::"),
        (Scope("ada"), ":ada:"),
        (Scope("a:b"), ":a_3ab:"),
        (Scope("ada", "coder"), ":ada:coder"),
        (Scope(None, "ada"), "::ada"),
    ],
    ids=str,
)
def test_a_key_is_that_of_one_scope(world: World, scope: Scope, end: str) -> None:
    key = world.shared._key(scope)
    assert key.startswith("backstory:")
    assert key.endswith(end)
    assert key.count(":") == 3


def test_code_with_other_shapes_refuses_the_value(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    monkeypatch.setattr("backstory.projections.shared.memories._shape", lambda: b"another version")
    assert world.memories().find(ADA, world.head) is None
    assert world.outcomes == ["refused"]


def test_a_cache_that_is_down_finds_and_breaks_nothing(world: World) -> None:
    world.cache.down = True
    world.shared.keep(ADA, world.memory, world.head)
    assert world.shared.find(ADA, world.head) is None
    assert world.outcomes == ["miss"]


def test_a_sealed_engine_without_a_secret_shares_nothing(world: World) -> None:
    world.engine.set_seal(Seal("moved", "elsewhere:"))  # type: ignore[attr-defined]
    world.shared.keep(ADA, world.memory, world.head)
    assert world.shared.find(ADA, world.head) is None
    assert world.cache.values == {}


# Erasure.


def test_an_erased_scope_is_deleted(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    world.shared.erase(ADA)
    assert world.cache.values == {}


def test_an_older_memory_that_is_kept_too_late_is_deleted_again(world: World) -> None:
    """Between what is read and what is kept the head moves, as with an erasure."""
    world.cache.after_put = lambda: world.add("Ada forgets")
    world.shared.keep(ADA, world.memory, world.head)
    assert world.cache.values == {}


def test_what_cannot_be_deleted_is_told_once_and_deleted_later(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    world.cache.down = True
    for _ in range(2):
        world.shared.erase(ADA)
    assert [record.message for record in caplog.records] == [
        "the shared cache does not answer: what it holds of user ada is not used any more, and ends within 60 s"
    ]
    world.cache.down = False
    world.shared.keep(Scope("al"), Memory(), Head(1, "0" * 64))
    assert world.cache.values == {}


# Readers.


def reader(world: World) -> Reader:
    return Reader(OtherEngine(world.home), ADA, None, lambda _: None, world.memories())


def test_a_reader_replays_only_what_nobody_has_kept(world: World) -> None:
    from doubles.other_engine import lines_read

    assert reader(world).standing() == (world.memory, world.head)
    assert world.outcomes == ["miss"]
    lines_read.clear()
    fresh = reader(world)
    assert fresh.standing() == (world.memory, world.head)
    assert (world.outcomes, len(lines_read)) == (["miss", "hit"], 1)
    world.add("Ada sails")
    assert fresh.standing()[1].seq == world.head.seq + 1
    assert len(lines_read) < 5
    assert reader(world).standing() == fresh.standing() == world.writer.reader.standing()


def test_a_reader_that_found_a_memory_begins_anew_where_the_user_is_removed(world: World) -> None:
    world.shared.keep(ADA, world.memory, world.head)
    found = reader(world)
    assert found.standing()[1] == world.head
    world.engine.remove("users/ada")  # type: ignore[attr-defined]
    assert found.standing() == (Memory(), Head(0, "0" * 64))


def test_with_files_nothing_is_shared(tmp_path: Path) -> None:
    with open_home(tmp_path, redis_url="redis://127.0.0.1:1/0") as bs:
        assert bs._services.states.shared is None
