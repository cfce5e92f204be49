"""Many conversations at once: no turn is lost, none is learned from twice, and memory is what one thread leaves."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fakes import PATIENCE, exchange
from sizes import sized

from backstory.home import Backstory
from backstory.ledger.core.commands import FailUpdate
from backstory.ledger.core.commit import Cause
from backstory.ledger.core.events import TurnRange
from benchmarks.conversing import Findings, Message, StandIn, Talk, compared, deliver, generated, opened, real, talked

THREADS = 16
_DATA = os.environ.get("BACKSTORY_DATA")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    # It names the data, and is no setting of what is tried.
    monkeypatch.delenv("BACKSTORY_DATA", raising=False)


def one_by_one(tmp_path: Path, talks: list[Talk]) -> Findings:
    """What is found where one thread talks, and another learns."""
    model = StandIn()
    with opened(tmp_path / "shared", model, background=True, workers=1) as bs:
        talked(bs, talks, threads=1)
        return compared(bs, model, talks, tmp_path / "alone", workers=1)


def spoilt(tmp_path: Path, talks: list[Talk], said: list[Talk]) -> Findings:
    """What is found where something else was said than is looked for."""
    model = StandIn()
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, said, threads=1)
        return compared(bs, model, talks, tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("users", [1, 5])
def test_sixteen_threads_leave_what_one_leaves(tmp_path: Path, users: int) -> None:
    model, talks = StandIn(), generated(48, users)
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, talks, threads=THREADS)
        found = compared(bs, model, talks, tmp_path / "alone")
    assert (found.faults, found.quiet) == (0, 0), found
    assert found.turns == sum(len(talk.messages) for talk in talks)
    assert found.updates >= len(talks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "workers"),
    [(1, 8), (THREADS, 2), *(pytest.param(*more, marks=pytest.mark.torture) for more in ((1, 2), (THREADS, 8)))],
)
def test_sixteen_threads_with_many_conversations_each_leave_what_one_leaves(
    tmp_path: Path, users: int, workers: int
) -> None:
    model, talks = StandIn(), generated(THREADS * sized(2, 20), users)
    with opened(tmp_path / "shared", model, background=True, workers=workers) as bs:
        talked(bs, talks, threads=THREADS)
        found = compared(bs, model, talks, tmp_path / "alone", workers=workers)
    assert found.faults == 0, found


@pytest.mark.torture
@pytest.mark.skipif(not _DATA, reason="BACKSTORY_DATA is not set: name a folder of NAME.conversation.jsonl")
@pytest.mark.parametrize("users", [1, THREADS])
def test_so_they_do_with_real_conversations(tmp_path: Path, users: int) -> None:
    model, talks = StandIn(), real(Path(_DATA or ""), 240, users)
    assert len(talks) == 240
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, talks, threads=THREADS)
        found = compared(bs, model, talks, tmp_path / "alone")
    assert found.faults == 0, found


def test_two_agents_at_once_on_each_conversation_double_nothing(tmp_path: Path) -> None:
    model = StandIn()
    talks = [
        msgspec.structs.replace(talk, messages=tuple({**m, "id": f"{n}"} for n, m in enumerate(talk.messages)))
        for talk in generated(16)
    ]
    together = threading.Barrier(2, timeout=PATIENCE)

    def both(bs: Backstory, talk: Talk) -> Iterator[object]:
        for end in talk.turns():
            together.wait()
            yield bs.memory(talk.user).record(talk.thread, talk.messages[:end])

    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, [talk for talk in talks for _ in range(2)], threads=2, deliver=both)
        found = compared(bs, model, talks, tmp_path / "alone")
    assert found.faults == 0, found


@pytest.mark.slow
def test_one_thread_leaves_the_same_however_often_it_learns(tmp_path: Path) -> None:
    assert one_by_one(tmp_path, generated(24, 3)).faults == 0


@pytest.mark.slow
def test_what_is_left_in_a_full_memory_does_not_depend_on_who_came_first(tmp_path: Path) -> None:
    talks = generated(24)
    forth = one_by_one(tmp_path / "forth", talks)
    with opened(tmp_path / "back", model := StandIn(), background=False, max_facts=10) as bs:
        for talk in reversed(talks):
            for _ in deliver(bs, talk):
                bs.memory(talk.user).extract(thread=talk.thread)
        back = compared(bs, model, talks, tmp_path / "back alone", max_facts=10)
    assert (forth.faults, back.faults) == (0, 0)
    assert back.facts == 10 < forth.facts


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [24, pytest.param(THREADS * 10, marks=pytest.mark.torture)], ids=["a few", "ten for each thread"]
)
def test_sixteen_threads_that_talk_to_one_agent_leave_what_one_leaves(tmp_path: Path, count: int) -> None:
    pytest.importorskip("langchain", reason="the extra [langchain] is not installed")
    from backstory.langchain import BackstoryMiddleware
    from benchmarks.plugging import answered, through

    model, talks = StandIn(), [answered(talk) for talk in generated(count, 3)]
    with opened(tmp_path / "shared", model, background=True) as bs, BackstoryMiddleware(bs) as middleware:
        talked(bs, talks, threads=THREADS, deliver=through(middleware))
        found = compared(bs, model, talks, tmp_path / "alone")
        assert all(bs.memory(talk.user).status().faults == () for talk in talks)
    assert found.faults == 0, found
    # A question is recorded before its answer is there, and may be learned from by then: the answer goes along later.
    assert found.quiet <= len(talks)


# That the comparison finds what is wrong.


def test_what_was_not_recorded_of_a_conversation_or_none_of_it_is_found(tmp_path: Path) -> None:
    talks = generated(8)
    said = [*talks[:3], msgspec.structs.replace(talks[3], messages=talks[3].messages[:2]), *talks[4:7]]
    found = spoilt(tmp_path, talks, said)
    missing = len(talks[3].messages) - 2 + len(talks[7].messages)
    assert (found.lost, found.doubled, found.differing) == (missing, 0, 2)


def test_a_conversation_that_was_recorded_twice_is_found(tmp_path: Path) -> None:
    talks = generated(8)
    again = tuple({**message, "id": f"again{n}"} for n, message in enumerate(talks[3].messages))
    said = [*talks[:3], msgspec.structs.replace(talks[3], messages=(*talks[3].messages, *again)), *talks[4:]]
    found = spoilt(tmp_path, talks, said)
    assert (found.lost, found.doubled, found.differing) == (0, len(again), 1)


def test_a_turn_that_the_model_was_shown_twice_or_never_is_found(tmp_path: Path) -> None:
    model, talks = StandIn(), generated(4)
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, talks, threads=1)
        model.seen[talks[0].thread, 1] += 2
        del model.seen[talks[1].thread, 2]
        found = compared(bs, model, talks, tmp_path / "alone")
    assert (found.seen_again, found.unseen, found.faults) == (2, 1, 3)


def test_a_turn_that_two_updates_cover_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, talks = StandIn(), generated(4)
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, talks, threads=1)
        memory, thread = bs.memory(talks[0].user), talks[0].thread
        monkeypatch.setattr(memory._services.writer, "_is_covered", lambda cause: False)
        memory._services.writer.commit(
            FailUpdate(at="", reason="discarded", detail="", attempts=1, basis=memory.head().seq),
            Cause(kind="extraction", thread=thread, turns=TurnRange(1, 2)),
        )
        found = compared(bs, model, talks, tmp_path / "alone")
    assert (found.doubled, found.faults) == (2, 2)


def test_words_that_wait_for_an_answer_are_not_lost_and_are_told(tmp_path: Path) -> None:
    model, talks = StandIn(), generated(4)
    question: Message = {"role": "user", "content": "And what of tomorrow?", "id": "late"}
    talks[3] = msgspec.structs.replace(talks[3], messages=(*talks[3].messages, question))
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, talks, threads=1)
        bs.memory(talks[3].user).record(talks[3].thread, [question])
        found = compared(bs, model, talks, tmp_path / "alone")
    # One thread that learns of all of it at once takes the question along.
    assert (found.quiet, found.lost, found.unseen, found.unfinished, found.differing) == (1, 0, 0, 0, 1)


def test_what_is_due_and_what_was_learned_of_something_else_is_found(tmp_path: Path) -> None:
    model, talks = StandIn(), generated(4)
    with opened(tmp_path / "shared", model, background=True) as bs:
        talked(bs, talks, threads=1)
    with opened(tmp_path / "shared", model, background=False) as bs:
        memory = bs.memory(talks[0].user)
        memory.record("elsewhere", exchange("tea"))
        memory.edit_fact(memory.facts()[0].id, content="Something else")
        found = compared(bs, model, talks, tmp_path / "alone")
    assert (found.unfinished, found.differing, found.faults) == (1, 1, 2)
