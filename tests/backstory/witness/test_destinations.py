"""A file, a command, an address: each takes lines whole or says that it did not, and none tells a secret."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import sys
import time
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, open_home
from places import USER, lines_of, served

from backstory.config.loading import load_settings
from backstory.ledger.core.errors import ConfigError, WitnessError
from backstory.lifecycle.maintenance import doctor
from backstory.witness.destinations import CommandWitness, Destination, destination_of

SECRET = "s3cr3t"  # noqa: S105 what must not be told
LINES = b'{"n":1}\n{"n":2}\n'


def failing(destination: Destination) -> WitnessError:
    with pytest.raises(WitnessError) as told:
        destination.append(LINES)
    assert SECRET not in f"{told.value!r} {told.value} {told.value.__cause__!r}"
    return told.value


# A file.


def test_a_file_is_made_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "heads.jsonl"
    for _ in range(2):
        destination_of(str(path)).append(LINES)
    assert path.read_bytes() == LINES * 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_is_synced_and_its_folder_when_it_is_born(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr("os.fsync", lambda fd: (synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())), real(fd)))
    destination = destination_of(str(tmp_path / "heads.jsonl"))
    for _ in range(2):
        destination.append(LINES)
    file, folder = str(tmp_path / "heads.jsonl"), str(tmp_path)
    assert synced == [file, folder, file]


def test_what_was_cut_short_stays_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "heads.jsonl"
    path.write_bytes(b'{"v":1,"us')
    destination_of(str(path)).append(LINES)
    assert path.read_bytes() == b'{"v":1,"us\n' + LINES


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """The disk that it is on may not be mounted: then the file would be made on this one."""
    path = tmp_path / "mnt" / "heads.jsonl"
    error = failing(destination_of(str(path)))
    assert str(path) in str(error)
    assert error.kind == "FileNotFoundError"
    assert not path.parent.exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    assert "free some space" in str(failing(destination_of("/dev/full")))


def test_a_device_without_a_sync_will_do() -> None:
    destination_of("/dev/null").append(LINES)


# A command.


def command(script: str, *more: str) -> str:
    words = [sys.executable, "-c", script, SECRET, *more]
    return "command:" + " ".join(f"'{word}'" for word in words)


def test_a_command_is_given_the_lines_without_a_shell(tmp_path: Path) -> None:
    target = tmp_path / "a file; with $HOME"
    destination_of(command('import sys; open(sys.argv[2], "ab").write(sys.stdin.buffer.read())', str(target))).append(
        LINES
    )
    assert target.read_bytes() == LINES


def test_a_command_that_fails_is_told_by_its_exit_code() -> None:
    error = failing(destination_of(command("import sys; sys.stdin.read(); sys.exit(3)")))
    assert "exit code 3" in str(error)


def test_a_command_that_does_not_read_is_judged_by_its_exit_code() -> None:
    destination_of(command("pass")).append(LINES * 100_000)


def test_a_command_that_is_not_there_is_told() -> None:
    assert "cannot be run" in str(failing(destination_of(f"command:no-such-program {SECRET}")))


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """What it started may hold the file that it appends to."""
    script = tmp_path / "hang.sh"
    script.write_text(f"sleep 3600 & echo $! > {tmp_path}/pid; wait\n")
    waited = time.monotonic()
    error = failing(CommandWitness(["sh", str(script)], 0.3))
    assert "took longer than 0.3 s" in str(error)
    assert time.monotonic() - waited < PATIENCE
    child = int((tmp_path / "pid").read_text())
    end = time.monotonic() + PATIENCE
    while _is_running(child):
        assert time.monotonic() < end
        time.sleep(0.001)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# An address.


def test_an_address_is_posted_to_with_name_and_password_in_a_header() -> None:
    with served() as server:
        destination_of(f"http://ada:{SECRET}%21@127.0.0.1:{server.port}/heads?token={SECRET}").append(LINES)
    assert (server.bodies, server.paths) == ([LINES], [f"/heads?token={SECRET}"])
    assert server.headers[0]["Content-Type"] == "application/x-ndjson"
    pair = base64.b64decode(server.headers[0]["Authorization"].removeprefix("Basic "))
    assert pair == f"ada:{SECRET}!".encode()
    assert SECRET not in server.headers[0]["Host"]


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
def test_any_status_but_success_is_a_failure(status: int) -> None:
    with served() as server:
        server.answers = [status]
        error = failing(destination_of(f"http://ada:{SECRET}@127.0.0.1:{server.port}/{SECRET}?token={SECRET}"))
    assert str(status) in str(error)


def test_a_redirect_is_not_followed() -> None:
    with served() as elsewhere, served() as server:
        server.answers, server.location = [307], f"http://127.0.0.1:{elsewhere.port}/"
        error = failing(destination_of(f"http://ada:{SECRET}@127.0.0.1:{server.port}/"))
        assert "not followed" in str(error)
        assert elsewhere.bodies == []


def test_an_address_that_hangs_or_is_not_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error = failing(destination_of(f"http://ada:{SECRET}@127.0.0.1:{port}/{SECRET}", seconds=0.1))
        assert error.kind == "TimeoutError"
    error = failing(destination_of(f"http://ada:{SECRET}@127.0.0.1:{port}/{SECRET}"))
    assert error.kind == "ConnectionRefusedError"


def test_what_is_no_http_is_told() -> None:
    assert "cannot be reached" in str(failing(destination_of(f"http://127.0.0.1:{_port()}/\xe9{SECRET}")))


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


# The key.


@pytest.mark.parametrize(
    "wrong",
    [
        f"heads-{SECRET}.jsonl",
        f"./{SECRET}",
        f"ftp://host/{SECRET}",
        f"http:///{SECRET}",
        f"http://host:{SECRET}/",
        f"http://host/a {SECRET}",
        f"command:echo '{SECRET}",
        "command:",
        "command:  ",
        f"~nobody-{SECRET}/heads",
    ],
)
def test_a_value_that_names_no_witness_is_an_error_that_does_not_quote_it(wrong: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_settings({"witness": wrong}, environ={})
    assert "witness is …" in str(told.value)
    assert "(from the file)" in str(told.value)
    assert SECRET not in str(told.value)


def test_a_path_may_begin_with_the_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    destination_of("~/heads.jsonl").append(LINES)
    assert (tmp_path / "heads.jsonl").read_bytes() == LINES


def test_no_secret_is_logged_counted_or_left_in_the_home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    for witness in (f"http://ada:{SECRET}@127.0.0.1:{port}/{SECRET}?token={SECRET}", command("exit(1)")):
        with caplog.at_level(logging.DEBUG), open_home(tmp_path / "home", witness=witness) as bs:
            bs.memory(USER).add_fact(f"fact {len(witness)}")
            bs.memory(USER).flush()
            assert bs.memory(USER).status().faults[0].doing == "witness"
    with served() as server, caplog.at_level(logging.DEBUG):
        witness = f"http://ada:{SECRET}@127.0.0.1:{server.port}/{SECRET}?token={SECRET}"
        with open_home(tmp_path / "home", witness=witness) as bs:
            bs.memory(USER).add_fact("runs")
            assert SECRET not in repr(bs.memory(USER).verify())
        assert [json.loads(line)["seq"] for line in server.bodies[-1].splitlines()] == [4]
        assert SECRET not in repr(doctor(tmp_path / "home", config={"witness": witness}, environ={}))
    assert SECRET not in caplog.text
    for file in (tmp_path / "home").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file


# The doctor.


def examine(home: Path, witness: str) -> tuple[bool, str]:
    checks = doctor(home, config={"witness": witness}, clock=FakeClock(), environ={})
    return next((check.ok, check.hint) for check in checks if check.check == "witness")


def test_the_doctor_says_what_is_not_witnessed_and_sends_nothing(tmp_path: Path) -> None:
    home, witness = tmp_path / "home", tmp_path / "mnt" / "heads.jsonl"
    with open_home(home, witness=str(witness)) as bs:
        bs.memory(USER).add_fact("runs")
    ok, hint = examine(home, str(witness))
    assert not ok
    assert "1 memory" in hint
    assert "mount its disk" in hint
    witness.parent.mkdir()
    assert not examine(home, str(witness))[0]
    assert not witness.exists()
    with open_home(home, witness=str(witness)) as bs:
        bs.memory(USER)
    ok, hint = examine(home, str(witness))
    assert ok
    assert "on the same disk" in hint
    assert len(lines_of(witness)) == 1


def test_the_doctor_says_nothing_where_there_is_no_witness(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        bs.memory(USER).add_fact("runs")
    assert "witness" not in {check.check for check in doctor(tmp_path, environ={})}


def test_the_doctor_says_of_a_witness_apart_that_verify_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "heads.jsonl"
    with open_home(tmp_path / "home", witness=str(witness)) as bs:
        bs.memory(USER).add_fact("runs")
    monkeypatch.setattr("backstory.witness.witness._are_together", lambda *_: False)
    assert "`verify --all`" in examine(tmp_path / "home", str(witness))[1]


def test_the_doctor_says_that_a_command_is_not_there(tmp_path: Path) -> None:
    with open_home(tmp_path, witness="command:true") as bs:
        bs.memory(USER).add_fact("runs")
    ok, hint = examine(tmp_path, "command:true")
    assert (ok, "cannot read it" in hint) == (True, True)
