"""Long threads are summed up: when, how it is stored, and what undoing and failing make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from fakes import open_home, reply
from summing import Talk

from backstory.ledger.core.commands import Summarize
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Section, SummaryUpdated, TurnRange, UpdateFailed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import SummaryKey, live_summaries, thread_summaries
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.summarizer import SummaryLimits, next_group
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Thread
from backstory.projections.document.document import render
from backstory.projections.history.moment import replay

# When


def test_a_thread_that_is_short_is_not_summed_up(tmp_path):
    talk = Talk(tmp_path, turns=9, summary_min_turns=10)
    assert talk.extract().summaries == ()
    assert talk.asked == []


def test_ten_turns_become_one_summary_that_says_where_it_comes_from(tmp_path):
    talk = Talk(tmp_path, turns=11, summary_min_turns=10)
    (seq,) = talk.extract().summaries
    commit = talk.commits[seq - 1]
    (event,) = commit.events
    assert commit.cause == Cause(
        kind="summary",
        thread="t",
        transcript=commit.cause.transcript,
        model="scripted",
        prompt=talk.asked[0].digest,
        level=1,
        summarized=TurnRange(1, 10),
    )
    assert isinstance(event, SummaryUpdated)
    (summary,) = talk.memory.summaries("t")
    assert (summary.level, summary.first, summary.last) == (1, 1, 10)
    assert (summary.since, summary.until) == (talk.turns[0].at, talk.turns[9].at)
    assert summary.since < summary.until
    assert summary.text == "Told 1 to 10."


def test_the_model_is_shown_the_turns_of_the_group_and_no_other(tmp_path):
    talk = Talk(tmp_path, turns=5, summary_min_turns=4)
    talk.extract()
    (prompt,) = talk.asked
    assert "[1] user: word1" in prompt.user
    assert "[4] assistant: word4" in prompt.user
    assert "[5]" not in prompt.user


def test_a_few_long_turns_are_worth_a_summary_too(tmp_path):
    talk = Talk(tmp_path, summary_min_turns=10, summary_min_tokens=100)
    for text in ("short", "x" * 400, "short"):
        talk.say(text)
    talk.extract()
    assert [(s.first, s.last) for s in talk.memory.summaries("t")] == [(1, 2)]


def test_every_full_group_is_asked_about_at_once(tmp_path):
    talk = Talk(tmp_path, turns=9, summary_min_turns=2)
    talk.extract()
    assert talk.spans == [(1, 1, 2), (1, 3, 4), (1, 5, 6), (1, 7, 8)]


def test_turns_that_do_not_fit_into_one_question_become_a_summary_earlier(tmp_path):
    talk = Talk(tmp_path, summary_min_turns=9, summary_min_tokens=10**6, prompt_max_tokens=4_000)
    for n in range(1, 10):
        talk.say(f"word{n} {'字' * 2_000}")
    talk.extract()
    assert [(s.level, s.first) for s in talk.memory.summaries("t")] == [(1, 1)]
    (summary,) = talk.memory.summaries("t")
    assert 1 <= summary.last < 9
    assert summary.until == talk.turns[summary.last - 1].at


def test_turns_that_no_longer_stand_count_for_nothing(tmp_path):
    talk = Talk(tmp_path, summary_min_turns=3)
    talk.memory.record("t", [{"role": "user", "content": "first", "id": "m1"}])
    talk.memory.record("t", [{"role": "user", "content": "second", "id": "m1"}])
    talk.say("third")
    talk.extract()
    assert talk.asked == []
    talk.say("fourth")
    talk.extract()
    (prompt,) = talk.asked
    assert "first" not in prompt.user
    assert talk.spans == [(1, 2, 4)]


def test_without_turns_to_count_nobody_is_asked(tmp_path):
    talk = Talk(tmp_path, turns=40, summary_min_turns=0)
    assert talk.extract().summaries == ()
    assert talk.asked == []


def test_recorded_replies_never_lead_to_summaries(tmp_path):
    talk = Talk(tmp_path, turns=40, summary_min_turns=2)
    result = talk.memory.extract([RecordedReply("t", reply("a fact"))])
    assert (result.updates, result.summaries) == (1, ())
    services = talk.memory._services
    assert (
        services.home.summarizer.run(services.writer, "t", RecordedReply("t", '{"summary": "No."}'), anyway=True) == ()
    )
    assert (talk.asked, talk.spans) == ([], [])


def test_a_home_without_a_model_makes_no_summaries(tmp_path):
    with open_home(tmp_path, summary_min_turns=1) as bs:
        memory = bs.memory("ada")
        memory.record("t", [{"role": "assistant", "content": "quiet"}])
        assert memory.extract().summaries == ()


def test_summing_up_learns_from_no_turn(tmp_path):
    talk = Talk(tmp_path, summary_min_turns=1)
    talk.say("ok")
    assert talk.extract().summaries
    (pending,) = talk.memory.status().pending
    assert (pending.turns, talk.memory.status().parked) == (1, ())


def test_parked_turns_are_summed_up_all_the_same(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4, updates="no JSON")
    result = talk.extract()
    assert (result.failed, len(result.summaries)) == (1, 1)
    assert talk.memory.status().parked[0].turns == 4


# Summaries of summaries


def test_ten_summaries_become_one_of_the_next_level(tmp_path):
    talk = Talk(tmp_path, turns=21, summary_min_turns=2)
    seqs = talk.extract().summaries
    assert talk.spans == [(2, 1, 20)]
    commit = talk.commits[seqs[-1] - 1]
    assert (commit.cause.level, commit.cause.summarized) == (2, TurnRange(1, 20))
    made, *removed = commit.events
    assert made.after.summary == "Merged 10."
    assert len(removed) == 10
    assert all(event.after.summary == "" and event.before.summary for event in removed)
    (summary,) = talk.memory.summaries("t")
    assert (summary.since, summary.until) == (talk.turns[0].at, talk.turns[19].at)
    assert [f"Told {n} to {n + 1}." in talk.asked[-1].user for n in range(1, 20, 2)] == [True] * 10


def test_a_thread_of_any_length_has_few_summaries(tmp_path):
    talk = Talk(tmp_path, turns=125, summary_min_turns=1)
    talk.extract()
    assert talk.spans == [
        (3, 1, 100), (2, 101, 110), (2, 111, 120), *((1, n, n) for n in range(121, 126)),
    ]  # fmt: skip


def test_the_threads_of_a_scope_have_nothing_to_do_with_each_other(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2)
    for _ in range(2):
        talk.say("elsewhere", thread="1-2/t")
    talk.extract()
    assert talk.spans == [(1, 1, 2), (1, 3, 4)]
    assert [(s.first, s.last) for s in talk.memory.summaries("1-2/t")] == [(1, 2)]


# Names


@pytest.mark.parametrize("thread", ["t", "a/b", "1-2/t", "line\nbreak", "user.workContext", "thread/1/1-2/t", "対話"])
def test_a_section_s_name_says_what_it_tells_whatever_the_thread_s(thread):
    summed = SummaryKey(thread, 3, TurnRange(11, 110))
    assert SummaryKey.of(summed.section) == summed


@pytest.mark.parametrize(
    "name", [*DOCUMENT_SECTIONS, "", "thread/1/1-2/", "thread/0/1-2/t", "thread/1/0-2/t", "Thread/1/1-2/t"]
)
def test_no_other_section_is_a_thread_s(name):
    assert SummaryKey.of(name) is None


def test_the_document_says_nothing_of_summaries(tmp_path):
    talk = Talk(tmp_path, turns=21, summary_min_turns=0)
    talk.extract()
    before = render(talk.live)
    talk = talk.reopened(summary_min_turns=2)
    assert talk.extract().summaries
    assert render(talk.live) == before
    assert talk.memory.flush()
    assert (tmp_path / "users/ada/memory.json").read_bytes() == before


# Answers


def test_a_summary_that_is_too_long_is_cut_after_a_sentence(tmp_path):
    said = {"summary": "One two three. Four five six. Seven eight nine ten eleven."}
    talk = Talk(tmp_path, turns=2, summary_min_turns=2, summary_max_chars=40, summaries=said)
    talk.extract()
    (summary,) = talk.memory.summaries("t")
    assert summary.text == "One two three. Four five six."


@pytest.mark.parametrize(
    "said",
    ["", "no JSON", '{"summary": ', '{"summary": ""}', '{"summary": " \\n"}', '{"summary": "…!? --"}', '{"other": "x"}',
     '{"summary": null}', '{"summary": ["a"]}', '{"summary": 7}'],
)  # fmt: skip
def test_an_answer_that_says_nothing_usable_changes_nothing(tmp_path, said):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2, summaries=said)
    before = talk.live
    result = talk.extract()
    assert (result.updates, result.failed, result.summaries, result.summaries_failed) == (1, 0, (), 1)
    commit = talk.commits[-1]
    (failure,) = commit.events
    assert isinstance(failure, UpdateFailed)
    assert (commit.cause.kind, commit.cause.summarized, failure.reason, failure.turns) == (
        "summary", None, "reply", None,
    )  # fmt: skip
    assert talk.live.sections == before.sections
    assert talk.memory.status().parked == ()
    assert len(talk.asked) == 1


@pytest.mark.parametrize(
    ("error", "reason", "calls"),
    [(ModelRejectedError("no"), "rejected", 1), (ModelUnavailableError("busy"), "unavailable", 2)],
)
def test_a_call_that_fails_changes_nothing(tmp_path, error, reason, calls):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2, summaries=error, max_attempts=2)
    assert talk.extract().summaries_failed == 1
    failure = talk.commits[-1].events[0]
    assert (failure.reason, failure.attempts, len(talk.asked)) == (reason, calls, calls)
    assert talk.memory.summaries("t") == ()


def test_an_answer_that_comes_late_is_waited_for(tmp_path):
    steps = iter([ModelUnavailableError("busy")])

    def sometimes(prompt: object) -> str:
        for error in steps:
            raise error
        return '{"summary": "Well."}'

    talk = Talk(tmp_path, turns=2, summary_min_turns=2, summaries=sometimes)
    assert len(talk.extract().summaries) == 1
    assert len(talk.asked) == 2


def test_a_person_s_extract_asks_again_after_a_failure(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4, summaries="no JSON")
    talk.extract()
    talk.summaries = None
    assert len(talk.extract().summaries) == 1
    assert talk.spans == [(1, 1, 4)]


def test_once_it_has_worked_again_a_failure_puts_nothing_off(tmp_path):
    talk = Talk(tmp_path, turns=5, summary_min_turns=4, summaries="no JSON")
    talk.sum_up()
    talk.summaries = None
    talk.extract()
    for _ in range(3):
        talk.say("more")
    assert len(talk.sum_up()) == 1


def test_turns_that_were_summed_up_keep_their_ordinals_although_their_words_are_lost() -> None:
    coverage = Coverage()
    cause = Cause(kind="summary", thread="t", level=1, summarized=TurnRange(1, 4))
    coverage.apply(Commit(2, "", cause, (), "", ""))
    assert coverage.highest("t") == 4
    assert not coverage.covers(Thread("t"), TurnRange(1, 4))


def test_after_a_failure_the_model_is_asked_again_when_there_is_another_group(tmp_path):
    talk = Talk(tmp_path, turns=5, summary_min_turns=4, summaries="no JSON")
    assert len(talk.sum_up()) == 1
    for _ in range(3):
        talk.say("more")
        assert talk.sum_up() == ()
    talk.summaries = None
    talk.say("more")
    assert len(talk.sum_up()) == 2
    assert talk.spans == [(1, 1, 4), (1, 5, 8)]
    for _ in range(3):
        talk.say("and more")
    assert len(talk.sum_up()) == 1


def test_a_merging_that_fails_leaves_what_it_would_have_merged(tmp_path):
    talk = Talk(tmp_path, turns=20, summary_min_turns=2, mergings="no JSON")
    result = talk.extract()
    assert (len(result.summaries), result.summaries_failed) == (10, 1)
    assert len(talk.spans) == 10
    assert talk.sum_up() == ()
    talk.say("more")
    talk.say("more")
    talk.mergings = None
    assert len(talk.sum_up()) == 2
    assert talk.spans == [(2, 1, 20), (1, 21, 22)]


def test_what_waits_after_a_failure_outlives_a_restart(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4, summaries="no JSON")
    talk.sum_up()
    again = talk.reopened(summary_min_turns=4)
    assert again.sum_up() == ()
    for _ in range(4):
        again.say("more")
    assert len(again.sum_up()) == 2


# Undoing


def test_a_revert_takes_a_summary_out_and_nobody_is_asked_for_it_again(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2)
    first, second = talk.extract().summaries
    talk.memory.revert(first)
    assert talk.spans == [(1, 3, 4)]
    assert talk.extract().summaries == ()
    talk.say("more")
    talk.say("more")
    assert len(talk.extract().summaries) == 1
    assert talk.spans == [(1, 3, 4), (1, 5, 6)]
    assert talk.commits[second - 1].events[0].after.summary == "Told 3 to 4."


def test_a_revert_of_a_merging_brings_back_what_was_merged(tmp_path):
    talk = Talk(tmp_path, turns=20, summary_min_turns=2)
    seqs = talk.extract().summaries
    result = talk.memory.revert(seqs[-1])
    assert (result.superseded, result.conflicts) == ((), ())
    assert talk.spans == [(1, n, n + 1) for n in range(1, 20, 2)]
    assert talk.extract().summaries == ()
    talk.memory.revert("HEAD")
    assert talk.spans == [(2, 1, 20)]


def test_what_was_merged_cannot_be_taken_out_of_the_merged_one(tmp_path):
    talk = Talk(tmp_path, turns=20, summary_min_turns=2)
    seqs = talk.extract().summaries
    result = talk.memory.revert(seqs[0])
    assert [note.kind for note in result.superseded] == ["rewritten"]
    assert talk.spans == [(2, 1, 20)]


def test_what_is_told_by_a_summary_of_a_summary_does_not_come_back_beside_it(tmp_path):
    talk = Talk(tmp_path, turns=100, summary_min_turns=1)
    talk.extract()
    merging = next(commit for commit in talk.commits if commit.cause.level == 2)
    result = talk.memory.revert(merging.seq)
    assert result.events == ()
    assert {note.kind for note in result.superseded} == {"rewritten"}
    assert talk.spans == [(3, 1, 100)]


def test_what_a_revert_brought_back_goes_into_the_next_summary_over_it(tmp_path):
    talk = Talk(tmp_path, turns=30, summary_min_turns=1)
    talk.extract()
    second = [commit for commit in talk.commits if commit.cause.level == 2][1]
    talk.memory.revert(second.seq)
    assert talk.spans == [(2, 1, 10), *((1, n, n) for n in range(11, 21)), (2, 21, 30)]
    for _ in range(80):
        talk.say("more")
    talk.extract()
    assert talk.spans == [(3, 1, 110)]
    assert "Told 15 to 15." in talk.asked[-1].user


def test_a_rollback_restores_the_summaries_of_its_moment(tmp_path):
    talk = Talk(tmp_path, turns=8, summary_min_turns=2)
    seqs = talk.extract().summaries
    talk.memory.rollback(seqs[1])
    assert talk.spans == [(1, 1, 2), (1, 3, 4)]
    assert talk.extract().summaries == ()
    talk.memory.revert("HEAD")
    assert len(talk.spans) == 4


def test_a_clear_removes_summaries_and_old_turns_are_never_summed_up_again(tmp_path):
    talk = Talk(tmp_path, turns=5, summary_min_turns=2)
    talk.extract()
    talk.memory.clear()
    assert talk.spans == []
    talk.say("new")
    assert talk.extract().summaries == ()
    talk.say("new")
    assert len(talk.extract().summaries) == 1
    assert talk.spans == [(1, 6, 7)]


def test_an_import_leaves_summaries_alone(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2)
    talk.extract()
    talk.memory.import_document(talk.memory.document(), replace=True)
    talk.memory.import_document({"version": "1.0", "facts": []}, replace=True)
    assert talk.spans == [(1, 1, 2), (1, 3, 4)]


# What else reads the ledger


def test_replay_what_if_and_asking_again_keep_summaries_as_they_were_recorded(tmp_path):
    talk = Talk(tmp_path, turns=22, summary_min_turns=2)
    result = talk.extract()
    talk.memory.revert(result.summaries[-1])
    assert replay(talk.bs.store, talk.memory.scope) == talk.live
    assert talk.memory.what_if(fact_confidence_threshold=1.0).sections == ()
    calls = len(talk.model.prompts)
    again = talk.memory.reextract()
    assert again.sections == ()
    assert (again.again.calls, len(talk.model.prompts) - calls) == (1, 1)
    assert talk.memory.verify().ok


def test_a_difference_names_the_summaries_that_came_and_went(tmp_path):
    talk = Talk(tmp_path, turns=20, summary_min_turns=2)
    seqs = talk.extract().summaries
    changes = {change.section: (change.before, change.after) for change in talk.memory.diff(seqs[0], seqs[-1]).sections}
    assert changes["thread/2/1-20/t"] == ("", "Merged 10.")
    assert changes["thread/1/1-2/t"] == ("Told 1 to 2.", "")


def test_the_log_counts_summaries_apart_from_sections(tmp_path):
    talk = Talk(tmp_path, turns=20, summary_min_turns=2)
    talk.extract()
    assert talk.memory.log()[0].summary == "+1 thread summary, -10 thread summaries"
    assert talk.memory.log()[1].summary == "+1 thread summary"


def test_a_large_home_that_is_opened_anew_knows_what_was_summed_up(tmp_path):
    talk = Talk(tmp_path, turns=12, summary_min_turns=2)
    talk.say("x" * 70_000)
    talk.extract()
    spans = talk.spans
    again = talk.reopened(summary_min_turns=2)
    assert (again.spans, again.extract().summaries) == (spans, ())
    assert (tmp_path / "users/ada/index.sqlite").exists()
    (change,) = again.memory.diff(3, 4).sections
    assert (change.section, change.after) == ("thread/1/3-4/t", "Told 3 to 4.")


def test_who_watches_is_told_that_a_call_is_for_a_summary(tmp_path):
    from backstory.ledger.learning.observing import CallStarted, Observer

    calls: list[CallStarted] = []

    class Watcher(Observer):
        def on_call_started(self, call: CallStarted) -> None:
            calls.append(call)

    talk = Talk(tmp_path, turns=2, summary_min_turns=2, callbacks=[Watcher()])
    talk.extract()
    assert [(call.kind, call.turns, call.attempt) for call in calls] == [
        ("extraction", TurnRange(1, 2), 1),
        ("summary", TurnRange(1, 2), 1),
    ]
    assert calls[1].estimated_tokens > 100


def test_calls_for_summaries_keep_their_distance_to_all_others(tmp_path):
    talk = Talk(tmp_path, turns=6, summary_min_turns=2, min_seconds_between_calls=3)
    talk.extract()
    assert talk.clock.slept == [3.0, 3.0, 3.0]


def test_a_backfill_dates_summaries_by_the_turns_they_tell(tmp_path):
    talk = Talk(tmp_path, summary_min_turns=2)
    for day in ("01", "02", "03", "04"):
        talk.say("then", at=f"2020-01-{day}T00:00:00Z")
    seqs = talk.memory.extract(backdate=True).summaries
    assert [talk.commits[seq - 1].at[:10] for seq in seqs] == ["2020-01-04", "2020-01-04"]


# While the model thinks


def meanwhile(talk: Talk, what: Callable[[], object]) -> None:
    """Let something happen while the model is asked for the first summary."""

    def answer(prompt: object) -> str:
        talk.summaries = None
        what()
        return '{"summary": "Overtaken by events."}'

    talk.summaries = answer


@pytest.mark.parametrize("kind", ["revert", "rollback"])
def test_an_answer_that_an_undo_overtook_is_discarded_and_asked_for_again(tmp_path, kind):
    talk = Talk(tmp_path, turns=3, summary_min_turns=3)
    fact = talk.memory.add_fact("runs")
    undo = {"revert": talk.memory.revert, "rollback": talk.memory.rollback}[kind]
    meanwhile(talk, lambda: undo(fact.commit))
    assert talk.extract().summaries_failed == 1
    failure = talk.commits[-1]
    assert (failure.events[0].reason, failure.cause.summarized) == ("basis", None)
    assert talk.memory.summaries("t") == ()
    assert [summing.failed for summing in talk.sum_up()] == [False]


def test_an_answer_that_a_clear_overtook_is_discarded_for_good(tmp_path):
    talk = Talk(tmp_path, turns=3, summary_min_turns=3)
    meanwhile(talk, talk.memory.clear)
    assert talk.extract().summaries_failed == 1
    assert (talk.memory.summaries("t"), talk.extract().summaries) == ((), ())


def test_an_answer_that_another_one_overtook_is_discarded(tmp_path):
    talk = Talk(tmp_path, turns=3, summary_min_turns=3)
    meanwhile(talk, lambda: talk.sum_up(anyway=True))
    assert talk.extract().summaries_failed == 1
    assert [summary.text for summary in talk.memory.summaries("t")] == ["Told 1 to 3."]
    assert talk.commits[-1].events[0].reason == "covered"


def test_after_closing_nobody_is_asked_and_nothing_is_committed(tmp_path):
    talk = Talk(tmp_path, turns=6, summary_min_turns=2)
    talk.learn()
    meanwhile(talk, talk.bs._services.updater.stop)
    head = talk.memory.head()
    assert talk.sum_up() == ()
    assert (talk.memory.head(), len(talk.asked)) == (head, 1)


def test_what_is_said_meanwhile_waits_for_the_next_group(tmp_path):
    talk = Talk(tmp_path, turns=3, summary_min_turns=3)
    meanwhile(talk, lambda: talk.say("meanwhile"))
    assert len(talk.extract().summaries) == 1
    assert talk.spans == [(1, 1, 3)]


# In the background


def test_the_workers_sum_up_after_they_have_learned(tmp_path):
    talk = Talk(tmp_path, background=True, debounce_seconds=0, summary_min_turns=4)
    talk.say("one")
    for _ in range(3):
        talk.say("more")
    assert talk.memory.flush(20)
    assert talk.spans == [(1, 1, 4)]
    talk.bs.close()


def test_the_workers_do_not_ask_again_and_again_after_a_failure(tmp_path):
    talk = Talk(tmp_path, background=True, debounce_seconds=0, summary_min_turns=2, summaries="no JSON")
    talk.memory.record("t", [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}])
    assert talk.memory.flush(20)
    assert talk.memory.flush(20)
    assert len(talk.asked) == 1
    talk.memory.record("t", [{"role": "user", "content": "three"}], mode="append")
    talk.memory.record("t", [{"role": "assistant", "content": "four"}], mode="append")
    assert talk.memory.flush(20)
    assert len(talk.asked) == 2
    talk.bs.close()


def test_extract_looks_after_threads_from_which_nothing_is_to_be_learned(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=0)
    # So much that it is not read through when it is opened.
    talk.say("x" * 70_000, thread="u")
    talk.extract()
    talk.memory.log()
    again = talk.reopened(summary_min_turns=4, summary_min_tokens=10**6)
    assert len(again.extract().summaries) == 1
    assert again.spans == [(1, 1, 4)]


# Deciding


def test_a_summary_whose_sources_are_others_by_now_is_discarded(tmp_path):
    talk = Talk(tmp_path, turns=4, summary_min_turns=2)
    talk.extract()
    stale = {name: msgspec.structs.replace(section, summary="other") for name, section in talk.live.sections.items()}
    command = Summarize(
        at="", thread="t", level=2, turns=TurnRange(1, 4), basis=talk.live.seq, text="Never.", sources=stale
    )
    cause = Cause(kind="summary", thread="t", summarized=TurnRange(1, 4), level=2)
    commit = talk.memory._services.writer.commit(command, cause)
    assert (commit.events[0].reason, commit.cause.summarized, commit.cause.level) == ("basis", None, 0)


def test_nothing_tells_an_empty_memory() -> None:
    assert thread_summaries(Memory(), "t") == ()


def test_summaries_of_threads_whose_names_hold_slashes_are_told_apart() -> None:
    names = ("t", "a/t", "1-2/t", "thread/1/1-2/t", "/t", "/")
    told = {SummaryKey(name, 1, TurnRange(1, 2)).section: Section(name, "then", "then", "then") for name in names}
    first, other = Memory(sections=told), Memory(sections={"thread/1/3-4/t": Section("other", "then")})
    for _ in range(2):
        assert [[part.text for part in thread_summaries(first, name)] for name in names] == [[name] for name in names]
        assert [part.text for part in thread_summaries(other, "t")] == ["other"]
    assert thread_summaries(first, "user") == ()


def test_to_look_for_work_in_many_threads_reads_the_names_of_all_summaries_once() -> None:
    class Counted(dict[str, Section]):
        walks = 0

        def __iter__(self) -> Iterator[str]:
            type(self).walks += 1
            return super().__iter__()

    sections = Counted({SummaryKey(f"t{n}", 1, TurnRange(1, 9)).section: Section("x", "then") for n in range(50)})
    memory = Memory(sections=sections)
    for n in range(50):
        assert len(live_summaries(memory, f"t{n}")) == 1
        assert next_group(memory, Coverage(), Thread(f"t{n}"), SummaryLimits()) is None
    assert Counted.walks == 1


def test_a_transcript_that_became_shorter_overtakes_a_call(tmp_path, monkeypatch):
    talk = Talk(tmp_path, turns=4, summary_min_turns=4)
    talk.learn()

    def busy(prompt: object) -> str:
        with talk.memory._services.writer.state() as state:
            thread = state.transcript.threads["t"]
        monkeypatch.setattr(thread, "turns", thread.turns[:2])
        raise ModelUnavailableError("busy")

    talk.summaries = busy
    (summing,) = talk.sum_up()
    assert (len(talk.asked), summing.commit.events[0].reason) == (1, "basis")


# What it is told


def test_a_model_is_told_the_instructions_of_the_operator(tmp_path):
    only = "Never keep anything about health."
    plain = Talk(tmp_path / "plain", turns=11, summary_min_turns=10)
    told = Talk(tmp_path / "told", turns=11, summary_min_turns=10, instructions=only)
    for talk in (plain, told):
        talk.extract()
    before, after = plain.asked[0], told.asked[0]
    assert after.system.startswith(before.system)
    assert only in after.system
    assert (after.user, after.digest == before.digest) == (before.user, False)
