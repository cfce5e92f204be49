"""The door: what an agent is given to read."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply
from memories import read

from backstory import Backstory, MemoryHandle
from backstory.ledger.concurrency.background_load import BackgroundLoad
from backstory.ledger.core.errors import InputError, UsageError
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.context.counting import ESTIMATE, load_vocabulary

PATIENCE = 20.0


@pytest.fixture
def home(tmp_path: Path):
    with open_home(tmp_path) as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    return home.memory("ada")


def learn(memory: MemoryHandle, *facts: str) -> None:
    memory.record("t1", exchange(facts[0], memory.status().turns))
    memory.extract([RecordedReply("t1", reply(*facts))])


def shown(memory: MemoryHandle, *args: object, **more: object) -> list[str]:
    context = memory.context(*args, **more)  # type: ignore[arg-type]
    parts = [read(part) for part in (context.standing, context.found) if part]
    return [bullet.partition("] ")[2] for part in parts for name in part if "Facts" in name for bullet in part[name]]


def test_what_was_learned_is_in_the_block_and_why_answers_for_it(memory: MemoryHandle) -> None:
    learn(memory, "User likes tea", "User writes Rust")
    context = memory.context()
    assert shown(memory) == ["User likes tea", "User writes Rust"]
    assert [memory.why(fact_id).live for fact_id in context.facts] == [True, True]
    assert (context.left_out, context.max_tokens) == (0, 2000)
    assert context.tokens > 0


def test_a_memory_without_anything_gives_nothing(memory: MemoryHandle) -> None:
    context = memory.context([{"role": "user", "content": "hello"}])
    assert (context.text, context.tokens, context.facts) == ("", 0, ())


TOWNS = [f"User has visited town number {i}" for i in range(60)]
FULL = 200
"""Tokens that these facts do not fit into."""


def test_facts_like_what_was_said_last_are_found(memory: MemoryHandle) -> None:
    memory.add_fact("User plays the violin", confidence=0.7)
    memory.add_fact("用户喜欢喝咖啡", confidence=0.7)
    learn(memory, *TOWNS)
    assert shown(memory, "Which violin should I buy?", FULL)[-1] == "User plays the violin"
    assert shown(memory, [{"role": "user", "content": "喝什么咖啡好？"}], FULL)[-1] == "用户喜欢喝咖啡"
    talk = [*exchange("violin"), *(message for topic in ("a", "b", "c") for message in exchange(topic))]
    assert "User plays the violin" not in shown(memory, talk, FULL)
    first = memory.context("violin", 35)
    assert (shown(memory, "violin", 35), first.left_out, first.standing) == (["User plays the violin"], 61, "")


def test_max_context_turns_says_how_far_back_that_goes(tmp_path: Path) -> None:
    with open_home(tmp_path, max_context_turns=4) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("User plays the violin", confidence=0.7)
        learn(memory, *TOWNS)
        talk = [*exchange("violin"), *(message for topic in ("a", "b", "c") for message in exchange(topic))]
        assert "User plays the violin" in shown(memory, talk, FULL)


def test_the_weights_are_those_configured(tmp_path: Path) -> None:
    with open_home(tmp_path, similarity_weight=0, confidence_weight=1, context_found_share=1) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("User plays the violin", confidence=0.8)
        memory.add_fact("User wants a good violin and " + "word " * 80, confidence=0.7)
        memory.add_fact("User likes tea from a violin", confidence=0.9)
        assert shown(memory, "plays violin", 60) == ["User likes tea from a violin", "User plays the violin"]


def test_the_share_of_what_is_found_is_that_configured(tmp_path: Path) -> None:
    sizes = []
    for share in (0.1, 0.8):
        with open_home(tmp_path / str(share), context_found_share=share) as bs:
            memory = bs.memory(scope="global")
            learn(memory, *TOWNS)
            sizes.append(len(memory.context("the town", FULL).standing))
    assert sizes[0] > 3 * sizes[1] > 0


def test_while_memory_is_the_same_what_stands_is_the_same_to_the_byte(memory: MemoryHandle) -> None:
    learn(memory, *TOWNS)
    asked = [*TOWNS[:20], "Hi", "", [{"role": "user", "content": "violin"}], None]
    for most in (FULL, 5_000):
        assert len({memory.context(question, most).standing for question in asked}) == 1
        # Facts that were used lately rank no higher.
        assert memory.context(None, most).standing == memory.context("town number 1", most, thread="t1").standing


def test_what_is_learned_comes_to_the_end_of_what_stands(memory: MemoryHandle) -> None:
    learn(memory, "User likes tea", "User writes Rust")
    before = memory.context("tea").standing
    memory.add_fact("User plays chess", confidence=1)
    after = memory.context("tea").standing
    assert after.startswith(before.removesuffix("</memory>"))


def test_the_block_is_as_long_as_configured_or_as_asked_for(tmp_path: Path) -> None:
    with open_home(tmp_path, max_injection_tokens=100) as bs:
        memory = bs.memory(scope="global")
        learn(memory, *(f"User has visited town number {i}, and liked it" for i in range(30)))
        context = memory.context()
        assert context.max_tokens == 100
        assert context.tokens <= 100
        assert 0 < len(context.facts) < 30
        assert context.left_out == 30 - len(context.facts)
        assert len(memory.context(max_tokens=5000).facts) == 30
        assert memory.context(max_tokens=1).text == ""


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "200"])
def test_a_length_that_is_none_is_wrong_use(memory: MemoryHandle, wrong: object) -> None:
    with pytest.raises(UsageError, match="whole number of tokens"):
        memory.context(max_tokens=wrong)  # type: ignore[arg-type]


def test_guaranteed_categories_are_those_configured(tmp_path: Path) -> None:
    with open_home(tmp_path, guaranteed_categories=["goal"], guaranteed_token_budget=50) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("User likes tea", confidence=1)
        memory.add_fact("Never use pip", category="correction", confidence=0.8)
        for number in range(4):
            memory.add_fact(f"User wants to visit many more towns than {number}", category="goal", confidence=0.7)
        assert [words for words in shown(memory, "Hi", 60) if words.startswith("User wants")] == shown(memory, "Hi", 60)
        assert shown(memory)[:2] == ["User likes tea", "Never use pip"]


@pytest.mark.parametrize("switch", ["injection_enabled", "enabled"])
def test_where_it_is_switched_off_nothing_is_injected(tmp_path: Path, switch: str) -> None:
    with open_home(tmp_path) as bs:
        bs.memory(scope="global").add_fact("User likes tea")
    with open_home(tmp_path, **{switch: False}) as bs:
        context = bs.memory(scope="global").context("tea")
        assert (context.text, context.tokens, context.facts) == ("", 0, ())
        with pytest.raises(UsageError):
            bs.memory(scope="global").context(max_tokens=0)


def test_a_message_that_cannot_be_read_is_told(memory: MemoryHandle) -> None:
    with pytest.raises(InputError):
        memory.context([{"role": "wizard", "content": "x"}])


@pytest.mark.parametrize("on", [True, False])
def test_a_closed_home_says_so(tmp_path: Path, on: bool) -> None:
    with open_home(tmp_path, injection_enabled=on) as bs:
        memory = bs.memory(scope="global")
    with pytest.raises(UsageError, match="was closed"):
        memory.context()
    with pytest.raises(UsageError, match="was closed"):
        bs.warm()


def test_what_changes_is_in_the_next_block(tmp_path: Path, memory: MemoryHandle) -> None:
    added = memory.add_fact("User likes tea")
    assert shown(memory) == ["User likes tea"]
    memory.edit_fact(added.fact.id, "User likes coffee")
    assert shown(memory) == ["User likes coffee"]
    with open_home(tmp_path) as other:
        other.memory("ada").add_fact("User plays chess")
        assert "User plays chess" in shown(memory)
        other.memory("ada").forget(matching="coffee")
    assert shown(memory, "coffee") == ["User plays chess"]
    memory.clear()
    assert memory.context().text == ""


def test_what_was_forgotten_is_not_kept_ready(home: Backstory, memory: MemoryHandle) -> None:
    memory.add_fact("User likes tea")
    memory.context("tea")
    blocks = memory._services.state.blocks
    assert blocks._prepared is not None
    memory.forget(matching="tea")
    assert blocks._prepared is None


def test_few_scopes_are_kept_ready(home: Backstory) -> None:
    for number in range(40):
        home.memory(f"user{number}").add_fact("likes tea")
        assert home.memory(f"user{number}").context().facts
    assert sum("blocks" in vars(state) for state in home._services.states.living()) == 32


def test_facts_used_are_warm_and_within_a_minute_only_once(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as bs:
        memory = bs.memory(scope="global")
        tea = memory.add_fact("User likes tea").fact.id

        def heat() -> float:
            return bs._services.states(memory.scope).use.facts()[tea].heat

        memory.context()
        assert heat() == pytest.approx(1)
        clock.advance(30)
        rust = memory.add_fact("User writes Rust").fact.id
        memory.context()
        assert heat() == pytest.approx(1)
        assert bs._services.states(memory.scope).use.facts()[rust].heat == pytest.approx(1)
        clock.advance(31)
        memory.context()
        assert heat() == pytest.approx(2, abs=0.01)
        assert bs._services.states(memory.scope).use.facts()[rust].heat == pytest.approx(1)


def test_a_fact_that_is_left_out_is_not_warm(memory: MemoryHandle, home: Backstory) -> None:
    memory.add_fact("word " * 100)
    memory.context(max_tokens=50)
    assert home._services.states(memory.scope).use.facts() == {}


def test_the_first_block_of_a_process_is_counted_exactly(home: Backstory, memory, bare: Path) -> None:
    home._services.states.blocks.tokens = BackgroundLoad("it", ESTIMATE, lambda: load_vocabulary("gpt-5"))
    memory.add_fact("User likes tea")
    first = memory.context()
    assert first.counter == "bpe-openai:o200k_base"
    assert first.tokens == load_vocabulary("gpt-5").count(first.text)
    assert memory.context() == first


def test_counting_by_characters_is_the_estimate_for_good(tmp_path: Path) -> None:
    with open_home(tmp_path, token_counting="char") as bs:  # noqa: S106 not that kind of token
        bs.memory(scope="global").add_fact("User likes tea")
        assert bs.warm(PATIENCE) == "estimate"
        context = bs.memory(scope="global").context()
        assert (context.counter, context.tokens) == ("estimate", ESTIMATE.count(context.text))


def test_the_vocabulary_is_that_of_the_configured_model(tmp_path: Path, bare: Path) -> None:
    model = ScriptedModel()
    model.name = "gpt-3.5-turbo"
    with open_home(tmp_path / "a", model) as bs:
        assert bs.warm(PATIENCE) == "bpe-openai:cl100k_base"
    with open_home(tmp_path / "b", model_name="gpt-4-0613") as bs:
        assert bs.warm(PATIENCE) == "bpe-openai:cl100k_base"
    with open_home(tmp_path / "c", model_name="a-model-of-our-own") as bs:
        assert bs.warm(PATIENCE) == "bpe-openai:o200k_base"


def test_the_async_twin_gives_the_same(memory: MemoryHandle) -> None:
    memory.add_fact("User likes tea")
    assert asyncio.run(memory.acontext("tea", 500, thread="t1")) == memory.context("tea", 500, thread="t1")


def test_a_conversations_summaries_come_along_where_it_is_named(tmp_path: Path) -> None:
    asked = ScriptedModel(reply("User likes tea"), {"summary": "They talked of many drinks."})
    with open_home(tmp_path, asked, summary_min_turns=4) as bs:
        memory = bs.memory(scope="global")
        memory.record("t1", [message for i in range(3) for message in exchange(f"drink {i}", i)])
        memory.extract()
        context = memory.context(thread="t1")
        (line,) = read(context.text)["Conversation so far"]
        assert line.endswith("] They talked of many drinks.")
        assert context.summaries == 1
        assert memory.context().summaries == memory.context(thread="elsewhere").summaries == 0


def test_a_block_is_json_like_everything_else(memory: MemoryHandle) -> None:
    memory.add_fact("User likes tea")
    told = msgspec.to_builtins(memory.context())
    assert {"text", "tokens", "counter", "facts"} <= set(told)


def test_no_heavy_library_is_loaded_for_it() -> None:
    import subprocess
    import sys

    code = (
        "import sys, tempfile\n"
        "from backstory import Backstory\n"
        "with Backstory.open(tempfile.mkdtemp(), background=False) as bs:\n"
        "    bs._services.states.blocks.tokens.wait = lambda: bs._services.states.blocks.tokens.value\n"
        "    bs.memory(scope='global').add_fact('likes tea')\n"
        "    bs.memory(scope='global').context('tea')\n"
        "print([name for name in ('numpy', 'tiktoken', 'faiss', 'openai', 'bpe_openai') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


def test_nobody_has_to_ask_for_the_load(memory: MemoryHandle, home: Backstory) -> None:
    loaded = threading.Event()
    home._services.states.blocks.tokens = BackgroundLoad("it", ESTIMATE, lambda: loaded.set() or ESTIMATE)
    memory.add_fact("User likes tea")
    assert memory.context().facts
    assert loaded.wait(PATIENCE)


def test_an_empty_block_has_nothing_loaded(memory: MemoryHandle, home: Backstory, monkeypatch) -> None:
    monkeypatch.setattr(home._services.states.blocks.tokens, "wait", lambda: 1 / 0)
    assert memory.context("tea").text == ""


def test_to_warm_up_waits_no_longer_than_it_is_told(home: Backstory) -> None:
    gate = threading.Event()
    home._services.states.blocks.tokens = BackgroundLoad("it", ESTIMATE, lambda: gate.wait(PATIENCE) and ESTIMATE)
    assert home.warm(0.01) == "estimate"
    gate.set()
