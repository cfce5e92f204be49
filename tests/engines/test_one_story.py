"""One story on every engine: the same commits and the same memory.json, byte for byte, as with files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply
from homes import HomesOn

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.commits import read_commits

Told = list[tuple[int, str, str, list[str]]]
"""Of each commit of a stream: seq, time, kind, and types of events."""

ADA, CODER = Scope("ada"), Scope("ada", "coder")


def live(bs: Backstory, clock: FakeClock) -> None:
    """Learn, go wrong, undo, forget, import, and remove a user."""
    ada, coder, bob = bs.memory_of(ADA), bs.memory_of(CODER), bs.memory("bob")
    ada.record("t1", exchange("Rust", 1))
    assert ada.extract().updates == 1
    clock.advance(60)
    ada.record("t2", exchange("tea", 2))
    assert ada.extract().updates == 1
    (tea,) = [fact for fact in ada.facts() if "tea" in fact.content]
    assert ada.why(tea.id).live
    ada.revert()
    assert ada.why_not("User drinks tea")
    ada.add_fact("User has a dog")
    ada.edit_fact(ada.facts()[-1].id, content="User has two dogs")
    ada.set_policy(max_facts=12)
    ada.record("t3", exchange("a PIN of 4711", 3))
    ada.forget(matching="4711")
    assert ada.what_if(max_facts=10).sections == ()
    coder.add_fact("User wants ruff")
    coder.rollback(1)
    coder.import_document(ada.document())
    bob.add_fact("User is gone soon")
    bs.forget_user("bob")
    for memory in (ada, coder):
        assert memory.verify().ok, memory.verify().problems


def lived(home: Path, **settings: object) -> tuple[Mapping[str, Told], Mapping[str, bytes]]:
    """Live the story in a home; return what its streams tell, and its documents."""
    clock = FakeClock()
    model = ScriptedModel(reply("User writes Rust"), reply("User drinks tea"))
    with open_home(home, model, clock=clock, **settings) as bs:
        live(bs, clock)
        streams = told(bs)
    return streams, documents_in(home)


def told(bs: Backstory) -> Mapping[str, Told]:
    return {
        stream: [
            (commit.seq, commit.at, commit.cause.kind, [type(event).__name__ for event in commit.events])
            for commit in read_commits(bs.store, stream)
        ]
        for stream in bs.store.streams()
    }


def documents_in(home: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("memory.json")}


def test_the_same_inputs_make_the_same_commits_and_documents(engine: HomesOn, tmp_path: Path) -> None:
    streams, documents = lived(tmp_path / "home", **engine.settings)
    assert set(streams) == {"users/ada/ledger", "users/ada/transcript", "users/ada/agents/coder/ledger"}
    assert set(documents) == {"users/ada/memory.json", "users/ada/agents/coder/memory.json"}
    assert (streams, documents) == lived(tmp_path / "files")
    assert not list((tmp_path / "home").rglob("*.jsonl"))


@pytest.mark.parametrize("user", ["ada", None])
def test_the_same_inputs_make_the_same_ledger_byte_for_byte(engine: HomesOn, tmp_path: Path, user: str | None) -> None:
    ledgers, documents = [], []
    for name, settings in (("files", {}), ("engine", engine.settings)):
        script = [reply(f"User likes tea {n}", f"User is number {n}") for n in range(4)]
        with open_home(tmp_path / name, ScriptedModel(*script), **settings) as bs:
            memory = bs.memory(user) if user else bs.memory(scope="global")
            for n in range(4):
                memory.record(f"t{n}", exchange(f"tea {n}", n))
                memory.extract()
            memory.revert(3)
            memory.add_fact("User said so by hand")
            memory.forget("fact_2_0")
            memory.flush()
            ledgers.append([record.line for record in bs.store.read(Scope(user=user).stream("ledger"))])
        documents.append(next((tmp_path / name).rglob("memory.json")).read_bytes())
    *before, erasure = zip(*ledgers, strict=True)
    assert [files for files, _ in before] == [elsewhere for _, elsewhere in before]
    # The marks of what was erased are keyed with the secret of each home.
    assert len({re.sub(rb'"(mark|hash)":"[0-9a-f]+"', b"", line) for line in erasure}) == 1
    assert len(before) > 5
    assert documents[0] == documents[1]


def test_a_home_folder_that_is_deleted_loses_nothing_of_the_memory(engine: HomesOn, tmp_path: Path) -> None:
    home = tmp_path / "home"
    streams, documents = lived(home, **engine.settings)
    shutil.rmtree(home)
    with open_home(home, **engine.settings) as bs:
        assert told(bs) == streams
        assert [bs.memory_of(scope).verify().ok for scope in (ADA, CODER)] == [True, True]
        assert {summary.user for summary in bs.scopes()} == {"ada"}
    assert documents_in(home) == documents
