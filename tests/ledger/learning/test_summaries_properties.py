"""What holds of summaries whatever is said, fails, or is taken back."""

from __future__ import annotations

import json
from itertools import pairwise

from fakes import Step
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples
from summing import Talk

from backstory.ledger.core.errors import ModelRejectedError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Section, TurnRange
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.summaries import SummaryKey, live_summaries, overlapping_summaries
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.document.document import render
from backstory.projections.history.moment import replay
from backstory.projections.what_if.counterfactual import decide_again

THREADS = ("t", "1-2/t")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(THREADS), st.integers(1, 14)),
        st.tuples(st.just("extract"), st.integers(0, 2**16), st.just(0)),
        st.tuples(st.sampled_from(["worker", "replies"]), st.integers(0, 2**16), st.just(0)),
        st.tuples(st.sampled_from(["revert", "rollback"]), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=10,
)


def moody(mood: int) -> Step:
    """A model that fails now and then, each time in another way."""
    moods = [mood]

    def answer(prompt: object) -> str:
        moods[0] = (moods[0] * 25173 + 13849) % 65536
        match moods[0] % 9:
            case 0:
                return "no JSON"
            case 1:
                raise ModelRejectedError("no")
            case _:
                return json.dumps({"summary": f"Mood {moods[0]}."})

    return answer


def do(talk: Talk, what: str, first: object, count: int) -> None:
    last = talk.live.seq
    match what:
        case "say":
            for _ in range(count):
                talk.say(thread=str(first))
        case "extract":
            talk.summaries = talk.mergings = moody(int(first))  # type: ignore[call-overload]
            talk.extract()
        case "worker":
            talk.summaries = talk.mergings = moody(int(first))  # type: ignore[call-overload]
            talk.sum_up()
        case "replies":
            before = len(talk.asked)
            talk.memory.extract([RecordedReply(thread, '{"newFacts":[],"summary":"no"}') for thread in THREADS])
            assert len(talk.asked) == before
        case "revert" if last > 1:
            talk.memory.revert(2 + int(float(first) * (last - 2)))  # type: ignore[arg-type]
        case "rollback" if last > 0:
            talk.memory.rollback(1 + int(float(first) * (last - 1)))  # type: ignore[arg-type]
        case "clear":
            talk.memory.clear()
        case _:
            pass


def must_be_apart(memory: Memory) -> None:
    for thread in THREADS:
        found = [summed.turns for summed, _ in live_summaries(memory, thread)]
        assert all(a.last < b.first for a, b in pairwise(found))


@settings(max_examples=examples(1 / 4))
@given(steps, st.sampled_from([1, 2]))
def test_summaries_are_apart_and_in_order_and_made_once_whatever_happens(
    tmp_path_factory, story: list[tuple[str, object, int]], group: int
) -> None:
    talk = Talk(tmp_path_factory.mktemp("home"), turns=12, summary_min_turns=group)
    for what, first, count in [("extract", 0, 0), *story]:
        do(talk, what, first, count)
        must_be_apart(talk.live)
    fold, made = Fold(Memory()), dict[tuple[str, int], int]()
    for commit in talk.commits:
        before, cause = fold.memory(), commit.cause
        fold.advance(commit.seq, commit.at, cause.kind, commit.events)
        if cause.kind == "summary":
            assert render(fold.memory()) == render(before)
            assert cause.turns is None
        if cause.summarized is not None:
            level = (cause.thread or "", cause.level)
            assert cause.summarized.first > made.get(level, 0)
            made[level] = cause.summarized.last
    assert fold.memory() == replay(talk.bs.store, talk.memory.scope) == talk.live
    assert decide_again(talk.commits, {}).sections == talk.live.sections
    assert talk.memory.verify().ok
    talk.bs.close()


@settings(max_examples=examples(1 / 8))
@given(st.integers(10, 33), st.data())
def test_a_revert_gives_the_sections_before_the_summary(tmp_path_factory, turns: int, data: st.DataObject) -> None:
    talk = Talk(tmp_path_factory.mktemp("home"), turns=turns, summary_min_turns=1)
    seqs = talk.extract().summaries
    seq = data.draw(st.sampled_from(seqs))
    talk.memory.rollback(seq)
    after = talk.live.sections
    change = talk.memory.diff(seq, seq - 1)
    talk.memory.revert(seq)
    assert {c.section: c.after for c in talk.memory.diff(seq, talk.live.seq).sections} == {
        c.section: c.after for c in change.sections
    }
    talk.memory.revert("HEAD")
    assert talk.live.sections == after
    talk.bs.close()


names = st.text(min_size=1)
spans = st.builds(lambda first, more: TurnRange(first, first + more), st.integers(1, 40), st.integers(0, 20))
summed = st.builds(SummaryKey, names, st.integers(1, 9), spans)


@given(summed)
def test_a_name_says_what_it_names(one: SummaryKey) -> None:
    assert SummaryKey.of(one.section) == one
    assert one.section not in DOCUMENT_SECTIONS


@given(st.lists(summed.map(lambda one: SummaryKey("t", one.level, one.turns))), st.data())
def test_nothing_is_brought_back_beside_what_tells_of_it(all_of_them: list[SummaryKey], data: st.DataObject) -> None:
    planned = {one.section: Section("said") for one in all_of_them}
    now = {name: Section("said") for name in planned if data.draw(st.booleans())}
    left = planned.keys() - overlapping_summaries(now, planned)
    assert now.keys() <= left
    for name in left - now.keys():
        one = SummaryKey.of(name)
        assert one is not None
        assert not any(one.overlaps(SummaryKey.of(other)) for other in now)  # type: ignore[arg-type]
