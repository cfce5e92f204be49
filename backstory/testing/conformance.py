"""Conformance suite of `EventStore`: what every engine guarantees, as pytest tests.

Subclass `EventStoreConformance` and return from its fixture `engine` how to open the engine. The streams must be gone
with each test; all stores that `engine.open` returns in one test see the same ones.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from backstory.ledger.core.commit import EMPTY, head_of
from backstory.ledger.core.errors import (
    CorruptLogError,
    LockTimeoutError,
    SealedError,
    StoreError,
    WrongExpectedVersionError,
)
from backstory.ledger.engines.port import EventStore, RemovedLog, Seal, looks_at
from backstory.ledger.log.commits import read_commits
from backstory.testing.lines import chain, erase, fill, offsets, sealed, turn
from backstory.testing.model import compare_with_model

__all__ = ["PATIENCE", "STREAM", "Engine", "EventStoreConformance", "lines_of"]

PATIENCE = 30.0
"""Seconds after which a test gives up on another thread; never waited for when all is well."""

SOON = 0.05
"""Seconds that a store waits for a lock which stays taken."""

STREAM = "users/ada/ledger"
"""The stream that most tests use."""


class Engine(Protocol):
    """How the suite reaches an engine: every store it opens sees the same streams."""

    def open(self, *, lock_timeout: float = PATIENCE) -> EventStore:
        """Open a store of its own, as another process would; `lock_timeout` is in seconds."""


def lines_of(store: EventStore, stream: str = STREAM, after: int = 0) -> list[bytes]:
    """Read the lines of a stream after a seq."""
    return [record.line for record in store.read(stream, after)]


class EventStoreConformance:
    """The tests. Each is named after what an engine guarantees."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    @pytest.fixture
    def store(self, engine: Engine) -> EventStore:
        return engine.open()

    # A stream that is not there.

    def test_a_stream_that_nobody_wrote_is_empty_and_reading_makes_nothing(self, engine: Engine) -> None:
        for store in (engine.open(), engine.open()):
            assert lines_of(store) == []
            assert store.head(STREAM) == EMPTY
            assert store.state(STREAM).size == 0
            assert store.torn_tail(STREAM) is None
            assert list(store.streams()) == []

    # The key of what was erased.

    def test_a_stream_has_no_key_until_one_is_made(self, engine: Engine, store: EventStore) -> None:
        assert store.key(STREAM) is None
        key = store.key(STREAM, create=True)
        assert key is not None
        assert len(key) == 32
        assert store.key(STREAM) == store.key(STREAM, create=True) == engine.open().key(STREAM) == key
        assert store.key("users/bob/ledger") is None
        assert list(store.streams()) == []

    def test_a_key_that_was_destroyed_never_comes_back(self, engine: Engine, store: EventStore) -> None:
        store.set_key(STREAM, None)
        key = store.key(STREAM, create=True)
        store.set_key(STREAM, None)
        assert engine.open().key(STREAM) is None
        assert store.key(STREAM, create=True) != key

    def test_all_who_make_a_key_at_once_get_the_same(self, engine: Engine) -> None:
        ready = threading.Barrier(8)

        def make(_: int) -> bytes | None:
            own = engine.open()
            ready.wait(PATIENCE)
            return own.key(STREAM, create=True)

        with ThreadPoolExecutor(8) as threads:
            keys = set(threads.map(make, range(8)))
        assert len(keys) == 1
        assert None not in keys

    # Append and read.

    def test_what_is_appended_is_read_to_the_byte(self, engine: Engine, store: EventStore) -> None:
        lines = chain(5)
        fill(store, STREAM, lines)
        for reader in (store, engine.open()):
            assert lines_of(reader) == lines
            assert reader.head(STREAM) == head_of(lines[-1])
            assert reader.torn_tail(STREAM) is None

    def test_reading_from_anywhere_in_any_order(self, engine: Engine, store: EventStore) -> None:
        lines = chain(6)
        fill(store, STREAM, lines)
        for after in (5, 0, 3, 6, 2, 2, 7, 0, 1, 4, 5):
            for reader in (store, engine.open()):
                assert lines_of(reader, after=after) == lines[after:]

    def test_a_reading_broken_off_harms_no_other(self, store: EventStore) -> None:
        lines = chain(6)
        fill(store, STREAM, lines[:4])
        half = store.read(STREAM)
        assert [next(half).line, next(half).line] == lines[:2]
        store.append(STREAM, [lines[4]], 4)
        assert lines_of(store, after=4) == lines[4:5]
        assert lines_of(store) == lines[:5]
        half.close()  # type: ignore[attr-defined]
        store.append(STREAM, [lines[5]], 5)
        assert lines_of(store, after=1) == lines[1:]

    def test_a_long_line_of_many_scripts(self, engine: Engine, store: EventStore) -> None:
        first = sealed(turn("说 \u202e \x7f é 👍🏽 \\n " * 100_000))
        second = sealed(turn("short"), after=head_of(first))
        fill(store, STREAM, [first, second])
        assert lines_of(engine.open()) == [first, second]
        assert engine.open().head(STREAM) == head_of(second)

    # Several at once.

    def test_lines_appended_together_are_as_if_appended_one_by_one(self, engine: Engine, store: EventStore) -> None:
        lines = chain(7)
        store.append(STREAM, lines[:3], 0)
        assert store.head(STREAM) == head_of(lines[2])
        store.append(STREAM, [lines[3]], 3)
        store.append(STREAM, lines[4:], 4)
        for reader in (store, engine.open()):
            assert lines_of(reader) == lines
            assert reader.head(STREAM) == head_of(lines[-1])

    def test_lines_on_another_version_than_expected_change_nothing(self, engine: Engine, store: EventStore) -> None:
        lines = chain(4)
        engine.open().append(STREAM, [lines[0]], 0)
        with pytest.raises(WrongExpectedVersionError):
            store.append(STREAM, lines[2:], 2)
        assert lines_of(store) == lines[:1]
        store.append(STREAM, lines[1:], 1)
        assert lines_of(store) == lines

    # Reading on from a place.

    def test_reading_on_from_a_place_that_was_told(self, engine: Engine, store: EventStore) -> None:
        lines = chain(6)
        fill(store, STREAM, lines)
        told = [record.byte for record in store.read(STREAM)]
        for after in (0, 3, 5):
            records = list(engine.open().read(STREAM, after, byte=told[after]))
            assert [record.line for record in records] == lines[after:]
            assert [record.byte for record in records] == told[after:]

    @pytest.mark.parametrize("after", [0, 3])
    @pytest.mark.parametrize("byte", ["another line", "inside a line", "behind everything", "the end"])
    def test_a_place_that_does_not_hold_any_more_is_passed_over(
        self, engine: Engine, store: EventStore, byte: str, after: int
    ) -> None:
        lines = chain(6)
        fill(store, STREAM, lines)
        told = [record.byte for record in store.read(STREAM)]
        end = offsets(lines)[-1]
        wrong = {"another line": told[1], "inside a line": told[3] + 5, "behind everything": end + 9, "the end": end}
        for reader in (store, engine.open()):
            for _ in range(2):
                records = list(reader.read(STREAM, after, byte=wrong[byte]))
                assert [record.line for record in records] == lines[after:]
                assert [record.byte for record in records] == told[after:]
            assert lines_of(reader) == lines

    # What cannot be taken back.

    def test_a_settled_head_is_the_head_once_nobody_is_writing(self, engine: Engine, store: EventStore) -> None:
        assert store.settled_head(STREAM) == EMPTY
        lines = chain(3)
        fill(store, STREAM, lines)
        assert engine.open().settled_head(STREAM) == store.settled_head(STREAM) == head_of(lines[-1])
        other = engine.open(lock_timeout=SOON)
        # An engine in which only what is durable can be read need not wait.
        with store.locked(STREAM), contextlib.suppress(LockTimeoutError):
            assert other.settled_head(STREAM) == head_of(lines[-1])

    def test_a_durable_head_is_told_without_waiting(self, engine: Engine, store: EventStore) -> None:
        assert store.durable_head(STREAM) == EMPTY
        lines = chain(4)
        for seq, line in enumerate(lines):
            store.append(STREAM, [line], seq)
            assert engine.open().durable_head(STREAM) == store.durable_head(STREAM) == head_of(line)
        other = engine.open(lock_timeout=SOON)
        with store.locked(STREAM):
            assert other.durable_head(STREAM) == head_of(lines[-1])

    def test_a_lock_that_is_not_waited_for_is_had_at_once_or_not_at_all(
        self, engine: Engine, store: EventStore
    ) -> None:
        other = engine.open()
        begun = time.monotonic()
        with store.locked(STREAM):
            with pytest.raises(LockTimeoutError), other.locked(STREAM, wait=False):
                pass
            with store.locked(STREAM, wait=False):
                pass
        assert time.monotonic() - begun < PATIENCE
        with other.locked(STREAM, wait=False):
            pass

    # Erasing.

    def test_an_erased_event_is_gone_and_the_chain_holds(self, engine: Engine, store: EventStore) -> None:
        lines = chain(5)
        fill(store, STREAM, lines)
        other = engine.open()
        assert lines_of(other) == lines
        before = store.state(STREAM).edition
        with store.locked(STREAM):
            store.redact(STREAM, {2: erase(lines[1], 0), 4: erase(lines[3], 0)})
        assert store.state(STREAM).edition != before
        wanted = [lines[0], erase(lines[1], 0), lines[2], erase(lines[3], 0), lines[4]]
        for reader in (store, other, engine.open()):
            assert lines_of(reader) == wanted
            assert [record.byte for record in reader.read(STREAM, 1)] == offsets(wanted)[1:5]
            assert reader.state(STREAM).size == offsets(wanted)[-1]
            assert reader.head(STREAM) == head_of(lines[-1])
            assert [commit.seq for commit in read_commits(reader, STREAM)] == [1, 2, 3, 4, 5]

    def test_both_go_on_appending_after_an_erasure(self, engine: Engine, store: EventStore) -> None:
        lines = chain(5)
        other = engine.open()
        fill(store, STREAM, lines[:2])
        other.append(STREAM, [lines[2]], 2)
        with store.locked(STREAM):
            store.redact(STREAM, {3: erase(lines[2], 0)})
        other.append(STREAM, [lines[3]], 3)
        store.append(STREAM, [lines[4]], 4)
        assert lines_of(engine.open()) == [*lines[:2], erase(lines[2], 0), *lines[3:]]

    def test_only_an_erasure_of_the_same_line_replaces_it(self, store: EventStore) -> None:
        lines = chain(3)
        fill(store, STREAM, lines)
        before = store.state(STREAM).edition
        for instead in (lines[1], chain(2, text="other")[1], erase(lines[0], 0), erase(chain(2, text="x")[1], 0)):
            with store.locked(STREAM), pytest.raises(StoreError, match="no erasure of it"):
                store.redact(STREAM, {2: instead})
        assert lines_of(store) == lines
        assert store.state(STREAM).edition == before

    def test_an_edition_stays_while_lines_are_only_appended(self, engine: Engine, store: EventStore) -> None:
        lines = chain(3)
        store.append(STREAM, [lines[0]], 0)
        first = store.state(STREAM).edition
        store.append(STREAM, lines[1:], 1)
        assert store.state(STREAM).edition == engine.open().state(STREAM).edition == first
        assert store.state("users/nobody/ledger").edition == ""

    # Leases.

    def test_a_lease_is_one_holders(self, engine: Engine, store: EventStore) -> None:
        other = engine.open()
        with store.lease(STREAM, "monday") as mine:
            with other.lease(STREAM, "monday") as yours, other.lease(STREAM, "tuesday") as another:
                assert (mine, yours, another) == (True, False, True)
            with store.lease(STREAM, "monday") as again, other.lease("users/al/ledger", "monday") as elsewhere:
                assert (again, elsewhere) == (False, True)
        with other.lease(STREAM, "monday") as yours:
            assert yours

    def test_a_lease_is_no_lock(self, engine: Engine, store: EventStore) -> None:
        with store.lease(STREAM, "monday"):
            engine.open(lock_timeout=SOON).append(STREAM, [chain(1)[0]], 0)
        assert lines_of(store) == chain(1)
        assert list(store.streams()) == [STREAM]

    def test_an_error_inside_ends_the_lease(self, engine: Engine, store: EventStore) -> None:
        with pytest.raises(ZeroDivisionError), store.lease(STREAM, "monday"):
            raise ZeroDivisionError
        with engine.open().lease(STREAM, "monday") as mine:
            assert mine

    # Letting go.

    def test_a_closed_store_can_be_used_again(self, store: EventStore) -> None:
        lines = chain(3)
        fill(store, STREAM, lines[:2])
        store.close()
        assert lines_of(store) == lines[:2]
        store.append(STREAM, [lines[2]], 2)
        store.close()
        store.close()
        assert lines_of(store) == lines

    # Expected version.

    @pytest.mark.parametrize("expected", [0, 1, 2, 4, 99])
    def test_another_version_than_expected_changes_nothing(self, store: EventStore, expected: int) -> None:
        lines = chain(4)
        fill(store, STREAM, lines[:3])
        with pytest.raises(WrongExpectedVersionError) as told:
            store.append(STREAM, [lines[3]], expected)
        assert told.value.actual == 3
        assert lines_of(store) == lines[:3]
        store.append(STREAM, [lines[3]], 3)
        assert lines_of(store) == lines

    def test_the_second_of_two_that_expect_the_same_is_told(self, engine: Engine) -> None:
        one, two = engine.open(), engine.open()
        first, mine, yours = chain(1)[0], *(chain(1, after=head_of(chain(1)[0]), text=who)[0] for who in ("my", "your"))
        one.append(STREAM, [first], 0)
        assert two.head(STREAM) == head_of(first)
        one.append(STREAM, [mine], 1)
        with pytest.raises(WrongExpectedVersionError) as told:
            two.append(STREAM, [yours], 1)
        assert told.value.actual == 2
        assert lines_of(two) == [first, mine]

    # Against a model.

    examples = 10
    """How many sequences of steps the engine is compared with the model in."""

    def test_any_sequence_of_steps_does_what_the_model_does(self, engine: Engine) -> None:
        compare_with_model(engine.open, examples=self.examples)

    def test_a_line_that_continues_another_history_is_refused(self, store: EventStore) -> None:
        lines, others = chain(3), chain(3, text="other")
        fill(store, STREAM, lines[:2])
        with pytest.raises(CorruptLogError) as told:
            store.append(STREAM, [others[2]], 2)
        assert told.value.kind == "broken_prev"
        assert lines_of(store) == lines[:2]

    # Two stores on one home.

    def test_two_stores_take_turns(self, engine: Engine) -> None:
        stores = [engine.open(), engine.open()]
        lines = chain(8)
        for number, line in enumerate(lines):
            stores[number % 2].append(STREAM, [line], number)
            assert {store.head(STREAM) for store in stores} == {head_of(line)}
            assert [lines_of(store)[-1] for store in stores] == [line, line]
        assert lines_of(stores[0]) == lines_of(stores[1]) == lines

    # Many streams.

    def test_streams_are_listed_by_prefix_in_order(self, engine: Engine, store: EventStore) -> None:
        names = [
            "ledger",
            "transcript",
            "agents/b/ledger",
            "users/ada/ledger",
            "users/ada/agents/b/ledger",
            "users/al/ledger",
        ]
        for name in names:
            store.append(name, [chain(1)[0]], 0)
        for reader in (store, engine.open()):
            assert list(reader.streams()) == sorted(names)
            assert list(reader.streams("users/a")) == sorted(names[3:])
            assert list(reader.streams("users/ada/")) == sorted(names[3:5])
            assert list(reader.streams("ledger")) == ["ledger"]
            assert list(reader.streams("nobody")) == []

    def test_folders_are_listed_with_the_names_right_below(self, engine: Engine, store: EventStore) -> None:
        for name in ("ledger", "users/ada/ledger", "users/al/agents/b/ledger", "users/al/ledger", "users/a_20b/ledger"):
            store.append(name, [chain(1)[0]], 0)
        for reader in (store, engine.open()):
            assert list(reader.folders("")) == ["users"]
            assert list(reader.folders("users")) == ["a_20b", "ada", "al"]
            assert list(reader.folders("users/al")) == ["agents"]
            assert list(reader.folders("users/al/agents")) == ["b"]
            assert list(reader.folders("users/a")) == list(reader.folders("agents")) == []

    def test_folders_come_and_go_with_their_streams(self, engine: Engine, store: EventStore) -> None:
        other = engine.open()
        assert list(other.folders("users")) == []
        for name in ("users/ada/ledger", "users/bob/ledger"):
            store.append(name, [chain(1)[0]], 0)
        assert list(other.folders("users")) == list(store.folders("users")) == ["ada", "bob"]
        store.remove("users/ada")
        assert list(other.folders("users")) == list(store.folders("users")) == ["bob"]

    # Follow.

    def test_follow_yields_what_is_there_and_then_what_comes(self, engine: Engine, store: EventStore) -> None:
        lines = chain(5)
        fill(store, STREAM, lines[:2])
        following = engine.open().follow(STREAM)
        assert [next(following).line, next(following).line] == lines[:2]
        for number in (2, 3, 4):
            store.append(STREAM, [lines[number]], number)
            assert next(following).line == lines[number]

    def test_follow_after_a_seq(self, engine: Engine, store: EventStore) -> None:
        lines = chain(4)
        fill(store, STREAM, lines)
        following = engine.open().follow(STREAM, 2)
        assert [next(following).line, next(following).line] == lines[2:]

    def test_follow_waits_for_a_stream_that_is_not_there_yet(self, engine: Engine, store: EventStore) -> None:
        line = chain(1)[0]
        writing = threading.Thread(target=store.append, args=(STREAM, [line], 0))
        following = engine.open().follow(STREAM)
        writing.start()
        assert next(following).line == line
        writing.join(PATIENCE)

    # The lock.

    def test_while_locked_nobody_else_appends(self, engine: Engine, store: EventStore) -> None:
        other = engine.open(lock_timeout=SOON)
        with store.locked(STREAM), pytest.raises(LockTimeoutError):
            other.append(STREAM, [chain(1)[0]], 0)
        assert lines_of(store) == []
        other.append(STREAM, [chain(1)[0]], 0)
        assert lines_of(store) == chain(1)

    def test_the_holder_itself_may_append_and_lock_again(self, engine: Engine) -> None:
        store = engine.open(lock_timeout=SOON)
        other = engine.open(lock_timeout=SOON)
        with store.locked(STREAM):
            with store.locked(STREAM):
                store.append(STREAM, [chain(1)[0]], 0)
            with pytest.raises(LockTimeoutError):
                other.append(STREAM, [chain(2)[1]], 1)
        other.append(STREAM, [chain(2)[1]], 1)
        assert lines_of(store) == chain(2)

    def test_a_lock_is_one_streams(self, engine: Engine, store: EventStore) -> None:
        other = engine.open(lock_timeout=SOON)
        with store.locked("users/ada/transcript"):
            other.append(STREAM, [chain(1)[0]], 0)
        assert lines_of(store) == chain(1)

    def test_locked_readers_read(self, engine: Engine, store: EventStore) -> None:
        fill(store, STREAM, chain(2))
        with store.locked(STREAM):
            other = engine.open(lock_timeout=SOON)
            assert lines_of(other) == chain(2)
            assert other.head(STREAM) == head_of(chain(2)[1])

    def test_an_error_inside_frees_the_lock(self, engine: Engine, store: EventStore) -> None:
        with pytest.raises(ZeroDivisionError), store.locked(STREAM):
            raise ZeroDivisionError
        engine.open(lock_timeout=SOON).append(STREAM, [chain(1)[0]], 0)

    # Threads.

    @pytest.mark.parametrize("shared", [True, False], ids=["one store", "a store each"])
    def test_threads_lose_nothing(self, engine: Engine, shared: bool) -> None:
        one = engine.open()
        ready = threading.Barrier(4)

        def work(who: int) -> None:
            store = one if shared else engine.open()
            ready.wait(PATIENCE)
            for number in range(8):
                _append_somehow(store, f"thread {who} says {number}")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        said = [_said_in(commit.events) for commit in read_commits(engine.open(), STREAM)]
        assert sorted(said) == sorted(f"thread {who} says {n}" for who, n in itertools.product(range(4), range(8)))
        for who in range(4):
            mine = [text for text in said if text.startswith(f"thread {who} ")]
            assert mine == [f"thread {who} says {number}" for number in range(8)]

    # Removal.

    def test_a_removed_folder_of_streams_is_gone_and_known_as_removed(self, engine: Engine, store: EventStore) -> None:
        streams = ["users/ada/ledger", "users/ada/transcript", "users/ada/agents/coder/ledger", "users/ada-2/ledger"]
        firsts = {}
        for number, stream in enumerate(streams):
            (line,) = chain(1, text=f"said {number}")
            store.append(stream, [line], 0)
            firsts[stream] = head_of(line).hash
        key = store.key("users/ada/transcript", create=True)
        other = engine.open()
        assert other.head("users/ada/ledger").seq == 1
        assert store.remove("users/ada")
        for reader in (store, other, engine.open()):
            assert list(reader.streams()) == ["users/ada-2/ledger"]
            assert reader.head("users/ada/ledger") == EMPTY
            assert reader.durable_head("users/ada/ledger") == EMPTY
            assert lines_of(reader, "users/ada/ledger") == []
            assert reader.key("users/ada/transcript") is None
            assert {stream: reader.is_removed(first) for stream, first in firsts.items()} == {
                stream: stream.startswith("users/ada/") for stream in streams
            }
        assert not store.remove("users/ada")
        assert key != store.key("users/ada/transcript", create=True)

    def test_a_stream_can_begin_anew_after_its_removal(self, engine: Engine, store: EventStore) -> None:
        old, new = chain(2), chain(3, text="new")
        other = engine.open()
        fill(other, STREAM, old)
        store.remove("users/ada")
        with pytest.raises(WrongExpectedVersionError):
            other.append(STREAM, [old[1]], 2)
        fill(other, STREAM, new)
        assert lines_of(store) == new
        assert not store.is_removed(head_of(new[0]).hash)

    def test_a_follower_ends_where_the_stream_is_removed(self, engine: Engine, store: EventStore) -> None:
        fill(store, STREAM, chain(2))
        following = engine.open().follow(STREAM, 1)
        next(following)
        ended: list[object] = []
        waiting = threading.Thread(target=lambda: ended.extend([*following, "ended"]))
        waiting.start()
        store.remove("users/ada")
        waiting.join(PATIENCE)
        assert ended == ["ended"]

    def test_nothing_is_removed_while_a_stream_is_locked(self, engine: Engine, store: EventStore) -> None:
        fill(store, STREAM, chain(1))
        with store.locked(STREAM), pytest.raises(LockTimeoutError):
            engine.open(lock_timeout=SOON).remove("users/ada")
        assert lines_of(store) == chain(1)

    # Several questions at once, where an engine answers them.

    def test_looks_at_several_streams_are_what_is_answered_of_each(self, engine: Engine, store: EventStore) -> None:
        lines = chain(6)
        names = ["users/al/ledger", "users/nobody/ledger", STREAM]
        fill(store, STREAM, lines)
        fill(store, names[0], chain(1, text="al"))
        with store.locked(STREAM):
            store.redact(STREAM, {1: erase(lines[0], 0)})
        for asked in (store, engine.open()):
            looks = looks_at(asked, names)
            assert [look.head for look in looks] == [look.durable for look in looks] == list(map(store.head, names))
            assert [look.state for look in looks] == list(map(store.state, names))
            assert list(looks_at(asked, [])) == []

    # Changes, where an engine names them.

    def test_an_engine_that_tells_changes_leaves_none_out(self, engine: Engine, store: EventStore) -> None:
        changed = store.capabilities().changed
        if changed is None:
            return
        other, lines = "users/al/ledger", chain(3)
        fill(store, "users/bob/ledger", lines[:1])
        names, position = changed(None)
        assert list(names) == []
        fill(engine.open(), STREAM, lines[:2])
        fill(store, other, lines[:1])
        names, second = changed(position)
        # It may name what had been written just before.
        assert set(names) >= {STREAM, other}
        fill(store, STREAM, lines[2:])
        names, third = changed(second)
        assert STREAM in names
        with store.locked(STREAM):
            store.redact(STREAM, {2: erase(lines[1], 0)})
        names, _ = changed(third)
        assert STREAM in names
        assert set(changed(position)[0]) >= {STREAM, other}

    # The seal.

    def test_a_moved_home_takes_no_changes_and_can_be_read(self, engine: Engine, store: EventStore) -> None:
        lines = chain(4)
        fill(store, STREAM, lines[:3])
        other, key = engine.open(), store.key(STREAM, create=True)
        assert store.seal() is None
        engine.open().set_seal(Seal("moved", "elsewhere:"))
        for sealed_store in (store, other, engine.open()):
            assert sealed_store.seal() == Seal("moved", "elsewhere:")
            changes: list[Callable[[EventStore], object]] = [
                lambda it: it.append(STREAM, [lines[3]], 3),
                lambda it: it.append("users/new/ledger", chain(2), 0),
                lambda it: it.redact(STREAM, {2: erase(lines[1], 0)}),
                lambda it: it.remove("users/ada"),
                lambda it: it.set_key(STREAM, None),
                lambda it: it.key("users/new/transcript", create=True),
            ]
            for change in changes:
                with pytest.raises(SealedError, match="has moved to elsewhere: and takes no changes"):
                    change(sealed_store)
            assert lines_of(sealed_store) == lines[:3]
            assert list(sealed_store.streams()) == [STREAM]
            assert sealed_store.key(STREAM) == sealed_store.key(STREAM, create=True) == key
            assert not sealed_store.is_removed(head_of(lines[0]).hash)
            with sealed_store.locked(STREAM), sealed_store.lease(STREAM, "monday") as mine:
                assert mine

    def test_a_seal_that_is_taken_off_lets_all_write_again(self, engine: Engine, store: EventStore) -> None:
        line = chain(1)[0]
        store.set_seal(Seal("moved", "elsewhere:"))
        engine.open().set_seal(None)
        assert store.seal() is None
        store.append(STREAM, [line], 0)
        assert lines_of(engine.open()) == [line]

    def test_only_who_copies_writes_to_an_arriving_home(self, engine: Engine) -> None:
        lines = chain(3)
        copier, other = engine.open(), engine.open()
        copier.set_seal(Seal("arriving", "elsewhere:"))
        copier.append(STREAM, [lines[0], erase(lines[1], 0)], 0)
        for barred in (other, engine.open()):
            with pytest.raises(SealedError, match="is an incomplete copy of elsewhere:"):
                barred.append(STREAM, [lines[2]], 2)
        again = engine.open()
        again.set_seal(Seal("arriving", "elsewhere:"))
        again.append(STREAM, [lines[2]], 2)
        again.set_seal(None)
        assert lines_of(other) == [lines[0], erase(lines[1], 0), lines[2]]
        other.append(STREAM, [chain(1, after=head_of(lines[2]))[0]], 3)

    def test_a_seal_loses_nothing_of_those_who_write_meanwhile(self, engine: Engine) -> None:
        acknowledged: dict[str, int] = {}
        written = threading.Semaphore(0)

        def work(who: int) -> None:
            own = engine.open()
            # Each begins new streams all the time, of which no list knows yet.
            for number in itertools.count():
                stream = f"users/u{who}-{number}/ledger"
                for seq, line in enumerate(chain(3, text=stream)):
                    try:
                        own.append(stream, [line], seq)
                    except SealedError:
                        return
                    acknowledged[stream] = seq + 1
                    written.release()

        with ThreadPoolExecutor(4) as threads:
            works = threads.map(work, range(4))
            written_in_time = all(written.acquire(timeout=PATIENCE) for _ in range(40))
            sealing = engine.open()
            sealing.set_seal(Seal("moved", "elsewhere:"))
            found = {stream: sealing.head(stream).seq for stream in sealing.streams()}
            list(works)
        assert written_in_time
        assert found == acknowledged

    def test_what_was_removed_elsewhere_is_known_here(self, engine: Engine, store: EventStore) -> None:
        (line,) = chain(1)
        store.append(STREAM, [line], 0)
        store.remove("users/ada")
        (log,) = store.removed_logs()
        assert (log.first, log.kind, log.head) == (head_of(line).hash, "ledger", head_of(line))
        elsewhere = RemovedLog("ab" * 32, log.at, "transcript", log.head)
        log = RemovedLog(log.first, "2026-01-02T03:04:05.000006Z", log.kind, log.head)
        for one in (elsewhere, log, elsewhere):
            store.restore_removed(one)
        assert store.is_removed("ab" * 32)
        assert list(engine.open().removed_logs()) == sorted([log, elsewhere], key=lambda one: one.first)

    def test_a_secret_from_elsewhere_replaces_the_own(self, engine: Engine, store: EventStore) -> None:
        for key in (b"k" * 32, b"l" * 32):
            store.set_key(STREAM, key)
            assert store.key(STREAM) == store.key(STREAM, create=True) == engine.open().key(STREAM) == key


def _append_somehow(store: EventStore, text: str) -> None:
    """Append as a writer does: on the head as it is, and again if another writer was quicker."""
    while True:
        head = store.head(STREAM)
        try:
            store.append(STREAM, [sealed(turn(text), after=head)], head.seq)
        except WrongExpectedVersionError:
            continue
        return


def _said_in(events: tuple[object, ...]) -> str:
    return str(events[0].turn.content)  # type: ignore[attr-defined]
