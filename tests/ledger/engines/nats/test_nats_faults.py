"""The NATS engine when answers are lost, servers are stopped and connections break."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import pytest
from doubles.nats_engine import NatsEngine, Place
from doubles.proxy import Proxy
from fakes import PATIENCE

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import (
    CorruptLogError,
    LockTimeoutError,
    StoreError,
    UnknownOutcomeError,
    WrongExpectedVersionError,
)
from backstory.ledger.engines.nats import connection
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing, _Answer
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase, fill, sealed, turn
from benchmarks.private_nats import NatsCluster

# nats-py drops the connection to a server that is stopped while it greets, without closing it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def outlive(at: Callable[[], int], renewals: int = 5) -> None:
    """Wait until something was renewed so often that it would have ended otherwise: a life has four renewals."""
    seen: set[int] = set()

    def is_old() -> bool:
        seen.add(at())
        return len(seen) > renewals

    until(is_old)


@pytest.fixture
def proxy(server: Place) -> Iterator[Proxy]:
    with Proxy(server.port) as started:
        yield started


@pytest.fixture
def behind(engine: NatsEngine, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsEngine]:
    """The same streams as those of `engine`, reached through the proxy; a lost answer is not waited for long."""
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 0.3)
    reached = NatsEngine(f"127.0.0.1:{proxy.port}")
    reached.url = engine.url.replace(engine.url.split("/")[2], f"127.0.0.1:{proxy.port}")
    yield reached
    reached.close()


def test_a_lost_acknowledgement_is_asked_for_again_and_the_line_is_there_once(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy
) -> None:
    store, other = behind.open(), engine.open()
    lines = chain(3)
    store.append(STREAM, [lines[0]], 0)
    proxy.deaf.set()
    appending = threading.Thread(target=store.append, args=(STREAM, [lines[1]], 1))
    appending.start()
    until(lambda: other.head(STREAM).seq == 2)
    proxy.deaf.clear()
    proxy.cut()
    appending.join(PATIENCE)
    assert not appending.is_alive()
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(other) == lines


def test_a_lost_acknowledgement_of_several_lines_is_no_reason_to_write_them_twice(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy
) -> None:
    store, other = behind.open(), engine.open()
    lines = chain(5)
    store.append(STREAM, [lines[0]], 0)
    proxy.deaf.set()
    appending = threading.Thread(target=store.append, args=(STREAM, lines[1:], 1))
    appending.start()
    until(lambda: other.head(STREAM).seq == 5)
    proxy.deaf.clear()
    proxy.cut()
    appending.join(PATIENCE)
    assert lines_of(other) == lines
    assert store.head(STREAM) == head_of(lines[-1])


def test_a_lost_acknowledgement_is_told_from_a_commit_of_somebody_else(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy
) -> None:
    """Both expected the same head; the other one was first, and its line is not taken for ours."""
    store, other = behind.open(), engine.open()
    lines = chain(1)
    store.append(STREAM, [lines[0]], 0)
    mine, yours = (chain(1, after=head_of(lines[0]), text=who)[0] for who in ("mine", "yours"))
    other.append(STREAM, [yours], 1)
    raised: list[BaseException] = []

    def append() -> None:
        try:
            store.append(STREAM, [mine], 1)
        except WrongExpectedVersionError as error:
            raised.append(error)

    proxy.deaf.set()
    appending = threading.Thread(target=append)
    appending.start()
    assert proxy.unheard.wait(PATIENCE)
    proxy.deaf.clear()
    proxy.cut()
    appending.join(PATIENCE)
    assert len(raised) == 1
    assert lines_of(other) == [lines[0], yours]


def test_without_any_answer_the_outcome_is_unknown(engine: NatsEngine, behind: NatsEngine, proxy: Proxy) -> None:
    store = behind.open(lock_timeout=0.3, answer_timeout=0.3)
    lines = chain(2)
    store.append(STREAM, [lines[0]], 0)
    proxy.deaf.set()
    with pytest.raises(UnknownOutcomeError, match="may be there or not"):
        store.append(STREAM, [lines[1]], 1)
    proxy.deaf.clear()
    proxy.cut()
    assert lines_of(engine.open()) == lines
    with pytest.raises(WrongExpectedVersionError):
        behind.open().append(STREAM, [lines[1]], 1)


def test_a_lost_acknowledgement_of_an_erasure_is_no_reason_to_refuse_it(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = behind.open(), engine.open()
    lines = chain(3)
    fill(store, STREAM, lines[:2])
    really = JetStream.publish

    def publish(self: JetStream, messages: Sequence[Outgoing]) -> int | None:
        if self is store._connection and len(messages) > 1:
            proxy.deaf.set()
        return really(self, messages)

    def erase_and_go_on() -> None:
        with store.locked(STREAM):
            store.redact(STREAM, {2: erase(lines[1], 0)})
            store.append(STREAM, [lines[2]], 2)

    monkeypatch.setattr(JetStream, "publish", publish)
    erasing = threading.Thread(target=erase_and_go_on)
    erasing.start()
    until(proxy.deaf.is_set)
    until(lambda: other._reading.state(STREAM)[1].at > 0)
    proxy.deaf.clear()
    proxy.cut()
    erasing.join(PATIENCE)
    assert lines_of(other) == [lines[0], erase(lines[1], 0), lines[2]]


def test_under_a_lock_who_does_not_know_the_outcome_reads_on_and_goes_on(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy
) -> None:
    store = behind.open(answer_timeout=0.5)
    lines = chain(3)
    with store.locked(STREAM):
        store.append(STREAM, [lines[0]], 0)
        proxy.deaf.set()
        with pytest.raises(UnknownOutcomeError):
            store.append(STREAM, [lines[1]], 1)
        proxy.deaf.clear()
        proxy.cut()
        until(lambda: reached(lambda: store.head(STREAM).seq == 2))
        store.append(STREAM, [lines[2]], 2)
    assert lines_of(engine.open()) == lines


def reached(holds: Callable[[], bool]) -> bool:
    """Whether something holds; not while no server is reached."""
    try:
        return holds()
    except StoreError:
        return False


def test_a_follower_misses_nothing_over_broken_connections(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy
) -> None:
    lines = chain(12)
    writer = engine.open()
    followers = [behind.open().follow(STREAM) for _ in range(3)]
    seen: list[list[bytes]] = [[] for _ in followers]

    def follow(number: int) -> None:
        seen[number] = [record.line for record in itertools.islice(followers[number], len(lines))]

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number, line in enumerate(lines):
        writer.append(STREAM, [line], number)
        if number in (3, 7):
            proxy.cut()
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == [lines] * 3


def test_locks_and_leases_end_with_their_holder_and_stay_while_it_lives(engine: NatsEngine) -> None:
    engine.url += "&lease_seconds=2"
    lines = chain(3)
    holder, other = engine.open(), engine.open(lock_timeout=0.05)
    holder.append(STREAM, [lines[0]], 0)
    with holder.locked(STREAM), holder.lease(STREAM, "monday") as mine:
        assert mine
        holder.append(STREAM, [lines[1]], 1)
        outlive(lambda: other._reading.tip(STREAM).at)
        with pytest.raises(LockTimeoutError):
            other.append(STREAM, [lines[2]], 2)
        with other.lease(STREAM, "monday") as yours:
            assert not yours
        # As if the holder were stopped: it renews nothing, and gives nothing back.
        holder._holds.end()
        engine.open().append(STREAM, [lines[2]], 2)
        with pytest.raises((LockTimeoutError, WrongExpectedVersionError)):
            holder.append(STREAM, [lines[2]], 2)

        def is_free() -> bool:
            with other.lease(STREAM, "monday") as yours:
                return yours

        until(is_free)
    assert lines_of(other) == lines


def test_a_renewal_whose_acknowledgement_is_lost_renews_all_the_same(
    engine: NatsEngine, behind: NatsEngine, proxy: Proxy
) -> None:
    """The repetition is refused, because of the first attempt."""
    store, other = behind.open(), engine.open()
    lines = chain(1)
    name = f"{store.address.prefix}-0"
    with store.locked(STREAM), store.lease(STREAM, "monday") as mine:
        assert mine
        ((key, (subject, at)),) = store._holds._leases.items()
        hold = store._holds._holds[STREAM]
        assert hold.tip is not None
        before = hold.tip.at
        proxy.deaf.set()
        renewing = [
            threading.Thread(target=store._holds._renew_lock, args=(hold,)),
            threading.Thread(target=store._holds._renew_lease, args=(key, subject, at)),
        ]
        for thread in renewing:
            thread.start()
        until(lambda: other.head(STREAM).seq == 0 and other._reading.tip(STREAM).at > before)
        until(lambda: getattr(other._connection.last(name, subject), "seq", 0) > at)
        proxy.deaf.clear()
        proxy.cut()
        for thread in renewing:
            thread.join(PATIENCE)
        assert key in store._holds._leases
        store.append(STREAM, [lines[0]], 0)
    assert lines_of(other) == lines
    with other.lease(STREAM, "monday") as yours:
        assert yours


def test_an_append_that_takes_long_keeps_no_lock_from_being_renewed(engine: NatsEngine) -> None:
    store = engine.open()
    other = store._holds.among_threads("users/bob/ledger", PATIENCE)
    with store.locked(STREAM), other as appending, appending.publishing:
        renewing = threading.Thread(target=store._holds._step)
        renewing.start()
        renewing.join(PATIENCE)
        assert not renewing.is_alive()


def test_of_a_stream_that_is_locked_or_written_to_nothing_stays_in_memory(engine: NatsEngine) -> None:
    store = engine.open()
    for number in range(3):
        fill(store, f"users/{number}/ledger", chain(1))
        with store.locked(f"users/{number}/transcript"), store.lease(f"users/{number}/ledger", "monday"):
            pass
    assert store._holds._holds == {}
    assert store._holds._leases == {}


def test_a_follower_that_is_dropped_in_the_thread_of_the_loop_stops_nothing(engine: NatsEngine) -> None:
    """Where one is left in a cycle of references, any thread may collect it."""
    store = engine.open()
    fill(store, STREAM, chain(1))
    followers = [store.follow(STREAM)]
    next(followers[0])

    async def drop() -> None:
        followers.clear()

    store._connection.run(drop())
    assert store.head(STREAM).seq == 1


def test_a_follower_ends_where_the_stream_was_removed_and_written_anew(engine: NatsEngine) -> None:
    store = engine.open()
    old, new = chain(2), chain(4, text="new")
    fill(store, STREAM, old)
    following = engine.open().follow(STREAM)
    assert [next(following).line, next(following).line] == old
    store.remove("users/ada")
    fill(store, STREAM, new)
    assert list(following) == []


def test_a_jetstream_stream_that_has_gone_is_an_error_and_no_empty_home(engine: NatsEngine) -> None:
    store = engine.open(answer_timeout=1)
    fill(store, STREAM, chain(2))
    store._connection.run(store._connection._api(f"STREAM.DELETE.{store.address.prefix}-0", {}, _Answer))
    calls: list[Callable[[], object]] = [
        lambda: store.head(STREAM),
        lambda: lines_of(store),
        lambda: list(store.streams()),
        lambda: store.key(STREAM),
        lambda: store.changed("1"),
        lambda: store.append(STREAM, [chain(3)[2]], 2),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"has lost the JetStream stream .*: restore it from a copy"):
            call()
    # Another process has made it anew.
    assert engine.open().head(STREAM).seq == 0
    with pytest.raises(StoreError, match="was read further than the servers show it now"):
        store.head(STREAM)


def test_a_message_of_somebody_else_is_said_to_be_one(engine: NatsEngine) -> None:
    store = engine.open()
    fill(store, STREAM, chain(2))
    store._connection.publish([Outgoing(store._subjects.of("c", STREAM), b"hello", "")])
    with pytest.raises(CorruptLogError, match=r"message 3 on .* is not from Backstory: delete it"):
        store.head(STREAM)


def test_a_stream_that_was_seen_is_not_empty_to_a_deposed_leader(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engine.open()
    fill(store, STREAM, chain(1))
    monkeypatch.setattr(store._connection, "timeout", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(store._connection, "last", lambda *_: None)
        patched.setattr(store._connection, "last_seq", lambda *_: 0)
        with pytest.raises(StoreError, match="was read further than the servers show it now"):
            store.head(STREAM)
    assert store.head(STREAM).seq == 1


def test_a_read_never_goes_back_when_a_deposed_leader_answers(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engine.open()
    lines = chain(3)
    fill(store, STREAM, lines[:2])
    old = store._connection.last(f"{store.address.prefix}-0", store._subjects.of("c", STREAM))
    fill(engine.open(), STREAM, lines[2:])
    assert store.head(STREAM).seq == 3
    answers = [old, old]
    really = store._connection.last
    monkeypatch.setattr(store._connection, "last", lambda *asked: answers.pop() if answers else really(*asked))
    assert store.head(STREAM) == head_of(lines[2])
    assert answers == []
    monkeypatch.setattr(store._connection, "last", lambda *_: old)
    monkeypatch.setattr(store._connection, "timeout", 0.05)
    with pytest.raises(StoreError, match="was read further than the servers show it now"):
        store.head(STREAM)


# Three nodes.


class History:
    """Writers that append until they are told to stop, and what each was acknowledged."""

    def __init__(self, stores: list[EventStore]) -> None:
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []
        self.errors: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n, store)) for n, store in enumerate(stores)]

    def _write(self, who: int, store: EventStore) -> None:
        try:
            for number in itertools.count():
                if self._over.is_set():
                    return
                head = store.head(STREAM)
                line = sealed(turn(f"{who} says {number}", head.seq + 1), after=head)
                try:
                    store.append(STREAM, [line], head.seq)
                except WrongExpectedVersionError:
                    self.refused.append(line)
                except UnknownOutcomeError:
                    continue
                else:
                    self.acknowledged.append(line)
        except BaseException as error:  # noqa: BLE001 told to the test
            self.errors.append(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def grows(self) -> None:
        """Wait until something more was acknowledged."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > before + 10 or bool(self.errors))


@pytest.mark.torture  # `make test` has rounds.test_rounds, which kills and stops the leader too
@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_writers_go_on_when_the_leader_is_gone(cluster: NatsCluster, fault: str) -> None:
    engine = NatsEngine(cluster.at, f"sync=always&monitor={cluster.monitor}")
    following = engine.open().follow(STREAM)
    seen: list[bytes] = []
    follower = threading.Thread(target=lambda: seen.extend(record.line for record in following))
    try:
        with History([engine.open() for _ in range(4)]) as history:
            follower.start()
            history.grows()
            store = engine.stores[0]
            assert store.risks() == ()
            node = cluster.leader(f"{store.address.prefix}-0")
            if fault == "killed":
                node.kill()
            else:
                node.signal(signal.SIGSTOP)
            history.grows()
            if fault == "killed":
                node.start()
            else:
                node.signal(signal.SIGCONT)
                node.wait()
            history.grows()
        assert history.errors == []
        lines = lines_of(engine.open())
        assert set(history.acknowledged) <= set(lines)
        assert len(set(lines)) == len(lines)
        assert not set(history.refused) & set(lines)
        assert len(list(read_commits(engine.open(), STREAM))) == len(lines)
        until(lambda: len(seen) >= len(lines))
        assert seen == lines
        engine.open().remove("users/ada")
        follower.join(PATIENCE)
        assert not follower.is_alive()
    finally:
        engine.close()


def test_without_a_majority_nothing_is_acknowledged(cluster: NatsCluster) -> None:
    engine = NatsEngine(cluster.at, f"sync=always&monitor={cluster.monitor}")
    lines = chain(3)
    store = engine.open()
    fill(store, STREAM, lines[:1])
    assert store.risks() == ()
    try:
        for node in cluster.nodes[:2]:
            node.signal(signal.SIGSTOP)
        with pytest.raises(StoreError):
            engine.open(lock_timeout=1, answer_timeout=1).append(STREAM, [lines[1]], 1)
    finally:
        for node in cluster.nodes[:2]:
            node.signal(signal.SIGCONT)
    for node in cluster.nodes:
        node.wait()
    fresh = engine.open()
    at = fresh.head(STREAM).seq
    fill(fresh, STREAM, lines[at:])
    assert lines_of(fresh) == lines
    engine.close()


def test_an_erasure_leaves_nothing_in_the_streams_of_any_node(cluster: NatsCluster) -> None:
    engine = NatsEngine(cluster.at, "sync=always")
    word = "the-word-that-must-go-everywhere"
    lines = chain(3, text=word)
    store = engine.open()
    fill(store, STREAM, lines)
    store.redact(STREAM, {seq: erase(lines[seq - 1], 0) for seq in (1, 2, 3)})

    def left() -> list[str]:
        paths = (path for node in cluster.nodes for path in (node.folder / "js").rglob("*") if path.is_file())
        return [str(path) for path in paths if word.encode() in path.read_bytes()]

    until(lambda: not [path for path in left() if "/streams/" in path])
    engine.close()
