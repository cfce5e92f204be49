"""The examples run as a user runs them, and what they tell is true of the memory they leave behind."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles.misbehaving import MisbehavingServer, Request, Response, completion
from sizes import LONG

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.events import FactAdded, FactRemoved

ROOT = Path(__file__).parents[2]
LOOP, AGENT, NODES, SESSION = "openai_loop", "langchain_agent", "langgraph_nodes", "openai_agents_session"
CAPABILITY, PLUGIN = "pydantic_ai_agent", "llm_plugin"
EACH = pytest.mark.parametrize("example", [LOOP, AGENT, NODES, SESSION, CAPABILITY, PLUGIN])
THEIRS = ("story", "standin", AGENT)
"""Modules that the examples import from beside them; the tests have a `story` of their own."""
TRUTH, ERROR = "User lives in Bergen", "User lives in Lisbon"


def run_alone(example: str, *options: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run an example as a user does, in an environment that names no key and hurries the calls of the model."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    return subprocess.run(
        [sys.executable, f"examples/{example}.py", *map(str, options)],
        cwd=ROOT,
        env={**bare, "BACKSTORY_MIN_SECONDS_BETWEEN_CALLS": "0", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def run(example: str, *options: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run an example like `run_alone`, in this process: it need not load its libraries again."""
    out, err, code = io.StringIO(), io.StringIO(), None
    given = {"BACKSTORY_MIN_SECONDS_BETWEEN_CALLS": "0", **env}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(ROOT)
        patch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
        patch.setattr(sys, "argv", [f"examples/{example}.py", *map(str, options)])
        for name in THEIRS:
            patch.delitem(sys.modules, name, raising=False)
        for name, value in given.items():
            patch.setenv(name, value)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                runpy.run_path(f"examples/{example}.py", run_name="__main__")
        except SystemExit as end:
            code = end.code
        finally:
            for name in THEIRS:
                sys.modules.pop(name, None)
    assert code is None or isinstance(code, int)
    return subprocess.CompletedProcess([example], code or 0, out.getvalue(), err.getvalue())


def standin_answer() -> Callable[[list[dict[str, str]]], str]:
    """The examples' stand-in; they are scripts and no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("standin", ROOT / "examples" / "standin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.answer


def served(request: Request, projector: Callable[[str], str | None] = lambda _: None) -> Response:
    """Complete as the stand-in does, except where `projector` knows what a prompt about memory is to be answered."""
    messages = request.body["messages"]
    last = messages[-1]["content"]
    said = projector(last) if "<current_memory>" in last else None
    return completion(standin_answer()(messages) if said is None else said)


def live(example: str, server: MisbehavingServer, *options: object) -> subprocess.CompletedProcess[str]:
    return run(example, "--live", "--model", "asked-for", *options, OPENAI_BASE_URL=server.base_url)


def answers(memory: MemoryHandle) -> dict[str, str]:
    """What the agent said in each conversation; each is one question and one answer, kept once."""
    said = {}
    for thread in memory.threads():
        user, agent = memory.transcript(thread.thread)
        assert (user.role, agent.role) == ("user", "assistant")
        said[thread.thread] = agent.content
    return said


# The story


@pytest.mark.slow
@EACH
def test_an_example_learns_uses_what_it_knows_is_misled_and_is_put_right(example, tmp_path):
    told = (run_alone if LONG or example == AGENT else run)(example, "--home", tmp_path / "home")
    assert (told.returncode, told.stderr) == (0, "")
    with Backstory.open(tmp_path / "home", background=False) as bs:
        assert [scope.user for scope in bs.scopes()] == ["ada"]
        memory = bs.memory("ada")
        assert memory.verify().ok
        assert not memory.status().pending
        assert not memory.status().parked
        the_ledger_tells_the_story(memory)
        the_agent_answered_from_what_it_was_given(memory, told.stdout)
        the_error_was_traced_to_its_words_and_taken_back(memory, told.stdout)


def the_ledger_tells_the_story(memory: MemoryHandle) -> None:
    assert [(entry.cause.kind, entry.cause.thread) for entry in reversed(memory.log())] == [
        ("genesis", None),
        ("extraction", "monday"),
        ("extraction", "tuesday"),
        ("extraction", "wednesday"),
        ("extraction", "thursday"),
        ("revert", None),
        ("extraction", "friday"),
    ]
    assert [fact.content for fact in memory.facts()] == [TRUTH, "User plays the cello"]
    assert [fact.content for fact in memory.document(at=5).facts] == ["User plays the cello", ERROR]


def the_agent_answered_from_what_it_was_given(memory: MemoryHandle, told: str) -> None:
    said = answers(memory)
    assert said == {
        "monday": "Thank you for telling me.",
        "tuesday": f"I remember this: {TRUTH}.",
        "wednesday": "Thank you for telling me.",
        "thursday": f"I remember this: {ERROR}.",
        "friday": f"I remember this: {TRUTH}.",
    }
    assert re.findall(r"Agent: (.*)", told) == list(said.values())


def the_error_was_traced_to_its_words_and_taken_back(memory: MemoryHandle, told: str) -> None:
    truth, _ = memory.facts()
    added, removed, back = memory.why(truth.id).history
    assert [(item.type, item.cause) for item in (added, removed, back)] == [
        ("FactAdded", "extraction"),
        ("FactRemoved", "extraction"),
        ("FactAdded", "revert"),
    ]
    (error,) = (fact for fact in memory.document(at=removed.seq).facts if fact.content == ERROR)
    why = memory.why(error.id)
    assert why.added.cause.model == "stand-in"
    words = [(words.thread, words.content) for words in why.evidence]
    assert words == [("wednesday", "Big news: my sister has moved to Lisbon!")]
    (revert,) = (entry for entry in memory.log() if entry.cause.kind == "revert")
    assert revert.cause.target == removed.seq == why.added.seq
    assert {type(event): event.fact.content for event in revert.events} == {FactAdded: TRUTH, FactRemoved: ERROR}
    assert f'"{ERROR}": commit {removed.seq}, by stand-in, from' in told
    assert f'{words[0][0]}, user: "{words[0][1]}"' in told
    assert f"commit {revert.seq} undoes commit {removed.seq}" in told
    assert told.index("Why does it believe that?") < told.index("Take it back") < told.index("[friday]")


@pytest.mark.slow
def test_an_example_leaves_no_home_behind_unless_asked_to(tmp_path):
    told = run_alone(LOOP, HOME=str(tmp_path), TMPDIR=str(tmp_path), BACKSTORY_HOME=str(tmp_path / "mine"))
    assert told.returncode == 0
    assert "The truth is back; the hash chain holds." in told.stdout
    assert "Look around" not in told.stdout
    assert not (tmp_path / "mine").exists()
    assert not list(tmp_path.glob("backstory-example-*"))


# A real server


@pytest.mark.slow
@pytest.mark.parametrize("example", [LOOP, SESSION])
def test_an_example_asks_a_real_server_for_the_model_it_was_told(example, tmp_path):
    with MisbehavingServer(served, repeat=True) as server:
        told = live(example, server, "--home", tmp_path / "home")
    assert (told.returncode, told.stderr) == (0, "")
    assert {request.body["model"] for request in server.requests} == {"asked-for"}
    with Backstory.open(tmp_path / "home", background=False) as bs:
        memory = bs.memory("ada")
        assert [fact.content for fact in memory.facts()] == [TRUTH, "User plays the cello"]
        assert memory.why(memory.facts()[0].id).added.cause.model == "served-model"


@pytest.mark.slow
def test_a_slip_of_the_hand_does_the_harm_where_the_model_reads_carefully(tmp_path):
    def careful(prompt: str) -> str | None:
        return '{"newFacts":[]}' if "sister" in prompt else None

    with MisbehavingServer(lambda request: served(request, careful), repeat=True) as server:
        told = live(LOOP, server, "--home", tmp_path / "home")
    assert (told.returncode, told.stderr) == (0, "")
    assert "kept Ada and her sister apart" in told.stdout
    with Backstory.open(tmp_path / "home", background=False) as bs:
        memory = bs.memory("ada")
        assert answers(memory)["thursday"] == f"I remember this: {ERROR}."
        assert answers(memory)["friday"] == f"I remember this: {TRUTH}."
        manual, revert = (entry for entry in reversed(memory.log()) if entry.cause.kind in ("manual", "revert"))
        assert (manual.cause.action, revert.cause.target) == ("edit", manual.seq)


@pytest.mark.slow
def test_a_truth_that_went_without_a_successor_is_brought_back(tmp_path):
    def forgetful(prompt: str) -> str | None:
        removed = re.search(r"^- (fact_\w+) .*Bergen", prompt, re.MULTILINE)
        return json.dumps({"factsToRemove": [removed[1]]}) if removed and "sister" in prompt else None

    with MisbehavingServer(lambda request: served(request, forgetful), repeat=True) as server:
        told = live(LOOP, server)
    assert (told.returncode, told.stderr) == (0, "")
    assert f'"{TRUTH}": commit 2' in told.stdout
    assert re.findall(r"Agent: (.*)", told.stdout)[-2:] == ["You have not told me yet.", f"I remember this: {TRUTH}."]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "why"), [('{"newFacts":[]}', ""), ("I would rather not.", "The update failed (reply): ")]
)
def test_a_story_whose_model_learned_nothing_ends_at_once_and_says_why(said, why):
    with MisbehavingServer(lambda request: served(request, lambda _: said), repeat=True) as server:
        told = live(LOOP, server)
    assert (told.returncode, told.stderr) == (1, "")
    assert "learned nothing about where Ada lives" in told.stdout
    assert why in told.stdout
    assert "[tuesday]" not in told.stdout


@pytest.mark.slow
def test_a_later_update_in_the_way_of_the_undo_is_named():
    def repeating(prompt: str) -> str | None:
        again = {"content": TRUTH, "category": "context", "confidence": 0.9}
        return json.dumps({"newFacts": [again]}) if "remind" in prompt and "Lisbon" in prompt else None

    with MisbehavingServer(lambda request: served(request, repeating), repeat=True) as server:
        told = live(LOOP, server)
    assert (told.returncode, told.stderr) == (1, "")
    assert "stands in the way of undoing it: " in told.stdout
    assert "Take it back" not in told.stdout


@pytest.mark.slow
def test_a_story_in_which_the_truth_is_lost_again_does_not_end_well():
    def forgetful(prompt: str) -> str | None:
        remembered = re.search(r"^- (fact_\w+) .*Bergen", prompt, re.MULTILINE)
        return json.dumps({"factsToRemove": [remembered[1]]}) if remembered and 'thread="friday"' in prompt else None

    with MisbehavingServer(lambda request: served(request, forgetful), repeat=True) as server:
        told = live(LOOP, server)
    assert (told.returncode, told.stderr) == (1, "")
    assert "The truth is lost; the hash chain holds." in told.stdout


# Wrong use


@pytest.mark.slow
@EACH
def test_an_example_says_what_it_is_and_what_it_takes(example):
    told = run(example, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert f"python examples/{example}.py --live --model" in told.stdout
    assert "--home DIR" in told.stdout


@pytest.mark.slow
@EACH
def test_asking_a_real_model_without_a_key_says_what_to_set(example):
    told = run(example, "--live")
    assert (told.returncode, told.stdout) == (2, "")
    assert "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, or leave it out" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("langchain_openai") is not None, reason="langchain-openai is there")
def test_an_agent_on_a_real_model_says_which_package_is_missing():
    told = run(AGENT, "--live", OPENAI_API_KEY="a-key")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "--live needs one package more: pip install langchain-openai\n"


@pytest.mark.slow
@EACH
def test_an_example_keeps_away_from_a_memory_that_is_there_already(example, tmp_path):
    with Backstory.open(tmp_path, background=False) as bs:
        bs.memory("ada").add_fact("Ada likes tea")
    told = run(example, "--home", tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert f"{tmp_path} is there already: name a new folder" in told.stderr
    with Backstory.open(tmp_path, background=False) as bs:
        assert [fact.content for fact in bs.memory("ada").facts()] == ["Ada likes tea"]


# What the README says of them


def plugging_in() -> str:
    (section,) = re.findall(
        r"^## Add it to an agent\n(.*?)^## ", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return section


def test_every_page_and_example_that_the_readme_plugs_in_with_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", plugging_in())
    examples = {f"examples/{name}.py" for name in (LOOP, AGENT, NODES, SESSION, "fastapi_app")}
    pages = {f"docs/how-to/{name}.md" for name in ("langchain", "deerflow", "openai-agents", "fastapi")}
    assert examples | pages <= set(links)
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize("page", ["langchain", "openai-agents", "fastapi"])
def test_what_a_page_imports_is_there(page):
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text("utf-8")
    imports = re.findall(r"^ +(?:from [\w.]+ )?import .+$", text, re.MULTILINE)
    assert imports or page == "fastapi"
    for line in imports:
        exec(line.strip(), {})  # noqa: S102 it is our own page


def test_an_integration_whose_package_is_missing_says_what_to_install():
    code = "import sys; sys.modules['agents'] = None; import backstory.openai_agents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: backstory.openai_agents needs the OpenAI Agents SDK 0.24 or newer: install it with pip install "
        "'backstory[openai-agents]'"
    )


def test_the_classes_that_the_readme_names_for_deerflow_can_be_loaded():
    ((module, name),) = re.findall(r"manager_class: ([\w.]+):(\w+)", plugging_in())
    assert (module, name) == ("backstory.deerflow", "BackstoryMemoryManager")
    # The host of that contract is not here; the module at least must be, under this very name.
    assert importlib.util.find_spec(module) is not None
