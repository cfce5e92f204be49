"""Heads that are told at once: never an older one than the log has."""

from __future__ import annotations

from pathlib import Path

from backstory import Backstory
from backstory.ledger.core.commit import EMPTY
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.jsonl.store import JsonlStore

STREAM = Scope("ada").stream(LEDGER)


def test_a_head_is_told_at_once_while_the_file_is_as_it_was_when_it_was_read(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    assert store.capabilities().head_at_once is not None
    assert store.head_at_once(STREAM) == EMPTY
    with Backstory.open(tmp_path, background=False) as other:
        memory = other.memory("ada")
        for n in range(3):
            memory.add_fact(f"likes tea {n}")
            assert store.head_at_once(STREAM) is None
            head = store.durable_head(STREAM)
            assert store.head_at_once(STREAM) == head == memory.head()
            assert other.store.head_at_once(STREAM) == head  # type: ignore[attr-defined]
        memory.forget("fact_2_0")
        assert store.head_at_once(STREAM) is None
        other.forget_user("ada")
        assert store.head_at_once(STREAM) == EMPTY


def test_a_head_that_is_not_known_to_be_durable_is_not_told(tmp_path: Path) -> None:
    """What another process has written may still be taken back if its sync fails."""
    store = JsonlStore(tmp_path)
    with Backstory.open(tmp_path, background=False) as other:
        other.memory("ada").add_fact("likes tea")
    assert store.head(STREAM).seq == 2
    assert store.head_at_once(STREAM) is None
