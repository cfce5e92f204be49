"""The end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fakes import PATIENCE, exchange, open_home
from outboxes import ADA, EAGER, Disk, kinds, said, words

from backstory.home import Backstory
from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import LOST, Outbox, QueueLimits


def test_closing_a_home_records_what_waits(home: Path) -> None:
    bs = open_home(home)
    disk = Disk(bs)
    disk.plan = [StoreError("full")]
    assert FailSafeMemory(bs).record(ADA, "t", exchange("tea")) is None
    bs.close()
    with open_home(home) as again:
        assert said(again) == words(exchange("tea"))


def test_what_still_waits_when_a_home_is_closed_is_counted_as_lost(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bs = open_home(home)
    disk = Disk(bs)
    disk.always = StoreError("full")
    door = FailSafeMemory(bs)
    door.record(ADA, "t", exchange("tea"))
    door.record(ADA, "t", exchange("rye"))
    assert not door.flush(PATIENCE)
    assert door.waiting == 2
    bs.close()
    assert door.waiting == 0
    assert "was still queued at the end" in caplog.text
    with open_home(home) as again:
        assert kinds(again)[LOST] == 2


def test_what_is_being_recorded_when_a_home_is_closed_is_counted_too(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [StoreError("full"), hang]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    door.record(ADA, "t", exchange("tea"))
    assert entered.wait(PATIENCE)
    assert not waiting.close(0.01)
    assert waiting._lines.is_busy((ADA, "t"))
    assert (door.waiting, kinds(bs)[LOST]) == (0, 1)
    thread = next(iter(waiting._threads), None)
    opened.set()
    if thread is not None:
        thread.join(PATIENCE)
    assert door.waiting == 0
    assert said(bs) == words(exchange("tea"))
    disk.plan = [StoreError("full")]
    assert door.record(ADA, "t", exchange("rye")) is None
    assert door.flush(PATIENCE)


def test_a_home_that_is_closed_is_a_fault_and_nothing_waits(home: Path) -> None:
    bs = open_home(home)
    door = FailSafeMemory(bs)
    bs.close()
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.guarded(ADA, "inject", lambda: bs.memory("ada").context().text, "nothing") == "nothing"
    assert {fault.doing: fault.kind for fault in bs.faults.of(ADA)} == {"record": "UsageError", "inject": "UsageError"}
    assert door.waiting == 0


def test_a_program_that_never_closes_its_home_tries_once_more_at_its_end(home: Path) -> None:
    program = """
import sys
from backstory import Backstory
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import Outbox
from backstory.outbox.outbox import QueueLimits
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.scope import Scope

bs = Backstory.open(sys.argv[1])
write = bs.store.append
def fail(*_):
    raise StoreError("full")
bs.store.append = fail
messages = [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}]
door = FailSafeMemory(bs, outbox=Outbox(bs.faults, QueueLimits(shortest_pause=600, longest_pause=600)))
for thread in ("t", "u"):
    assert door.record(Scope("ada"), thread, messages) is None
if sys.argv[2] == "well":
    bs.store.append = write
"""
    ended = [
        subprocess.run(
            [sys.executable, "-c", program, str(home), how], check=True, capture_output=True, text=True, timeout=60
        ).stderr
        for how in ("ill", "well")
    ]
    assert LOST in ended[0]
    assert LOST not in ended[1]
    with open_home(home) as bs:
        assert said(bs) == ["I like tea.", "Noted."]
        assert kinds(bs)[LOST] == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_what_waits_to_its_parent_and_has_deliveries_of_its_own(
    bs: Backstory, disk: Disk
) -> None:
    waiting = Outbox(bs.faults, QueueLimits(shortest_pause=30, longest_pause=60))
    register(waiting)  # as the services of a home do for theirs
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    with waiting._changed:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert door.waiting == 0
                disk.plan = [StoreError("full")]
                assert door.record(ADA, "child", exchange("rye")) is None
                assert door.flush(PATIENCE)
                code = 0
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert said(bs, "child") == words(exchange("rye"))
    assert said(bs) == []
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))
