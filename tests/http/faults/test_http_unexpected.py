"""Errors that nobody expected: an answer of 500 or a broken connection, and no content in any log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from serving import app_client, thread_server

from backstory.http.routes import events
from backstory.memory import MemoryHandle

CONTENT = "her diary is under the bed"


def broken(*_: object, **__: object) -> object:
    raise RuntimeError(CONTENT)


@pytest.mark.parametrize("path", ["/v1/facts", "/api/memory"])
def test_an_unexpected_error_is_500_and_its_message_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    monkeypatch.setattr(MemoryHandle, "facts", broken)
    monkeypatch.setattr(MemoryHandle, "document", broken)
    with caplog.at_level(logging.DEBUG), thread_server(tmp_path / "home") as running:
        answer = running.get(path)
        assert answer.status_code == 500
        assert "RuntimeError" in answer.json()["detail"]
        assert CONTENT not in answer.text
        if path.startswith("/v1"):
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == 500
        else:
            assert list(answer.json()) == ["detail"]
        assert running.get("/v1/head").status_code == 200
    assert CONTENT not in caplog.text
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "RuntimeError" in told
    assert "test_http_unexpected.py" in told


def test_what_a_path_holds_is_in_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A path may hold names, and line breaks that forge a line of the log."""
    monkeypatch.setattr(MemoryHandle, "why_section", broken)
    with caplog.at_level(logging.DEBUG, "backstory"), app_client(tmp_path / "home") as client:
        assert client.get("/v1/sections/x%0AERROR%20all%20is%20lost/why").status_code == 500
    assert "all is lost" not in caplog.text
    assert "/sections/{section}/why" in caplog.text


def test_an_error_in_the_middle_of_an_answer_breaks_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "_after", broken)
    with caplog.at_level(logging.DEBUG), thread_server(tmp_path / "home") as running:
        answer = running.raw(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        # The last chunk, which would tell that the answer is whole, is missing.
        assert not answer.endswith(b"0\r\n\r\n")
        assert CONTENT.encode() not in answer
        assert running.get("/v1/head").status_code == 200
    assert CONTENT not in caplog.text


def test_an_error_before_any_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from backstory.http.access.tokens import Tokens

    with caplog.at_level(logging.DEBUG), thread_server(tmp_path / "home") as running:
        with monkeypatch.context() as patch:
            patch.setattr(Tokens, "__bool__", broken)
            answer = running.get("/v1/facts")
            assert answer.status_code == 500
            assert CONTENT not in answer.text
        assert running.get("/v1/facts").status_code == 200
    assert CONTENT not in caplog.text
