"""Names, addresses, logins and warnings of the NATS engine."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from doubles.nats_engine import NatsEngine, Place
from fakes import PATIENCE
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import ConfigError, StoreError, UnknownOutcomeError
from backstory.ledger.engines.nats import connection, jetstream, setup
from backstory.ledger.engines.nats.address import read_address
from backstory.ledger.engines.nats.erasing import Erasing
from backstory.ledger.engines.nats.jetstream import JetStream, RefusedRequestError, Stored, _Info, _State
from backstory.ledger.engines.nats.store import NatsStore
from backstory.ledger.engines.nats.subjects import Subjects, name_of, spell
from backstory.ledger.engines.port import Seal
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase, fill, sealed, turn
from benchmarks.private_nats import NatsServer

ODD = [
    "users/a.b/ledger",
    "users/a b/ledger",
    "users/*/ledger",
    "users/>/ledger",
    "users/$JS.API/ledger",
    "users/=41/ledger",
    "users/~/ledger",
    "users/安娜👍🏽/ledger",
    "users/\r\nPUB x 1/ledger",
    "users/\udcff/ledger",
    "users//ledger",
    f"users/{'long' * 60}/ledger",
    f"users/{'长' * 85}/ledger",
    f"users/{'长' * 85}/agents/{'x.' * 120}/transcript",
]


@given(st.text(st.characters(), max_size=16))
def test_a_name_is_spelled_without_what_a_subject_gives_a_meaning_and_read_back(name: str) -> None:
    spelled = spell(name)
    assert all(segment and segment.isascii() and segment.isprintable() for segment in spelled.split("."))
    assert not set(spelled) & set("*>$ \t")
    assert name_of(spelled) == name


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_names_are_never_one_subject(one: str, two: str) -> None:
    assert (spell(one) == spell(two)) == (one == two)


def test_streams_with_odd_names_are_kept_apart_and_listed(engine: NatsEngine) -> None:
    store = engine.open()
    lines = {name: chain(1, text=f"number {n}") for n, name in enumerate(ODD)}
    for name, line in lines.items():
        fill(store, name, line)
    other = engine.open()
    assert list(other.streams()) == sorted(ODD)
    assert {name: lines_of(other, name) for name in ODD} == lines
    assert list(other.folders("users")) == sorted({name.split("/")[1] for name in ODD})
    assert list(other.streams("users/a.")) == ["users/a.b/ledger"]
    assert other.remove(f"users/{'长' * 85}")
    assert list(other.streams()) == sorted(name for name in ODD if not name.startswith("users/长"))


def test_a_name_that_no_subject_can_hold_is_refused(engine: NatsEngine) -> None:
    with pytest.raises(StoreError, match="too long for a subject"):
        engine.open().append("/".join(["x" * 190] * 20), [chain(1)[0]], 0)


def test_shards_share_the_tenants_and_each_user_is_in_one(engine: NatsEngine) -> None:
    engine.url += "&shards=4"
    store = engine.open()
    names = [f"users/u{n}/{kind}" for n in range(24) for kind in ("ledger", "agents/a/ledger")]
    for name in names:
        fill(store, name, chain(1))
    subjects = Subjects(store.address.prefix, 4)
    assert {subjects.shard(name) for name in names} == {0, 1, 2, 3}
    assert all(subjects.shard(f"users/u{n}/ledger") == subjects.shard(f"users/u{n}/agents/a/ledger") for n in range(24))
    other = engine.open()
    assert list(other.streams()) == sorted(names)
    assert list(other.streams("users/u7/")) == ["users/u7/agents/a/ledger", "users/u7/ledger"]
    assert other.remove("users/u7")
    assert list(store.streams("users/u7/")) == []
    assert len(list(store.streams())) == len(names) - 2


@pytest.mark.parametrize("stated", [1, 2, 4])
def test_another_number_of_shards_than_there_are_is_an_error(engine: NatsEngine, stated: int) -> None:
    with closing(NatsStore(f"{engine.url}&shards=3")) as store:
        fill(store, STREAM, chain(1))
    with (
        closing(NatsStore(f"{engine.url}&shards={stated}")) as store,
        pytest.raises(ConfigError, match=f"has 3 shards, and event_store states {stated}: correct shards="),
    ):
        store.head(STREAM)
    # A wrong number leaves nothing behind that the right one would stumble over.
    with closing(NatsStore(f"{engine.url}&shards=3")) as store:
        assert store.head(STREAM).seq == 1


def test_a_stream_that_another_process_is_about_to_create_is_waited_for(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is in use, and the server does not show it yet; that is no stream with wrong settings."""
    create, creating = JetStream.create, []

    def name_in_use(wire: JetStream, name: str, settings: Mapping[str, object]) -> None:
        creating.append(threading.Timer(0.05, create, (wire, name, settings)))
        creating[-1].start()
        raise RefusedRequestError("stream name already in use", setup._NAME_IN_USE)

    monkeypatch.setattr(JetStream, "create", name_in_use)
    assert list(engine.open().streams()) == []
    for timer in creating:
        timer.join()


def test_shards_that_a_crash_has_left_out_are_created(engine: NatsEngine) -> None:
    with closing(NatsStore(f"{engine.url}&shards=3")) as store:
        fill(store, STREAM, chain(1))
        empty = next(shard for shard in (1, 2) if shard != Subjects(store.address.prefix, 3).shard(STREAM))
        asyncio.run(_delete(store.address.servers[0], f"{store.address.prefix}-{empty}"))
    with closing(NatsStore(f"{engine.url}&shards=3")) as store:
        assert list(store.streams()) == [STREAM]


async def _delete(server: str, name: str) -> None:
    async with await nats.connect(server) as client:
        assert await client.jetstream().delete_stream(name)


def test_more_streams_than_shards_are_noticed_where_they_were_made_by_hand(
    engine: NatsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "_SHARDS", "of.another.kind")
    with closing(NatsStore(f"{engine.url}&shards=3")) as store:
        fill(store, STREAM, chain(1))
    monkeypatch.undo()
    with closing(NatsStore(f"{engine.url}&shards=2")) as store, pytest.raises(ConfigError, match="more shards"):
        store.head(STREAM)


def test_a_line_of_eight_megabytes_is_kept_and_a_longer_one_is_refused_with_what_to_set(engine: NatsEngine) -> None:
    store = engine.open()
    room = 8 * 1024 * 1024 - 4096
    first = sealed(turn("x" * (room - 1000)))
    store.append(STREAM, [first], 0)
    assert lines_of(engine.open()) == [first]
    with pytest.raises(StoreError, match="set max_payload in their configuration to more than"):
        store.append(STREAM, [sealed(turn("x" * (room + 4096)), after=head_of(first))], 1)
    assert store.head(STREAM) == head_of(first)


def test_it_tells_which_streams_have_changed_since_a_position(engine: NatsEngine) -> None:
    engine.url += "&shards=3"
    store, other = engine.open(), engine.open()
    lines = chain(700)
    for name in (STREAM, "users/b.c/ledger", ODD[-1]):
        fill(store, name, lines[:2])
    nothing, first = other.changed(None)
    assert list(nothing) == []
    assert other.changed(first) == ([], first)
    store.append("users/b.c/ledger", lines[2:], 2)
    store.append(ODD[-1], [lines[2]], 2)
    names, second = other.changed(first)
    assert set(names) == {"users/b.c/ledger", ODD[-1]}
    store.redact(STREAM, {1: erase(lines[0], 0)})
    assert list(other.changed(second)[0]) == [STREAM]


def test_listing_asks_only_for_what_may_have_no_line(engine: NatsEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    store, names = engine.open(), [f"users/u{number:02}/ledger" for number in range(30)]
    first = chain(1)
    for name in names:
        store.append(name, [first[0]], 0)
    with store.locked("users/new/ledger"):
        store.append("users/new/ledger", [first[0]], 0)
    names.insert(0, "users/new/ledger")
    asked: list[int] = []
    lasts = JetStream.lasts

    def counted(self: JetStream, about: Sequence[tuple[str, str]]) -> list[Stored | None]:
        asked.append(len(about))
        return lasts(self, about)

    with store.locked("users/empty/ledger"), monkeypatch.context() as patched:
        patched.setattr(JetStream, "lasts", counted)
        assert list(engine.open().streams()) == names
        assert asked == [2]
        assert list(store.streams("users/u0")) == names[1:11]
        # It may name the empty one, whose lock it does not look at.
        assert set(store.folders("users")) - {"empty"} == {name.split("/")[1] for name in names}
        assert asked == [2]
    with monkeypatch.context() as patched:
        patched.setattr(Erasing, "_sweep", lambda *_: True)
        store.remove("users/u07")
        names.remove("users/u07/ledger")
    assert list(engine.open().streams()) == names


@pytest.mark.parametrize("gone", [1, 3])
def test_a_listing_of_several_pages_passes_nothing_over_when_subjects_go_meanwhile(
    monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """A server returns 100,000 subjects at a time."""
    names, offsets = [f"s{number}" for number in range(10)], []

    async def answer(_: str, body: Mapping[str, Any], kind: type[_Info], **__: object) -> _Info:
        offsets.append(body["offset"])
        if len(offsets) == 2:
            del names[:gone]
        page = dict.fromkeys(names[body["offset"] :][:4], 1)
        return kind(state=_State(subjects=page), total=len(names))

    monkeypatch.setattr(jetstream, "_OVERLAP", 2)
    with closing(JetStream(read_address("nats://127.0.0.1:1"), 0.1)) as wire:
        monkeypatch.setattr(wire, "_api", answer)
        found = wire.subjects("x", ">")
    assert set(names) <= set(found)
    assert (offsets.count(0) > 1) == (gone > 2)


# The address.


def test_an_address_names_servers_and_options() -> None:
    address = read_address(
        "nats://tok%40en@a,b:4333,[::1]:5/team?shards=8&replicas=5&sync=always&lease_seconds=3&nkey=/seed&monitor=http://a:1"
    )
    assert address.servers == ("nats://a:4222", "nats://b:4333", "nats://[::1]:5")
    assert (address.token, address.user, address.prefix) == ("tok@en", None, "team")
    assert (address.shards, address.replicas, address.sync, address.lease_seconds) == (8, 5, "always", 3)
    assert address.monitor == ("http://a:1",)
    named = read_address("tls://ada:pass@a")
    assert (named.user, named.password, named.tls, named.prefix) == ("ada", "pass", True, "backstory")


def test_an_address_is_shown_without_its_secrets() -> None:
    for url in ("nats://secret@a/t", "nats://ada:secret@a/t"):
        store = NatsStore(url)
        assert "secret" not in f"{store} {store!r}"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a", "must begin with nats://"),
        ("nats://", "must name its servers"),
        ("nats://a:b", "must name its servers"),
        ("nats://a,,b", "must name its servers"),
        ("nats://a:70000", "must name its servers"),
        ("nats://[::1", "is no URL"),
        ("nats://a/x#y", "must not have a #"),
        ("nats://ada:se#cret@a", "must spell / ? and # in a token, user or password"),
        ("nats://ada:se/cret@a", "must spell / ? and # in a token, user or password"),
        ("nats://ada:se?cret@a", "must spell / ? and # in a token, user or password"),
        ("nats://a/x.y", "the path of event_store"),
        ("nats://a?shards=0", "shards in event_store must be a whole number from 1 to 1024"),
        ("nats://a?replicas=many", "replicas in event_store must be"),
        ("nats://a?sync=never", "sync in event_store must be always"),
        ("nats://a?colour=red", "unknown option 'colour'"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("?", r"\?")) as refused:
        read_address(url)
    assert "cret" not in str(refused.value)


# Warnings.


def warnings_of(url: str) -> str:
    with closing(NatsStore(url, answer_timeout=PATIENCE)) as store:
        return "\n".join(store.risks())


def test_it_warns_where_acknowledged_commits_can_vanish_and_says_what_to_set(
    engine: NatsEngine, server: Place, caplog: pytest.LogCaptureFixture
) -> None:
    at = engine.url.partition("?")[0]
    with caplog.at_level(logging.WARNING, setup.__name__):
        unknown = warnings_of(f"{at}?replicas=1")
        assert unknown in "\n".join(caplog.messages)
    assert "keeps 1 of each commit" in unknown
    assert "--replicas 3" in unknown
    assert "which a client cannot see" in unknown
    assert 'sync_interval: "always"' in unknown
    lax = warnings_of(f"{at}?replicas=1&monitor={server.monitor}")
    assert f"{server.monitor} does not sync each write" in lax
    assert "sync" not in warnings_of(f"{at}?replicas=1&sync=always")


def test_it_asks_the_monitoring_whether_writes_are_synced(tmp_path: Path) -> None:
    with NatsServer(tmp_path, sync="always") as strict:
        assert "sync" not in warnings_of(f"nats://{strict.at}?replicas=1&monitor={strict.monitor}")


def test_monitoring_that_is_away_is_a_warning_since_one_server_may_be_lost(server: Place) -> None:
    away = "http://127.0.0.1:1"
    told = warnings_of(f"nats://{server.at}/away?replicas=1&monitor={server.monitor},{away}")
    assert f"{server.monitor} does not sync each write" in told
    assert f"{away} could not be asked whether it syncs each write" in told


def test_monitoring_that_is_none_of_nats_is_an_error(server: Place) -> None:
    with (
        closing(NatsStore(f"nats://{server.at}/odd?replicas=1&monitor={server.monitor}/elsewhere")) as store,
        pytest.raises(ConfigError, match="is no monitoring of nats-server"),
    ):
        store.head(STREAM)


def made_by_hand(store: NatsStore, **settings: object) -> None:
    """Create a store's JetStream stream with other settings than its own."""
    really = store._connection.create
    setattr(store._connection, "create", lambda name, ours: really(name, {**ours, **settings}))  # noqa: B010


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"retention": "interest"}, "set retention to limits"),
        ({"max_age": 10**12}, "set max_age to 0"),
        ({"max_msgs_per_subject": 5}, "set max_msgs_per_subject to -1"),
        ({"discard": "old", "max_msgs": 100}, "set discard to new"),
        ({"discard": "old", "max_bytes": 10**6}, "set discard to new"),
        ({"deny_delete": True}, "set deny_delete to false"),
        ({"no_ack": True}, "set no_ack to false"),
        ({"subject_delete_marker_ttl": 10**9}, "set subject_delete_marker_ttl to 0"),
        ({"allow_atomic": False}, "lacks allow_atomic"),
        ({"subjects": ["another.>"]}, "does not accept"),
    ],
)
def test_a_stream_that_would_lose_what_it_acknowledges_is_refused(
    engine: NatsEngine, settings: dict[str, object], what: str
) -> None:
    store = engine.open()
    made_by_hand(store, **settings)
    with pytest.raises(ConfigError, match=what):
        store.append(STREAM, [chain(1)[0]], 0)


def test_a_limit_that_refuses_and_loses_nothing_is_let_be(engine: NatsEngine) -> None:
    store = engine.open()
    made_by_hand(store, max_msgs=2)
    fill(store, STREAM, chain(2))
    with pytest.raises(StoreError, match="maximum messages exceeded"):
        engine.open(answer_timeout=0.05).append("users/eve/ledger", [chain(1)[0]], 0)
    assert lines_of(engine.open()) == chain(2)


def test_it_warns_where_commits_are_kept_in_memory_only(engine: NatsEngine) -> None:
    store = engine.open()
    made_by_hand(store, storage="memory")
    assert "keeps commits in memory only" in "\n".join(store.risks())


def test_three_replicas_on_one_server_are_an_error_that_says_what_to_do(server: Place) -> None:
    with closing(NatsStore(f"nats://{server.at}/alone")) as store, pytest.raises(ConfigError, match="replicas=1"):
        store.head(STREAM)


def test_a_server_that_is_away_is_an_error_that_names_it() -> None:
    with (
        closing(NatsStore("nats://127.0.0.1:1", answer_timeout=0.2)) as store,
        pytest.raises(StoreError, match="could not be reached"),
    ):
        store.head(STREAM)


# Logins.


@pytest.fixture(scope="module")
def nkey(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    import nkeys

    pair = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))
    seed = tmp_path_factory.mktemp("nkey") / "user.nk"
    seed.write_bytes(bytes(pair.seed))
    return pair.public_key.decode(), seed


def test_a_token_lets_in_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    with NatsServer(tmp_path, settings='authorization { token: "s3cret" }') as server:
        used(f"nats://s3cret@{server.at}?replicas=1")
        for login in ("wrong@", ""):
            refused(f"nats://{login}{server.at}?replicas=1")


def test_the_rights_that_the_documentation_lists_are_enough(tmp_path: Path) -> None:
    lines = chain(40)
    with NatsServer(tmp_path, settings=documented_rights()) as server, closing(as_user(server)) as store:
        store.append(STREAM, lines[:39], 0)
        follower = store.follow(STREAM, 38)
        next(follower)
        store.append(STREAM, [lines[39]], 39)
        assert next(follower).line == lines[39]
        with store.locked(STREAM), store.lease(STREAM, "work") as mine:
            assert mine
            store.redact(STREAM, {2: erase(lines[1], 0)})
        assert lines_of(store, STREAM) == [lines[0], erase(lines[1], 0), *lines[2:]]
        assert store.key(STREAM, create=True) == store.key(STREAM)
        _, now = store.changed(None)
        assert list(store.changed(now)[0]) == []
        store.set_seal(Seal("moved", "there"))
        store.set_seal(None)
        assert list(store.streams()) == [STREAM]
        assert store.remove("users/ada")
        assert next(follower, None) is None


@pytest.mark.parametrize("right", ["$JS.API.STREAM.INFO.team-0", "$JS.API.STREAM.MSG.GET.team-0", "team.>"])
def test_a_right_that_is_missing_is_named(right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 0.2)
    settings = documented_rights().replace(f'"{right}"', '"elsewhere"', 1)
    with (
        NatsServer(tmp_path, settings=settings) as server,
        closing(as_user(server)) as store,
        pytest.raises(ConfigError, match=re.escape(right.removesuffix(">"))),
    ):
        store.append(STREAM, [chain(1)[0]], 0)


def test_a_right_that_was_missing_once_does_not_explain_a_later_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 0.2)
    rights, lines = documented_rights(), chain(2)
    without = rights.replace('"team.>"', '"elsewhere"', 1)
    with NatsServer(tmp_path, settings=without) as server, closing(as_user(server)) as store:
        with pytest.raises(ConfigError, match="does not let this user publish to team"):
            store.append(STREAM, [lines[0]], 0)
        file = tmp_path / "server.conf"
        file.write_text(file.read_text("utf-8").replace(without, rights), "utf-8")
        server.signal(signal.SIGHUP)
        until(lambda: is_kept(store, lines[0]))
        monkeypatch.setattr(store._connection, "timeout", 0.5)
        server.signal(signal.SIGSTOP)
        try:
            # Stored or not: nobody may say that it was refused.
            with pytest.raises(UnknownOutcomeError):
                store.append(STREAM, [lines[1]], 1)
        finally:
            server.signal(signal.SIGCONT)


def is_kept(store: NatsStore, line: bytes) -> bool:
    with suppress(ConfigError):
        store.append(STREAM, [line], 0)
        return True
    return False


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it takes too long"


def documented_rights() -> str:
    text = (Path(__file__).parents[4] / "docs" / "how-to" / "nats.md").read_text("utf-8")
    begin = text.index("authorization {")
    return text[begin : text.index("```", begin)]


def as_user(server: NatsServer) -> NatsStore:
    return NatsStore(
        f"nats://backstory:change%20me@{server.at}/team?replicas=1&sync=always",
        lock_timeout=PATIENCE,
        answer_timeout=PATIENCE,
    )


def test_an_nkey_lets_in_and_none_does_not(tmp_path: Path, nkey: tuple[str, Path]) -> None:
    public, seed = nkey
    with NatsServer(tmp_path, settings=f'authorization {{ users: [ {{ nkey: "{public}" }} ] }}') as server:
        used(f"nats://{server.at}?replicas=1&nkey={seed}")
        refused(f"nats://{server.at}?replicas=1")


def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    settings = (
        f'tls {{\n  cert_file: "{files["server.pem"]}"\n  key_file: "{files["server.key"]}"\n'
        f'  ca_file: "{files["ca.pem"]}"\n  verify: true\n}}'
    )
    with NatsServer(tmp_path / "server", settings=settings) as server:
        trusting = f"tls://{server.at}?replicas=1&tls_ca={files['ca.pem']}"
        used(f"{trusting}&tls_cert={files['client.pem']}&tls_key={files['client.key']}")
        refused(trusting)
        refused(f"tls://{server.at}?replicas=1")
    with pytest.raises(ConfigError, match="cannot be used"):
        NatsStore("tls://127.0.0.1:1?tls_ca=/nowhere", answer_timeout=0.2).head(STREAM)


def test_requests_of_one_moment_wait_for_a_server_that_is_away_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    async def connect(_: object) -> None:
        tried.append(1)
        await asyncio.sleep(0.01)
        raise StoreError("away")

    monkeypatch.setattr(connection.NatsConnection, "_connect", connect)
    with closing(NatsStore("nats://127.0.0.1:1", answer_timeout=0.2)) as store:
        for times in (1, 2):
            with pytest.raises(StoreError, match="away"):
                store.head(STREAM)
            assert len(tried) == times


def test_a_connection_that_neither_opens_nor_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    async def connect(*_: object, **__: object) -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    monkeypatch.setattr(nats, "connect", connect)
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 0.05)
    with closing(NatsStore("nats://127.0.0.1:1", answer_timeout=0.05)) as store:
        with pytest.raises(StoreError, match="could not be reached within"):
            store.head(STREAM)
        over.set()


def used(url: str) -> None:
    with closing(NatsStore(url, answer_timeout=PATIENCE)) as store:
        at = store.head(STREAM).seq
        fill(store, STREAM, chain(at + 1)[at:])


def refused(url: str) -> None:
    _refused(url)
    with warnings.catch_warnings():
        # nats-py leaves the sockets of refused TLS connections to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _refused(url: str) -> None:
    with closing(NatsStore(url, answer_timeout=1)) as store, pytest.raises((ConfigError, StoreError)) as told:
        store.head(STREAM)
    assert "s3cret" not in str(told.value)


def certificates(folder: Path) -> dict[str, Path]:
    """Make an authority, and a certificate for each side."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    files: dict[str, Path] = {}

    def write(name: str, data: bytes) -> None:
        files[name] = folder / name
        files[name].write_bytes(data)

    now = dt.datetime.now(dt.UTC)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
    for name in ("ca", "server", "client"):
        key = authority if name == "ca" else ec.generate_private_key(ec.SECP256R1())
        subject = issuer if name == "ca" else x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(authority, hashes.SHA256())
        )
        write(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))
        private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        write(f"{name}.key", key.private_bytes(*private))
    return files


# Processes.


def test_a_forked_child_connects_anew_and_leaves_its_parents_connection_alone(engine: NatsEngine) -> None:
    store = engine.open()
    lines = chain(3)
    store.append(STREAM, [lines[0]], 0)
    with store.locked("users/bob/ledger"):
        child = os.fork()
        if child == 0:  # pragma: no cover in the child
            try:
                store.append(STREAM, [lines[1]], 1)
                os._exit(0)
            except BaseException:  # noqa: BLE001 told by the exit code
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines


def test_the_client_is_imported_only_where_it_is_used() -> None:
    code = "import sys, backstory.ledger.engines.nats; sys.exit('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
