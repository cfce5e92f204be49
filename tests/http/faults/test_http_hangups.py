"""Clients that hang up: in the middle of an event stream, of a body, of an answer. Nothing of them is left behind."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import PATIENCE
from serving import Stream, ThreadServer, thread_server, token

from backstory.http.access.tokens import FILE, TokenFile
from backstory.http.news import News


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again until it holds: what ends in the server's thread tells no one."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came about"
        threading.Event().wait(0.01)


def followers(running: ThreadServer) -> int:
    news: News = running.app.state.news
    return len(news)


def tasks(running: ThreadServer) -> int:
    """How many tasks the server's loop has, asked in its thread."""
    loop: asyncio.AbstractEventLoop = running.app.state.news._loop

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return asyncio.run_coroutine_threadsafe(count(), loop).result(PATIENCE)


def hang_up(connection: socket.socket, *, rudely: bool) -> None:
    if rudely:  # a reset, as of a process that was killed
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("rudely", [False, True])
def test_a_client_that_leaves_a_stream_leaves_nothing_behind(tmp_path: Path, rudely: bool) -> None:
    with thread_server(tmp_path / "home") as running:
        idle = tasks(running)
        running.get("/v1/facts")
        wait_until(lambda: tasks(running) <= idle)
        before = tasks(running)
        with Stream(running, "/v1/events?user=ada") as other:
            other.wait_for(b"id: ")
            wait_until(lambda: followers(running) == 1)
            streams = [Stream(running, f"/v1/events?user={user}") for user in ("ada", "ada", "bob", "carl")]
            for stream in streams:
                stream.wait_for(b"id: ")
            wait_until(lambda: followers(running) == 5)
            running.post("/v1/facts?user=ada", {"content": "Runs"})
            for stream in streams[:2]:
                stream.wait_for(b"Runs")
            for stream in streams:
                hang_up(stream.connection, rudely=rudely)
            wait_until(lambda: followers(running) == 1)
            # The one that is left gets all of it.
            running.post("/v1/facts?user=ada", {"content": "Swims"})
            other.wait_for(b"Swims")
        wait_until(lambda: followers(running) == 0)
        wait_until(lambda: tasks(running) <= before)
        names = [thread.name for thread in threading.enumerate()]
        assert len([name for name in names if name.startswith("backstory-agent")]) <= 64


def test_a_client_that_leaves_in_the_middle_of_a_body_changes_nothing(tmp_path: Path) -> None:
    with thread_server(tmp_path / "home") as running:
        idle = tasks(running)
        for rudely in (False, True):
            connection = running.connect()
            connection.sendall(
                b"POST /v1/facts HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: 19\r\n\r\n"
                b'{"content": "Runs"'
            )
            hang_up(connection, rudely=rudely)
        wait_until(lambda: tasks(running) <= idle)
        assert running.get("/v1/head").json()["seq"] == 0


def test_a_stream_of_a_revoked_token_ends_with_the_next_commit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ada, other = token(home, "ada", "ada"), token(home, "other", "ada")
    with thread_server(home) as running, Stream(running, "/v1/events", ada | {"Connection": "close"}) as stream:
        stream.wait_for(b"id: ")
        running.post("/v1/facts", {"content": "Runs"}, headers=other)
        stream.wait_for(b"Runs")
        TokenFile(home / FILE).revoke("ada")
        running.post("/v1/facts", {"content": "Secret"}, headers=other)
        stream.wait_for_end()
        assert b"Secret" not in stream.data
        assert running.get("/v1/events", headers=ada).status_code == 401


def test_a_server_that_ends_ends_its_streams(tmp_path: Path) -> None:
    begun = time.monotonic()
    with thread_server(tmp_path / "home") as running:
        stream = Stream(running, "/v1/events")
        stream.wait_for(b"id: ")
        running.post("/v1/facts", {"content": "Runs"})
        stream.wait_for(b"Runs")
    with stream:
        stream.wait_for_end()
        assert stream.data.endswith(b"0\r\n\r\n")
    assert time.monotonic() - begun < PATIENCE / 2
