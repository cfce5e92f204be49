"""Homes on one engine: each sees what the other commits and erases, and its own files are copies."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply
from homes import HomesOn
from sizes import bytes_below

from backstory import Backstory
from backstory.ledger.core.errors import WrongExpectedVersionError


@pytest.fixture
def homes(engine: HomesOn, tmp_path: Path) -> Iterator[tuple[Backstory, Backstory]]:
    """Two homes, as two machines have them."""
    clock = FakeClock()
    with (
        open_home(tmp_path / "one", clock=clock, **engine.settings) as one,
        open_home(tmp_path / "two", ScriptedModel(reply("User drinks tea")), clock=clock, **engine.settings) as two,
    ):
        yield one, two


def texts(bs: Backstory) -> list[str]:
    return [fact.content for fact in bs.memory("ada").facts()]


def test_each_sees_what_the_other_commits(homes: tuple[Backstory, Backstory]) -> None:
    one, two = homes
    for number in range(3):
        for bs in homes:
            bs.memory("ada").add_fact(f"{number} from {bs.home.name}")
            assert texts(one) == texts(two)
    assert len(texts(one)) == 6
    assert [entry.seq for entry in one.memory("ada").log()] == [entry.seq for entry in two.memory("ada").log()]
    seen = one.memory("ada").head()
    two.memory("ada").add_fact("more")
    with pytest.raises(WrongExpectedVersionError):
        one.memory("ada").expecting(seen).add_fact("on what was seen")


def test_what_one_records_the_other_learns_once(homes: tuple[Backstory, Backstory]) -> None:
    one, two = homes
    one.memory("ada").record("t", exchange("tea", 1))
    assert two.memory("ada").extract().updates == 1
    assert texts(one) == ["User drinks tea"]
    assert one.memory("ada").status().pending == ()
    # A resend of the same conversation on the other machine is no news.
    assert two.memory("ada").record("t", exchange("tea", 1)).turns == 0


def test_what_one_erases_is_in_no_file_of_the_other_once_that_one_uses_the_memory(
    homes: tuple[Backstory, Backstory],
) -> None:
    one, two = homes
    memory = two.memory("ada")
    memory.add_fact("User lives in Oslo")
    memory.add_fact("The PIN is 4711")
    memory.record("t", exchange("4711", 1))
    memory.log()
    two.memory("ada").search("PIN")
    assert two.memory("ada").flush() is not None
    assert any(b"4711" in data for data in bytes_below(two.home).values())
    one.memory("ada").forget(matching="4711")
    assert texts(two) == ["User lives in Oslo"]
    two.memory("ada").search("Oslo")
    two.memory("ada").flush()
    two.close()
    assert {path for path, data in bytes_below(two.home).items() if b"4711" in data} == set()


def test_a_user_that_one_removes_is_gone_for_the_other(homes: tuple[Backstory, Backstory]) -> None:
    one, two = homes
    two.memory("ada").add_fact("User lives in Oslo")
    assert texts(one) == texts(two)
    one.forget_user("ada")
    assert texts(two) == []
    assert two.scopes() == ()
    two.memory("ada").add_fact("User is back")
    assert texts(one) == ["User is back"]


def test_a_memory_json_of_another_store_is_moved_aside_and_reported(
    engine: HomesOn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_home(tmp_path / "home") as files:
        files.memory("ada").add_fact("kept in files")
    folder = tmp_path / "home/users/ada"
    before = (folder / "memory.json").read_bytes()
    with caplog.at_level(logging.WARNING), open_home(tmp_path / "home", **engine.settings) as bs:
        assert texts(bs) == []
        bs.memory("ada").add_fact("kept by the engine")
        assert texts(bs) == ["kept by the engine"]
        assert [entry.seq for entry in bs.memory("ada").log()] == [2, 1]
    assert (folder / "memory.json.edited-1").read_bytes() == before
    assert "belongs to another store" in caplog.text
    with open_home(tmp_path / "home") as files:
        assert texts(files) == ["kept in files"]
        assert [problem.kind for problem in files.memory("ada").verify().problems] == ["document_differs"]
        files.memory("ada").add_fact("kept in files, too")
        assert files.memory("ada").verify().ok
    assert len(list(folder.glob("memory.json.edited-*"))) == 2
