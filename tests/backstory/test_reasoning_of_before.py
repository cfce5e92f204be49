"""Homes with reasoning that an older version recorded: what is sent again is known, and nothing is pending."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeClock, open_home, reply

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.errors import KeyReusedError
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.messages import Kept

IDS = pytest.mark.parametrize("with_ids", [False, True])

TALK = [
    ("user", "Where do I live in the summer?"),
    ("assistant", "<think>They ask where.</think>\n\nYou live in Bergen in the summer."),
    ("user", "And in the winter, when it snows?"),
    ("assistant", "◁think▷Winter.◁/think▷In Oslo, with your sister."),
    ("user", "<think>I wonder</think> Who else is there?"),
    ("assistant", "<think>Who else might"),
    ("assistant", "<think>Her cat.</think>Her cat Mia is there, too."),
    ("user", "What does the cat like to eat?"),
    ("assistant", "<think>Nothing is known.</think>"),
    ("user", "Never mind, tell me of the boat."),
    ("assistant", "<think>A boat."),
]
SPOKEN = ["You live in Bergen in the summer.", "In Oslo, with your sister.", "Her cat Mia is there, too."]


@pytest.fixture
def home(tmp_path: Path):
    with open_home(tmp_path, clock=FakeClock()) as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    return home.memory("ada")


def key_of(n: int, *, with_ids: bool) -> str | None:
    return f"m{n}" if with_ids else None


def sent(*, with_ids: bool, stripped: bool = False) -> list[dict[str, object]]:
    """The whole conversation as a host sends it: with the reasoning, or without it."""
    messages = []
    for n, (role, text) in enumerate(TALK):
        said = text.rpartition("think>")[2].rpartition("/think▷")[2].strip() if role == "assistant" else text
        if stripped and not (text.count("think") > 1 or role == "user"):
            continue
        message = {"role": role, "content": said if stripped else text, "id": key_of(n, with_ids=with_ids)}
        if message["content"]:
            messages.append({name: value for name, value in message.items() if value is not None})
    return messages


def record_as_before(memory: MemoryHandle, *, with_ids: bool) -> None:
    """Record it as the version before did: every word of it."""
    kept = [Kept(role, text, key_of(n, with_ids=with_ids)) for n, (role, text) in enumerate(TALK)]
    memory.intake.take_in("t", kept)
    memory.extract([RecordedReply("t", reply("User lives in Bergen"))])
    assert memory.status().pending == ()


@IDS
def test_a_home_of_before_that_is_sent_whole_again_has_nothing_new(memory: MemoryHandle, with_ids: bool) -> None:
    record_as_before(memory, with_ids=with_ids)
    for _ in range(2):
        result = memory.record("t", sent(with_ids=with_ids))
        assert (result.turns, result.superseded) == (0, 0)
    assert memory.status().pending == ()
    assert [turn.content for turn in memory.transcript("t")] == [text for _, text in TALK]


@IDS
@pytest.mark.parametrize("n", range(len(TALK)))
def test_one_that_was_erased_stays_out(memory: MemoryHandle, with_ids: bool, n: int) -> None:
    record_as_before(memory, with_ids=with_ids)
    words = TALK[n][1]
    memory.forget(matching=words)
    assert words not in [turn.content for turn in memory.transcript("t")]
    left = len(memory.transcript("t"))
    result = memory.record("t", sent(with_ids=with_ids))
    assert (result.turns, result.superseded) == (0, 0)
    assert memory.status().pending == ()
    assert len(memory.transcript("t")) == left


@IDS
def test_a_client_that_strips_reasoning_is_known_as_well(memory: MemoryHandle, with_ids: bool) -> None:
    record_as_before(memory, with_ids=with_ids)
    result = memory.record("t", sent(with_ids=with_ids, stripped=True)[:7])
    assert (result.turns, result.superseded) == (0, 0)
    assert memory.status().pending == ()


@IDS
def test_what_follows_is_recorded_without_reasoning(memory: MemoryHandle, with_ids: bool) -> None:
    record_as_before(memory, with_ids=with_ids)
    more = [
        {"role": "user", "content": "How old is the cat of my sister?"},
        {"role": "assistant", "content": "<think>Old.</think>She is nine years old."},
    ]
    if with_ids:
        more = [{**message, "id": f"x{n}"} for n, message in enumerate(more)]
    for _ in range(2):
        memory.record("t", [*sent(with_ids=with_ids), *more])
    new = [turn.content for turn in memory.transcript("t")[len(TALK) :]]
    assert new == ["How old is the cat of my sister?", "She is nine years old."]


@IDS
def test_a_thread_that_replaces_itself_stays_as_it_is(memory: MemoryHandle, with_ids: bool) -> None:
    record_as_before(memory, with_ids=with_ids)
    result = memory.record("t", sent(with_ids=with_ids), mode="replace")
    assert (result.turns, result.superseded) == (0, 0)


def test_another_answer_under_a_known_id_is_a_revision_and_other_reasoning_is_none(memory: MemoryHandle) -> None:
    record_as_before(memory, with_ids=True)
    again = {
        "role": "assistant",
        "id": "m1",
        "content": "<think>Other thoughts.</think>You live in Bergen in the summer.",
    }
    assert memory.record("t", [again]).turns == 0
    other = {**again, "content": "<think>They ask where.</think>You live in Voss."}
    result = memory.record("t", [other])
    assert (result.turns, result.superseded) == (1, 1)
    assert memory.transcript("t")[-1].content == "You live in Voss."


def test_a_delivery_that_is_tried_again_after_the_update_is_the_same(home: Backstory, memory: MemoryHandle) -> None:
    keyed = memory.once("k1")
    keyed.intake.take_in("t", [Kept(role, text) for role, text in TALK[:4]])
    result = keyed.record("t", sent(with_ids=False)[:4])
    assert result.turns == 4
    assert len(memory.transcript("t")) == 4
    with pytest.raises(KeyReusedError):
        keyed.record("t", [{"role": "user", "content": "Something else entirely"}])


def test_the_thread_of_before_is_found(memory: MemoryHandle) -> None:
    memory.intake.take_in("t", [Kept(role, text) for role, text in TALK[:4]])
    for stripped in (False, True):
        asked = [*sent(with_ids=False, stripped=stripped)[:4], {"role": "user", "content": "And the cat?"}]
        assert memory.find_threads(asked) == ("t",)


def test_reasoning_is_neither_recorded_nor_found_nor_learned_from(memory: MemoryHandle) -> None:
    memory.record("t", sent(with_ids=False)[:7])
    assert [turn.content for turn in memory.transcript("t") if turn.role == "assistant"] == SPOKEN
    assert all("They ask" not in hit.content for hit in memory.search("They ask where", within="turns"))
