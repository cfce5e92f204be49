"""What the agent had been given to read when it said something."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeClock, open_home

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.projections.context import Given
from backstory.projections.context.why_said import GivenFact


@pytest.fixture
def home(tmp_path: Path):
    with open_home(tmp_path, clock=FakeClock(), max_facts=500) as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    return home.memory("ada")


def answer(memory: MemoryHandle, words: str = "What do I like?", *, thread: str = "t", key: str = "a1") -> None:
    """Ask with memory, and record question and answer as a host does."""
    said = {"role": "assistant", "id": key, "content": "Tea.", "metadata": {"mood": 1, **memory.context(words).note()}}
    memory.record(thread, [{"role": "user", "id": f"q-{key}", "content": words}, said])


def test_an_answer_tells_the_facts_as_they_were_when_it_was_given(memory: MemoryHandle) -> None:
    tea = memory.add_fact("Ada likes tea").fact.id
    rum = memory.add_fact("Ada likes rum", "preference", 0.7).fact.id
    seq = memory.head().seq
    answer(memory)
    memory.edit_fact(tea, "Ada likes green tea")
    memory.remove_fact(rum)
    memory.add_fact("Ada likes milk")
    why = memory.why_said("a1")
    assert (why.turn, why.thread, why.role, why.content, why.noted, why.seq) == (
        "a1",
        "t",
        "assistant",
        "Tea.",
        True,
        seq,
    )
    assert why.holds
    assert why.facts == (
        GivenFact(tea, live=True, content="Ada likes tea", category="context", confidence=0.9),
        GivenFact(rum, live=False, content="Ada likes rum", category="preference", confidence=0.7),
    )


def test_the_note_holds_ids_and_a_digest_and_no_text(memory: MemoryHandle) -> None:
    tea = memory.add_fact("Ada likes tea").fact.id
    answer(memory)
    noted = memory.transcript("t")[-1].metadata
    assert noted["mood"] == 1
    assert set(noted["context"]) == {"seq", "digest", "facts", "turns"}
    assert (noted["context"]["facts"], noted["context"]["turns"]) == ([tea], [])
    assert "likes" not in str(noted)


def test_the_same_block_has_the_same_digest_and_another_one_has_not(memory: MemoryHandle) -> None:
    memory.import_document([{"content": f"Ada was in town number {n}", "confidence": 0.9} for n in range(200)])
    one, same, other = (memory.context(words).digest for words in ("town number 7", "town number 7", "number 9"))
    assert one == same != other
    memory.add_fact("Ada likes tea", confidence=0.1)
    assert memory.context("town number 7").digest != one


@pytest.mark.parametrize("matching", [False, True])
def test_a_fact_that_was_erased_is_named_without_its_text_and_can_not_be_guessed(
    memory: MemoryHandle, tmp_path: Path, matching: bool
) -> None:
    tea = memory.add_fact("Ada likes secretwords").fact.id
    answer(memory)
    if matching:
        memory.forget(matching="secretwords")
    else:
        memory.forget(fact_id=tea)
    why = memory.why_said("a1")
    assert why.facts == (GivenFact(tea, live=False),)
    # The hash of the commit stays, so it still shows that nothing was exchanged.
    assert why.holds
    assert memory.verify().ok
    assert b"secretwords" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_thread_that_is_forgotten_takes_its_notes_along(memory: MemoryHandle) -> None:
    memory.add_fact("Ada likes tea")
    answer(memory)
    memory.forget(thread_id="t")
    with pytest.raises(NotFoundError, match="no turn a1"):
        memory.why_said("a1")


def test_an_id_of_a_fact_is_no_content_that_is_searched_for_erasure(memory: MemoryHandle) -> None:
    tea = memory.add_fact("Ada likes tea").fact.id
    answer(memory)
    memory.forget(fact_id=tea)
    assert [turn.content for turn in memory.transcript("t")] == ["What do I like?", "Tea."]


def test_a_turn_without_a_note_says_so(memory: MemoryHandle) -> None:
    memory.record("t", [{"role": "user", "content": "Hi"}, {"role": "assistant", "id": "a", "content": "Hello"}])
    for turn in ("t1", "a"):
        why = memory.why_said(turn)
        assert (why.noted, why.seq, why.facts) == (False, None, ())


@pytest.mark.parametrize("held", ["mine", {"seq": 1}, {"seq": "x", "digest": "", "facts": [], "turns": []}, None])
def test_what_a_host_keeps_under_the_same_name_is_no_note(memory: MemoryHandle, held: object) -> None:
    memory.record("t", [{"role": "assistant", "id": "a", "content": "Hello", "metadata": {"context": held}}])
    assert not memory.why_said("a").noted


def test_an_empty_memory_gives_nothing_to_note(memory: MemoryHandle) -> None:
    assert memory.context("tea").note() == {}


def test_an_id_in_several_threads_needs_the_thread(memory: MemoryHandle) -> None:
    memory.add_fact("Ada likes tea")
    answer(memory, thread="one")
    answer(memory, thread="two")
    with pytest.raises(UsageError, match="2 threads have a turn a1"):
        memory.why_said("a1")
    assert memory.why_said("a1", "two").thread == "two"
    with pytest.raises(NotFoundError, match="no thread three"):
        memory.why_said("a1", "three")


def test_an_agent_that_was_given_its_users_memory_tells_that(tmp_path: Path) -> None:
    with open_home(tmp_path / "fallback", agent_reads="fallback") as home:
        tea = home.memory("ada").add_fact("Ada likes tea").fact.id
        agent = home.memory("ada", "writer")
        answer(agent)
        agent.add_fact("Ada wants short texts")
        why = agent.why_said("a1")
    assert (why.of_user, why.holds) == (True, True)
    assert why.facts == (GivenFact(tea, live=True, content="Ada likes tea", category="context", confidence=0.9),)


def test_a_note_of_another_ledger_does_not_hold(memory: MemoryHandle) -> None:
    memory.add_fact("Ada likes tea")
    given = Given(seq=99, digest="0" * 64, facts=("fact_2_0", "fact_98_0"), turns=())
    memory.record("t", [{"role": "assistant", "id": "a", "content": "Tea.", "metadata": given.noted()}])
    why = memory.why_said("a")
    assert (why.noted, why.holds) == (True, False)
    assert why.facts == (GivenFact("fact_2_0", live=True), GivenFact("fact_98_0", live=False))
