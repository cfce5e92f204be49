"""A summary that was made from what is forgotten goes with it, and so does what was made from that."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from fakes import reply
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples
from summing import Talk

from backstory.ledger.core.errors import ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.events import Redacted, SummaryUpdated, TurnRange, UpdateFailed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey, live_summaries
from backstory.ledger.extraction.models.model import Prompt
from backstory.projections.history.moment import replay


def quoting(prompt: Prompt) -> str:
    """Sum up by saying every word that was shown."""
    words = [word for word in prompt.user.replace("<", " ").split() if word.startswith("word")]
    return json.dumps({"summary": f"They said {' '.join(dict.fromkeys(words))}."})


def gone(talk: Talk, *words: str) -> bool:
    """Whether no file of the home holds these words, and the ledger is whole."""
    talk.memory.flush()
    assert talk.memory.verify().ok
    assert replay(talk.bs.store, talk.memory.scope) == talk.live
    everything = talk.bytes()
    return not any(f"{word} ".encode() in everything or f"{word}.".encode() in everything for word in words)


def numbered(path, turns: int, **more: object) -> Talk:
    """Turns that are told apart by their words, summed up two by two in so many words."""
    return Talk(path, turns=turns, summary_min_turns=2, summaries=quoting, mergings=quoting, **more)


def sections(events: object) -> set[str]:
    return {event.section for event in events if isinstance(event, Redacted) and event.section is not None}


def test_with_its_thread_every_summary_goes(tmp_path):
    talk = numbered(tmp_path, 23)
    for n in (1, 2):
        talk.say(f"elsewhere{n}", thread="u")
    talk.extract()
    assert not gone(talk, "word7")
    talk.memory.forget(thread_id="t")
    assert gone(talk, *(f"word{n}" for n in range(1, 24)))
    assert talk.live.sections.keys() == {"thread/1/1-2/u"}
    assert talk.extract().summaries == ()


def test_with_a_text_the_summaries_go_that_were_made_from_its_turns_and_no_other(tmp_path):
    talk = numbered(tmp_path, 6)
    talk.extract()
    talk.memory.forget(matching="word3")
    assert gone(talk, "word3", "They said word3 word4")
    assert talk.spans == [(1, 1, 2), (1, 5, 6)]
    assert talk.extract().summaries == ()


def test_a_summary_goes_that_says_it_in_other_words(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2)
    talk.extract()
    talk.memory.forget(matching="word3")
    assert talk.spans == [(1, 1, 2)]
    assert b"Told 3" not in talk.bytes()


def test_what_was_merged_from_it_goes_too_wherever_it_was_told(tmp_path):
    talk = numbered(tmp_path, 22)
    seqs = talk.extract().summaries
    talk.memory.revert(seqs[9])
    talk.memory.revert("HEAD")
    talk.memory.rollback(seqs[4])
    talk.memory.revert("HEAD")
    talk.memory.clear()
    talk.memory.revert("HEAD")
    assert talk.spans == [(2, 1, 20), (1, 21, 22)]
    talk.memory.forget(matching="word7")
    assert gone(talk, "word7")
    assert b"word6 word7" not in talk.bytes()
    assert b"word1 word2 word3" not in talk.bytes()
    # What it was merged from and may stay tells the thread again.
    assert talk.spans == [(1, n, n + 1) for n in range(1, 23, 2) if n != 7]
    talk.memory.rollback(seqs[-1])
    assert (2, 1, 20) not in talk.spans
    assert gone(talk, "word7")


def test_a_word_that_only_the_model_said_takes_what_was_merged_from_it_along(tmp_path):
    talk = Talk(tmp_path, turns=20, summary_min_turns=2)
    talk.summaries = lambda prompt: '{"summary": "Hush."}' if "word5" in prompt.user else '{"summary": "Talk."}'
    talk.mergings = '{"summary": "Nothing to see."}'
    talk.extract()
    assert talk.spans == [(2, 1, 20)]
    result = talk.memory.forget(matching="hush")
    assert {erased.section for erased in result.redacted} == {"thread/1/5-6/t", "thread/2/1-20/t"}
    assert talk.spans == [(1, n, n + 1) for n in range(1, 21, 2) if n != 5]
    assert gone(talk, "Hush", "see")
    assert len(talk.turns) == 20


def test_with_a_fact_and_its_evidence_the_summaries_of_its_turns_go(tmp_path):
    answer = json.dumps({"newFacts": [{"content": "is a baker", "confidence": 0.9, "evidence": ["t3"]}]})
    talk = numbered(tmp_path, 6, updates=answer.replace('"t3"', "3"))
    talk.extract()
    (fact,) = talk.memory.facts()
    assert fact.evidence == ("t3",)
    also = talk.memory.forget(fact.id, dry_run=True).also
    assert [(sharing.kind, sharing.id) for sharing in also] == [("section", "thread/1/3-4/t")]
    talk.memory.forget(fact.id, with_evidence=True)
    assert talk.spans == [(1, 1, 2), (1, 5, 6)]
    assert gone(talk, "word3")


def test_a_fact_s_own_words_are_found_in_summaries(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2, updates=reply("is a vegetarian"))
    talk.summaries = lambda prompt: json.dumps(
        {"summary": "A vegetarian, it seems." if "word1" in prompt.user else "-1"}
    )
    talk.extract()
    talk.memory.forget(talk.memory.facts()[0].id)
    assert talk.spans == [(1, 3, 4)]
    assert gone(talk, "vegetarian,")


def test_a_summary_of_another_thread_does_not_go_for_a_word_it_has_in_common(tmp_path):
    talk = numbered(tmp_path, 2)
    for _ in range(2):
        talk.say("lawnmower", thread="u")
    talk.summaries = '{"summary": "They discussed a lawnmower."}'
    talk.extract()
    talk.memory.forget(thread_id="u")
    assert talk.spans == [(1, 1, 2)]


def test_with_everything_all_summaries_go(tmp_path):
    talk = numbered(tmp_path, 22)
    talk.extract()
    talk.memory.forget(everything=True)
    assert talk.live.sections == {}
    assert gone(talk, *(f"word{n}" for n in range(1, 23)))


def test_with_turns_whose_time_has_come_their_summaries_go(tmp_path):
    talk = numbered(tmp_path, 4)
    talk.extract()
    talk.clock.advance(10 * 86_400)
    talk.say("word5")
    talk.say("word6")
    talk.extract()
    commit = talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9))
    assert commit is not None
    assert {event.what for event in commit.events} == {"expired"}
    assert sections(commit.events) == {"thread/1/1-2/t", "thread/1/3-4/t"}
    assert talk.spans == [(1, 5, 6)]
    assert gone(talk, "word1", "word4")
    assert "redaction" not in talk.live.barriers
    assert talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9)) is None


def test_with_expired_turns_what_was_merged_from_them_goes(tmp_path):
    talk = numbered(tmp_path, 2)
    talk.extract()
    talk.clock.advance(10 * 86_400)
    for n in range(3, 21):
        talk.say(f"word{n}")
    talk.extract()
    assert talk.spans == [(2, 1, 20)]
    commit = talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9))
    assert commit is not None
    assert "redaction" not in talk.live.barriers
    assert talk.spans == [(1, n, n + 1) for n in range(3, 21, 2)]
    assert gone(talk, "word1", "word2")


def test_what_was_merged_twice_is_told_again_by_what_is_nearest(tmp_path):
    talk = Talk(tmp_path, turns=102, summary_min_turns=1)
    seqs = talk.extract().summaries
    assert talk.spans == [(3, 1, 100), (1, 101, 101), (1, 102, 102)]
    talk.memory.revert(talk.commits[seqs[4] - 1].seq)
    talk.memory.forget(matching="word55")
    tens = [(2, n, n + 9) for n in range(1, 92, 10) if n != 51]
    ones = [(1, n, n) for n in range(51, 61) if n != 55]
    assert talk.spans == sorted([*tens, *ones, (1, 101, 101), (1, 102, 102)], key=lambda span: span[1])
    assert gone(talk, "word55", "55 to 55")
    assert talk.extract().summaries == ()


# While the model thinks


ERASURES: list[Callable[[Talk], object]] = [
    lambda talk: talk.memory.forget(matching="word1"),
    lambda talk: talk.memory.forget(thread_id="t"),
    lambda talk: talk.memory.forget(everything=True),
    lambda talk: talk.memory._services.writer.expire(talk.clock.now() + timedelta(days=1)),
]


@pytest.mark.parametrize("erase", ERASURES)
@pytest.mark.parametrize(
    "answer", ['{"summary": "It was word1."}', "word1. is no JSON", ModelUnavailableError("word1.")]
)
def test_of_an_answer_that_an_erasure_overtook_nothing_is_kept(tmp_path, erase, answer):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4, max_attempts=1)
    talk.learn()

    def meanwhile(prompt: object) -> str:
        talk.summaries = None
        erase(talk)
        if isinstance(answer, Exception):
            raise answer
        return answer

    talk.summaries = meanwhile
    (summing,) = talk.sum_up()
    assert (summing.failed, summing.commit.events[0].reason) == (True, "basis")
    assert (talk.spans, gone(talk, "word1")) == ([], True)
    assert talk.sum_up() == ()


def test_after_an_erasure_elsewhere_an_answer_is_discarded_and_asked_for_again(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4)
    talk.say("elsewhere", thread="u")
    talk.learn()

    def meanwhile(prompt: object) -> str:
        talk.memory.forget(thread_id="u")
        return '{"summary": "Too late."}'

    talk.summaries = meanwhile
    (summing,) = talk.sum_up()
    assert (summing.failed, summing.commit.cause.summarized) == (True, None)
    assert b"Too late" not in talk.bytes()
    talk.summaries = None
    (again,) = talk.sum_up()
    assert (again.failed, again.commit.cause.summarized, talk.spans) == (False, TurnRange(1, 4), [(1, 1, 4)])


def test_after_an_erasure_of_its_turns_what_is_left_of_them_is_done_with(tmp_path):
    talk = Talk(tmp_path, turns=5, summary_min_turns=4)
    talk.learn()

    def meanwhile(prompt: object) -> str:
        talk.memory.forget(matching="word2")
        return '{"summary": "Too late."}'

    talk.summaries = meanwhile
    (summing,) = talk.sum_up()
    assert (summing.failed, summing.commit.cause.summarized) == (True, TurnRange(1, 4))
    assert talk.sum_up(anyway=True) == ()


def test_after_an_erasure_of_what_was_to_be_merged_the_rest_of_it_is_done_with(tmp_path):
    talk = numbered(tmp_path, 20)
    talk.learn()

    def meanwhile(prompt: Prompt) -> str:
        talk.memory.forget(matching="word3")
        return quoting(prompt)

    talk.mergings = meanwhile
    *_, last = talk.sum_up()
    assert (last.failed, last.commit.cause.summarized) == (True, TurnRange(1, 20))
    assert gone(talk, "word3")


def test_with_turns_whose_time_has_come_go_failed_summaries_that_quote_them(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4, summaries=ModelRejectedError("refused: word1."))
    talk.extract()
    assert not gone(talk, "word1")
    talk.clock.advance(10 * 86_400)
    commit = talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9))
    assert commit is not None
    assert {event.what for event in commit.events} == {"expired"}
    assert gone(talk, "word1", "refused: word1")
    assert "redaction" not in talk.live.barriers


def test_with_turns_whose_time_has_come_failures_of_other_threads_stay(tmp_path):
    talk = Talk(tmp_path, turns=2, summary_min_turns=2)
    talk.extract()
    talk.clock.advance(10 * 86_400)
    talk.summaries = ModelRejectedError("no quota")
    for _ in range(2):
        talk.say("elsewhere", thread="u")
    talk.extract()
    assert talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9)) is not None
    failures = [event for commit in talk.commits for event in commit.events if isinstance(event, UpdateFailed)]
    assert [event.detail for event in failures] == ["no quota"]


def test_a_failure_stays_that_came_before_the_turns_whose_time_has_come_were_said(tmp_path):
    talk = Talk(tmp_path, turns=2, summary_min_turns=2, updates=ModelRejectedError("no"))
    talk.summaries = ModelRejectedError("no quota")
    talk.extract()
    talk.updates, talk.summaries = reply(), None
    talk.say()
    talk.say()
    talk.extract()
    talk.clock.advance(10 * 86_400)
    assert talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9)) is not None
    assert [turn.content for turn in talk.turns] == ["word1", "word2"]
    failures = [event for commit in talk.commits for event in commit.events if isinstance(event, UpdateFailed)]
    assert [event.detail for event in failures] == ["no", "no quota"]


def test_a_failure_that_parks_waiting_turns_stays_although_an_older_turn_goes(tmp_path):
    talk = Talk(tmp_path, turns=2, summary_min_turns=0)
    talk.extract()
    talk.updates = ModelRejectedError("no: word3.")
    talk.say()
    talk.say()
    talk.extract()
    talk.clock.advance(10 * 86_400)
    assert talk.memory._services.writer.expire(talk.clock.now() - timedelta(days=9)) is not None
    assert [turn.content for turn in talk.turns] == ["word3", "word4"]
    failures = [event for commit in talk.commits for event in commit.events if isinstance(event, UpdateFailed)]
    assert [event.detail for event in failures] == ["no: word3."]
    assert talk.memory.flush()


@pytest.mark.parametrize("erase", ERASURES)
def test_what_was_erased_between_two_attempts_is_not_sent_again(tmp_path, erase):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4)
    talk.learn()

    def busy(prompt: object) -> str:
        erase(talk)
        raise ModelUnavailableError("busy")

    talk.summaries = busy
    (summing,) = talk.sum_up()
    assert (len(talk.asked), summing.commit.events[0].reason) == (1, "basis")


def test_a_merging_that_an_erasure_overtook_keeps_nothing(tmp_path):
    talk = numbered(tmp_path, 20)
    talk.learn()

    def meanwhile(prompt: Prompt) -> str:
        talk.memory._services.writer.expire(talk.clock.now() - timedelta(seconds=18.5))
        return quoting(prompt)

    talk.mergings = meanwhile
    *_, last = talk.sum_up()
    assert (last.failed, last.commit.cause.summarized) == (True, None)
    assert (len(talk.spans), gone(talk, "word1")) == (9, True)


# Always


@settings(max_examples=examples(1 / 4))
@given(st.data())
def test_after_forgetting_nothing_is_left_that_was_made_from_what_went(tmp_path_factory, data: st.DataObject) -> None:
    talk = numbered(tmp_path_factory.mktemp("home"), data.draw(st.integers(4, 26), label="turns"))
    talk.extract()
    for _ in range(data.draw(st.integers(0, 3), label="undone")):
        what = data.draw(st.sampled_from(["revert", "rollback", "clear", "say"]))
        seq = data.draw(st.integers(2, talk.live.seq))
        if what == "revert":
            talk.memory.revert(seq)
        elif what == "rollback":
            talk.memory.rollback(seq)
        elif what == "clear":
            talk.memory.clear()
        else:
            talk.say()
            talk.say()
            talk.extract()
    n = data.draw(st.integers(1, len(talk.turns)), label="forgotten")
    before = talk.live
    talk.memory.forget(matching=f"word{n}")
    forgotten = [m for m in range(1, len(talk.turns) + 30) if str(m).startswith(str(n))]
    assert gone(talk, f"word{n}")
    for commit in talk.commits:
        for event in commit.events:
            if isinstance(event, SummaryUpdated):
                span = event.section.split("/")[2].split("-")
                assert not any(int(span[0]) <= m <= int(span[1]) for m in forgotten)
    assert untouched(before, talk.live, forgotten)
    talk.bs.close()


def untouched(before: Memory, after: Memory, forgotten: list[int]) -> bool:
    """Whether what was not made from what went is as it was, and nothing tells of what went, or twice of the rest."""
    kept = {
        name: section
        for name, section in before.sections.items()
        if (one := SummaryKey.of(name)) is None or not any(one.turns.first <= m <= one.turns.last for m in forgotten)
    }
    told = [summary for summary, _ in live_summaries(after, "t")]
    return (
        kept.items() <= after.sections.items()
        and all(a.turns.last < b.turns.first for a, b in pairwise(told))
        and not any(one.turns.first <= m <= one.turns.last for one in told for m in forgotten)
    )
