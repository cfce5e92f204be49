"""Forgetting through the Python door: what is gone, from where, and what is told of it."""

from __future__ import annotations

import asyncio
import json
import threading
import unicodedata
from pathlib import Path

import pytest
from fakes import PATIENCE, Gate, ScriptedModel, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.core.errors import (
    CorruptLogError,
    ModelRejectedError,
    NotFoundError,
    RefusedError,
    StoreError,
    UsageError,
)
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log import eraser
from backstory.ledger.log.eraser import Rereading
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle
from backstory.operations import learning
from backstory.results import Forgotten

REPLY = {
    "user": {"workContext": {"summary": "Zanzibar keeps her busy.", "shouldUpdate": True}},
    "newFacts": [
        {"content": "Plans a trip to Zanzibar", "confidence": 0.9, "evidence": ["u1"]},
        {"content": "Likes tea", "confidence": 0.9, "evidence": ["u1"]},
        {"content": "Zanzibar may be hot", "confidence": 0.1},
    ],
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bs(home: Path) -> Backstory:
    return open_home(home)


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    """A trip and tea from thread trip, running from thread run."""
    memory = bs.memory("ada")
    learn(memory, "trip", "I plan a trip to Zanzibar, with tea.", json.dumps(REPLY))
    learn(memory, "run", "I run.", json.dumps({"newFacts": [{"content": "Runs", "confidence": 0.9}]}))
    return memory


def learn(memory: MemoryHandle, thread: str, text: str, reply: str) -> None:
    memory.record(thread, [{"role": "user", "content": text, "id": "u1"}, {"role": "assistant", "content": "I see."}])
    memory.extract([RecordedReply(thread, reply)])


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def everything_below(folder: Path) -> str:
    found = [path.read_bytes().decode(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file()]
    return unicodedata.normalize("NFKC", "\n".join(found)).casefold()


def whats(told: Forgotten) -> list[tuple[str, int, str]]:
    return [(one.stream.rpartition("/")[2], one.seq, one.what) for one in told.redacted]


# What is gone.


def test_what_a_section_fell_back_to_stays_when_the_thread_is_forgotten_once_more(bs: Backstory) -> None:
    memory = bs.memory("ada")

    def tell(thread: str, words: str, **answer: object) -> None:
        memory.record(thread, exchange(words), mode="append")
        memory.extract([RecordedReply(thread, json.dumps(answer))])

    def mind(text: str) -> dict[str, object]:
        return {"topOfMind": {"summary": text, "shouldUpdate": True}}

    tell("run", "trains", user=mind("Builds trains."))
    tell("trip", "Malta", user=mind("Sails to Malta."))
    for words in ("Crete", "Corfu"):
        memory.forget(thread_id="trip")
        assert memory.document().user.top_of_mind.summary == "Builds trains."
        tell("trip", words, newFacts=[{"content": f"Sails to {words}", "confidence": 0.9}])
    assert memory.verify().ok


def test_forgetting_a_fact_leaves_its_words_in_no_byte_but_in_the_turns(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    memory.forget("fact_2_0")
    assert texts(memory) == ["Likes tea", "Runs"]
    assert memory.verify().ok
    bs.close()
    assert "plans a trip to zanzibar" not in everything_below(home)


def test_forgetting_a_fact_with_its_evidence_leaves_no_rare_word_anywhere(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    told = memory.forget("fact_2_0", with_evidence=True)
    assert whats(told) == [
        ("ledger", 2, "proposal"),
        ("ledger", 2, "section"),
        ("ledger", 2, "fact"),
        ("ledger", 2, "candidate"),
        ("transcript", 1, "turn"),
    ]
    assert memory.document().user.work_context.summary == ""
    assert memory.verify().ok
    bs.close()
    assert "zanzibar" not in everything_below(home)
    again = open_home(home).memory("ada")
    assert texts(again) == ["Likes tea", "Runs"]
    assert again.verify().ok


@pytest.mark.parametrize("text", ["zanzibar", "ＺＡＮＺＩＢＡＲ", "  to   Zanzibar"])
def test_forgetting_what_matches_leaves_it_in_no_byte(
    bs: Backstory, memory: MemoryHandle, home: Path, text: str
) -> None:
    memory.forget(matching=text)
    bs.close()
    assert "zanzibar" not in everything_below(home)


def test_forgetting_a_thread_takes_its_turns_and_what_was_learned_from_it(memory: MemoryHandle) -> None:
    told = memory.forget(thread_id="trip")
    assert [what for _, _, what in whats(told)].count("turn") == 2
    assert texts(memory) == ["Runs"]
    assert memory.transcript("trip") == ()
    assert memory.verify().ok


def test_forgetting_everything_of_a_user_takes_the_users_agents_along(bs: Backstory, home: Path) -> None:
    for agent in (None, "coder", "writer"):
        learn(bs.memory("ada", agent), "t", "I plan a trip to Zanzibar.", json.dumps(REPLY))
    learn(bs.memory("bob"), "t", "I like Rust.", json.dumps({"newFacts": [{"content": "Likes Rust"}]}))
    told = bs.memory("ada").forget(everything=True)
    assert {one.stream for one in told.redacted} == {
        f"users/ada{agent}/{stream}"
        for agent in ("", "/agents/coder", "/agents/writer")
        for stream in ("ledger", "transcript")
    }
    assert told.commit == 3
    bs.close()
    assert "zanzibar" not in everything_below(home)
    assert "likes rust" in everything_below(home)


def test_forgetting_everything_of_a_user_who_has_only_agents_takes_them(bs: Backstory) -> None:
    learn(bs.memory("ada", "coder"), "t", "I plan a trip to Zanzibar.", json.dumps(REPLY))
    told = bs.memory("ada").forget(everything=True)
    assert told.redacted
    assert told.commit is None
    with pytest.raises(NotFoundError):
        bs.memory("ada").forget(everything=True)


def test_forgetting_everything_of_an_agent_leaves_the_user_alone(bs: Backstory, memory: MemoryHandle) -> None:
    learn(bs.memory("ada", "coder"), "t", "I plan a trip to Zanzibar.", json.dumps(REPLY))
    bs.memory("ada", "coder").forget(everything=True)
    assert len(texts(memory)) == 3


def test_a_turn_that_was_erased_is_not_recorded_again(memory: MemoryHandle) -> None:
    memory.forget(thread_id="trip")
    said = [{"role": "user", "content": "I plan a trip to Zanzibar, with tea.", "id": "u1"}]
    assert memory.record("trip", said).turns == 0


def test_what_a_new_policy_puts_out_just_before_is_forgotten_too(
    bs: Backstory, memory: MemoryHandle, home: Path
) -> None:
    bs.close()
    stricter = open_home(home, fact_confidence_threshold=0.95)
    stricter.memory("ada").forget(matching="zanzibar")
    assert stricter.memory("ada").verify().ok
    stricter.close()
    assert "zanzibar" not in everything_below(home)


# What is told.


@pytest.mark.parametrize("named", [True, False])
def test_another_process_keeps_out_what_was_erased_meanwhile(home: Path, named: bool) -> None:
    words = [{"role": role, "content": f"{role} said xylophone"} for role in ("user", "assistant")]
    words = [{**word, "id": f"m{n}"} for n, word in enumerate(words)] if named else words
    one, other = open_home(home).memory("ada"), open_home(home).memory("ada")
    one.record("t", words)
    assert other.record("t", words).turns == 0
    one.forget(thread_id="t")
    for later in (other, open_home(home).memory("ada")):
        assert later.record("t", words).turns == 0
    assert other.transcript("t") == ()
    assert "xylophone" not in everything_below(home)


def test_a_dry_run_tells_what_would_go_and_writes_nothing(memory: MemoryHandle, home: Path) -> None:
    memory.flush()  # memory.json is written a moment behind
    before = everything_below(home)
    planned = memory.forget("fact_2_0", with_evidence=True, dry_run=True)
    assert planned.commit is None
    assert [(also.kind, also.id, also.content) for also in planned.also] == [("fact", "fact_2_1", "Likes tea")]
    assert everything_below(home) == before
    done = memory.forget("fact_2_0", with_evidence=True)
    assert (done.redacted, done.also) == (planned.redacted, planned.also)
    assert done.commit == 4


def test_the_redaction_says_who_and_names_the_fact(memory: MemoryHandle) -> None:
    memory.forget("fact_2_0")
    newest = memory.log(limit=1)[0]
    assert newest.cause.kind == "redaction"
    assert newest.cause.actor
    assert {event.fact for event in newest.events} >= {"fact_2_0"}  # type: ignore[union-attr]


def test_a_fact_that_is_gone_can_be_forgotten_by_its_whole_id_and_not_by_its_beginning(memory: MemoryHandle) -> None:
    memory.remove_fact("fact_3_0")
    with pytest.raises(NotFoundError):
        memory.forget("fact_3")
    told = memory.forget("fact_3_0")
    assert [what for _, seq, what in whats(told) if what == "fact"] == ["fact", "fact"]
    with pytest.raises(NotFoundError):
        memory.forget("fact_3_0")
    with pytest.raises(NotFoundError):
        memory.forget("fact_2")


def test_what_goes_names_the_fact_or_the_section_it_was_about(memory: MemoryHandle) -> None:
    memory.add_fact("Plans a trip to Zanzibar by ship")
    told = memory.forget("fact_2_0", dry_run=True)
    assert {(one.what, one.fact, one.section) for one in told.redacted} == {
        ("proposal", None, None),
        ("fact", "fact_2_0", None),
        ("fact", "fact_4_0", None),
    }
    sections = [one for one in memory.forget(matching="busy", dry_run=True).redacted if one.what == "section"]
    assert {(one.fact, one.section) for one in sections} == {(None, "user.workContext")}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"fact_id": "fact_2_0", "thread_id": "trip"},
        {"matching": "x", "everything": True},
        {"matching": ""},
        {"matching": " \u3000"},
        {"thread_id": "trip", "with_evidence": True},
    ],
)
def test_what_is_asked_must_be_one_thing(memory: MemoryHandle, asked: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        memory.forget(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [{"fact_id": "fact_9_9"}, {"thread_id": "t9"}, {"matching": "Timbuktu"}])
def test_what_is_not_there_is_not_found(memory: MemoryHandle, asked: dict[str, str]) -> None:
    with pytest.raises(NotFoundError):
        memory.forget(**asked)  # type: ignore[arg-type]


def test_the_async_twin_does_the_same(memory: MemoryHandle) -> None:
    told = asyncio.run(memory.aforget(matching="zanzibar", dry_run=True))
    assert told == memory.forget(matching="zanzibar", dry_run=True)


# What comes after.


def test_a_rollback_and_a_revert_say_what_was_erased_and_bring_none_of_it_back(memory: MemoryHandle) -> None:
    memory.forget("fact_2_0")
    back = memory.rollback(2, dry_run=True)
    assert ("erased", "fact_2_0") in [(note.kind, note.fact) for note in back.superseded]
    undone = memory.revert(2, dry_run=True)
    assert ("erased", "fact_2_0") in [(note.kind, note.fact) for note in undone.superseded]
    memory.rollback(2)
    assert texts(memory) == ["Likes tea"]
    assert memory.what_if().facts == 1


def test_an_answer_under_way_leaves_nothing_of_what_was_forgotten_meanwhile(home: Path) -> None:
    gate = Gate(json.dumps(REPLY))
    bs = open_home(home, ScriptedModel(gate))
    memory = bs.memory("ada")
    memory.record(
        "trip",
        [
            {"role": "user", "content": "I plan a trip to Zanzibar, with tea."},
            {"role": "assistant", "content": "Fine, tell me more."},
        ],
    )
    worker = threading.Thread(target=memory.extract)
    worker.start()
    assert gate.entered.wait(PATIENCE)
    memory.forget(matching="zanzibar")
    gate.opened.set()
    worker.join(PATIENCE)
    assert texts(memory) == []
    assert memory.status().pending == ()
    bs.close()
    assert "zanzibar" not in everything_below(home)


@pytest.mark.parametrize(
    ("fact", "section", "trace"),
    [
        ("用户的女儿叫张晓雨", "用户有个女儿张晓雨，八岁。", "张晓雨"),
        ("用户喜欢吃清蒸鲈鱼", "最近在学做清蒸鲈鱼。", "清蒸鲈鱼"),
        ("ユーザーの娘の名前は花子", "花子は八歳。", "花子"),
        ("사용자의 딸은 김서연이다", "김서연과 산책했다.", "김서연"),
        ("User has a dog named Gus", "Walked Gus in the park.", "gus"),
        ("User has HIV", "Coping with HIV.", "hiv"),
    ],
)
def test_a_name_goes_from_sections_and_refusals_however_short_it_is(
    bs: Backstory, home: Path, fact: str, section: str, trace: str
) -> None:
    memory = bs.memory("ada")
    answer = {
        "newFacts": [{"content": fact, "confidence": 0.9}, {"content": f"{section} 2", "confidence": 0.1}],
        "user": {"topOfMind": {"summary": section, "shouldUpdate": True}},
    }
    learn(memory, "t", fact, json.dumps(answer, ensure_ascii=False))
    learn(memory, "other", "I like tea.", json.dumps({"newFacts": [{"content": "Likes tea", "confidence": 0.9}]}))
    memory.forget(memory.facts()[0].id, with_evidence=True)
    assert trace not in everything_below(home)
    assert [kept.content for kept in memory.facts()] == ["Likes tea"]
    assert memory.verify().ok


@pytest.mark.parametrize(
    ("said", "asked"),
    [("a zero\u200bwidth word", "zerowidth"), ("a soft\u00adhyphen", "softhyphen"), ("in İstanbul", "istanbul")],
)
def test_what_nobody_sees_hides_nothing(bs: Backstory, said: str, asked: str) -> None:
    memory = bs.memory("ada")
    memory.add_fact(said)
    assert memory.forget(matching=asked).redacted != ()
    assert memory.facts() == ()


def test_where_a_copy_cannot_be_removed_nothing_is_promised(bs: Backstory, memory: MemoryHandle, home: Path) -> None:
    memory.flush()
    document = home / "users" / "ada" / "memory.json"
    document.unlink()
    (document / "in the way").mkdir(parents=True)
    before = memory.head()
    with pytest.raises(StoreError, match=r"memory\.json"):
        memory.forget(matching="zanzibar")
    assert memory.head() == before
    (document / "in the way").rmdir()
    document.rmdir()
    memory.forget(matching="zanzibar")
    assert "zanzibar" not in everything_below(home)


def test_the_log_says_what_was_erased(memory: MemoryHandle) -> None:
    memory.forget(thread_id="trip")
    told = {entry.seq: entry.summary for entry in memory.log()}
    assert "erased" in told[max(told)]
    assert "erased since" in told[2]


def test_nothing_is_written_through_a_link_that_lies_where_a_file_is_to_be_made(
    bs: Backstory, memory: MemoryHandle, home: Path, tmp_path: Path
) -> None:
    memory.flush()
    target = tmp_path / "target"
    target.write_text("mine")
    folder = home / "users" / "ada"
    for name in (".memory.json.new", ".ledger.erasing", ".transcript.erasing"):
        (folder / name).symlink_to(target)
    memory.add_fact("Walks")
    memory.flush()
    memory.forget(matching="zanzibar")
    assert target.read_text() == "mine"
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert memory.verify().ok


@pytest.mark.parametrize(
    "answer",
    [
        {"factsToRemove": ["Ada lives in Zanzibar"]},
        {"factsToRemove": [{"id": "Zanzibar", "reason": "x"}]},
        {"factsToReinforce": ["Ada lives in Zanzibar"]},
        {"staleFactsToRemove": ["Zanzibar"]},
        {"staleFactsToExtend": [{"id": "Ada lives in Zanzibar", "extendByDays": 3}]},
        {"factsToConsolidate": [{"sourceIds": ["Zanzibar", "x"], "consolidated": {"content": "Both"}}]},
        {"newFacts": [{"content": "Ada travels", "confidence": 0.9, "evidence": ["I like Zanzibar."]}]},
        {"newFacts": [{"content": "Ada travels", "confidence": 0.9, "scope": "zanzibar"}]},
        {
            "newFacts": [{"content": "Ada travels", "confidence": 0.9}],
            "factsToRemove": [{"id": "Zanzibar", "replacementFactIndex": 0, "scope": "task"}],
        },
    ],
)
def test_what_a_model_wrote_where_an_id_belongs_goes_with_the_text_it_says(tmp_path: Path, answer: object) -> None:
    with open_home(tmp_path, ScriptedModel(json.dumps(answer)), consolidation_enabled=True) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("Zanzibar"))
        memory.extract()
        memory.forget(matching="zanzibar")
        assert memory.verify().ok
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"zanzibar" in path.read_bytes().lower()]


def test_giving_up_a_failed_update_does_not_say_again_what_was_erased_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(tmp_path, ScriptedModel(ModelRejectedError("no xylophone"))) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        memory.extract()
        parked = learning._parked

        def read_and_forgotten(writer: Writer, thread: str | None) -> object:
            found = parked(writer, thread)
            if thread is not None:
                memory.forget(matching="xylophone")
            return found

        monkeypatch.setattr(learning, "_parked", read_and_forgotten)
        memory.discard("t")
        assert memory.verify().ok
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"xylophone" in path.read_bytes()]


@pytest.mark.parametrize("source", ["run", None])
def test_forgetting_a_thread_takes_what_a_tool_stored_and_edited_there(
    home: Path, memory: MemoryHandle, source: str | None
) -> None:
    here, there = (memory.by("agent:lead", thread, by_model=True) for thread in ("trip", source))
    here.add_fact("Speaks Swahili in Zanzibar")
    kept = there.add_fact("Plays the oud").fact.id
    edited = there.add_fact("Has a secret").fact.id
    here.edit_fact(edited, "Hides gold in Zanzibar")
    here.edit_fact(kept, confidence=0.8)
    with pytest.raises(RefusedError):
        here.edit_fact(kept, "Hides silver in Zanzibar", confidence=0.1)
    memory.forget(thread_id="trip")
    assert texts(memory) == ["Runs", "Plays the oud"]
    assert "Zanzibar" not in everything_below(home)
    assert memory.verify().ok
    assert memory.what_if().facts == 2


def test_what_is_left_to_erase_is_looked_for_once_and_not_once_more_by_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    unfinished = eraser.unfinished

    def counted(*given: object, **more: object) -> object:
        looked.append(1)
        return unfinished(*given, **more)

    monkeypatch.setattr(eraser, "unfinished", counted)
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        first, second = (memory.add_fact(f"Ada likes matter {n}").fact.id for n in range(2))
        # A thread that still writes memory.json might read while content is erased, and would look, too.
        memory.flush()
        memory.forget(first)
        assert "matter 0" not in (tmp_path / "users/ada/memory.json").read_text()
        assert texts(memory) == ["Ada likes matter 1"]
        memory.flush()
        memory.forget(second)
        assert texts(memory) == []
        assert len(looked) == 2


def test_a_line_that_is_damaged_between_two_readings_is_found_by_the_second(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        for n in range(3):
            bs.memory("ada").add_fact(f"Ada likes matter {n}")
    store = JsonlStore(tmp_path)
    reading = Rereading(store, "users/ada/ledger")
    assert [commit.seq for commit in reading()] == [commit.seq for commit in reading()] == [1, 2, 3, 4]
    path = tmp_path / "users/ada/ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"x" * (len(lines[2]) - 1) + b"\n", *lines[3:]]))
    with pytest.raises(CorruptLogError, match="line 3"):
        list(reading())


def test_a_line_that_is_passed_over_is_checked_all_the_same(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        for n in range(3):
            bs.memory("ada").add_fact(f"Ada likes matter {n}")
    path = tmp_path / "users/ada/ledger.jsonl"
    written = path.read_bytes()
    reading = Rereading(JsonlStore(tmp_path), "users/ada/ledger")
    assert [commit.seq for commit in reading(lambda seq, _: seq == 4)] == [4]
    for altered in (written.replace(b"matter 0", b"matter 7"), b"".join(written.splitlines(keepends=True)[1:])):
        path.write_bytes(altered)
        with pytest.raises(CorruptLogError):
            list(Rereading(JsonlStore(tmp_path), "users/ada/ledger")(lambda *_: False))


def test_a_memory_after_an_erasure_is_that_of_its_log(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        for n in range(12):
            memory.record(f"t{n}", exchange(f"matter {n}"))
            memory.extract([{"thread_id": f"t{n}", "reply": reply(f"Ada likes matter {n}")}])
        memory.forget(memory.facts()[3].id, with_evidence=True)
        memory.add_fact("Ada likes tea")
        here = (memory.facts(), memory.status().pending, [memory.transcript(one.thread) for one in memory.threads()])
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert here == (
            memory.facts(),
            memory.status().pending,
            [memory.transcript(one.thread) for one in memory.threads()],
        )
        assert memory.verify().ok
