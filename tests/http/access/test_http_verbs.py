"""Verbs of the server: `serve`, and `token add`, `list` and `revoke`."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cli.commandline import Cli
from fakes import PATIENCE
from serving import process_server

from backstory.http.access.tokens import VARIABLE
from backstory.http.server import listen
from backstory.ledger.core.errors import StoreError, UsageError


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


# Tokens.


def test_a_token_is_printed_once_and_only_it_is_on_standard_output(cli: Cli) -> None:
    made = cli.run("token", "add", "laptop", "--for", "ada", "--for", "bob", "--right", "read")
    assert re.fullmatch(r"bst_[0-9a-f]{12}_[\w-]{43}\n", made.stdout)
    assert "laptop may read for ada, bob; the token is not shown again" in made.stderr
    listed = cli.run("token", "list").stdout
    assert made.stdout.strip() not in listed
    assert re.fullmatch(r"[0-9a-f]{12}  laptop  read  for ada, bob  \d{4}-\d\d-\d\d\n", listed)
    kept = (cli.home / "tokens.json").read_text()
    assert made.stdout.strip().rpartition("_")[2] not in kept


def test_tokens_as_json(cli: Cli) -> None:
    made = cli.json("token", "add", "ci", "--all-users")
    assert set(made) == {"id", "name", "right", "users", "token"}
    assert (made["name"], made["right"], made["users"]) == ("ci", "write", None)
    (listed,) = cli.json("token", "list")
    assert set(listed) == {"id", "name", "right", "users", "created"}
    assert listed["id"] == made["id"]
    assert cli.json("token", "revoke", "ci") == {"id": made["id"], "name": "ci"}
    assert cli.json("token", "list") == []


def test_a_token_is_revoked_by_name_and_by_id(cli: Cli) -> None:
    for name in ("one", "two"):
        cli.run("token", "add", name, "--all-users")
    name = cli.json("token", "list")[0]["id"]
    assert cli.run("token", "revoke", "two").stdout.startswith("revoked two (")
    assert cli.run("token", "revoke", name).stdout == f"revoked one ({name})\n"
    assert "no token one" in cli.error("token", "revoke", "one", code=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "--for USER, or --all-users"),
        (["x", "--for", "ada", "--all-users"], "--for USER, or --all-users"),
        (["x", "--for", ""], "user id is empty"),
        (["x", "--for", "u" * 1001], "at most 1000 characters"),
        (["x", "--for", "\udcff"], "valid Unicode"),
        (["", "--all-users"], "name of a token"),
        (["a b", "--all-users"], "name of a token"),
        (["\udcff", "--all-users"], "name of a token"),
        (["x", "--all-users", "--right", "admin"], "read, write, erase"),
        (["taken", "--all-users"], "token named taken"),
        ([], "Missing argument"),
    ],
)
def test_a_token_that_cannot_be_is_wrong_use(cli: Cli, words: list[str], said: str) -> None:
    cli.run("token", "add", "taken", "--all-users")
    assert said in cli.error("token", "add", *words, code=2)
    assert [one["name"] for one in cli.json("token", "list")] == ["taken"]


def test_a_damaged_file_stops_every_verb_and_stays_as_it_is(cli: Cli) -> None:
    cli.run("token", "add", "good", "--all-users")
    (cli.home / "tokens.json").write_text("{")
    for words in (["add", "x", "--all-users"], ["list"], ["revoke", "good"]):
        assert "tokens.json holds no tokens" in cli.error("token", *words, code=2)
    assert "tokens.json holds no tokens" in cli.error("serve", "--port", "0", code=2)
    assert (cli.home / "tokens.json").read_text() == "{"


def test_listing_creates_nothing(cli: Cli) -> None:
    assert cli.json("token", "list") == []
    assert cli.run("token", "list").stdout == ""
    assert not cli.home.exists()


def test_tokens_are_in_the_home_that_the_configuration_names(cli: Cli, tmp_path: Path) -> None:
    cli.run("token", "add", "one", "--all-users")
    assert (cli.home / "tokens.json").exists()
    assert cli.json("token", "list")[0]["name"] == "one"


# Serving: what stops it before it begins.


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_another_address_needs_tokens(cli: Cli, host: str) -> None:
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    said = cli.error("serve", "--host", host, "--port", "0", code=2)
    assert "backstory token add" in said
    assert VARIABLE in said
    # A home without tokens is not made by the attempt.
    assert not (cli.home / "tokens.json").exists()


def test_a_revoked_token_is_none(cli: Cli) -> None:
    cli.run("token", "add", "one", "--all-users")
    cli.run("token", "revoke", "one")
    assert "needs tokens" in cli.error("serve", "--host", "0.0.0.0", "--port", "0", code=2)


@pytest.mark.parametrize("host", ["no such host", "nope.invalid", "256.1.1.1", "\udcff", "a" * 300, "[::1"])
def test_a_bad_host_is_wrong_use(cli: Cli, host: str) -> None:
    assert "--host" in cli.error("serve", "--host", host, "--port", "0", code=2)


def test_an_address_of_another_machine_cannot_be_listened_on(cli: Cli) -> None:
    assert "cannot listen on 192.0.2.1" in cli.error("serve", "--host", "192.0.2.1", "--port", "0", code=3)


def test_an_empty_host_is_wrong_use(cli: Cli) -> None:
    """It would be every address of this machine."""
    assert "--host" in cli.error("serve", "--host", "", "--port", "0", code=2)


@pytest.mark.parametrize("port", ["-1", "65536", "x", "1.5"])
def test_a_bad_port_is_wrong_use(cli: Cli, port: str) -> None:
    assert "--port" in cli.error("serve", "--port", port, code=2)


def test_a_taken_port_is_3(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = cli.error("serve", "--port", taken.getsockname()[1], code=3)
        assert "choose another --port" in said
        error = cli.json("serve", "--port", taken.getsockname()[1], code=3)["error"]
        assert (error["kind"], error["exit"]) == ("StoreError", 3)


def test_listening() -> None:
    with listen("localhost", 0).socket, listen("127.0.0.1", 0).socket as one:
        assert one.getsockname()[0] == "127.0.0.1"
    found = listen("127.0.0.1", 0)
    with found.socket:
        assert found.local
        assert found.url == f"http://127.0.0.1:{found.socket.getsockname()[1]}"
    everywhere = listen("0.0.0.0", 0)
    with everywhere.socket:
        assert not everywhere.local
    with pytest.raises(UsageError):
        listen("nope.invalid", 0)
    with pytest.raises(StoreError):
        listen("192.0.2.1", 0)


def test_a_name_that_resolves_elsewhere_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`x.localhost` is a name like others for a resolver that does not know better."""
    real = socket.getaddrinfo

    def resolve(host: str, *rest: object, **more: object) -> object:
        return real("0.0.0.0" if host == "app.localhost" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    found = listen("app.localhost", 0)
    with found.socket:
        assert not found.local


WITHOUT = """
import sys

class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
from backstory.cli.app import app
app(["--home", sys.argv[2], *sys.argv[3:]])
"""


def without(missing: str, cli: Cli, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where a package is not installed."""
    command = [sys.executable, "-c", WITHOUT, missing, cli.home, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    "missing",
    [
        "fastapi",
        "prometheus_client",
        *(pytest.param(name, marks=pytest.mark.torture) for name in ("uvicorn", "httptools", "fastapi_offline")),
    ],
)
def test_without_the_extra_it_says_what_to_install(cli: Cli, missing: str) -> None:
    done = without(missing, cli, "serve", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'backstory[server]'" in done.stderr
    assert f"{missing} is missing" in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_extra_tokens_are_made(cli: Cli) -> None:
    assert without("fastapi", cli, "token", "add", "one", "--all-users").returncode == 0


# Serving.


@pytest.mark.slow
def test_it_prints_its_address_and_ends_on_sigterm(cli: Cli) -> None:
    with cli.running("serve", "--port", "0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"page: (http://127\.0\.0\.1:\d+)  \(REST: \1/v1, documentation: \1/docs\)\n", line)
        assert found is not None, line
        made = httpx.post(f"{found[1]}/v1/facts?user=ada", json={"content": "Runs"}, trust_env=False)
        assert made.status_code == 201
        said = {"thread": "t", "messages": [{"role": "user", "content": "Hi"}]}
        assert httpx.post(f"{found[1]}/v1/record?user=ada", json=said, trust_env=False).status_code == 200
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err
    assert [one["content"] for one in cli.json("--user", "ada", "fact", "list")] == ["Runs"]
    assert cli.json("--user", "ada", "turns", "t")[0]["content"] == "Hi"
    assert cli.json("--user", "ada", "verify")["ok"]
    assert (cli.home / "users" / "ada" / "memory.json").exists()


@pytest.mark.slow
def test_it_ends_on_an_interrupt_while_a_stream_is_open(cli: Cli) -> None:
    with process_server(cli.home) as running, running.connect() as stream:
        stream.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in stream.recv(1000)
        code, out, err = running.end(signal.SIGINT)
        assert (code, out) == (130, "")
        assert "Traceback" not in err


@pytest.mark.slow
def test_tokens_of_the_environment_let_it_listen_elsewhere(cli: Cli, tmp_path: Path) -> None:
    other = Cli(tmp_path / "other" / "home")
    made = other.json("token", "add", "ci", "--for", "ada", "--right", "read")
    kept = (other.home / "tokens.json").read_text()
    with process_server(cli.home, "--host", "0.0.0.0", environ={VARIABLE: kept}) as running:
        port = running.address[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert client.get("/v1/facts").status_code == 401
            headers = {"Authorization": f"Bearer {made['token']}"}
            assert client.get("/v1/facts", headers=headers).status_code == 200
            assert client.post("/v1/facts", json={"content": "x"}, headers=headers).status_code == 403
        assert running.end()[0] == 0


@pytest.mark.slow
def test_allowed_hosts_and_origins(cli: Cli) -> None:
    with process_server(cli.home, "--allow-host", "app.example", "--allow-origin", "https://page.example") as running:
        assert running.get("/v1/facts", headers={"Host": "app.example"}).status_code == 200
        assert running.get("/v1/facts", headers={"Host": "other.example"}).status_code == 403
        allowed = running.get("/v1/facts", headers={"Origin": "https://page.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://page.example"
        assert running.get("/v1/facts", headers={"Origin": "https://other.example"}).status_code == 403


def test_the_verbs_are_in_the_help(cli: Cli) -> None:
    shown = cli.run("--help").stdout
    assert "serve" in shown
    assert "token" in shown
    for verb in ("add", "list", "revoke"):
        assert verb in cli.run("token", "--help").stdout
    for option in ("--host", "--port", "--allow-host", "--allow-origin"):
        assert option in cli.run("serve", "--help").stdout
    assert json.loads(cli.run("--json", "token", "list").stdout) == []
