"""The stream of commits: each of them once and in order, over any number of connections."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from event_stream import Event, connected
from hypothesis import given, settings
from hypothesis import strategies as st
from served_home import Server, user
from sizes import examples

from backstory import Backstory
from backstory.http.routes import events

T = TypeVar("T")
ADA = user("ada")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_LOOK_SECONDS", 0.02)


def run(server: Server, work: Callable[[], Awaitable[T]]) -> T:
    """Run a test within the life of a server."""

    async def lived() -> T:
        async with server.app.router.lifespan_context(server.app):
            return await work()

    return asyncio.run(lived())


def seqs(found: list[Event]) -> list[int]:
    return [event.data["seq"] for event in found]


def add(bs: Backstory, *contents: str, user_id: str = "ada") -> None:
    for content in contents:
        bs.memory(user_id).add_fact(content)


def test_each_commit_is_sent_as_the_log_shows_it(server: Server) -> None:
    async def work() -> None:
        async with connected(server.app, **ADA) as stream:
            assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert stream.headers["cache-control"] == "no-store"
            with server.other() as other:
                for bs, content in ((server.home, "tea"), (other, "milk"), (server.home, "rum")):
                    await asyncio.to_thread(add, bs, content)
            found = [await stream.next() for _ in range(4)]
            async with connected(server.app, path="/v1/log", **ADA) as log:
                while await log._more():
                    pass
        import json

        entries = json.loads(log.body)["items"]
        assert [event.data for event in found if event] == entries[::-1]
        assert {event.kind for event in found if event} == {"commit"}
        assert [event.id for event in found if event] == [f"{e['seq']}-{e['hash']}" for e in entries[::-1]]

    run(server, work)


def test_it_begins_with_the_number_and_the_id_of_the_head(server: Server) -> None:
    add(server.home, "tea")

    async def begin() -> bytes:
        async with connected(server.app, **ADA) as stream:
            return stream.body

    head = server.home.memory("ada").head()
    told = f'event: head\ndata: {{"seq":{head.seq}}}\nid: {head.seq}-{head.hash}\n\n'
    assert run(server, begin) == told.encode()


@pytest.mark.parametrize(
    "path", ["/v1/facts", "/v1/status", "/healthz", "/v1/facts/fact_9_9", "/v1/nothing", "/v1/events"]
)
def test_head_answers_as_get_without_a_body_and_a_stream_ends(server: Server, path: str) -> None:
    add(server.home, "tea")
    with server.client() as client:
        headers = client.head(path, params=ADA)
        assert headers.content == b""
        if path == "/v1/events":
            assert (headers.status_code, headers.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            return
        whole = client.get(path, params=ADA)
        assert headers.status_code == whole.status_code
        assert {**headers.headers} == {**whole.headers}
        assert client.head("/v1/record").status_code == 405


def test_it_begins_after_the_last_commit_or_after_the_one_that_is_named(server: Server) -> None:
    add(server.home, "tea", "milk", "rum")

    async def work() -> None:
        for since, expected in ((None, []), (4, []), (2, [3, 4]), (1, [2, 3, 4]), (0, [1, 2, 3, 4])):
            named = {} if since is None else {"since": since}
            async with connected(server.app, **ADA, **named) as stream:
                server.app.state.news.end()
                rest = await stream.rest() if not expected else [await stream.next() for _ in expected]
                assert seqs([event for event in rest if event]) == expected
            server.app.state.news.ended = False
        for since in (5, 99):
            async with connected(server.app, **ADA, since=since) as stream:
                assert stream.status == 404

    run(server, work)


@pytest.mark.parametrize("last_id", ["", "x", "3", "3-", "-1-" + "0" * 64, "3-" + "G" * 64, "٣-" + "0" * 64, "9" * 400])
def test_an_id_that_is_none_is_refused(server: Server, last_id: str) -> None:
    with server.client() as client:
        refused = client.get("/v1/events", params=ADA, headers={"Last-Event-ID": last_id.encode()})
    assert refused.status_code == 400
    assert "Last-Event-ID" in refused.json()["detail"]


def test_a_client_that_was_dropped_before_the_first_event_misses_none(server: Server) -> None:
    """An EventSource knows then no id but one that came without an event."""

    async def work() -> None:
        for before in (0, 1):
            async with connected(server.app, **ADA) as stream:
                await asyncio.sleep(0)
                server.app.state.news.end()
                assert await stream.next() is None
            server.app.state.news.ended = False
            await asyncio.to_thread(add, server.home, f"tea {before}")
            async with connected(server.app, last_id=stream.last_id, **ADA) as again:
                event = await again.next()
                assert event is not None
                assert event.data["seq"] == (1 if before == 0 else 3)

    run(server, work)


@pytest.mark.slow
@given(drops=st.lists(st.integers(0, 6), min_size=1, max_size=6), since=st.sampled_from([0, 1]))
@settings(max_examples=examples(0.5))
def test_no_commit_is_missed_and_none_comes_twice_over_any_drops(drops: list[int], since: int) -> None:
    """Two homes, which stand for two processes, write all the while; a connection is dropped after some events."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "home")
        other = server.other()
        add(server.home, "first")

        def write(bs: Backstory, name: str) -> None:
            for n in range(12):
                add(bs, f"{name} {n}")

        async def work() -> list[int]:
            writers = [asyncio.to_thread(write, bs, name) for bs, name in ((server.home, "a"), (other, "b"))]
            writing = asyncio.gather(*writers)
            found: list[int] = []
            last_id = None
            plan = [*drops, 10**6]
            for length in plan:
                params = {"since": since} if last_id is None else {}
                async with connected(server.app, last_id=last_id, **ADA, **params) as stream:
                    for _ in range(length):
                        if found and found[-1] == 26:
                            break
                        event = await stream.next()
                        assert event is not None
                        assert event.kind == "commit"
                        found.append(event.data["seq"])
                    last_id = stream.last_id
            await writing
            return found

        with other:
            assert run(server, work) == list(range(since + 1, 27))


def test_after_the_memory_began_again_a_client_is_told_to_begin_again(server: Server) -> None:
    add(server.home, "tea", "milk")

    async def work() -> None:
        async with connected(server.app, **ADA, since=0) as stream:
            for _ in range(3):
                await stream.next()
            last_id = stream.last_id
        server.home.forget_user("ada")
        async with connected(server.app, last_id=last_id, **ADA) as stream:
            event = await stream.next()
            assert event is not None
            assert (event.kind, stream.last_id.partition("-")[0]) == ("reset", "0")  # type: ignore[union-attr]
        # As long a log again, of other commits.
        add(server.home, "rum", "gin")
        async with connected(server.app, last_id=last_id, **ADA) as stream:
            found = [await stream.next() for _ in range(4)]
            assert [event.kind for event in found if event] == ["reset", "commit", "commit", "commit"]
            assert [event.data["seq"] for event in found[1:] if event] == [1, 2, 3]

    run(server, work)


@pytest.mark.parametrize("again", [(), ("gin",), ("gin", "rum"), ("gin", "rum", "ale", "beer")])
def test_the_stream_ends_when_the_memory_is_removed(server: Server, again: tuple[str, ...]) -> None:
    """Also where it has begun again before that was noticed, with a shorter, an equal or a longer log."""
    add(server.home, "tea", "milk")

    async def work() -> None:
        async with connected(server.app, **ADA) as stream:
            with server.other() as other:

                def begin_again() -> None:
                    other.forget_user("ada")
                    add(other, *again)

                await asyncio.to_thread(begin_again)
            rest = await stream.rest()
            assert [event.kind for event in rest] == ["removed"]

    run(server, work)


def test_an_erasure_leaves_the_ids_of_events_as_they_were(server: Server) -> None:
    add(server.home, "tea", "milk")

    async def work() -> None:
        async with connected(server.app, **ADA, since=0) as stream:
            for _ in range(3):
                await stream.next()
        server.home.memory("ada").forget(matching="tea")
        async with connected(server.app, last_id=stream.last_id, **ADA) as again:
            event = await again.next()
            assert event is not None
            assert (event.kind, event.data["seq"], event.data["cause"]["kind"]) == ("commit", 4, "redaction")

    run(server, work)


def test_damage_ends_the_stream_with_the_error_and_is_the_answer_to_the_next_request(server: Server) -> None:
    add(server.home, "tea", "milk")
    log = server.path / "users" / "ada" / "ledger.jsonl"

    async def work() -> None:
        async with connected(server.app, **ADA) as stream:
            # At once: in a file that is cut short first, the stream would end as removed.
            damaged = log.with_name("damaged")
            damaged.write_bytes(log.read_bytes().replace(b"milk", b"salt") + b"{}\n")
            damaged.replace(log)
            (event,) = await stream.rest()
            assert event.kind == "error"
            assert "ledger" in event.data["detail"]
            async with connected(server.app, last_id=stream.last_id, **ADA) as again:
                assert again.status == 503

    run(server, work)


def test_a_quiet_stream_sends_comments(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_BEAT_SECONDS", 0.02)

    async def work() -> None:
        async with connected(server.app, **ADA) as stream:
            while len(stream.comments) < 3:
                if b"\n\n" not in stream.body:
                    await stream._more()
                else:
                    block, _, stream.body = stream.body.partition(b"\n\n")
                    if block.startswith(b":"):
                        stream.comments.append(block.decode())
            await asyncio.to_thread(add, server.home, "tea")
            event = await stream.next()
            assert event is not None
            assert event.data["seq"] == 1

    run(server, work)


def test_streams_end_with_the_server(server: Server) -> None:
    async def work() -> None:
        async with connected(server.app, **ADA) as one, connected(server.app, user="bob") as two:
            server.app.state.news.end()
            assert (await one.rest(), await two.rest()) == ([], [])
        # A stream that is asked for during the shutdown ends at once.
        async with connected(server.app, **ADA) as late:
            assert await late.rest() == []

    run(server, work)


def test_a_stream_that_was_left_keeps_no_follower(server: Server) -> None:
    async def work() -> None:
        async with connected(server.app, **ADA):
            pass
        assert len(server.app.state.news) == 0

    run(server, work)


def test_an_agent_that_reads_its_users_memory_has_a_stream_of_its_own(server: Server) -> None:
    async def work() -> None:
        await asyncio.to_thread(add, server.home, "tea")
        async with connected(server.app, user="ada", agent="coder") as stream:
            await asyncio.to_thread(add, server.home, "milk")
            await asyncio.to_thread(server.home.memory("ada", "coder").add_fact, "Python")
            found = [await stream.next() for _ in range(2)]
            assert [event.data["cause"]["kind"] for event in found if event] == ["genesis", "manual"]
            assert [event.data["seq"] for event in found if event] == [1, 2]
        async with connected(server.app, user="ada", agent="other", since=1) as stream:
            assert stream.status == 404

    run(server, work)


def test_more_commits_than_are_read_at_a_time_come_in_order(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_AT_ONCE", 3)
    add(server.home, *(f"tea {n}" for n in range(10)))

    async def work() -> None:
        async with connected(server.app, **ADA, since=0) as stream:
            assert [event.data["seq"] for _ in range(11) if (event := await stream.next())] == list(range(1, 12))

    run(server, work)
