"""What is about all that was said knows of what waits, too."""

from __future__ import annotations

import pytest
from fakes import exchange
from outboxes import _LONGEST_SECONDS, ADA

from backstory.home import Backstory
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.outbox.fail_safe import FailSafeMemory


def test_what_waits_is_forgotten_with_what_was_said(bs, disk):
    memory = bs.memory("ada")
    door = FailSafeMemory(bs)
    memory.record("t", exchange("rain"))
    disk.plan = [StoreError("no space left")]
    assert door.record(memory, "t", exchange("tea", 2)) is None
    memory.forget(thread_id="t")
    assert door.waiting == 0
    assert memory.threads() == () or [thread.turns for thread in memory.threads()] == [0]
    assert door.flush(_LONGEST_SECONDS)
    assert "tea" not in log_of(bs, ADA)


def test_nothing_is_called_forgotten_while_words_wait_that_would_bring_it_back(bs, disk):
    memory = bs.memory("ada")
    memory.record("t", exchange("rain"))
    disk.always = StoreError("no space left")
    assert FailSafeMemory(bs).record(memory, "t", exchange("tea", 2)) is None
    with pytest.raises(StoreError, match="1 deliveries still wait"):
        memory.forget(thread_id="t")
    assert FailSafeMemory(bs).record(ADA, "t", exchange("snow", 4)) is None
    with pytest.raises(StoreError, match="bring back what is to be forgotten"):
        memory.forget(everything=True)
    assert memory.forget(thread_id="t", dry_run=True).redacted
    disk.always = None
    memory.forget(thread_id="t")
    assert "tea" not in log_of(bs, ADA)


def test_a_clear_is_about_what_waits_too(bs, disk):
    memory = bs.memory("ada")
    memory.record("t", exchange("rain"))
    disk.plan = [StoreError("no space left")]
    assert FailSafeMemory(bs).record(memory, "t", exchange("tea", 2)) is None
    memory.clear()
    assert memory.status().turns == 4
    assert memory.status().pending == ()


def log_of(bs: Backstory, scope: Scope) -> str:
    return (bs.home / f"{scope.stream(TRANSCRIPT)}.jsonl").read_text(encoding="utf-8")
