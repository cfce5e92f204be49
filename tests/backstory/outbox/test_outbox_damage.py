"""Damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import PATIENCE, exchange, open_home
from outboxes import ADA, kinds, said, words

from backstory.home import Backstory
from backstory.ledger.core.errors import CorruptLogError
from backstory.outbox.fail_safe import FailSafeMemory


def test_a_log_damaged_before_anybody_opened_it_breaks_no_answer(home: Path) -> None:
    with open_home(home) as bs:
        bs.memory("ada").record("t", exchange("tea"))
    log = home / "users/ada/transcript.jsonl"
    sound = log.read_bytes()
    log.write_bytes(sound.replace(b"tea", b"TEA"))
    with open_home(home) as bs:
        door = FailSafeMemory(bs)
        assert door.guarded(ADA, "inject", lambda: bs.memory("ada").transcript("t"), ()) == ()
        assert door.record(ADA, "t", exchange("rye")) is None
        assert {fault.doing: fault.kind for fault in bs.faults.of(ADA)} == {
            "record": "CorruptLogError",
            "inject": "CorruptLogError",
        }
        with pytest.raises(CorruptLogError, match=r"1 x record \(CorruptLogError\)"):
            bs.memory("ada").status()
        log.write_bytes(sound)
        assert door.flush(PATIENCE)
        assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_memory_that_cannot_be_opened_at_all_breaks_no_answer(
    bs: Backstory, door: FailSafeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = bs.memory_of

    def fail(*_: object) -> object:
        raise CorruptLogError("damaged", kind="altered", stream="s", line=1, byte=0)

    monkeypatch.setattr(bs, "memory_of", fail)
    assert door.record(ADA, "t", exchange("tea")) is None
    monkeypatch.setattr(bs, "memory_of", opening)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_a_home_that_cannot_be_written_breaks_no_answer(home: Path) -> None:
    home.mkdir()
    (home / "users").write_text("a file where a folder should be")
    with open_home(home) as bs:
        door = FailSafeMemory(bs)
        assert door.record(ADA, "t", exchange("tea")) is None
        assert kinds(bs) == {"StoreError": 1}
        (home / "users").unlink()
        assert door.flush(PATIENCE)
        assert said(bs) == words(exchange("tea"))
