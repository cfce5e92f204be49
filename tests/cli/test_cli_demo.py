"""The demo: real commands, a story that ends well, and nothing left behind."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from commandline import Cli, fact
from typer.testing import CliRunner, Result

from backstory.cli.app import app
from backstory.cli.demo import _environment
from backstory.config.loading import load_settings
from backstory.home import Backstory
from backstory.memory import MemoryHandle


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def demo(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def test_it_tells_the_story_and_says_that_it_is_recorded(tmp_path: Path) -> None:
    before, where = dict(os.environ), Path.cwd()
    result = demo("demo")
    assert result.stderr == ""
    out = result.stdout
    assert "recorded" in out.split("\n")[1]
    assert "--live" in out.split("\n")[1]
    parts = [
        "$ backstory --user ada record monday.jsonl",
        "$ backstory --user ada extract --clock turns --replies monday.reply.jsonl",
        "Ada is severely allergic to peanuts",
        "$ backstory --user ada record friday.jsonl",
        "Ada is no longer allergic to peanuts",
        "$ backstory --user ada context --for",
        "- [context | 0.95] Ada is no longer allergic to peanuts",
        "$ backstory --user ada why fact_3_0",
        "| Wonderful news from the clinic today: my sister isn't allergic",
        "$ backstory --user ada revert 3",
        "+ Ada is severely allergic to peanuts",
        "$ backstory --user ada why fact_2_0",
        "restored",
        "- [context | 0.98] Ada is severely allergic to peanuts",
        "$ backstory --user ada verify",
        "ok: 4 commits and 8 turns",
        "$ backstory --user ada test --from-fact fact_2_0 --yes incident.test.yaml",
        "$ backstory --user ada test incident.test.yaml",
        'FAILS  never "Ada is no longer allergic to peanuts"',
        "$ backstory --user ada test ada.test.yaml",
        "10 expectations: all hold.",
    ]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)
    assert "\x1b" not in out
    assert list((tmp_path / "temporary").iterdir()) == []
    assert (dict(os.environ), Path.cwd()) == (before, where)


def test_settings_of_the_machine_do_not_reach_the_recorded_story(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BACKSTORY_FACT_CONFIDENCE_THRESHOLD", "1")
    monkeypatch.setenv("BACKSTORY_STORAGE_PATH", str(tmp_path / "mine"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    demo("demo")
    assert not (tmp_path / "mine").exists()
    assert os.environ["BACKSTORY_FACT_CONFIDENCE_THRESHOLD"] == "1"


def test_it_gives_one_json_value(tmp_path: Path) -> None:
    result = demo("--json", "demo")
    summary = json.loads(result.stdout)
    assert (summary["ok"], summary["exit"], summary["live"], summary["home"]) == (True, 0, False, None)
    steps = summary["steps"]
    assert [step["command"] for step in steps if step["exit"]] == ["backstory --user ada test incident.test.yaml"]
    assert "backstory --user ada revert 3" in [step["command"] for step in summary["steps"]]
    assert "$ backstory --user ada verify" in result.stderr


def test_a_kept_home_can_be_asked(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kept"
    out = demo("demo", "--keep", str(folder)).stdout
    assert str(folder) in out
    kept = Cli(folder / "home")
    assert [f["id"] for f in kept.json("--user", "ada", "fact", "list")] == ["fact_2_0", "fact_2_1", "fact_2_2"]
    assert kept.json("--user", "ada", "why-not", "likes Thai food")[0]["rule"] == "threshold"
    assert "not empty" in CliRunner().invoke(app, ["demo", "--keep", str(folder)]).stderr
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in demo("demo", "--keep", str(tmp_path / "file"), code=3).stderr


def test_it_stops_before_the_undo(tmp_path: Path) -> None:
    out = demo("demo", "--keep", str(tmp_path / "kept"), "--before-undo").stdout
    assert "$ backstory --user ada why fact_3_0" in out
    assert "$ backstory --user ada revert" not in out
    assert f"`backstory --home {tmp_path / 'kept' / 'home'} serve`" in out
    kept = Cli(tmp_path / "kept" / "home")
    facts = kept.json("--user", "ada", "fact", "list")
    assert [f["content"] for f in facts if "peanuts" in f["content"]] == ["Ada is no longer allergic to peanuts"]
    kept.run("--user", "ada", "revert", "3")
    assert "fact_2_0" in [f["id"] for f in kept.json("--user", "ada", "fact", "list")]


def test_it_stops_before_the_undo_only_in_a_folder_that_stays() -> None:
    assert "--keep" in demo("demo", "--before-undo", code=2).stderr


def test_the_kept_folder_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(demo("--json", "demo", "--keep", "kept").stdout)["home"] == str(tmp_path / "kept" / "home")
    assert (tmp_path / "kept" / "home" / "users" / "ada" / "ledger.jsonl").exists()


def test_live_without_a_model_is_3_and_says_so(tmp_path: Path) -> None:
    result = demo("demo", "--live", code=3)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert "OPENAI_API_KEY" in result.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


MONDAY = {"newFacts": [fact("Lives in Oslo"), fact("Has a severe peanut allergy"), fact("Is vegetarian")]}


@pytest.mark.slow
def test_live_with_a_model_that_makes_the_mistake(model) -> None:
    friday = {"newFacts": [fact("Can eat peanuts")], "factsToRemove": ["fact_2_1"]}
    model(lambda prompt: json.dumps(friday if "my sister" in prompt else MONDAY))
    out = demo("demo", "--live").stdout
    assert "$ backstory --user ada extract --clock turns\n" in out
    assert "by stub-1" in out
    assert "$ backstory --user ada why fact_3_0" in out
    assert "$ backstory --user ada revert 3" in out
    assert "Has a severe peanut allergy" in out[out.index("revert 3") :]


@pytest.mark.slow
def test_live_with_a_model_that_understands(model) -> None:
    friday = {"newFacts": [fact("Has a sister")], "factsToRemove": []}
    model(lambda prompt: json.dumps(friday if "my sister" in prompt else MONDAY))
    out = demo("demo", "--live").stdout
    assert "$ backstory --user ada fact remove fact_2_1" in out
    assert "$ backstory --user ada revert 4" in out
    assert "restored" in out


def test_live_with_a_model_that_learns_nothing_says_so(model) -> None:
    model(lambda _: '{"newFacts": []}')
    assert "learned no fact" in demo("demo", "--live", code=1).stdout


def test_live_with_a_model_that_fails_is_1(model) -> None:
    model(lambda _: "I would rather not.")
    result = demo("--json", "demo", "--live", code=1)
    summary = json.loads(result.stdout)
    assert not summary["ok"]
    assert summary["steps"][-1] == {"command": "backstory --user ada extract --clock turns", "exit": 1}


@pytest.mark.slow
def test_live_follows_a_configuration_but_not_to_its_home(model, tmp_path: Path) -> None:
    model(lambda _: json.dumps(MONDAY))
    file = tmp_path / "mine.yaml"
    file.write_text(f"memory:\n  storage_path: {tmp_path / 'mine'}\n  model_name: chosen\n")
    kept = tmp_path / "kept"
    demo("--config", str(file), "demo", "--live", "--keep", str(kept))
    assert not (tmp_path / "mine").exists()
    with Backstory.open(kept / "home", background=False) as bs:
        assert bs.memory("ada").verify().commits > 2


def test_verbs_inside_a_verb_do_not_say_everything_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[int] = []
    document = MemoryHandle.document

    def watched(memory: MemoryHandle, at: int | str | None = None) -> object:
        handlers.append(len(logging.getLogger().handlers))
        return document(memory, at)

    monkeypatch.setattr(MemoryHandle, "document", watched)
    before = len(logging.getLogger().handlers)
    demo("demo")
    assert handlers == [before + 1] * 2


def test_a_story_that_ends_badly_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.memory.MemoryHandle.facts", lambda _: ())
    summary = json.loads(demo("--json", "demo", code=1).stdout)
    assert not summary["ok"]


@pytest.mark.parametrize("live", [False, True])
def test_the_heads_of_the_story_go_to_nobodys_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, live: bool
) -> None:
    monkeypatch.setenv("BACKSTORY_WITNESS", str(tmp_path / "heads.jsonl"))
    with _environment(tmp_path / "home", live=live):
        assert not load_settings({"memory": {"witness": str(tmp_path / "heads.jsonl")}}).settings.witness
    assert os.environ["BACKSTORY_WITNESS"] == str(tmp_path / "heads.jsonl")
