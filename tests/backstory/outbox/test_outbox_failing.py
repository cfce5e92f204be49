"""Memory fails."""

from __future__ import annotations

import pytest
from fakes import PATIENCE, exchange
from outboxes import ADA, BOB, Disk, kinds, said, words

from backstory.home import Backstory
from backstory.ledger.core.errors import CorruptLogError, LockTimeoutError, StoreError
from backstory.ledger.threads.delivery.turn_dedup import Mode
from backstory.operations.recording import Intake
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.results import RecordResult


@pytest.mark.parametrize(
    "error",
    [
        StoreError("the disk is full"),
        LockTimeoutError("locked"),
        CorruptLogError("damaged", kind="altered", stream="s", line=1, byte=0),
        OSError(5, "Input/output error"),
        MemoryError(),
        KeyError("surprise"),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_delivery_that_fails_waits_and_is_recorded_later(
    error: Exception, bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [error]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert (door.waiting, said(bs)) == (1, [])
    assert sum(kinds(bs).values()) == 1
    assert door.flush(PATIENCE)
    assert (door.waiting, said(bs)) == (0, words(exchange("tea")))


def test_the_next_delivery_of_a_thread_takes_along_what_waits_there(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "t", exchange("rye")) == RecordResult(1, 2, 0)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])
    assert door.waiting == 0


def test_what_was_filtered_of_a_delivery_that_waited_counts_as_skipped(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    assert door.record(ADA, "t", [{"role": "tool", "content": "42"}, *exchange("rye")]) == RecordResult(1, 2, 1)


def test_where_the_first_still_fails_nothing_overtakes_it(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    disk.plan = [StoreError("full"), StoreError("full")]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "t", exchange("rye")) is None
    assert disk.calls == 2
    assert door.waiting == 2
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_other_threads_and_memories_go_on(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "other", exchange("rye")) is not None
    assert door.record(BOB, "t", exchange("oat")) is not None
    assert door.waiting == 1


def test_words_written_before_the_failure_are_not_written_twice(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan, disk.afterwards = [StoreError("interrupted")], True
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_what_a_host_does_to_its_messages_later_changes_nothing(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    metadata = {"place": ["here"]}
    mine: list[object] = [
        {"role": "user", "content": "one", "metadata": metadata},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        HumanMessage("three"),
        AIMessage("four"),
    ]
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", mine) is None
    mine[0]["content"] = mine[1]["content"][0]["text"] = mine[2].content = "changed"  # type: ignore[index,attr-defined]
    metadata["place"][0] = "changed"
    mine.clear()
    assert door.flush(PATIENCE)
    assert said(bs) == ["one", "two", "three", "four"]
    assert bs.memory("ada").transcript("t")[0].metadata == {"place": ["here"]}


def test_what_waits_leads_to_the_very_turns_that_it_would_have_led_to(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    messages = [
        {"role": "user", "content": "<uploaded_files>a.txt</uploaded_files>", "id": "1"},
        {"role": "assistant", "content": "I see a file", "id": "2"},
        {"role": "user", "content": "<mem<memory>x</memory>ory>left</memory>", "id": "3", "name": "Ada"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}], "id": "4"},
        {"role": "tool", "content": "42", "id": "5"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "psst", "hidden": True},
        {"role": "assistant", "content": "bye", "at": "2026-01-01T00:00:00Z", "send_to": ["ada"], "cause_by": "x"},
    ]
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", messages) is None
    assert door.record(BOB, "t", messages) is not None
    assert door.flush(PATIENCE)
    mine, others = bs.memory("ada").transcript("t"), bs.memory("bob").transcript("t")
    assert mine == others
    assert len(mine) == 2


def test_who_is_asked_about_hidden_words_is_asked_when_they_are_handed_over(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    asked: list[object] = []

    def keep(extra: object) -> bool:
        asked.append(extra)
        return extra == {"mine": 1}

    messages = [
        {"role": "user", "content": "kept", "metadata": {"hidden": True}, "additional_kwargs": {"mine": 1}},
        {"role": "user", "content": "left", "hidden": True, "additional_kwargs": {"mine": 2}},
    ]
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", messages, keep_hidden=keep) is None
    asked.clear()
    assert door.flush(PATIENCE)
    assert (said(bs), asked) == (["kept"], [])


def test_words_wanted_at_once_are_wanted_at_once_when_they_are_recorded_later(
    bs: Backstory, door: FailSafeMemory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[bool] = []
    take_in = Intake.take_in

    def watched(self: Intake, *given: object, immediate: bool, **more: object) -> RecordResult:
        wanted.append(immediate)
        return take_in(self, *given, immediate=immediate, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Intake, "take_in", watched)
    disk.plan = [LockTimeoutError("locked"), *[None] * 9]
    whole = exchange("tea")
    assert door.record(ADA, "t", whole, immediate=True) is None
    assert door.record(ADA, "t", [*whole, *exchange("rye")]) is None
    assert door.flush(PATIENCE)
    assert wanted == [True, True]


def test_a_host_that_repeats_the_whole_conversation_does_not_make_it_wait_many_times(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.always = LockTimeoutError("locked")
    whole: list[dict[str, object]] = []
    for number in range(50):
        whole += exchange(f"tea {number}")
        assert door.record(ADA, "t", whole, immediate=number == 3) is None
    assert door.waiting == 1
    disk.always = None
    assert door.flush(PATIENCE)
    assert said(bs) == words(whole)


YES: dict[str, object] = {"role": "user", "content": "yes"}
BIKE: dict[str, object] = {"role": "user", "content": "Remind me to buy a new bicycle."}


def numbered(*ids: str) -> list[dict[str, object]]:
    """Spell questions and answers of these ids, such as q1 and a1."""
    return [{"role": "user" if name[0] == "q" else "assistant", "content": f"Say {name}.", "id": name} for name in ids]


@pytest.mark.parametrize(
    ("deliveries", "standing"),
    [
        ([("conversation", [YES]), ("conversation", [YES])], ["yes", "yes"]),
        ([("append", [BIKE]), ("append", [BIKE])], [BIKE["content"]] * 2),
        ([("append", [BIKE]), ("append", [BIKE, YES])], [BIKE["content"], BIKE["content"], "yes"]),
        (
            [("branch", numbered("q1", "a1", "q3")), ("conversation", numbered("q1", "a1", "q3", "a3"))],
            ["Say q1.", "Say a1.", "Say q3.", "Say a3."],
        ),
    ],
    ids=["a single word", "append", "append of more", "an edit"],
)
def test_deliveries_that_wait_lead_to_the_turns_of_each(
    bs: Backstory,
    door: FailSafeMemory,
    disk: Disk,
    deliveries: list[tuple[Mode, list[dict[str, object]]]],
    standing: object,
) -> None:
    if deliveries[0][0] == "branch":
        door.record(ADA, "t", numbered("q1", "a1", "q2", "a2"))
    disk.always = LockTimeoutError("locked")
    for mode, messages in deliveries:
        door.record(ADA, "t", messages, mode=mode)
    disk.always = None
    assert door.flush(PATIENCE)
    assert said(bs) == standing


def test_a_delivery_that_says_something_else_waits_beside_the_other(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.always = LockTimeoutError("locked")
    door.record(ADA, "t", exchange("tea"))
    door.record(ADA, "t", exchange("rye"))
    door.record(ADA, "t", [*exchange("rye"), *exchange("oat")])
    assert door.waiting == 2
    disk.always = None
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye"), *exchange("oat")])
