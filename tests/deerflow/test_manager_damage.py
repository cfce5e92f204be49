"""Damaged files: clearing or importing goes on from them, they are moved aside, and no other memory is concerned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from deerflow.agents.memory.manager import MemoryCorruptionError
from hosts import ChatModel, Host, contents, learned, learning, talk

from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.producer import Producer

LEDGER, TRANSCRIPT, INDEX, DOCUMENT = "ledger.jsonl", "transcript.jsonl", "index.sqlite", "memory.json"
IMPORTED = {"user": {}, "history": {}, "facts": [{"content": "Rows", "confidence": 0.9}]}


def folder_of(host: Host, *below: str) -> Path:
    return host.folder.joinpath("backstory", "users", "ada", *below)


def damage(file: Path, line: int = 0) -> bytes:
    """Change a line of a log, or any other file; return the damaged bytes."""
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"at":"2', b'"at":"3', 1) if file.suffix == ".jsonl" else b"\0damaged\n"
    file.write_bytes(b"".join(lines))
    return file.read_bytes()


@pytest.fixture
def used(host: Host) -> Host:
    """Ada and her agent have learned something, and so has Bob; no process is running."""
    manager = host.manager(ChatModel(learning("Likes tea")))
    for user, agent in (("ada", None), ("ada", "lead"), ("bob", None)):
        manager.add("t1", talk(), user_id=user, agent_name=agent)
        assert learned(manager, user, agent) == ["Likes tea"]
    manager.create_fact("Runs", user_id="ada")
    host.close()
    return host


ACTS: dict[str, tuple[Callable[[object], dict[str, object]], list[str]]] = {
    "clear": (lambda manager: manager.clear_memory(user_id="ada"), []),
    "import": (lambda manager: manager.import_memory(IMPORTED, user_id="ada"), ["Rows"]),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    "damaged", [[(LEDGER, 0)], [(LEDGER, -1)], [(TRANSCRIPT, 0)], [(LEDGER, 1), (TRANSCRIPT, -1)]], ids=str
)
def test_a_damaged_log_is_moved_aside_and_the_answer_and_the_log_say_where(
    used: Host, caplog: pytest.LogCaptureFixture, act: str, damaged: list[tuple[str, int]]
) -> None:
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    bytes_of = {folder_of(used, name): damage(folder_of(used, name), line) for name, line in damaged}
    manager = used.manager(ChatModel(learning("Swims")))
    do, left = ACTS[act]
    document = do(manager)
    assert [fact["content"] for fact in document["facts"]] == left
    moved = {file: file.with_name(f"{file.stem}.damaged-1") for file in bytes_of}
    assert document["movedAside"] == sorted(map(str, moved.values()))
    assert all(moved[file].read_bytes() == content for file, content in bytes_of.items())
    assert all(str(path) in caplog.text for path in moved.values())
    # Everything works from here on, in this process and in the next.
    manager.add("t2", talk(number=2), user_id="ada")
    assert learned(manager, "ada") == [*left, "Swims"]
    # What the ledger was learned from is lost with a line of the transcript, and `verify` goes on saying so.
    assert manager._hosting.home.memory("ada").verify().ok == (damaged[0] != (TRANSCRIPT, 0))
    used.close()
    again = used.manager()
    assert contents(again, "ada") == [*left, "Swims"]
    assert "movedAside" not in again.clear_memory(user_id="ada")


@pytest.mark.parametrize("act", ACTS)
def test_a_damaged_transcript_is_moved_aside_although_the_act_reads_only_the_ledger(
    used: Host, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    damage(folder_of(used, TRANSCRIPT), 0)
    # As where another thread has just opened the memory, and has not met the damage yet.
    monkeypatch.setattr(Producer, "watch", lambda *_: None)
    do, left = ACTS[act]
    document = do(used.manager(ChatModel(learning("Swims"))))
    assert document["movedAside"] == [str(folder_of(used, "transcript.damaged-1"))]
    assert [fact["content"] for fact in document["facts"]] == left


@pytest.mark.parametrize("act", ACTS)
def test_the_damaged_memory_of_another_user_hinders_nobody(used: Host, act: str) -> None:
    # A name that is too long for a folder is known from the log alone.
    other = "x" * 300
    used.manager().create_fact("Runs", user_id=other)
    used.close()
    damage(used.folder / "backstory" / Scope(other).stream("ledger.jsonl"), 0)
    do, left = ACTS[act]
    document = do(used.manager())
    assert ([fact["content"] for fact in document["facts"]], "movedAside" in document) == (left, False)
    damage(folder_of(used, TRANSCRIPT), 0)
    used.close()
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    assert do(used.manager())["movedAside"] == [str(folder_of(used, "transcript.damaged-1"))]


def test_a_document_that_is_none_leaves_the_damage_as_it_is(used: Host) -> None:
    log = folder_of(used, LEDGER)
    was = damage(log)
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    with pytest.raises(ValueError, match="memory_data"):
        used.manager().import_memory({"facts": 5}, user_id="ada")
    assert (log.read_bytes(), list(folder_of(used).glob("*damaged*"))) == (was, [])


def test_reading_is_refused_with_words_that_name_the_way_out(used: Host) -> None:
    damage(folder_of(used, LEDGER))
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    with pytest.raises(MemoryCorruptionError, match="clear or import memory, which moves the damaged file aside"):
        used.manager().get_memory(user_id="ada")


def test_clearing_a_user_goes_on_from_the_damage_of_an_agent(used: Host) -> None:
    log = folder_of(used, "agents", "lead", LEDGER)
    damage(log)
    manager = used.manager()
    document = manager.clear_memory(user_id="ada")
    assert document["movedAside"] == [str(log.with_name("ledger.damaged-1"))]
    assert contents(manager, "ada") == contents(manager, "ada", "lead") == []


def test_where_no_commit_is_intact_the_document_is_moved_aside_once(used: Host) -> None:
    was = folder_of(used, DOCUMENT).read_bytes()
    damage(folder_of(used, LEDGER))
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    manager = used.manager()
    manager.import_memory(IMPORTED, user_id="ada")
    manager.clear_memory(user_id="ada")
    assert manager._hosting.home.memory("ada").flush()
    manager.create_fact("Swims", user_id="ada")
    assert manager._hosting.home.memory("ada").flush()
    assert [path.read_bytes() for path in folder_of(used).glob("memory.json.edited-*")] == [was]


def test_no_other_memory_is_concerned(used: Host) -> None:
    damage(folder_of(used, LEDGER))
    manager = used.manager()
    manager.clear_memory(user_id="ada")
    assert contents(manager, "bob") == ["Likes tea"]
    assert not list((used.folder / "backstory/users/bob").glob("*damaged*"))


def test_what_is_intact_before_the_damage_is_still_history(used: Host) -> None:
    damage(folder_of(used, LEDGER), -1)
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    manager = used.manager()
    manager.clear_memory(user_id="ada")
    memory = manager._hosting.home.memory("ada")
    kinds = [entry.cause.kind for entry in memory.log()]
    assert (kinds[0], "extraction" in kinds) == ("clear", True)
    assert memory.why("fact_2_0").evidence


@pytest.mark.parametrize("name", [INDEX, DOCUMENT])
@pytest.mark.parametrize("act", ACTS)
def test_a_damaged_read_model_hinders_nothing(used: Host, act: str, name: str) -> None:
    folder_of(used, name).write_bytes(b"\0damaged\n")
    manager = used.manager()
    do, left = ACTS[act]
    document = do(manager)
    assert ([fact["content"] for fact in document["facts"]], "movedAside" in document) == (left, False)
    assert manager._hosting.home.memory("ada").flush()
    aside = [path.read_bytes() for path in folder_of(used).glob("memory.json.edited-*")]
    assert aside == ([b"\0damaged\n"] if name == DOCUMENT else [])
    assert manager._hosting.home.memory("ada").verify().ok


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("line", [1, -1])
def test_a_process_that_has_the_memory_open_goes_on_from_the_new_log(used: Host, act: str, line: int) -> None:
    beside = Host(used.folder)
    other = beside.manager(ChatModel(learning("Swims")))
    assert contents(other, "ada") == ["Likes tea", "Runs"]
    assert other.search("tea", user_id="ada")
    assert "Likes tea" in other.get_context("ada")
    other._hosting.home.memory("ada").search("tea", within="turns")
    damage(folder_of(used, LEDGER), line)
    (folder_of(used) / INDEX).unlink(missing_ok=True)
    manager = used.manager()
    do, left = ACTS[act]
    assert do(manager)["movedAside"]
    assert contents(other, "ada") == left
    assert [fact["content"] for fact in other.search("rows", user_id="ada")] == left
    # The nearest by meaning is always found, once it is embedded.
    assert "Likes tea" not in [fact["content"] for fact in other.search("tea", user_id="ada")]
    assert "Likes tea" not in other.get_context("ada")
    other.add("t2", talk(number=2), user_id="ada")
    assert learned(other, "ada") == [*left, "Swims"]
    assert contents(manager, "ada") == [*left, "Swims"]
    assert other._hosting.home.memory("ada").verify().ok
    beside.close()


def test_a_log_that_only_was_cut_short_is_still_refused_by_the_process_that_knows_more(used: Host) -> None:
    manager = used.manager()
    assert contents(manager, "ada") == ["Likes tea", "Runs"]
    log = folder_of(used, LEDGER)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(MemoryCorruptionError, match="its tail was cut off"):
        manager.get_memory(user_id="ada")


def test_too_long_a_fact_is_refused_and_what_an_import_refused_renamed_or_brought_back_is_logged(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    manager = host.manager()
    with pytest.raises(ValueError, match="the fact has 50,001 characters"):
        manager.create_fact("f" * 50_001, user_id="ada")
    manager.create_fact("Runs", user_id="ada")
    facts = [
        {"id": f"fact_{n}_0", "content": content, "confidence": 0.9} for n, content in ((2, "Rows"), (9, "f" * 50_001))
    ]
    with caplog.at_level(logging.WARNING):
        manager.import_memory({"user": {}, "history": {}, "facts": facts}, user_id="ada")
    assert contents(manager) == ["Rows"]
    assert "facts/1 was refused (too_long): the fact has 50,001 characters" in caplog.text
    manager.delete_fact("fact_2_0", user_id="ada")
    with caplog.at_level(logging.WARNING):
        manager.import_memory({"user": {}, "history": {}, "facts": facts}, user_id="ada")
    assert "fact_2_0 is back: Rows (removed in commit 4" in caplog.text


@pytest.mark.parametrize("taken", ["repaired", "forgotten"])
def test_turns_that_another_process_took_from_the_log_are_recorded_again_with_the_conversation(
    host: Host, taken: str
) -> None:
    manager, said = host.manager(ChatModel()), []
    for number in range(1, 5):
        said += talk(f"This is question {number}.", number=number)
        manager.add("t1", list(said), user_id="ada")
    beside = Host(host.folder)
    other = beside.manager(ChatModel())
    if taken == "repaired":
        damage(folder_of(host, TRANSCRIPT), 1)
        assert other.clear_memory(user_id="ada")["movedAside"]
    else:
        other._hosting.home.forget_user("ada")
    beside.close()
    manager.add("t1", [*said, *talk("And one more.", number=5)], user_id="ada")
    recorded = [turn.id for turn in manager._hosting.home.memory("ada").transcript("t1")]
    assert recorded == [f"{kind}{number}" for number in range(1, 6) for kind in "ha"]
