"""Tokens: what is kept of them, how they are recognised, and how a change of the file reaches a running server."""

from __future__ import annotations

import hmac
import json
import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from serving import app_client, token

from backstory.http.access.callers import Right
from backstory.http.access.tokens import FILE, VARIABLE, TokenFile, Tokens
from backstory.ledger.core.errors import ConfigError, InputError, NotFoundError, ScopeError, StoreError

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "home" / FILE)


def tokens_of(file: TokenFile, **environ: str) -> Tokens:
    return Tokens(file, environ)


def test_the_file_is_its_owners_alone_and_holds_no_secret(file: TokenFile) -> None:
    made = file.add("laptop", "write", ["ada", "bob", "ada"], now=NOW)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    secret = made.token.split("_", 2)[2]
    assert len(secret) == 43
    for path in file.path.parent.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert secret not in path.read_text()
    (kept,) = json.loads(file.path.read_text())["tokens"]
    assert set(kept) == {"id", "name", "hash", "right", "users", "created"}
    assert (kept["name"], kept["right"], kept["users"], kept["created"]) == (
        "laptop",
        "write",
        ["ada", "bob"],
        "2026-03-01T00:00:00.000000Z",
    )


def test_a_token_stands_for_its_caller(file: TokenFile) -> None:
    one = file.add("one", "read", ["ada"])
    everyone = file.add("everyone", "erase", None)
    known = tokens_of(file)
    caller = known.caller(one.token)
    assert caller is not None
    assert (caller.name, caller.right, caller.users) == ("token:one", Right.READ, frozenset({"ada"}))
    caller = known.caller(everyone.token)
    assert caller is not None
    assert (caller.name, caller.right, caller.users) == ("token:everyone", Right.ERASE, None)


def test_what_is_no_token_stands_for_none(file: TokenFile) -> None:
    made = file.add("one", "read", None)
    other = file.add("other", "read", None)
    known = tokens_of(file)
    _, name, secret = made.token.split("_", 2)
    assert known.caller(made.token) is not None
    for wrong in (
        "",
        made.token[:-1],
        made.token + "a",
        made.token.upper(),
        f"bst_{name}_{'A' * 43}",
        f"bst_{other.id}_{secret}",
        f"bst_{'0' * 12}_{secret}",
        f" {made.token}",
        made.token + "\n",
        json.loads(file.path.read_text())["tokens"][0]["hash"],
        "bst_" + "é" * 56,
    ):
        assert known.caller(wrong) is None, wrong


def test_hashes_are_compared_in_constant_time_also_for_unknown_ids(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = file.add("one", "read", None)
    known = tokens_of(file)
    compared: list[tuple[str, str]] = []

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return real(a, b)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert known.caller(made.token) is not None
    assert known.caller(made.token[:-43] + "B" * 43) is None
    assert known.caller("bst_" + "0" * 12 + "_" + "B" * 43) is None
    assert len(compared) == 3
    assert {len(part) for pair in compared for part in pair} == {64}


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "a\tb", "x" * 101, "a\0", "\x7f", "\udcff", "\u202e", "\x9b"])
def test_a_name_is_one_word(file: TokenFile, name: str) -> None:
    with pytest.raises(InputError, match="name of a token"):
        file.add(name, "read", None)
    assert file.tokens() == ()


def test_rights_and_users_are_checked(file: TokenFile) -> None:
    file.add("taken", "read", None)
    with pytest.raises(InputError, match="there is a token named taken"):
        file.add("taken", "read", None)
    for right in ("", "admin", "READ"):
        with pytest.raises(InputError, match="read, write, erase"):
            file.add("x", right, None)
    with pytest.raises(InputError, match="no user"):
        file.add("x", "read", [])
    for user in ("", "u" * 1001, "\ud800"):
        with pytest.raises(ScopeError):
            file.add("x", "read", ["ada", user])
    assert [one.name for one in file.tokens()] == ["taken"]


def test_a_token_is_revoked_by_name_or_id(file: TokenFile) -> None:
    first, second = file.add("first", "read", None), file.add("second", "read", None)
    assert file.revoke("first").id == first.id
    assert file.revoke(second.id).name == "second"
    with pytest.raises(NotFoundError, match="no token first"):
        file.revoke("first")
    assert file.tokens() == ()


def test_a_name_counts_before_an_id(file: TokenFile) -> None:
    """Otherwise a token that is named like the id of another one could not be revoked by its name."""
    other = file.add("other", "read", None)
    file.add(other.id, "read", None)
    assert file.revoke(other.id).name == other.id
    assert [one.name for one in file.tokens()] == ["other"]


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b'{"tokens": {}}',
    b'{"tokens": [1]}',
    b'{"tokens": [], "more": 1}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"tokens": [{"id": "0123456789ab", "name": "a", "hash": "x", "right": "read", "users": null, "created": ""}]}',
    b'{"tokens": [{"id": "0123456789ab", "name": "a", "hash": "%b", "right": "all", "users": null, "created": ""}]}'
    % (b"0" * 64),
    b'{"tokens": [{"id": "0123456789ab", "name": "a b", "hash": "%b", "right": "read", "users": null, "created": ""}]}'
    % (b"0" * 64),
    b'{"tokens": [{"id": "0123456789ab", "name": "a", "hash": "%b", "right": "read", "created": ""}]}' % (b"0" * 64),
]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_file_is_an_error_and_nothing_replaces_it(file: TokenFile, data: bytes) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(data)
    with pytest.raises(ConfigError, match="restore it"):
        file.tokens()
    with pytest.raises(ConfigError):
        tokens_of(file)
    with pytest.raises(ConfigError):
        file.add("new", "read", None)
    with pytest.raises(ConfigError):
        file.revoke("a")
    assert file.path.read_bytes() == data


def test_a_server_does_not_start_on_a_damaged_file(file: TokenFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("{")
    with pytest.raises(ConfigError, match=r"tokens\.json"), app_client(file.path.parent):
        pass


def test_a_file_that_cannot_be_read_is_an_error(file: TokenFile) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read"):
        file.tokens()


def test_the_environment_may_hold_tokens(file: TokenFile, tmp_path: Path) -> None:
    elsewhere = TokenFile(tmp_path / "elsewhere.json")
    made = elsewhere.add("ci", "write", ["ada"])
    known = tokens_of(file, **{VARIABLE: elsewhere.path.read_text()})
    assert known
    caller = known.caller(made.token)
    assert caller is not None
    assert caller.name == "token:ci"
    both = file.add("laptop", "read", None)
    assert known.caller(both.token) is not None
    assert known.caller(made.token) is not None
    for wrong in ("{", "\udcff", "nope"):
        with pytest.raises(ConfigError, match=VARIABLE):
            tokens_of(file, **{VARIABLE: wrong})
    assert not tokens_of(TokenFile(tmp_path / "none.json"), **{VARIABLE: "  "})


def test_two_processes_add_at_once_and_lose_none(file: TokenFile) -> None:
    program = (
        "import sys; from pathlib import Path; from backstory.http.access.tokens import TokenFile\n"
        "file = TokenFile(Path(sys.argv[1]))\n"
        "for number in range(20): file.add(f'{sys.argv[2]}-{number}', 'read', None)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, file.path, name]) for name in ("a", "b")]
    threads = [
        threading.Thread(target=lambda name=name: [file.add(f"{name}-{n}", "read", None) for n in range(20)])
        for name in ("c", "d")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(one.name for one in file.tokens()) == sorted(f"{name}-{n}" for name in "abcd" for n in range(20))


# In a running server.


def test_adding_and_revoking_take_effect_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    file = TokenFile(home / FILE)
    with app_client(home) as client:
        assert client.get("/v1/facts").status_code == 200
        first = token(home, "first")
        assert client.get("/v1/facts").status_code == 401
        assert client.get("/v1/facts", headers=first).status_code == 200
        second = token(home, "second")
        assert client.get("/v1/facts", headers=second).status_code == 200
        file.revoke("first")
        assert client.get("/v1/facts", headers=first).status_code == 401
        assert client.get("/v1/facts", headers=second).status_code == 200
        file.revoke("second")
        for headers in ({}, first, second):
            assert client.get("/v1/facts", headers=headers).status_code == 401
        file.path.unlink()
        assert client.get("/v1/facts").status_code == 401


def test_while_the_file_is_damaged_the_old_tokens_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "home"
    good = token(home, "good")
    path = home / FILE
    before = path.read_bytes()
    with app_client(home) as client, caplog.at_level(logging.ERROR, "backstory"):
        path.write_bytes(before[:50])
        for _ in range(3):
            assert client.get("/v1/facts", headers=good).status_code == 200
            assert client.get("/v1/facts").status_code == 401
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1
        assert "tokens.json" in told[0]
        assert "still count" in told[0]
        path.write_bytes(before)
        TokenFile(path).revoke("good")
        assert client.get("/v1/facts", headers=good).status_code == 401


def test_no_log_and_no_file_holds_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "home"
    with caplog.at_level(logging.DEBUG):
        good = token(home, "good")
        with app_client(home, background=False) as client:
            client.post("/v1/facts", json={"content": "Runs"}, headers=good)
            client.get("/v1/facts", headers=good)
            client.get("/v1/nope", headers=good)
            client.post("/v1/facts", content=b"{", headers=good)
            client.get("/v1/facts", headers={"Authorization": good["Authorization"] + "x"})
            metrics = client.get("/metrics", headers=good).text
    secret = good["Authorization"].split("_", 2)[2]
    assert secret not in caplog.text
    assert secret not in metrics
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 2
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
