"""The plug-in in `llm` itself: its command line and its Python interface, with models that follow a script."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import llm
import pytest
from click.testing import CliRunner
from fakes import reply
from llm.cli import cli
from llm.parts import StreamEvent, TextPart

from backstory import Backstory
from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.core.scope import Scope
from backstory.llm import plugin


class Scripted(llm.KeyModel):
    """A model of today: it reads `messages`."""

    model_id = "scripted"
    can_stream = True
    supports_tools = True
    attachment_types = frozenset({"image/png"})
    needs_key = "scripted"
    key_env_var = "SCRIPTED_KEY"
    kept: list[llm.Prompt]
    keys: list[str | None]
    answers: list[str | llm.ToolCall | Exception]

    class Options(llm.Options):
        loud: bool = False

    def execute(self, prompt, stream, response, conversation=None, key=None):
        self.kept.append(prompt)
        self.keys.append(key)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, llm.ToolCall):
            response.add_tool_call(said)
            yield "Let me look."
            return
        for word in said.split(" "):
            yield StreamEvent(type="text", chunk=f"{word} ")


class Older(llm.Model):
    """A model of before: it reads `prompt` and `system`, has no key, and takes no system prompt."""

    model_id = "older"
    allows_system_prompt = False

    def __init__(self) -> None:
        self.kept: list[llm.Prompt] = []

    def execute(self, prompt, stream, response, conversation=None):
        self.kept.append(prompt)
        yield "Aye."


class Waiting(llm.AsyncModel):
    model_id = "scripted"

    def __init__(self) -> None:
        self.kept: list[llm.Prompt] = []

    async def execute(self, prompt, stream, response, conversation=None):
        self.kept.append(prompt)
        yield "Later."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("BACKSTORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BACKSTORY_USER", "ada")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("SCRIPTED_KEY", "secret")
    yield tmp_path / "home"
    plugin.close()


@pytest.fixture
def model(home: Path) -> Iterator[Scripted]:
    """The model that the tests register, as a plug-in does; beside it the models of before, and one that waits."""
    one = Scripted()
    one.kept, one.keys, one.answers = [], [], ["Aye."]
    one.older, one.waiting = Older(), Waiting()
    theirs = ModuleType("llm_scripted")

    @llm.hookimpl
    def register_models(register):
        register(one, one.waiting, aliases=["s"])
        register(one.older)

    theirs.register_models = register_models
    llm.load_plugins()
    # Where the project is installed, `llm` has found the plug-in itself.
    ours = [module for module in (plugin, theirs) if not llm.pm.is_registered(module)]
    for module in ours:
        llm.pm.register(module)
    yield one
    for module in ours:
        llm.pm.unregister(module)


def ask(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output.strip()


def said(home: Path, thread: str | None = None, user: str | None = "ada", agent: str | None = None) -> list[str]:
    with Backstory.open(home, background=False) as bs:
        memory = bs.memory_of(Scope(user, agent))
        threads = [known.thread for known in memory.threads()] if thread is None else [thread]
        return [f"{turn.role}: {turn.content.strip()}" for name in threads for turn in memory.transcript(name)]


def remember(home: Path, *facts: str) -> None:
    with Backstory.open(home, background=False) as bs:
        for fact in facts:
            bs.memory("ada").add_fact(fact)


def system(prompt: llm.Prompt) -> str:
    return "".join(part.text for part in prompt.messages[0].parts if prompt.messages[0].role == "system")


# What a prompt gets and leaves.


@pytest.mark.parametrize("more", [[], ["--no-stream"]])
@pytest.mark.parametrize("name", ["memory/scripted", "memory/s"])
def test_the_block_reaches_the_model_and_both_words_are_recorded(home, model, name, more):
    remember(home, "Ada plays the cello")
    assert ask("-m", name, "-s", "Be kind.", "What do I play?", *more) == "Aye."
    (sent,) = model.kept
    assert sent.system.startswith("Be kind.\n\n<memory>\n")
    assert system(sent) == sent.system
    assert "Ada plays the cello" in sent.system
    assert said(home) == ["user: What do I play?", "assistant: Aye."]


def test_a_conversation_that_goes_on_is_one_thread_and_its_log_never_holds_the_block(home, model):
    remember(home, "Ada plays the cello")
    model.answers += ["Aye again."]
    ask("-m", "memory/scripted", "One")
    ask("-c", "Two")
    assert said(home) == ["user: One", "assistant: Aye.", "user: Two", "assistant: Aye again."]
    assert [message.role for message in model.kept[1].messages] == ["system", "user", "assistant", "user"]
    logged = ask("logs", "--json")
    assert "Two" in logged
    assert "cello" not in logged


def test_facts_are_learned_and_told_in_the_next_conversation(home, model):
    ask("-m", "memory/scripted", "I moved to Bergen")
    with Backstory.open(home, background=False) as bs:
        memory = bs.memory("ada")
        (thread,) = memory.threads()
        memory.extract([{"thread_id": thread.thread, "reply": reply("Ada lives in Bergen")}])
        (fact,) = memory.facts()
        assert memory.why(fact.id).evidence[0].content == "I moved to Bergen"
    model.answers += ["In Bergen."]
    ask("-m", "memory/scripted", "Where do I live?")
    assert "Ada lives in Bergen" in system(model.kept[1])
    with Backstory.open(home, background=False) as bs:
        memory = bs.memory("ada")
        answers = [turn for known in memory.threads() for turn in memory.transcript(known.thread)]
        (answer,) = (turn for turn in answers if turn.content.strip() == "In Bergen.")
        assert [given.id for given in memory.why_said(answer.id).facts] == [fact.id]


def test_what_a_question_finds_is_directly_before_it(home, model, monkeypatch):
    monkeypatch.setenv("BACKSTORY_MAX_INJECTION_TOKENS", "120")
    with Backstory.open(home, background=False) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada's cat is called Whiskers", confidence=0.7)
        for n in range(30):
            memory.add_fact(f"Ada once counted to {n} thousand in the garden", confidence=0.95)
    model.answers += ["Whiskers."]
    found = "<memory>\nFacts for this question:\n- [context | 0.70] Ada's cat is called Whiskers\n</memory>\n\n"
    for words in ("hello", "what is the name of my cat?"):
        ask("-m", "memory/scripted", words)
    first, second = model.kept
    assert system(first) == system(second)
    assert second.prompt == f"{found}what is the name of my cat?"
    assert "".join(part.text for part in second.messages[-1].parts) == second.prompt
    ask("-m", "memory/older", "what is the name of my cat?")
    (older,) = model.older.kept
    assert not older.system
    assert "Whiskers" in older.prompt
    assert older.prompt.endswith("</memory>\n\nwhat is the name of my cat?")


def test_a_prompt_that_waits_is_recorded_like_any_other(home, model):
    remember(home, "Ada plays the cello")
    assert ask("-m", "memory/scripted", "--async", "What do I play?") == "Later."
    assert "Ada plays the cello" in system(model.waiting.kept[0])
    assert said(home) == ["user: What do I play?", "assistant: Later."]

    async def one() -> str:
        return await llm.get_async_model("memory/scripted").prompt("Again?").text()

    assert asyncio.run(one()) == "Later."
    assert said(home)[2:] == ["user: Again?", "assistant: Later."]


def test_of_calls_of_tools_only_the_final_answer_is_recorded(home, model):
    remember(home, "Ada plays the cello")
    model.answers = [llm.ToolCall(name="look", arguments={}), "It is there."]

    def look() -> str:
        """Look for it."""
        return "the key is under the mat"

    chain = llm.get_model("memory/scripted").chain("Where is the key?", tools=[look])
    assert chain.text().endswith("It is there. ")
    assert said(home) == ["user: Where is the key?", "assistant: It is there."]
    assert "Ada plays the cello" in system(model.kept[1])


def test_a_question_is_on_disk_before_the_model_is_asked_and_stays_when_it_fails(home, model):
    model.answers = [RuntimeError("down")]
    assert ask("-m", "memory/scripted", "Hello", code=1) == "Error: down"
    assert said(home) == ["user: Hello"]


def test_fragments_are_no_words_of_a_person(home, model, tmp_path):
    (tmp_path / "notes.txt").write_text("A long text.", encoding="utf-8")
    ask("-m", "memory/scripted", "-f", str(tmp_path / "notes.txt"), "What does it say?")
    assert model.kept[0].prompt == "A long text.\nWhat does it say?"
    assert said(home) == ["user: What does it say?", "assistant: Aye."]


def test_an_empty_memory_leaves_a_prompt_as_it_is(home, model):
    ask("-m", "memory/scripted", "Hello")
    (sent,) = model.kept
    assert [(message.role, [part.text for part in message.parts]) for message in sent.messages] == [("user", ["Hello"])]


# A model in all other ways.


def test_the_model_is_asked_as_ever(home, model, tmp_path):
    remember(home, "Ada plays the cello")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    ask(
        "-m",
        "memory/scripted",
        "-o",
        "loud",
        "1",
        "--at",
        str(tmp_path / "a.png"),
        "image/png",
        "--key",
        "mine",
        "Look",
    )
    (sent,) = model.kept
    assert (sent.options.loud, model.keys, len(sent.attachments)) == (True, ["mine"], 1)
    assert [type(part).__name__ for part in sent.messages[-1].parts] == ["TextPart", "AttachmentPart"]
    assert isinstance(sent.messages[-1].parts[0], TextPart)
    assert "Backstory: memory/scripted" in ask("models")


def test_the_model_itself_has_no_memory(home, model):
    ask("-m", "scripted", "Hello")
    assert not home.exists()


# Whose memory, and its faults.


def test_the_environment_names_the_user_and_the_agent(home, model, monkeypatch):
    monkeypatch.delenv("BACKSTORY_USER")
    monkeypatch.setenv("BACKSTORY_AGENT", "work")
    ask("-m", "memory/scripted", "Hello")
    assert said(home, user=None, agent="work") == ["user: Hello", "assistant: Aye."]


def test_a_wrong_configuration_is_an_error_that_names_it(home, model, monkeypatch):
    monkeypatch.setenv("BACKSTORY_MAX_FACTS", "many")
    assert ask("-m", "memory/scripted", "Hello", code=1).startswith("Error: max_facts must be a whole number")


def test_a_memory_that_cannot_be_read_or_written_costs_no_answer(home, model, monkeypatch):
    def locked(*_: object, **__: object) -> None:
        raise LockTimeoutError("locked")

    with monkeypatch.context() as patch:
        patch.setattr(Backstory, "memory_of", locked)
        assert ask("-m", "memory/scripted", "Hello") == "Aye."
    assert plugin._memory().fail_safe.flush(5)
    assert said(home) == ["user: Hello", "assistant: Aye."]


def test_threads_that_ask_at_once_open_one_memory(home, monkeypatch):
    opened, entered = [], threading.Barrier(2)
    opening = Backstory.open

    def slowly(*given, **options):
        with contextlib.suppress(threading.BrokenBarrierError):
            entered.wait(0.2)
        opened.append(opening(*given, **options))
        return opened[-1]

    monkeypatch.setattr(Backstory, "open", slowly)
    with ThreadPoolExecutor(2) as pool:
        one, other = (pool.submit(plugin._memory) for _ in range(2))
        assert one.result() is other.result()
    assert len(opened) == 1


# The start of `llm`.


def test_llm_finds_the_plug_in():
    """In an environment with the wheel; test_installing asks `llm` for such a model there."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["llm"] == {"backstory": plugin.__name__}


def test_a_start_loads_no_memory():
    listed = "import sys, llm, backstory.llm.plugin; print([*filter(lambda n: n.startswith('backstory'), sys.modules)])"
    done = subprocess.run([sys.executable, "-c", listed], env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['backstory', 'backstory.llm', 'backstory.llm.plugin']"
