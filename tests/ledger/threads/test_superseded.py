"""Superseded turns: what was superseded is told, shown with its reason, and can be brought back."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock, ScriptedModel, open_home, reply
from hypothesis import given
from hypothesis import strategies as st
from one_thread import Conversation, chat, says

from backstory import Backstory
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.turn_dedup import Arrival
from backstory.ledger.threads.transcript import Thread
from backstory.lifecycle.maintenance import doctor
from backstory.memory import MemoryHandle
from backstory.projections.turns.superseded import superseded_turns

TALK = [
    {"role": "user", "content": "I live in Oslo with Bo"},
    {"role": "assistant", "content": "Oslo is a fine place to live"},
    {"role": "user", "content": "What is the capital of Norway?"},
    {"role": "assistant", "content": "It is Bergen, as you know"},
]
BETTER = {"role": "assistant", "content": "It is Oslo, where you live"}


@pytest.fixture
def bs(tmp_path: Path) -> Backstory:
    with open_home(tmp_path / "home") as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada")


def standing(memory: MemoryHandle, thread: str = "t") -> list[str]:
    return [turn.content for turn in memory.transcript(thread)]


def test_an_edit_is_told_and_can_be_taken_back(memory: MemoryHandle) -> None:
    memory.record("t", TALK)
    assert memory.record("t", [*TALK[:3], BETTER]).superseded == 1
    (gone,) = memory.superseded("t")
    assert (gone.id, gone.n, gone.content, gone.reason, gone.proven) == ("t4", 4, TALK[3]["content"], "edited", True)
    assert memory.restore("t").restored == ()
    assert [turn.n for turn in memory.restore("t", ["t4"]).restored] == [4]
    assert standing(memory) == [*(message["content"] for message in TALK), BETTER["content"]]
    assert memory.superseded("t") == ()
    assert memory.turns.count() == 5
    assert memory.verify().ok


def test_each_reason_is_told(memory: MemoryHandle) -> None:
    memory.record("t", [{"role": "user", "content": "I like tea", "id": "a"}, *TALK[:2]])
    assert memory.record("t", [{"role": "user", "content": "I like gin", "id": "a"}]).superseded == 1
    memory.turns.delete({"role": "user", "content": TALK[0]["content"]})
    assert memory.record("t", TALK[2:], mode="replace").superseded == 2
    assert [(turn.content, turn.reason) for turn in memory.superseded("t")] == [
        ("I like tea", "revised"),
        (TALK[0]["content"], "withdrawn"),
        (TALK[1]["content"], "replaced"),
        ("I like gin", "replaced"),
    ]


def test_a_turn_under_whose_id_a_later_text_stands_is_not_restored(memory: MemoryHandle) -> None:
    for text in ("I like tea", "I like gin"):
        memory.record("t", [{"role": "user", "content": text, "id": "a"}])
    assert memory.superseded("t") == ()
    with pytest.raises(NotFoundError, match=r"1: not among the superseded turns"):
        memory.restore("t", [1])
    memory.turns.delete({"role": "user", "content": "I like gin", "id": "a"})
    assert [turn.n for turn in memory.restore("t", [1]).restored] == [1]
    assert memory.record("t", [{"role": "user", "content": "I like tea", "id": "a"}]).turns == 0


@pytest.mark.parametrize("name", ["t9", "t1", "nothing", 7])
def test_nothing_is_restored_where_one_name_is_wrong(memory: MemoryHandle, name: str | int) -> None:
    memory.record("t", TALK)
    memory.record("t", TALK[:2], mode="replace")
    with pytest.raises(NotFoundError, match="nothing was restored"):
        memory.restore("t", ["t3", name])
    assert len(standing(memory)) == 2
    with pytest.raises(NotFoundError):
        memory.restore("unknown")


def test_what_was_erased_is_not_restored(memory: MemoryHandle) -> None:
    memory.record("t", TALK)
    memory.record("t", TALK[:2], mode="replace")
    memory.forget(matching="Bergen")
    assert [turn.id for turn in memory.superseded("t")] == ["t3"]
    memory.restore("t", ["t3"])
    assert standing(memory) == [message["content"] for message in TALK[:3]]
    assert memory.verify().ok


def test_a_restored_turn_is_learned_from_though_its_place_was_covered(tmp_path: Path) -> None:
    model = ScriptedModel(*[reply("nothing")] * 3)
    with open_home(tmp_path, model=model) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.record(
            "t", [*TALK[:2], *chat_of("And what is the capital of Sweden?", "Stockholm, of course")], mode="replace"
        )
        assert memory.extract().updates == 1
        assert memory.status().pending == ()
        memory.restore("t", [3, 4])
        assert [(thread.thread, thread.turns) for thread in memory.status().pending] == [("t", 2)]
        assert memory.extract().updates == 1
        assert "What is the capital of Norway?" in str(model.prompts[-1])
        assert memory.status().pending == ()
    with open_home(tmp_path, model=model) as bs:
        assert bs.memory("ada").status().pending == ()
        assert bs.memory("ada").verify().ok


def test_a_turn_that_is_restored_while_a_model_answers_is_learned_from_later(tmp_path: Path) -> None:
    def answer(_: Prompt) -> str:
        if memory.superseded("t"):
            memory.restore("t", [3])
        return reply("nothing")

    model = ScriptedModel(answer, repeat=True)
    with open_home(tmp_path, model=model) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.turns.delete(TALK[2])
        memory.extract()
        assert standing(memory)[2] == TALK[2]["content"]
        assert memory.status().pending != ()
        memory.extract()
        assert str(TALK[2]["content"]) in str(model.prompts[-1])
        assert memory.status().pending == ()
        assert memory.verify().ok


def test_nothing_is_learned_from_turns_that_are_taken_back_while_a_model_answers(tmp_path: Path) -> None:
    def answer(_: Prompt) -> str:
        if len(model.prompts) > 1:
            return reply("nothing")
        memory.turns.delete(TALK[2])
        return reply("asks about Norway")

    model = ScriptedModel(answer, repeat=True)
    with open_home(tmp_path, model=model) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.extract()
        assert memory.facts() == ()
        assert [turns.thread for turns in memory.status().pending] == ["t"]
        memory.extract()
        assert len(model.prompts) == 2
        assert "capital of Norway" not in str(model.prompts[-1])
        assert memory.status().pending == ()
        assert memory.verify().ok


def chat_of(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def test_who_looks_at_turns_sees_a_restored_one_in_its_place(memory: MemoryHandle) -> None:
    def found() -> bool:
        return TALK[3]["content"] in [hit.content for hit in memory.search("Bergen", within="turns")]

    memory.record("t", TALK)
    assert found()
    memory.record("t", TALK[:2], mode="replace")
    assert not found()
    memory.record("t", chat_of("And Denmark?", "Copenhagen"))
    memory.restore("t", [3, 4])
    assert found()
    told = [turn.content for turn in memory.turns.get()]
    assert told == standing(memory) == [*(message["content"] for message in TALK), "And Denmark?", "Copenhagen"]


def test_another_process_sees_it(tmp_path: Path) -> None:
    with open_home(tmp_path) as one, open_home(tmp_path) as other:
        one.memory("ada").record("t", TALK)
        other.memory("ada").record("t", TALK[:2], mode="replace")
        assert len(one.memory("ada").turns.get()) == 2
        other.memory("ada").restore("t", [3, 4])
        assert len(one.memory("ada").turns.get()) == 4
        assert len(standing(one.memory("ada"))) == 4


@given(st.lists(st.tuples(st.sampled_from(["say", "replace", "withdraw", "restore"]), st.integers(0, 9)), max_size=15))
def test_restoring_undoes_a_withdrawal_and_a_replacement(steps: list[tuple[str, int]]) -> None:
    """What stands, and what may be restored, are all that was said, in order; restored is what was asked for."""
    conversation = Conversation()
    conversation.send(*chat("I live in Oslo", "Noted"))
    for number, (step, n) in enumerate(steps):
        thread = conversation.thread
        ordinals = range(1, len(thread.turns) + 1)
        match step:
            case "say":
                conversation.send(says(f"this is number {number}"), mode="append")
            case "replace":
                conversation.send(*map(says, conversation.standing[: n % 3]), mode="replace")
            case "withdraw":
                conversation.withdraw(n % len(ordinals) + 1)
            case "restore":
                before = {turn.n for turn in thread.standing()}
                wanted = [m for m in ordinals if thread.may_be_restored(m)][: n + 1]
                conversation.restore(*wanted)
                assert {turn.n for turn in thread.standing()} == before | set(wanted)
        assert {turn.n for turn in thread.standing()} | {
            m for m in range(1, len(thread.turns) + 1) if thread.may_be_restored(m)
        } == set(range(1, len(thread.turns) + 1))


# Threads that the old rule has cut


def cut_by_the_old_rule(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six turns of which a repeated greeting takes all but the first away, as versions before did."""
    from backstory.ledger.log import transcript_writer
    from backstory.ledger.threads.delivery import turn_dedup as arrival

    def old(thread: Thread, messages: list[Kept], at: str, **_: object) -> Arrival:
        turns = thread.standing()
        pairs = zip(turns, messages, strict=False)
        alike = next((n for n, (a, b) in enumerate(pairs) if a.content != b.content), len(turns))
        superseded = tuple(turn.n for turn in turns[alike:]) if alike else ()
        return arrival.Arrival(tuple(messages[alike:]), len(thread.turns) + 1, superseded, at)

    store = JsonlStore(home)
    mine = Writer(store, Scope("ada"), clock=FakeClock(), salts=CountingSalts())
    with monkeypatch.context() as patch:
        patch.setattr(transcript_writer, "align", old)
        for question, answer in (
            ("Hello", "Hi"),
            ("I moved to Bergen", "Noted."),
            ("I am allergic to penicillin", "I will remember."),
            ("Hello", "Welcome back, Ada!"),
        ):
            mine.record("t", chat(question, answer))


def test_doctor_names_a_thread_that_was_cut_and_restore_brings_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_by_the_old_rule(tmp_path, monkeypatch)
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert standing(memory) == ["Hello", "Welcome back, Ada!"]
        (check,) = [check for check in doctor(tmp_path) if check.check == "superseded turns"]
        assert not check.ok
        assert "5 turns of thread t of user ada" in check.hint
        assert "turns restore t" in check.hint
        assert [turn.proven for turn in memory.superseded("t")] == [False] * 5
        assert len(memory.restore("t").restored) == 5
        assert standing(memory) == [
            "Hello", "Hi", "I moved to Bergen", "Noted.", "I am allergic to penicillin", "I will remember.",
            "Welcome back, Ada!",
        ]  # fmt: skip
        assert memory.verify().ok
    assert [check for check in doctor(tmp_path) if check.check == "superseded turns"] == []


def test_doctor_has_nothing_to_say_of_edits_that_are_proven_or_asked_for(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.record("t", [*TALK[:3], BETTER])
        memory.record("t", TALK[:2], mode="replace")
        memory.turns.clear()
        assert len(memory.superseded("t")) == 5
    assert [check for check in doctor(tmp_path) if check.check == "superseded turns"] == []


def test_an_empty_transcript_has_no_superseded_turns() -> None:
    assert superseded_turns([]) == ()
