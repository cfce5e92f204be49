"""Clients that send too much, too slowly or without end, and clients that do not read: each loses its connection.

The server goes on for all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import PATIENCE
from serving import Stream, ThreadServer, app_client, thread_server, token, until_closed
from starlette.types import Receive, Scope, Send

from backstory.http import server
from backstory.http.access.callers import Caller, Right
from backstory.http.app import ServerOptions
from backstory.http.limits import Limiter, Limits
from backstory.http.metrics import Metrics

SMALL = Limits(body_bytes=10_000, body_seconds=0.5, requests=4, waiting=4, wait_seconds=0.3, streams=3)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadServer]:
    monkeypatch.setattr(server.PatientProtocol, "header_seconds", 0.4)
    monkeypatch.setattr(server.PatientProtocol, "stall_seconds", 0.4)
    monkeypatch.setattr(server.PatientProtocol, "linger_seconds", 0.4)
    with thread_server(tmp_path / "home", ServerOptions(limits=SMALL)) as running:
        yield running


def post(path: str, *headers: str) -> bytes:
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers, "", ""]
    ).encode()


def problem(answer: bytes) -> tuple[int, dict[str, object]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    return int(head.split(b" ")[1]), json.loads(body)


def send_without_end(connection: socket.socket) -> None:
    """Send chunks until the server ends the connection."""
    end = time.monotonic() + PATIENCE

    def send() -> None:
        while time.monotonic() < end:
            connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    with pytest.raises(ConnectionError):
        send()


def check_well(running: ThreadServer, facts: int = 0) -> None:
    """Nothing came through, and the server answers."""
    answer = running.get("/v1/facts")
    assert answer.status_code == 200
    assert len(answer.json()["items"]) == facts


# Bodies.


def test_a_declared_body_over_the_limit_is_refused_before_it_is_sent(running: ThreadServer) -> None:
    for size in ("10001", "50000000", "9" * 18):
        status, said = problem(running.raw(post("/v1/record", f"Content-Length: {size}")))
        assert status == 413
        assert "10,000 bytes" in str(said["detail"])
    for size in ("9" * 30, "9" * 5000, "-1", "1e3", "0x10", "1, 2"):
        answer = running.raw(post("/v1/record", f"Content-Length: {size}"))
        assert answer.split(b" ")[1] in (b"400", b"413", b"431"), answer
    check_well(running)


def test_a_body_at_the_limit_is_taken(running: ThreadServer) -> None:
    content = b'{"content": "Runs"}'
    assert running.raw(
        post("/v1/facts", "Content-Length: 10000", "Connection: close") + content.ljust(10_000)
    ).startswith(b"HTTP/1.1 201")
    check_well(running, facts=1)


def test_a_large_body_that_is_sent_at_once_gets_a_whole_answer(running: ThreadServer) -> None:
    """50 MB: the client reads why it is refused, although it is still sending."""
    answer = running.post("/v1/record", {"thread": "t", "messages": [{"role": "user", "content": "x" * 50_000_000}]})
    assert answer.status_code == 413
    assert "10,000 bytes" in answer.json()["detail"]
    check_well(running)


@pytest.mark.parametrize("path", ["/v1/record", "/api/memory/import", "/v1/nope"])
def test_a_chunked_body_without_end_is_cut_off(running: ThreadServer, path: str) -> None:
    with running.connect() as connection:
        connection.sendall(post(path, "Transfer-Encoding: chunked"))
        send_without_end(connection)
    check_well(running)


def test_a_chunked_body_over_the_limit_is_413(running: ThreadServer) -> None:
    part = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    status, said = problem(running.raw(post("/v1/record", "Transfer-Encoding: chunked") + part * 3))
    assert status == 413
    assert "10,000 bytes" in str(said["detail"])
    answer = running.raw(post("/api/memory/facts", "Transfer-Encoding: chunked") + part * 3)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'{"detail":"the body has more than 10,000 bytes' in answer.replace(b'": "', b'":"')
    check_well(running)


@pytest.mark.parametrize("how", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_stops_is_408(running: ThreadServer, how: str) -> None:
    beginning = b'{"thread"' if how.startswith("Content") else b'9\r\n{"thread"\r\n'
    status, said = problem(running.raw(post("/v1/record", how) + beginning))
    assert status == 408
    assert "longer than 0.5 seconds" in str(said["detail"])
    check_well(running)


def test_a_body_that_drips_is_408(running: ThreadServer) -> None:
    """Each byte comes in time, and the whole does not."""
    with running.connect() as connection:
        connection.sendall(post("/v1/record", "Content-Length: 9000"))
        ended = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not ended.wait(0.02):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        status, _ = problem(until_closed(connection))
        ended.set()
        thread.join()
    assert status == 408


@pytest.mark.parametrize("path", ["/v1/record", "/v1/flush"])
def test_bodies_on_their_way_take_no_place(tmp_path: Path, path: str) -> None:
    """Connections that send one byte each, more of them than there are places for requests and streams."""
    limits = Limits(body_seconds=PATIENCE, requests=64, streams=64)
    with thread_server(tmp_path / "home", ServerOptions(limits=limits)) as running, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(running.connect()) for _ in range(66)]
        for connection in slow:
            connection.sendall(post(path, "Content-Length: 100") + b"{")
            connection.setblocking(False)
        asked = ("/healthz", "/readyz", "/metrics", "/v1/facts")
        assert {found: running.get(found).status_code for found in asked} == dict.fromkeys(asked, 200)
        assert running.post("/v1/facts", {"content": "Runs"}).status_code == 201
        with Stream(running, "/v1/events") as stream:
            stream.wait_for(b"HTTP/1.1 200")
        for connection in slow:
            with pytest.raises(BlockingIOError):
                connection.recv(1)


def test_a_token_leaves_places_to_others() -> None:
    """Four requests run at once, three of them for one token; a fourth of it waits, and one of another does not."""
    running: list[str] = []

    async def ask_all() -> None:
        ends = asyncio.Event()

        async def app(scope: Scope, receive: Receive, _: Send) -> None:
            assert (await receive())["more_body"] is False
            running.append(scope["state"]["caller"].name)
            await ends.wait()

        limiter = Limiter(app, SMALL, kind_of=lambda _: "place", over=Metrics().over)
        whole = {"type": "http.request", "body": b"", "more_body": False}
        read = {"type": "http", "path": "/v1/facts", "method": "GET", "headers": [], "query_string": b""}
        async with asyncio.TaskGroup() as group:
            for name in "aaaaab":
                scope = {**read, "state": {"caller": Caller(name, Right.READ)}}
                group.create_task(limiter(scope, lambda: asyncio.sleep(0, whole), lambda _: asyncio.sleep(0)))
            for _ in range(20):
                await asyncio.sleep(0)
            assert sorted(running) == ["a", "a", "a", "b"]
            ends.set()

    asyncio.run(ask_all())
    assert sorted(running) == ["a"] * 5 + ["b"]


def test_a_memory_has_its_share_whether_it_is_named_or_the_callers_own() -> None:
    """Two changes of a memory run at once; a third waits that does not name the user, since it is the caller's own."""
    running: list[bytes] = []

    async def ask_all() -> None:
        ends = asyncio.Event()

        async def app(scope: Scope, _: Receive, __: Send) -> None:
            running.append(scope["query_string"])
            await ends.wait()

        limiter = Limiter(app, SMALL, kind_of=lambda _: "place", over=Metrics().over)
        whole = {"type": "http.request", "body": b"", "more_body": False}
        change = {"type": "http", "path": "/v1/record", "method": "POST", "headers": []}
        async with asyncio.TaskGroup() as group:
            for query in (b"user=ada", b"user=ada", b"", b"user=bob"):
                state = {"caller": Caller("http", Right.WRITE, default="ada")}
                scope = {**change, "query_string": query, "state": state}
                group.create_task(limiter(scope, lambda: asyncio.sleep(0, whole), lambda _: asyncio.sleep(0)))
            for _ in range(20):
                await asyncio.sleep(0)
            assert sorted(running) == [b"user=ada", b"user=ada", b"user=bob"]
            ends.set()

    asyncio.run(ask_all())
    assert len(running) == 4


def test_bodies_of_one_token_leave_room_for_those_of_others(tmp_path: Path) -> None:
    """Twelve of 16 kB are one token's: its next body is refused before it is all sent, and another's is taken."""
    one, other = ({**token(tmp_path / "home", name), "Content-Type": "application/json"} for name in ("one", "other"))
    limits = Limits(body_bytes=10_000, bodies_bytes=16_000, body_seconds=PATIENCE)
    with thread_server(tmp_path / "home", ServerOptions(limits=limits)) as running, running.connect() as slow:
        slow.sendall(
            post("/v1/facts", "Content-Length: 10000", f"Authorization: {one['Authorization']}") + b" " * 9_000
        )
        body = b'{"content": "Runs"}'.ljust(4_000)
        while (answer := running.post("/v1/facts", headers=one, content=body)).status_code == 201:
            pass
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert running.post("/v1/facts", headers=other, content=body).status_code == 201
        slow.close()
        while running.post("/v1/facts", headers=one, content=body).status_code == 503:
            pass


def test_a_client_without_a_token_is_refused_before_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.PatientProtocol, "linger_seconds", 0.4)
    token(tmp_path / "home", "good")
    with thread_server(tmp_path / "home") as running, running.connect() as connection:
        connection.sendall(post("/v1/record", "Transfer-Encoding: chunked"))
        assert connection.recv(20).startswith(b"HTTP/1.1 401")
        send_without_end(connection)


# Headers.


@pytest.mark.parametrize(
    "beginning", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"GET / HTTP/1.1\r\nX-A: b"]
)
def test_headers_that_do_not_end_are_cut_off(running: ThreadServer, beginning: bytes) -> None:
    answer = running.raw(beginning)
    assert answer.startswith(b"HTTP/1.1 408"), answer
    assert b"connection: close" in answer.lower()
    check_well(running)


def test_headers_that_drip_are_cut_off(running: ThreadServer) -> None:
    with running.connect() as connection:
        connection.sendall(b"GET /v1/facts HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        ended = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not ended.wait(0.02):
                    connection.sendall(b"X-A: b\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        answer = until_closed(connection)
        ended.set()
        thread.join()
    assert answer.startswith(b"HTTP/1.1 408") or answer == b""
    check_well(running)


def test_a_second_request_on_a_connection_has_as_little_time(running: ThreadServer) -> None:
    with running.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        found = connection.recv(1 << 16)
        assert found.startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost")
        assert until_closed(connection).startswith(b"HTTP/1.1 408")


def test_a_request_behind_an_open_stream_does_not_break_into_its_answer(running: ThreadServer) -> None:
    """What is written for the second request must not stand in the middle of the answer to the first."""
    with Stream(running, "/v1/events") as stream:
        stream.wait_for(b"id: ")
        stream.connection.sendall(b"GET /v1/facts HTTP/1.1\r\nHost")
        stream.wait_for_end()
        assert b"HTTP/1.1 4" not in stream.data
    check_well(running)


@pytest.mark.parametrize(
    "headers",
    [
        b"X-A: " + b"b" * 70_000 + b"\r\n",
        b"".join(b"X-%d: %b\r\n" % (number, b"b" * 100) for number in range(700)),
        b"X-A: " + b"b" * 200_000 + b"\r\n",
        b"Authorization: Bearer " + b"b" * 1_000_000 + b"\r\n",
    ],
    ids=["one", "many", "large", "larger"],
)
@pytest.mark.parametrize("ended", [True, False])
def test_headers_that_are_too_large_are_431(running: ThreadServer, headers: bytes, ended: bool) -> None:
    request = b"GET /v1/facts HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + (b"\r\n" if ended else b"")
    answer = running.raw(request)
    assert answer.startswith(b"HTTP/1.1 431"), answer[:200]
    check_well(running)


def test_a_url_that_is_too_long_is_431_and_one_that_is_not_is_read(running: ThreadServer) -> None:
    answer = running.raw(b"GET /v1/facts?user=" + b"u" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431"), answer[:200]
    fits = b"GET /v1/facts?user=" + b"u" * 60_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    assert running.raw(fits).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "request_",
    [
        b"\0" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"NOPE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"POST /v1/facts HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/facts HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET http://evil.example/v1/facts HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /v1/facts HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_or_dropped(
    running: ThreadServer, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = running.raw(request_)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"403", b"404", b"405", b"408", b"200"), answer
    check_well(running)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# Clients that do not read.


def stuck(running: ThreadServer, request: bytes) -> socket.socket:
    """A client with a small window that sends a request and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE)
    connection.connect(running.address)
    connection.sendall(request)
    return connection


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[tuple[str, int]]:
    """The addresses of connections that the server has given up or seen the end of."""
    found: queue.Queue[tuple[str, int]] = queue.Queue()
    real = server.PatientProtocol.connection_lost

    def connection_lost(self: server.PatientProtocol, exc: Exception | None) -> None:
        assert self.client is not None
        found.put(self.client)
        real(self, exc)

    monkeypatch.setattr(server.PatientProtocol, "connection_lost", connection_lost)
    monkeypatch.setattr(server.PatientProtocol, "stall_seconds", 0.4)
    return found


def wait_until_lost(lost: queue.Queue[tuple[str, int]], connection: socket.socket) -> None:
    while lost.get(timeout=PATIENCE) != connection.getsockname():
        pass


@pytest.mark.slow
def test_a_client_that_does_not_read_a_large_answer_loses_its_connection(
    tmp_path: Path, lost: queue.Queue[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with thread_server(tmp_path / "home") as running:
        filler = "x" * 9_000
        for part in range(4):
            turns = [{"role": "user", "content": f"{part} {number} {filler}"} for number in range(250)]
            assert running.post("/v1/record", {"thread": "t", "messages": turns, "mode": "append"}).status_code == 200
        request = b"GET /v1/turns?thread=t&limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n"
        for more in (b"", b"Connection: close\r\n"):
            with stuck(running, request % more) as connection:
                wait_until_lost(lost, connection)
        # One that reads gets all of it, however slow this machine is now.
        monkeypatch.setattr(server.PatientProtocol, "stall_seconds", PATIENCE)
        with stuck(running, request % b"Connection: close\r\n") as connection:
            assert len(until_closed(connection)) > 9_000_000


@pytest.mark.slow
def test_a_stream_that_is_not_read_is_given_up(tmp_path: Path, lost: queue.Queue[tuple[str, int]]) -> None:
    with thread_server(tmp_path / "home", ServerOptions(limits=Limits(streams=1)), max_facts=500) as running:
        for part in range(40):
            turns = [{"content": f"{part} {number} " + "x" * 5000} for number in range(50)]
            assert running.post("/v1/import", {"document": turns}).status_code == 200
        with stuck(running, b"GET /v1/events?since=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as connection:
            wait_until_lost(lost, connection)
        # The only place for a stream is free again, or will be at once.
        streaming = b"HTTP/1.1 200"
        for _ in range(100):
            with Stream(running, "/v1/events") as stream:
                stream.wait_for(b"\r\n\r\n")
                if stream.data.startswith(streaming):
                    break
        assert stream.data.startswith(streaming)


def test_too_many_streams_are_refused_and_a_place_is_free_again(running: ThreadServer) -> None:
    with Stream(running, "/v1/events") as one, Stream(running, "/v1/events") as two:
        for stream in (one, two):
            stream.wait_for(b"id: ")
        refused = running.get("/v1/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "streams" in refused.json()["detail"]
        # Streams take no place of other requests.
        check_well(running)
        one.connection.close()
        for _ in range(200):
            with Stream(running, "/v1/events") as third:
                third.data = third.connection.recv(100)
                if third.data.startswith(b"HTTP/1.1 200"):
                    break
        assert third.data.startswith(b"HTTP/1.1 200")
    metrics = running.get("/metrics").text
    assert 'backstory_http_over_limit_total{limit="streams"}' in metrics


def test_probes_are_answered_while_all_others_wait(tmp_path: Path) -> None:
    with app_client(tmp_path / "home", ServerOptions(limits=Limits(requests=0, wait_seconds=0.01))) as client:
        answers = {path: client.get(path).status_code for path in ("/v1/scopes", "/healthz", "/readyz")}
    assert answers == {"/v1/scopes": 503, "/healthz": 200, "/readyz": 200}
