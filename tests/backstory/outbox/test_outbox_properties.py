"""In general."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, exchange, open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from outboxes import ADA, BOB, EAGER, Disk, Elapsed, by_hand, kinds, said, words
from sizes import examples

from backstory.home import Backstory
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.scope import Scope
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import LOST, Outbox, QueueLimits

FAILURES = st.sampled_from(
    [None, None, StoreError("full"), LockTimeoutError("locked"), KeyError("a bug"), OSError(28, "full")]
)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "repeat", "flush"]), st.sampled_from(["a", "b"]), st.lists(FAILURES)
    ),
    max_size=12,
)


@pytest.mark.parametrize("whole", [True, False], ids=["whole conversations", "only what is new"])
@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "without ids"])
@settings(max_examples=examples())
@given(steps=STEPS, afterwards=st.booleans())
def test_no_turn_is_lost_or_doubled_and_threads_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    whole: bool,
    ids: bool,
    steps: list[tuple[str, str, list[BaseException | None]]],
    afterwards: bool,
) -> None:
    home = tmp_path_factory.mktemp("home")
    told: dict[str, list[dict[str, object]]] = {"a": [], "b": []}
    with open_home(home, clock=FakeClock()) as bs:
        elapsed, disk = Elapsed(), Disk(bs)
        door = by_hand(bs, elapsed, QueueLimits(attempts=1_000))
        disk.afterwards = afterwards
        for number, (step, thread, plan) in enumerate(steps):
            disk.plan = list(plan)
            if step == "flush":
                assert door.flush(PATIENCE) == (door.waiting == 0)
                continue
            new = exchange(f"tea {number}", number if ids else None) if step == "say" or not whole else []
            told[thread] += new
            waited = door.waiting
            done = door.record(ADA, thread, told[thread] if whole else new)
            assert done is not None or door.waiting or not waited
            elapsed.now += 1
        disk.plan = []
        assert door.flush(PATIENCE)
        for thread, messages in told.items():
            assert said(bs, thread) == words(messages)
        assert LOST not in kinds(bs)
    with open_home(home) as again:
        assert [said(again, thread) for thread in told] == [words(messages) for messages in told.values()]


def test_sixteen_agents_lose_nothing_while_memory_fails_again_and_again(home: Path) -> None:
    with open_home(home) as bs:
        disk = Disk(bs)
        turn = iter(range(1_000_000))
        lock = threading.Lock()
        write = disk._append

        def fail(stream: str, lines: Sequence[bytes], expected: int) -> None:
            with lock:
                number = next(turn)
            match number % 7:
                case 1:
                    raise StoreError("full")
                case 3:
                    raise LockTimeoutError("locked")
                case 5:
                    write(stream, lines, expected)
                    raise OSError(5, "Input/output error")
            write(stream, lines, expected)

        bs.store.append = fail  # type: ignore[method-assign]
        door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
        told: dict[tuple[Scope, str], list[dict[str, object]]] = {}

        def agent(number: int) -> None:
            scope, thread = (ADA, BOB)[number % 2], f"t{number}"
            mine = told[scope, thread] = []
            for count in range(12):
                mine += exchange(f"tea {count}")
                door.record(scope, thread, mine)

        agents = [threading.Thread(target=agent, args=(number,)) for number in range(16)]
        for running in agents:
            running.start()
        for running in agents:
            running.join(PATIENCE)
        for _ in range(1_000):
            if door.flush(PATIENCE):
                break
        assert door.waiting == 0
        for (scope, thread), mine in told.items():
            assert said(bs, thread, scope) == words(mine)
        assert LOST not in kinds(bs)


def test_agents_that_share_a_thread_lose_nothing(bs: Backstory, disk: Disk) -> None:
    disk.plan = [StoreError("full") if number % 3 == 0 else None for number in range(60)]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))

    def agent(number: int) -> None:
        for count in range(10):
            door.record(ADA, "t", exchange(f"{number}.{count}", number * 100 + count))

    agents = [threading.Thread(target=agent, args=(number,)) for number in range(8)]
    for running in agents:
        running.start()
    for running in agents:
        running.join(PATIENCE)
    while not door.flush(PATIENCE):
        pass
    assert sorted(said(bs)) == sorted(
        str(word) for number in range(8) for count in range(10) for word in words(exchange(f"{number}.{count}"))
    )
