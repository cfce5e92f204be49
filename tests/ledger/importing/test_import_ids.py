"""Ids in an import: kept where they are free, and said where they are not, by every way in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fakes import exchange, open_home, reply
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.home import Backstory
from backstory.ledger.core.events import FactAdded
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle


@pytest.fixture
def bs(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path / "home", actor="ada") as bs:
        yield bs


def learn(memory: MemoryHandle, *contents: str) -> None:
    thread = f"t{memory.status().seq}"
    memory.record(thread, exchange(contents[0]))
    memory.extract([RecordedReply(thread, reply(*contents))])


def ids(memory: MemoryHandle) -> dict[str, str]:
    return {fact.content: fact.id for fact in memory.facts()}


@pytest.fixture
def exported(bs: Backstory) -> dict[str, object]:
    """A memory of three facts: fact_2_0, fact_2_1 and fact_4_0."""
    memory = bs.memory("ada")
    learn(memory, "Likes tea", "Runs")
    memory.record("quiet", exchange("nothing"))
    memory.extract([RecordedReply("quiet", reply())])
    memory.add_fact("Has a dog")
    assert list(ids(memory).values()) == ["fact_2_0", "fact_2_1", "fact_4_0"]
    plain: dict[str, object] = msgspec.to_builtins(memory.document())
    return plain


def test_another_user_gets_the_facts_under_their_ids(bs: Backstory, exported: dict[str, object]) -> None:
    bob = bs.memory("bob")
    result = bob.import_document(exported)
    assert ids(bob) == ids(bs.memory("ada"))
    assert (result.renamed, result.refused, result.commit, result.document) == ((), (), 2, bob.document())


@pytest.mark.parametrize("replace", [False, True])
def test_no_later_fact_takes_such_an_id_and_what_is_kept_stays_true(
    bs: Backstory, exported: dict[str, object], tmp_path: Path, *, replace: bool
) -> None:
    bob = bs.memory("bob")
    bob.import_document(exported, replace=replace)
    bob.add_fact("Sings")
    bob.remove_fact("fact_4_0")
    learn(bob, "Swims", "Rows")
    learn(bob, "Rides")
    assert ids(bob) == {
        "Likes tea": "fact_2_0",
        "Runs": "fact_2_1",
        "Sings": "fact_3_0_2",
        "Swims": "fact_5_0",
        "Rows": "fact_5_1",
        "Rides": "fact_6_0",
    }
    assert bob.why("fact_3_0_2").added.seq == 3
    assert bob.verify().ok
    assert not bob.what_if().added
    with open_home(tmp_path / "home") as again:
        assert ids(again.memory("bob")) == ids(bob)


def test_a_what_if_that_refuses_the_imported_facts_gives_the_others_their_ids(
    bs: Backstory, exported: dict[str, object]
) -> None:
    bob = bs.memory("bob")
    bob.import_document(exported)
    learn(bob, "Sings")
    found = bob.what_if(max_facts=1)
    assert (found.facts, found.added, [fact.id for fact in found.removed]) == (
        1,
        (),
        [fact_id for fact_id in ids(bob).values() if fact_id != "fact_4_0"],
    )


def test_an_id_that_another_fact_has_or_had_is_not_kept_and_the_result_and_the_commit_say_so(
    bs: Backstory, exported: dict[str, object]
) -> None:
    bob = bs.memory("bob")
    learn(bob, "Paints", "Knits")
    bob.remove_fact("fact_2_1")
    result = bob.import_document(exported)
    assert ids(bob) == {"Paints": "fact_2_0", "Likes tea": "fact_4_0_2", "Runs": "fact_4_1", "Has a dog": "fact_4_0"}
    told = [(fact.stated, fact.id, fact.detail) for fact in result.renamed]
    assert told == [
        ("fact_2_0", "fact_4_0_2", "its id was not kept: another fact in memory has it"),
        ("fact_2_1", "fact_4_1", "its id was not kept: another fact had it, which is gone"),
    ]
    events = [event for event in bob.log(limit=1)[0].events if isinstance(event, FactAdded) and event.detail]
    assert [(event.proposed["id"], event.fact.id, event.detail) for event in events] == told
    assert bob.why("fact_2_1").removed is not None
    assert bob.verify().ok


def test_a_fact_that_is_gone_comes_back_under_its_id_and_an_erased_one_does_not(bs: Backstory) -> None:
    memory = bs.memory("ada")
    learn(memory, "Likes tea", "Runs")
    before = memory.document()
    memory.remove_fact("fact_2_0")
    memory.import_document(before)
    assert ids(memory) == {"Likes tea": "fact_2_0", "Runs": "fact_2_1"}
    memory.forget(fact_id="fact_2_0")
    (renamed,) = memory.import_document(before).renamed
    assert (renamed.stated, renamed.id) == ("fact_2_0", "fact_6_0")


@pytest.mark.parametrize("replace", [False, True])
def test_a_fact_that_was_removed_here_does_not_come_back_in_silence(
    bs: Backstory, tmp_path: Path, *, replace: bool
) -> None:
    memory = bs.memory("ada")
    memory.add_fact("Has a dog")
    memory.add_fact("Has a cat")
    before = memory.document()
    memory.remove_fact("fact_2_0")
    (back,) = memory.import_document(before, replace=replace).returned
    assert (back.id, back.content) == ("fact_2_0", "Has a dog")
    assert (back.removed.seq, back.removed.reason, back.removed.actor) == (4, "hand", "ada")
    assert not memory.import_document(before, replace=replace).returned
    memory.remove_fact("fact_2_0")
    file = tmp_path / "memory.json"
    file.write_bytes(msgspec.json.encode(before))
    ways = ["--replace"] if replace else []
    to = ["--home", str(tmp_path / "home"), "--user", "ada", "--json", "import", str(file), *ways]
    result = CliRunner().invoke(app, to)
    assert json.loads(result.stdout)["returned"][0]["removed"]["seq"] == memory.status().seq - 1
    assert "backstory: fact_2_0 is back: Has a dog (removed in commit 7 by ada: hand)" in result.stderr.splitlines()


def test_the_command_line_names_what_was_not_kept_on_standard_error(
    bs: Backstory, exported: dict[str, object], tmp_path: Path
) -> None:
    learn(bs.memory("bob"), "Paints")
    file = tmp_path / "memory.json"
    file.write_text(json.dumps({**exported, "facts": [*exported["facts"], {"content": ""}]}))  # type: ignore[misc]
    result = CliRunner().invoke(app, ["--home", str(tmp_path / "home"), "--user", "bob", "--json", "import", str(file)])
    assert result.exit_code == 0
    told, document = json.loads(result.stdout), json.loads(msgspec.json.encode(bs.memory("bob").document()))
    assert {key: told[key] for key in document} == document
    assert [(fact["stated"], fact["id"]) for fact in told["renamed"]] == [("fact_2_0", "fact_3_0")]
    assert result.stderr.splitlines() == [
        "backstory: fact_2_0 is fact_3_0 here: its id was not kept: another fact in memory has it",
        "backstory: facts/3 was refused (empty): the fact has no text",
    ]


def test_an_empty_section_of_a_document_that_is_merged_is_no_refusal(bs: Backstory) -> None:
    memory = bs.memory("ada")
    learn(memory, "Likes tea")
    other = bs.memory("bob")
    other.import_document(memory.document())
    assert [type(event).__name__ for event in other.log(limit=1)[0].events] == ["FactAdded"]


def test_ids_stay_reserved_when_what_brought_them_is_erased(bs: Backstory, exported: dict[str, object]) -> None:
    bob = bs.memory("bob")
    bob.import_document(exported)
    bob.forget(fact_id="fact_4_0")
    bob.add_fact("Sings")
    bob.add_fact("Rows")
    assert list(ids(bob).values()) == ["fact_2_0", "fact_2_1", "fact_4_0_2", "fact_5_0"]
    assert bob.verify().ok
