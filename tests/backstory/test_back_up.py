"""Copies of a home that is in use: a backup whose ledgers were copied first is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backstory import Backstory


def model(messages):
    return {"newFacts": [{"content": f"Ada says {len(messages[-1]['content'])}", "confidence": 0.9}]}


def copy(home: Path, backup: Path, pattern: str) -> None:
    for file in home.rglob(pattern):
        target = backup / file.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def verified(home: Path) -> bool:
    with Backstory.open(home, background=False) as bs:
        return bs.memory("ada").verify().ok


@pytest.mark.parametrize(
    ("order", "whole"), [(("ledger.*", "transcript.*"), True), (("transcript.*", "ledger.*"), False)]
)
def test_a_copy_of_a_home_in_use_is_whole_if_the_ledgers_are_copied_first(tmp_path, order, whole):
    home, backup = tmp_path / "home", tmp_path / "backup"
    with Backstory.open(home, model=model, background=False) as bs:
        memory = bs.memory("ada")
        memory.record("t1", [{"role": "user", "content": "I live in Bergen.", "id": "1"}])
        memory.extract()
        copy(home, backup, order[0])
        memory.record("t1", [{"role": "user", "content": "I keep two cats.", "id": "2"}])
        memory.extract()
        copy(home, backup, order[1])
    assert verified(backup) is whole


def test_a_copy_that_ends_in_the_middle_of_a_line_loses_no_more_than_that_line(tmp_path):
    home, backup = tmp_path / "home", tmp_path / "backup"
    with Backstory.open(home, background=False) as bs:
        for fact in ("Ada lives in Bergen", "Ada keeps two cats"):
            bs.memory("ada").add_fact(fact)
    shutil.copytree(home, backup, ignore=shutil.ignore_patterns("index.*", "memory.json"))
    (log,) = backup.rglob("ledger.jsonl")
    log.write_bytes(log.read_bytes()[:-9])
    with Backstory.open(backup, background=False) as bs:
        assert [fact.content for fact in bs.memory("ada").facts()] == ["Ada lives in Bergen"]
        bs.memory("ada").add_fact("Ada plays the viola")
        assert bs.memory("ada").verify().ok
