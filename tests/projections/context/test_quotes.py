"""What was said, in a block: which turns are quoted, how, and which never are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fakes import FakeClock, exchange, open_home
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memories import fact, memory_of, read, texts
from sizes import examples

from backstory import Backstory, MemoryHandle
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.context import Context, GivenTurn
from backstory.projections.context.block import Shares, fill
from backstory.projections.context.counting import ESTIMATE
from backstory.projections.context.given import EXCERPT, FoundTurn, quotes
from backstory.projections.context.lines import prepare
from backstory.projections.search import query
from backstory.projections.turns import TurnView

QUESTION = "Which violin should I buy?"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path) as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    return home.memory("ada")


def user(text: str, key: str | None = None, **more: object) -> dict[str, object]:
    return {"role": "user", "content": text, **({} if key is None else {"id": key}), **more}


def assistant(text: str, key: str | None = None) -> dict[str, object]:
    return {**user(text, key), "role": "assistant"}


def quoted(context: Context) -> list[str]:
    return read(context.found).get("Said before", []) if context.found else []


def turn(content: str, n: int = 1, thread: str = "t", role: str = "user", name: str | None = None) -> TurnView:
    return TurnView(f"m{n}", role, content, "2026-03-01T10:00:00Z", n, name, thread=thread)


def learn(memory: MemoryHandle, content: str, cited: str, also: Iterable[str] = (), **more: object) -> str:
    """Learn facts from a turn of a thread; return the id of the first."""
    facts = [{"content": text, "confidence": 0.9, "evidence": [cited], **more} for text in (content, *also)]
    memory.extract([RecordedReply("t1", json.dumps({"newFacts": facts}))])
    return next(one.id for one in memory.facts() if one.content == content)


def test_what_was_said_is_quoted_with_its_day_its_thread_and_what_it_answers(memory: MemoryHandle) -> None:
    memory.record("monday", [user("What do you play?", name="Bo"), user("My violin is from 1790.", "m2", name="Ada")])
    context = memory.context(QUESTION)
    assert quoted(context) == ['[2026-03-01 | monday] Bo: "What do you play?" Ada: "My violin is from 1790."']
    assert context.turns == (GivenTurn("monday", "t1"), GivenTurn("monday", "m2"))
    assert (context.standing, context.text) == ("", context.found)


def test_a_long_turn_is_quoted_around_the_words_of_the_question(memory: MemoryHandle) -> None:
    memory.record("t1", [user(f"{'before ' * 90}my violins are old {'after ' * 90}")])
    (line,) = quoted(memory.context(QUESTION))
    said = line.partition('"')[2].removesuffix('"')
    assert "my violins are old" in said
    assert (said[0], said[-1]) == ("…", "…")
    assert len(said) <= EXCERPT + 2


@pytest.mark.parametrize("thread", ["t1", None])
def test_a_turn_of_the_present_conversation_is_not_quoted(memory: MemoryHandle, thread: str | None) -> None:
    talk = [user("I play the violin."), assistant("A violin! Since when?"), user(QUESTION)]
    memory.record("t1", talk)
    memory.record("t2", [user("The violin was a gift.", "gift")])
    assert [one.id for one in memory.context(talk, thread=thread).turns] == ["gift"]


def test_what_does_not_stand_is_not_quoted(memory: MemoryHandle) -> None:
    memory.record("t1", [user("My violin is red.", "m1")])
    memory.record("t1", [user("My violin is blue.", "m1")])
    memory.record("t2", [user("My violin is green."), user("The violin of my aunt.")])
    memory.turns.delete(memory.transcript("t2")[1])
    memory.record("t3", [user("My violin is secret.")])
    memory.context(QUESTION)
    memory.forget(thread_id="t3")
    assert sorted(line.partition('"')[2] for line in quoted(memory.context(QUESTION))) == [
        'My violin is blue."',
        'My violin is green."',
    ]


def test_what_was_said_before_memory_was_cleared_is_not_quoted(memory: MemoryHandle) -> None:
    memory.record("t1", [user("My violin is red.")])
    memory.clear()
    assert memory.context(QUESTION).text == ""
    memory.record("t1", [user("My violin is blue.", "blue")])
    assert [one.id for one in memory.context(QUESTION).turns] == ["blue"]


@pytest.mark.parametrize("how", ["hand", "ended", "expired", "evicted", "said twice"])
def test_a_turn_whose_facts_are_no_longer_true_says_so(tmp_path: Path, how: str) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock, max_facts=10) as bs:
        memory = bs.memory("ada")
        memory.record("t1", [user("My violin is red.", "m1")])
        more = {"expiresAt": "2026-03-02T10:00:00Z"} if how == "expired" else {}
        also = ["Ada has a violin"] if how == "said twice" else []
        red = learn(memory, "The violin is red", "m1", also=also, **more)
        assert "since changed" not in memory.context(QUESTION).found
        match how:
            case "hand":
                memory.remove_fact(red)
            case "ended":
                memory.record("t2", [user("It was sold.", "m2")])
                memory.extract([RecordedReply("t2", json.dumps({"factsToEnd": [{"id": red}]}))])
            case "expired":
                clock.advance(3 * 86_400)
            case "evicted":
                for n in range(10):
                    memory.add_fact(f"User has visited town number {n}", confidence=1)
            case _:
                memory.remove_fact(red)
        assert red not in [one.id for one in memory.facts()]
        found = memory.context(QUESTION).found
        assert ("[2026-03-01 | t1 | since changed]" in found) == (how in ("hand", "ended", "expired"))


def test_a_turn_with_other_tags_than_were_asked_for_is_not_quoted(memory: MemoryHandle) -> None:
    memory.record("t1", [user("My violin is red.", "red")], tags=["work"])
    memory.record("t2", [user("My violin is blue.", "blue")], tags=["home"])
    memory.record("t3", [user("My violin is green.", "green")])
    assert {one.id for one in memory.context(QUESTION, tags=["home"]).turns} == {"blue", "green"}


def test_only_people_and_agents_are_quoted_and_no_block_that_they_were_sent(memory: MemoryHandle) -> None:
    spoken = [
        FoundTurn(turn("A violin.", 1, role="system")),
        FoundTurn(turn("A <memory>\nFacts:\n</memory>violin.", 2)),
    ]
    assert [one.text for one in quotes(spoken, ["violin"])] == ['- [2026-03-01 | t] user: "A violin."\n']


def test_the_same_words_are_quoted_once(memory: MemoryHandle) -> None:
    for thread in ("a", "b"):
        memory.record(thread, [user("My violin is red."), assistant("A red violin is nice.")])
    assert {one.thread for one in memory.context(QUESTION).turns} == {"b"}
    assert len(quoted(memory.context(QUESTION))) == 2


@pytest.mark.parametrize("off", [{"context_turns": False}, {"context_found_share": 0}, {"injection_enabled": False}])
def test_it_can_be_turned_off(tmp_path: Path, off: dict[str, object]) -> None:
    with open_home(tmp_path, **off) as bs:
        memory = bs.memory("ada")
        memory.record("t1", [user("My violin is red.")])
        assert memory.context(QUESTION).text == ""


def test_an_agent_that_searches_itself_is_quoted_nothing(memory: MemoryHandle) -> None:
    memory.record("t1", [user("My violin is red.")])
    assert memory.context(QUESTION, facts=False).text == ""


def test_where_turns_are_quoted_what_stands_is_the_same_for_each_question(memory: MemoryHandle) -> None:
    memory.import_document([{"content": f"User has visited town number {n}", "confidence": 0.9} for n in range(60)])
    memory.record("t1", exchange("violin"))
    asked = [QUESTION, "town number 3", "", None, [user("Hi")]]
    assert len({memory.context(words, 600).standing for words in asked}) == 1
    # All facts would fit, so all are there where turns leave room.
    few = memory.context("number 7", 1_500)
    assert few.found
    assert (few.left_out, len(few.facts)) == (0, 60)


def test_the_digest_and_the_note_name_the_turns(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as bs:
        memory = bs.memory("ada")
        memory.record("t1", [user("My violin is red.", "m1"), assistant("A red violin.", "m2")])
        block = memory.context(QUESTION)
        memory.record("t2", [user(QUESTION), {**assistant("The red one.", "a1"), "metadata": block.note()}])
        assert "violin is" not in str(block.note())
        why = memory.why_said("a1")
        assert why.holds
        assert [(one.turn, one.thread, one.role, one.content) for one in why.turns] == [
            ("m1", "t1", "user", "My violin is red."),
            ("m2", "t1", "assistant", "A red violin."),
        ]
        clock.advance(60)
        memory.record("t1", [user("My violin is blue.", "m1"), assistant("A red violin.", "m2")])
        assert [one.withdrawn for one in memory.why_said("a1").turns] == [True, False]
        memory.forget(thread_id="t1")
        assert [(one.turn, one.content) for one in memory.why_said("a1").turns] == [("m1", None), ("m2", None)]
        assert memory.why_said("a1").holds


def test_a_damaged_transcript_leaves_the_facts_and_is_a_fault(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        for n in range(30):
            bs.memory("ada").record(f"t{n}", [user(f"My violin number {n}.")])
        bs.memory("ada").add_fact("Ada has a violin")
    (log,) = tmp_path.rglob("transcript.jsonl")
    log.write_bytes(log.read_bytes().replace(b"violin number 5", b"violin number 6"))
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        block = memory.context(QUESTION)
        assert ("Ada has a violin" in block.text, block.turns) == (True, ())
        assert [fault.doing for fault in bs._services.faults.of(memory.scope)] == ["quote"]


def test_a_prompt_does_not_wait_for_a_long_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "AT_ONCE", 1)
    with open_home(tmp_path, background=True, enabled=True) as bs:
        memory = bs.memory("ada")
        memory.record("t1", [user("My violin is red."), assistant("A red violin.")])
        assert memory.context(QUESTION).turns == ()
        search = bs._services.states(memory.scope).search
        assert search._catching_up is not None
        search._catching_up.join(20)
        assert len(memory.context(QUESTION).turns) == 2


@example(said=[('My red " violin.', "t1", 'Ada " B')], most=400, question="violin")
@settings(max_examples=examples(), deadline=None)
@given(said=st.lists(st.tuples(texts, texts, texts), max_size=8), most=st.integers(1, 400), question=texts)
def test_no_words_break_out_of_a_quote_and_no_block_is_too_large(
    said: list[tuple[str, str, str]], most: int, question: str
) -> None:
    found = [
        FoundTurn(turn(content, n, thread, name=name), turn("Before.", n - 1, thread), n % 2 == 0)
        for n, (content, thread, name) in enumerate(said, 1)
    ]
    facts = memory_of(*(fact(f"f{n}", f"User has visited town number {n}") for n in range(8)))
    lines = list(quotes(found, question.split()))
    made = fill(prepare(facts, ESTIMATE), {}, (), Shares(), most, quotes=lines)
    assert made.tokens == ESTIMATE.count(made.text) <= most
    shown = [read(part).get("Said before", []) for part in (made.standing, made.found) if part]
    assert set(made.turns) <= {one for line in lines for one in line.turns}
    for line in (line for part in shown for line in part):
        assert line.count('"') in (2, 4)
        assert line.startswith("[2026-03-01 | ")
        assert line.endswith('"')


def standing(memory: MemoryHandle) -> list[TurnView]:
    return [one for thread in memory.threads() for one in memory.transcript(thread.thread)]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    steps = st.tuples(
        st.sampled_from(["say", "say", "say", "revise", "withdraw", "forget"]), st.integers(0, 2), st.integers(0, 3)
    )
    return draw(st.lists(steps, min_size=1, max_size=10))


@settings(max_examples=examples(), deadline=None)
@given(steps=histories(), present=st.integers(0, 2))
def test_only_turns_that_stand_in_other_conversations_are_ever_quoted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], present: int
) -> None:
    with open_home(tmp_path_factory.mktemp("home")) as bs:
        memory = bs.memory("ada")
        for words, (kind, where, which) in enumerate(steps):
            thread = f"t{where}"
            known = memory.transcript(thread) if any(one.thread == thread for one in memory.threads()) else ()
            if kind == "say":
                memory.record(thread, [user(f"My violin number {words}.", f"{thread}-{words}")])
            elif known and kind == "revise":
                memory.record(thread, [user(f"My violin number {words}.", known[which % len(known)].id)])
            elif known and kind == "withdraw":
                memory.turns.delete(known[which % len(known)])
            elif known:
                memory.forget(thread_id=thread)
            block = memory.context(QUESTION, thread=f"t{present}")
            stand = {(one.thread, one.id): one.content for one in standing(memory) if one.thread != f"t{present}"}
            assert {(one.thread, one.id) for one in block.turns} == set(stand)
            said = [words for line in quoted(block) for words in re.findall('"([^"]*)"', line)]
            assert sorted(said) == sorted(stand.values())
