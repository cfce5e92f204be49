"""An erasure that was cut off while its locks outlive it, as a killed process's leases do on NATS."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import open_home

from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.eraser import Eraser

LEDGER = Scope("ada").stream("ledger")


class _KilledError(BaseException):
    """The process ends here."""


def cut_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit a redaction, and carry nothing of it out."""

    def killed(*_: object, **__: object) -> None:
        raise _KilledError

    with monkeypatch.context() as patched, open_home(home) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Likes tea")
        patched.setattr(Eraser, "_erase", killed)
        patched.setattr(Eraser, "complete", lambda *_, **__: False)
        with pytest.raises(_KilledError):
            memory.forget(matching="tea")


def test_it_is_completed_when_the_lease_ends_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(tmp_path, monkeypatch)
    log = tmp_path / f"{LEDGER}.jsonl"
    assert b"Likes tea" in log.read_bytes()
    other = JsonlStore(tmp_path)
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        with other.locked(LEDGER):
            for _ in range(3):
                assert memory.facts() == ()
            (problem,) = memory.verify().problems
            assert "still exists although a redaction names it" in problem.message
            assert b"Likes tea" in log.read_bytes()
        assert memory.facts() == ()
        assert b"Likes tea" not in log.read_bytes()
        assert memory.verify().ok
    other.close()
