"""Asking again over what was said: nothing is written, the difference is told, and no cap is exceeded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply

from backstory.ledger.core.errors import ConfigError, ModelUnavailableError, NoModelError, NotFoundError, UsageError
from backstory.ledger.extraction.models.model import Answer, Prompt, Usage
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.observing import CallStarted, Observer, UpdateSettled
from backstory.memory import MemoryHandle
from backstory.projections.what_if.reextract import UpdateCounts

DOWN = ModelUnavailableError("the server is down")


def talked(memory: MemoryHandle, thread: str, topic: str, number: int) -> None:
    memory.record(thread, exchange(topic, number))


def told(memory: MemoryHandle, thread: str, topic: str, number: int, text: str) -> None:
    """Record an exchange and learn from it what a recorded reply says."""
    talked(memory, thread, topic, number)
    memory.extract([RecordedReply(thread, text)])


def files(home: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(home)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }


def texts(facts: object) -> list[str]:
    return [fact.content for fact in facts]  # type: ignore[attr-defined]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which ada's memory has learned of tea in commit 2 and of rain in commit 3."""
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        told(memory, "t", "tea", 1, reply("Ada likes tea", "Ada may like milk"))
        told(memory, "u", "rain", 2, reply("Ada likes rain", "Ada sings"))
        memory.flush()
    return tmp_path


def by_topic(prompt: Prompt) -> str:
    """A model that says what was talked of, in words of its own."""
    said = prompt.user.rpartition("I like ")[2].partition(".")[0]
    return reply(f"Ada is fond of {said}")


# What is told.


def test_the_difference_is_told_with_what_both_cost(home: Path) -> None:
    model = ScriptedModel(
        Answer(reply("Ada likes tea", "Ada drinks"), "m", Usage(100, 20)),
        Answer(reply("Ada sings", confidence=0.3), "m", Usage(70, 5)),
    )
    with open_home(home) as bs:
        memory = bs.memory("ada")
        found = memory.reextract(model)
        assert texts(found.removed) == ["Ada may like milk", "Ada likes rain", "Ada sings"]
        assert texts(found.added) == ["Ada drinks"]
        assert (found.revised, found.sections, found.facts) == ((), (), 2)
        assert (found.until, found.complete, found.notes) == (3, True, ())
        assert found.recorded == UpdateCounts(0, 0, 0, 2, 0, 4, {}, 4)
        assert found.again == UpdateCounts(2, 170, 25, 2, 0, 2, {"threshold": 1}, 2)
        assert len(memory.facts()) == 4


def test_the_same_answers_lead_to_the_same_memory_with_the_same_ids(home: Path) -> None:
    answers = [
        RecordedReply("t", reply("Ada likes tea", "Ada may like milk")),
        RecordedReply("u", reply("Ada likes rain", "Ada sings")),
    ]
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(replies=answers)
    assert (found.added, found.removed, found.revised, found.sections) == ((), (), (), ())
    assert found.recorded == found.again == UpdateCounts(0, 0, 0, 2, 0, 4, {}, 4)


def test_a_model_is_asked_about_what_was_said_on_the_memory_that_its_own_answers_led_to(home: Path) -> None:
    model = ScriptedModel(by_topic, repeat=True)
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(model)
    assert texts(found.added) == ["Ada is fond of tea", "Ada is fond of rain"]
    first, second = (prompt.user for prompt in model.prompts)
    assert "I like tea." in first
    assert "I like rain." not in first
    assert "Ada is fond of tea" in second
    assert "Ada likes tea" not in second


def test_what_is_told_in_the_same_words_keeps_its_id_and_what_a_person_made_of_it(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.edit_fact("fact_2_1", "Ada likes oat milk")
        memory.remove_fact("fact_3_0")
        model = ScriptedModel(reply("Ada has a dog", "ada MAY like milk."), reply("Ada has a cat", "Ada skates"))
        found = memory.reextract(model)
        assert texts(found.added) == ["Ada has a dog", "Ada has a cat", "Ada skates"]
        assert texts(found.removed) == ["Ada likes tea", "Ada sings"]
        assert memory.fact("fact_2_1").content == "Ada likes oat milk"
    assert found.revised == ()


def test_a_change_of_a_fact_that_was_not_learned_again_hits_nothing_in_its_place(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.remove_fact("fact_2_0")
        told(memory, "v", "snow", 3, reply("Ada skis", remove=("fact_3_0",)))
        found = memory.reextract(ScriptedModel(by_topic, repeat=True))
        again = [fact.id for fact in found.added]
        assert texts(found.added) == ["Ada is fond of tea", "Ada is fond of rain", "Ada is fond of snow"]
        assert not {"fact_2_0", "fact_3_0"} & set(again)


def test_a_replacement_that_is_not_in_the_answer_is_none_though_the_recorded_one_had_something_there(
    home: Path,
) -> None:
    answer = {
        "newFacts": [{"content": "Ada sings", "confidence": 0.9}],
        "factsToRemove": [{"id": "fact_2_0", "replacementFactIndex": 1}, {"id": "fact_2_1", "replacementFactIndex": 0}],
    }
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(ScriptedModel(reply("Ada likes tea", "Ada may like milk"), answer))
    assert found.again.refused == {"replacement_refused": 1}
    assert texts(found.removed) == ["Ada may like milk", "Ada likes rain"]


def test_evictions_count_the_uses_that_were_recorded(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.set_policy(max_facts=2, fact_eviction_policy="hybrid")
        told(memory, "t", "tea", 1, reply("used", "unused"))
        memory.touch("fact_3_0")
        answer = reply("newest")
        told(memory, "u", "rain", 2, answer)
        assert texts(memory.facts()) == ["used", "newest"]
        found = memory.reextract(replies=[RecordedReply("u", answer)], thread="u")
        assert (found.added, found.removed) == ((), ())


def test_with_a_thread_only_its_updates_are_asked_again(home: Path) -> None:
    model = ScriptedModel(by_topic, repeat=True)
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(model, thread="u")
    assert len(model.prompts) == 1
    assert texts(found.removed) == ["Ada likes rain", "Ada sings"]
    assert texts(found.added) == ["Ada is fond of rain"]
    assert (found.recorded.updates, found.again.updates, found.again.facts) == (1, 1, 3)


def test_everything_that_is_no_update_is_decided_again(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada runs")
        memory.import_document(["Ada has a boat"])
        memory.revert(3)
        memory.set_policy(fact_confidence_threshold=0.8)
        told(memory, "v", "snow", 3, reply("Ada skis"))
        memory.rollback(5)
        found = memory.reextract(ScriptedModel(by_topic, repeat=True))
        assert texts(memory.facts()) == [
            "Ada likes tea", "Ada may like milk", "Ada likes rain", "Ada sings", "Ada runs", "Ada has a boat",
        ]  # fmt: skip
        assert texts(found.added) == ["Ada is fond of tea", "Ada is fond of rain"]
        assert texts(found.removed) == ["Ada likes tea", "Ada may like milk", "Ada likes rain", "Ada sings"]


def test_the_words_are_those_that_stood_then_whatever_was_edited_since(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.record("t", [{"role": "user", "content": "I like coffee.", "id": "u1"}, *exchange("coffee", 1)[1:]])
        memory.extract([RecordedReply("t", reply("Ada likes coffee"))])
        model = ScriptedModel(by_topic, repeat=True)
        memory.reextract(model, thread="t")
        first, second = (prompt.user for prompt in model.prompts)
        assert "I like tea." in first
        assert "coffee" not in first
        assert "I like coffee." in second
        assert "I like tea." not in second


def test_what_is_pending_is_not_asked_about(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        talked(memory, "v", "snow", 3)
        model = ScriptedModel(by_topic, repeat=True)
        assert memory.reextract(model).again.updates == 2
        assert not [prompt for prompt in model.prompts if "snow" in prompt.user]


def test_facts_are_put_up_for_review_as_of_then_and_not_as_of_today(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock, staleness_min_candidates=1) as bs:
        memory = bs.memory("ada")
        told(memory, "t", "tea", 1, reply("Ada likes tea"))
        clock.advance(3600)
        told(memory, "u", "rain", 2, reply("Ada likes rain"))
        clock.advance(400 * 86_400)
        model = ScriptedModel(reply("Ada likes tea"), {"staleFactsToRemove": ["fact_2_0"]})
        found = memory.reextract(model)
        assert found.again.refused == {"not_due": 1}
        assert "fact_2_0" in model.prompts[1].user
        assert "staleFactsToRemove" not in model.prompts[1].user


def test_facts_are_put_up_for_review_as_of_the_update_and_not_of_the_words(tmp_path: Path) -> None:
    clock = FakeClock()
    review = {"staleFactsToRemove": ["fact_2_0"]}
    with open_home(tmp_path, ScriptedModel(review), clock=clock, staleness_min_candidates=1) as bs:
        memory = bs.memory("ada")
        told(memory, "t", "tea", 1, reply("Ada likes tea"))
        said = clock.now().isoformat()
        clock.advance(400 * 86_400)
        memory.record("u", [{**message, "at": said} for message in exchange("rain", 2)])
        memory.extract()
        assert texts(memory.facts()) == []
        model = ScriptedModel(reply("Ada likes tea"), review)
        found = memory.reextract(model)
        assert "staleFactsToRemove" in model.prompts[1].user
        assert (found.added, found.facts) == ((), 0)


def test_a_recorded_reply_may_cite_again_what_it_cited_of_the_rest_of_its_thread(tmp_path: Path) -> None:
    def citing(*cited: str) -> str:
        return json.dumps({"newFacts": [{"content": f"Ada likes {cited[-1]}", "confidence": 0.9, "evidence": cited}]})

    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        first, second = citing("u1", "u2"), citing("u1", "u2", "u3")
        told(memory, "t", "tea", 1, first)
        told(memory, "t", "milk", 2, second)
        talked(memory, "t", "juice", 3)
        memory.record("t", [{"id": "u1", "role": "user", "content": "I like coffee."}])
        assert [fact.evidence for fact in memory.facts()] == [("u1",), ("u1", "u2")]
        found = memory.reextract(replies=[RecordedReply("t", first), RecordedReply("t", second)])
    assert (found.added, found.removed, found.revised) == ((), (), ())


# Updates that failed.


@pytest.mark.parametrize("after", ["parked", "discarded", "tried again"])
def test_an_update_that_failed_is_asked_again_and_learned_from_once(tmp_path: Path, after: str) -> None:
    broken = ScriptedModel("no JSON", repeat=True)
    with open_home(tmp_path, broken) as bs:
        memory = bs.memory("ada")
        talked(memory, "t", "tea", 1)
        memory.extract()
        if after == "discarded":
            memory.discard("t")
        if after == "tried again":
            memory.retry(replies=[RecordedReply("t", reply("Ada likes tea"))])
        model = ScriptedModel(by_topic, repeat=True)
        found = memory.reextract(model)
        assert len(model.prompts) == 1
        assert texts(found.added) == ["Ada is fond of tea"]
        assert (found.recorded.calls, found.recorded.failed) == (1, 1)
        assert (found.again.updates, found.again.failed) == (1, 0)


def test_an_update_that_fails_again_is_asked_once_more_where_it_was_tried_again(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel("no JSON")) as bs:
        memory = bs.memory("ada")
        talked(memory, "t", "tea", 1)
        memory.extract()
        memory.retry(replies=[RecordedReply("t", reply("Ada likes tea"))])
        found = memory.reextract(ScriptedModel("nor this", by_topic))
        assert texts(found.added) == ["Ada is fond of tea"]
        assert (found.again.calls, found.again.updates, found.again.failed) == (2, 2, 1)


def test_tries_on_a_failing_server_count_as_calls_in_both(tmp_path: Path) -> None:
    with open_home(tmp_path, ScriptedModel(DOWN, DOWN, reply("Ada likes tea"), DOWN, repeat=True)) as bs:
        memory = bs.memory("ada")
        talked(memory, "t", "tea", 1)
        talked(memory, "u", "rain", 2)
        memory.extract()
        assert memory.status().parked[0].attempts == 5
        memory.retry()
        assert memory.status().parked[0].attempts == 10
        found = memory.reextract(ScriptedModel(DOWN, by_topic, by_topic))
        assert found.recorded.calls == 1 + 5 + 5
        assert (found.again.calls, found.again.failed, found.again.updates) == (3, 0, 2)


def test_an_answer_that_came_too_late_is_not_asked_for_again(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")

        def cleared(_: Prompt) -> str:
            memory.clear()
            return reply("Ada likes tea")

        talked(memory, "t", "tea", 1)
        memory.extract([_Asking("t", cleared)])
        model = ScriptedModel(by_topic, repeat=True)
        found = memory.reextract(model)
        assert model.prompts == []
        assert (found.added, found.recorded.refused, found.again.updates) == ((), {"basis": 1}, 0)


class _Asking(RecordedReply, frozen=True):
    """A recorded reply during which something happens."""

    def ask(self, prompt: Prompt) -> Answer:
        return Answer(self.text(prompt), "recorded", prompted=False)  # type: ignore[operator]


# What cannot be asked again.


def test_erased_words_cannot_be_asked_again_and_the_result_says_so(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.forget("fact_3_1", with_evidence=True)
        model = ScriptedModel(by_topic, repeat=True)
        found = memory.reextract(model)
        assert len(model.prompts) == 1
        assert texts(found.removed) == ["Ada likes tea", "Ada may like milk"]
        assert found.notes == ("words were erased, so the recorded answer stands: commit 3",)
        assert (found.recorded.updates, found.again.updates) == (1, 1)


def test_what_was_forgotten_is_not_learned_again_from_words_that_stay(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.forget("fact_3_1")
        found = memory.reextract(ScriptedModel(reply("Ada likes tea"), reply("Ada sings")))
        assert found.added == ()
        assert found.notes == ("words were erased, so the recorded answer stands: commit 3",)


def test_where_no_reply_is_left_the_recorded_answer_stands_and_one_too_many_is_told(home: Path) -> None:
    answers = [RecordedReply("t", reply("Ada dances")), RecordedReply("t", reply("Ada swims"))]
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(replies=answers)
    assert texts(found.added) == ["Ada dances"]
    assert texts(found.removed) == ["Ada likes tea", "Ada may like milk"]
    assert found.notes == (
        "there was no reply, so the recorded answer stands: commit 3",
        "1 reply was not used: no update was left for them",
    )


# A cap on spending.


@pytest.mark.parametrize(("calls", "until", "facts"), [(0, 1, 0), (1, 2, 1), (2, 4, 3)])
def test_after_max_calls_it_stops_and_compares_both_as_of_the_last_commit_it_reached(
    home: Path, calls: int, until: int, facts: int
) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada runs")
        told(memory, "v", "snow", 3, reply("Ada skis"))
        model = ScriptedModel(by_topic, repeat=True)
        found = memory.reextract(model, max_calls=calls)
        assert len(model.prompts) == found.again.calls == calls
        assert (found.until, found.complete, found.facts, found.again.facts) == (until, False, facts, facts)
        assert found.recorded.facts == len(memory.document(until).facts)
        assert {*found.removed} <= {*memory.facts()}
        assert memory.reextract(ScriptedModel(by_topic, repeat=True), max_calls=3).complete


def test_tries_on_a_failing_server_use_the_calls_up(home: Path) -> None:
    model = ScriptedModel(DOWN, repeat=True)
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(model, max_calls=3)
    assert (len(model.prompts), found.again.calls, found.until, found.complete) == (3, 3, 1, False)
    assert (found.added, found.removed) == ((), ())


def test_no_call_is_made_that_would_exceed_max_tokens(home: Path) -> None:
    def dear(_: Prompt) -> Answer:
        return Answer(reply("Ada dances"), "m", Usage(3_000, 500))

    with open_home(home) as bs:
        memory = bs.memory("ada")
        model = ScriptedModel(dear, repeat=True)
        found = memory.reextract(model, max_tokens=4_000)
        assert (len(model.prompts), found.until, found.complete) == (1, 2, False)
        assert found.again.tokens_in + found.again.tokens_out == 3_500
        assert memory.reextract(ScriptedModel(dear, repeat=True), max_tokens=10_000).complete
        assert memory.reextract(ScriptedModel(dear, repeat=True), max_tokens=10).again.calls == 0


def test_prompts_that_a_failing_server_was_sent_use_the_tokens_up(home: Path) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        one = memory.reextract(ScriptedModel(DOWN, repeat=True), max_calls=1).again
        assert (one.calls, one.tokens_out) == (1, 0)
        model = ScriptedModel(DOWN, repeat=True)
        found = memory.reextract(model, max_tokens=one.tokens_in * 2)
        assert (len(model.prompts), found.complete) == (2, False)
        assert found.again.tokens_in == one.tokens_in * 2


@pytest.mark.parametrize("usage", [Usage(-(10**6), -5), Usage(True, True), Usage("9", []), "9", {"input": 9}, True])
def test_a_bill_that_cannot_be_counts_as_none(home: Path, usage: Usage) -> None:
    with open_home(home) as bs:
        memory = bs.memory("ada")
        estimated = memory.reextract(ScriptedModel(reply("Ada dances"), repeat=True)).again
        found = memory.reextract(ScriptedModel(Answer(reply("Ada dances"), "m", usage), repeat=True)).again
        assert estimated.tokens_in > 500
        assert found == estimated


def test_where_the_server_counts_no_tokens_they_are_estimated_so_that_the_cap_holds(home: Path) -> None:
    with open_home(home) as bs:
        found = bs.memory("ada").reextract(ScriptedModel(by_topic, repeat=True), max_tokens=5_000)
        assert found.again.tokens_in > 500
        assert found.again.tokens_in + found.again.tokens_out <= 5_000


# Long updates.


def test_an_update_too_long_for_one_prompt_is_asked_in_portions_under_one_number(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        long = [message for n in range(200) for message in exchange(f"topic {n}, {'which is long ' * 60}", n)]
        memory.record("t", long)
        memory.extract([RecordedReply("t", reply("Ada likes topics", "Ada talks"))])
        number = iter(range(100))
        model = ScriptedModel(lambda _: reply("Ada talks", f"Ada tires {next(number)}"), repeat=True)
        found = memory.reextract(model)
        portions = len(model.prompts)
        assert portions > 2
        assert found.again.updates == portions
        assert texts(found.added) == [f"Ada tires {n}" for n in range(portions)]
        assert texts(found.removed) == ["Ada likes topics"]
        assert {fact.seq for fact in found.added} == {2}
        assert len({fact.id for fact in found.added}) == portions
        assert found.again.refused == {"duplicate": portions - 1}
        said = "".join(prompt.user for prompt in model.prompts)
        assert all(f"topic {n}," in said for n in range(200))
        stopped = memory.reextract(ScriptedModel(by_topic, repeat=True), max_calls=portions - 1)
        assert (stopped.until, stopped.facts, stopped.again.updates) == (1, 0, 0)


def test_a_portion_that_fails_is_told_and_the_next_one_is_asked(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", [message for n in range(80) for message in exchange(f"topic {n}, {'long ' * 190}", n)])
        memory.extract([RecordedReply("t", reply("Ada talks"))])
        model = ScriptedModel("no JSON", reply("Ada talks"), repeat=True)
        found = memory.reextract(model)
        assert (found.again.updates, found.again.failed) == (len(model.prompts), 1)
        assert len(model.prompts) > 1
        assert (found.added, found.removed) == ((), ())


# Nothing is written.


@pytest.mark.parametrize(
    "script",
    [[by_topic], [DOWN], ["no JSON"], [RuntimeError("planted")], [KeyboardInterrupt()]],
    ids=["answers", "is down", "raves", "is broken", "is interrupted"],
)
def test_the_home_is_the_same_byte_for_byte_whatever_the_model_does(home: Path, script: list[object]) -> None:
    with open_home(home) as bs:
        bs.memory("ada").verify()
        bs.memory("ada").reextract(ScriptedModel(by_topic, repeat=True))
    before = files(home)
    with open_home(home) as bs:
        memory = bs.memory("ada")
        model = ScriptedModel(*script, repeat=True)  # type: ignore[arg-type]
        if isinstance(script[0], KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                memory.reextract(model)
        else:
            memory.reextract(model)
        assert len(model.prompts) > 0
    assert files(home) == before


def test_it_goes_on_beside_a_background_worker_and_hears_of_no_other_commit(home: Path) -> None:
    with open_home(home, ScriptedModel(reply("Ada skis"))) as bs:
        memory = bs.memory("ada")

        def meanwhile(prompt: Prompt) -> str:
            if "tea" in prompt.user:
                memory.add_fact("Ada runs")
            return by_topic(prompt)

        found = memory.reextract(ScriptedModel(meanwhile, repeat=True))
        assert found.until == 3
        assert "Ada runs" not in texts([*found.removed, *found.added])


# Wrong use.


def test_without_a_model_and_without_replies_it_says_what_is_missing(home: Path) -> None:
    with open_home(home) as bs, pytest.raises(NoModelError, match="OPENAI_API_KEY"):
        bs.memory("ada").reextract()


def test_wrong_use_is_told(home: Path, tmp_path: Path) -> None:
    with open_home(home) as bs:
        memory, model = bs.memory("ada"), ScriptedModel(by_topic)
        with pytest.raises(NotFoundError, match="nowhere"):
            memory.reextract(model, thread="nowhere")
        with pytest.raises(UsageError, match="max_calls"):
            memory.reextract(model, max_calls=-1)
        with pytest.raises(UsageError, match="leave one"):
            memory.reextract(model, replies=[])
        with pytest.raises(ConfigError, match="templates"):
            memory.reextract(model, tmp_path / "no such folder")
        assert model.prompts == []


def test_a_memory_that_has_learned_nothing_has_nothing_to_ask(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        found = bs.memory("ada").reextract(ScriptedModel())
        assert (found.until, found.complete, found.facts) == (0, True, 0)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_templates_of_a_folder_take_the_place_of_the_packaged_ones(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "system.md").write_text("Answer like a pirate.", encoding="utf-8")
    model = ScriptedModel(by_topic, repeat=True)
    with open_home(home) as bs:
        bs.memory("ada").reextract(model, folder)
    assert {prompt.system for prompt in model.prompts} == {"Answer like a pirate."}


def test_progress_is_told_each_commit(home: Path) -> None:
    seen: list[int] = []
    with open_home(home) as bs:
        bs.memory("ada").reextract(ScriptedModel(by_topic, repeat=True), progress=seen.append)
    assert seen == [1, 2, 3]


def test_with_fallback_an_agent_without_a_memory_of_its_own_asks_about_its_users(home: Path) -> None:
    with open_home(home, agent_reads="fallback") as bs:
        found = bs.memory("ada", "helper").reextract(ScriptedModel(by_topic, repeat=True))
    assert found.until == 3


class Watcher(Observer):
    def __init__(self) -> None:
        self.calls: list[CallStarted] = []
        self.updates: list[UpdateSettled] = []

    def on_call_started(self, call: CallStarted) -> None:
        self.calls.append(call)

    def on_update(self, update: UpdateSettled) -> None:
        self.updates.append(update)


def test_whoever_watches_is_told_of_calls_that_are_made_again_and_of_no_update(tmp_path: Path) -> None:
    watcher = Watcher()
    with open_home(tmp_path, callbacks=[watcher]) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea", 1))
        memory.extract([RecordedReply("t", reply("Ada likes tea"))])
        assert (len(watcher.calls), len(watcher.updates)) == (0, 1)
        assert memory.reextract(ScriptedModel(reply("Ada runs"))).again.updates == 1
        assert (len(watcher.calls), len(watcher.updates)) == (1, 1)
