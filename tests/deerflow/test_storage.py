"""The storage of older DeerFlow versions: saved documents become the events that lead to them."""

from __future__ import annotations

import json
import logging
import multiprocessing
import pickle
import sys
import threading
from collections.abc import Iterator
from copy import copy as flat
from copy import deepcopy
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from older import (
    NAMES,
    Files,
    Installed,
    MemoryStorage,
    created,
    deleted,
    empty,
    fact,
    open_storage,
    patched,
    said,
    storage_by,
    updated,
)

import backstory
from backstory.home import Backstory
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import CandidateRejected, FactAdded, FactRemoved, FactRevised, SummaryUpdated
from backstory.ledger.core.scope import Scope

TEA, OSLO, RUST = fact("fact_0a1b2c3d", "Likes tea"), fact("fact_12345678", "Lives in Oslo"), fact("f-3", "Writes Rust")


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(monkeypatch, tmp_path / "deer")
    yield installed
    installed.remove()


@pytest.fixture
def storage(older: Installed):
    return open_storage()


def log_of(older: Installed, user: str | None = "ada", agent: str | None = None):
    with Backstory.open(older.home, background=False) as bs:
        return bs.memory_of(Scope(user, agent)).log()


def kinds(entry) -> list[type]:
    return [type(event) for event in entry.events]


# How it is found.


@pytest.mark.parametrize("name", NAMES)
def test_both_spellings_of_its_path_lead_to_it(older, name):
    storage = storage_by(name)
    assert not isinstance(storage, Files)
    assert isinstance(storage, MemoryStorage)
    assert storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA]


@pytest.mark.parametrize("name", ["deerflow:Nothing", "nowhere:Thing", ":x", "deerflow:", "a b:c", "..:x"])
def test_a_name_that_leads_nowhere_is_an_error_like_any_other(older, name):
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        getattr(backstory, name)


def test_it_is_made_even_where_it_cannot_work_so_that_the_files_are_never_taken_instead(older, monkeypatch, caplog):
    monkeypatch.setenv("BACKSTORY_MAX_WAIT_SECONDS", "never")
    storage = open_storage()
    with pytest.raises(Exception, match="max_wait_seconds"):
        storage.load(user_id="ada")
    assert storage.save(empty(), user_id="ada") is False
    assert "nothing was saved" in caplog.text
    monkeypatch.delenv("BACKSTORY_MAX_WAIT_SECONDS")
    assert storage.load(user_id="ada")["facts"] == []


def test_without_any_deerflow_it_says_what_it_needs(older, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "deerflow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs DeerFlow.*BackstoryMemoryManager"):
        backstory.__getattr__("deerflow:LedgerMemoryStorage")


def test_a_fault_inside_of_deerflow_is_not_taken_for_an_absent_one(older, monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "deerflow.agents.memory.storage":
                raise ModuleNotFoundError("no yaml here", name="yaml")

    monkeypatch.delitem(sys.modules, "deerflow.agents.memory.storage")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="yaml"):
        backstory.__getattr__("deerflow:LedgerMemoryStorage")


# Documents become events.


def test_a_memory_nobody_wrote_is_the_empty_document(storage):
    assert said(storage.load(user_id="ada")) == said(empty())
    assert said(storage.reload("coder", user_id="ada")) == said(empty())


def test_a_saved_document_comes_back_as_it_was(older, storage):
    manual = fact("fact_hand", "By hand", source="manual", byHand=True, confidence=0.2)
    mistake = fact("fact_err", "Use pnpm", category="correction", sourceError="took npm", expectedValidDays=30)
    document = updated(storage.load(user_id="ada"), TEA, OSLO, manual, mistake, workContext="Builds compilers.")
    assert storage.save(document, user_id="ada") is True
    back = storage.load(user_id="ada")
    assert said(back) == said(document)
    assert back["lastUpdated"] > "2026"
    assert said(open_storage().load(user_id="ada")) == said(document)


def test_a_save_is_one_commit_of_what_changed_and_nothing_else(older, storage):
    storage.save(updated(empty(), TEA, OSLO, RUST, topOfMind="Release."), user_id="ada")
    document = storage.load(user_id="ada")
    document = patched(deleted(document, "f-3"), "fact_0a1b2c3d", content="Likes green tea", confidence=0.8)
    document = updated(document, fact("fact_new", "Rows"), topOfMind="Holidays.")
    storage.save(document, user_id="ada")
    newest, first, _ = log_of(older)
    assert kinds(newest) == [FactRemoved, SummaryUpdated, FactRevised, FactAdded]
    removed, section, revised, added = newest.events
    assert removed.fact.id == "f-3"
    assert (section.before.summary, section.after.summary) == ("Release.", "Holidays.")
    assert (revised.before.content, revised.after.content) == ("Likes tea", "Likes green tea")
    assert (added.fact.id, added.fact.source) == ("fact_new", "thread-1")
    assert kinds(first) == [SummaryUpdated, FactAdded, FactAdded, FactAdded]
    assert (newest.cause.kind, newest.cause.action, newest.cause.actor) == ("import", "save", "DeerFlow")
    assert said(storage.load(user_id="ada")) == said(document)


def test_what_nobody_changed_makes_no_commit(older, storage):
    document = updated(storage.load(user_id="ada"), TEA, OSLO, workContext="Builds.")
    storage.save(document, user_id="ada")
    for same in (storage.load(user_id="ada"), document, deepcopy(document), json.loads(json.dumps(document))):
        assert storage.save(same, user_id="ada")
    assert storage.save(empty(), user_id="bob")
    assert [entry.seq for entry in log_of(older)] == [2, 1]
    assert not (older.home / "users/bob/ledger.jsonl").exists()


def test_a_fact_that_others_are_saved_around_keeps_its_history(older, storage):
    storage.save(created(empty(), TEA), user_id="ada")
    storage.save(created(storage.load(user_id="ada"), OSLO), user_id="ada")
    with Backstory.open(older.home, background=False) as bs:
        why = bs.memory("ada").why(TEA["id"])
    assert why.live
    assert [item.type for item in why.history] == ["FactAdded"]
    assert why.fact.created_at == TEA["createdAt"]


def test_more_facts_than_our_own_limit_stay_and_none_is_too_unsure(older, storage):
    many = [fact(f"fact_{n:08x}", f"Fact number {n}", confidence=n / 300) for n in range(300)]
    storage.save(created(storage.load(user_id="ada"), *many), user_id="ada")
    assert storage.load(user_id="ada")["facts"] == many


def test_the_clear_and_the_import_of_its_gateway_are_the_memory_from_then_on(older, storage):
    storage.save(updated(storage.load(user_id="ada"), TEA, OSLO, workContext="Builds."), user_id="ada")
    backup = json.loads(json.dumps(storage.load(user_id="ada")))
    assert storage.save(empty("2026-06-01T00:00:00Z"), user_id="ada")
    assert said(storage.load(user_id="ada")) == said(empty())
    assert storage.save(backup, user_id="ada")
    assert said(storage.load(user_id="ada")) == said(backup)
    storage.save(created(storage.load(user_id="ada"), RUST), user_id="ada")
    assert storage.save(backup, user_id="ada")
    assert said(storage.load(user_id="ada")) == said(backup)


def test_a_backup_that_the_process_held_in_memory_is_put_back_as_often_as_it_is_handed_back(older, storage):
    storage.save(updated(storage.load(user_id="ada"), TEA, OSLO, workContext="Builds."), user_id="ada")
    backup = storage.load(user_id="ada")
    for _ in range(2):
        assert storage.save(empty("2026-06-01T00:00:00Z"), user_id="ada")
        assert storage.save(backup, user_id="ada")
        assert said(storage.load(user_id="ada")) == said(backup)
    storage.save(updated(deleted(storage.load(user_id="ada"), TEA["id"]), RUST, workContext="Bakes."), user_id="ada")
    assert storage.save(backup, user_id="ada")
    document = said(storage.load(user_id="ada"))
    assert sorted(one["content"] for one in document["facts"]) == ["Likes tea", "Lives in Oslo"]
    assert document["user"] == backup["user"]
    commits = len(log_of(older))
    assert storage.save(backup, user_id="ada")
    assert len(log_of(older)) == commits


def test_a_held_document_says_nothing_about_what_others_saved_if_nothing_was_saved_here(older, storage):
    """The first versions work on the very object, and save it also where a model had nothing to add."""
    storage.save(updated(storage.load(user_id="ada"), TEA, workContext="Builds."), user_id="ada")
    held = storage.load(user_id="ada")
    held["facts"].append(OSLO)
    assert storage.save(held, user_id="ada")
    same, unsaid = storage.load(user_id="ada"), storage.load(user_id="ada")
    other = open_storage()
    other.save(updated(other.load(user_id="ada"), RUST, workContext="Bakes."), user_id="ada")
    storage.save(created(storage.load(user_id="bob"), TEA), user_id="bob")
    for unchanged in (held, same, unsaid):
        assert storage.save(unchanged, user_id="ada")
    document = storage.load(user_id="ada")
    assert [one["content"] for one in document["facts"]] == ["Likes tea", "Lives in Oslo", "Writes Rust"]
    assert document["user"]["workContext"]["summary"] == "Bakes."


@pytest.mark.parametrize("copied", [dict, flat, deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301
def test_a_copy_in_which_nothing_was_changed_undoes_nothing_that_was_saved_here_meanwhile(older, storage, copied):
    storage.save(updated(storage.load(user_id="ada"), TEA, workContext="Builds."), user_id="ada")
    stale = copied(storage.load(user_id="ada"))
    storage.save(created(storage.load(user_id="ada"), OSLO), user_id="ada")
    assert storage.save(stale, user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO]


def test_what_was_changed_in_a_held_document_is_all_that_its_save_changes(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    held = storage.load(user_id="ada")
    storage.save(created(storage.load(user_id="ada"), OSLO), user_id="ada")
    held["facts"].append(RUST)
    assert storage.save(held, user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO, RUST]


def test_a_backup_that_the_gateway_took_to_pieces_is_put_back_without_a_word_on_what_it_left_out(older, storage):
    """Its models know of fewer fields than the document has, and state some as null."""
    known = {"id", "content", "category", "confidence", "createdAt", "source"}
    confirmed = fact("fact_c", "Confirmed", confirmationCount=3, lastConfirmedAt="2026-04-02T00:00:00.000000Z")
    storage.save(created(storage.load(user_id="ada"), confirmed, TEA | {"byHand": True}), user_id="ada")
    backup = json.loads(json.dumps(storage.load(user_id="ada")))
    backup["facts"] = [{k: v for k, v in one.items() if k in known} | {"sourceError": None} for one in backup["facts"]]
    assert storage.save(backup, user_id="ada")
    assert len(log_of(older)) == 2
    assert storage.load(user_id="ada")["facts"][0]["confirmationCount"] == 3


def test_two_facts_that_say_exactly_the_same_are_one_and_the_other_is_recorded_as_refused(older, storage):
    twin, akin = fact("fact_twin", "Likes tea"), fact("fact_akin", "likes tea.")
    assert storage.save(created(storage.load(user_id="ada"), TEA, twin, akin), user_id="ada")
    assert [one["id"] for one in storage.load(user_id="ada")["facts"]] == [TEA["id"], "fact_akin"]
    refused = [event for event in log_of(older)[0].events if isinstance(event, CandidateRejected)]
    assert [(event.rule, event.candidate.id) for event in refused] == [("duplicate", "fact_twin")]


def test_facts_that_cannot_be_read_are_recorded_and_one_that_was_there_stays(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    document = patched(storage.load(user_id="ada"), TEA["id"], confidence="high")
    document = created(document, {"id": "fact_x"}, "no fact", fact("fact_nan", "Not sure", confidence=float("nan")))
    assert storage.save(document, user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA]
    assert [event.rule for event in log_of(older)[0].events] == ["malformed"] * 4


@pytest.mark.parametrize("document", [None, [], "text", {"facts": "none"}, {"facts": {}}, {"other": 1}])
def test_what_is_no_document_is_not_saved_and_nothing_changes(older, storage, document):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    assert storage.save(document, user_id="ada") is False
    assert storage.load(user_id="ada")["facts"] == [TEA]


def test_ids_that_two_facts_of_a_document_share_are_told_apart(storage):
    storage.save(created(storage.load(user_id="ada"), TEA, {**OSLO, "id": TEA["id"]}), user_id="ada")
    facts = storage.load(user_id="ada")["facts"]
    assert [one["content"] for one in facts] == ["Likes tea", "Lives in Oslo"]
    assert facts[0]["id"] == TEA["id"] != facts[1]["id"]


def test_facts_without_ids_are_those_of_the_same_words(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA, OSLO), user_id="ada")
    bare = [{k: v for k, v in one.items() if k != "id"} for one in (TEA, RUST)]
    assert storage.save({**empty(), "facts": bare}, user_id="ada")
    facts = storage.load(user_id="ada")["facts"]
    assert [(one["content"], one["id"] == TEA["id"]) for one in facts] == [("Likes tea", True), ("Writes Rust", False)]
    assert kinds(log_of(older)[0]) == [FactRemoved, FactAdded]


def test_words_that_move_from_one_fact_to_another_move(storage):
    storage.save(created(storage.load(user_id="ada"), TEA, OSLO), user_id="ada")
    document = storage.load(user_id="ada")
    document = patched(document, TEA["id"], content="Lives in Oslo")
    document = patched(document, OSLO["id"], content="Likes tea")
    assert storage.save(document, user_id="ada")
    assert storage.load(user_id="ada")["facts"] == document["facts"]


def test_a_fact_that_may_not_be_restated_goes_on_saying_what_it_said(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA, OSLO), user_id="ada")
    document = patched(storage.load(user_id="ada"), TEA["id"], content="Lives in Oslo")
    assert storage.save(created(document, fact("fact_again", "Likes tea")), user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO]
    assert [event.rule for event in log_of(older)[0].events] == ["duplicate", "duplicate"]


# Whose it is.


def test_memories_are_kept_apart_and_agents_are_named_in_any_case(older, storage):
    for agent, user, one in ((None, None, TEA), (None, "ada", OSLO), ("Coder", "ada", RUST)):
        assert storage.save(created(storage.load(agent, user_id=user), one), agent, user_id=user)
    assert storage.load()["facts"] == [TEA]
    assert storage.load(user_id="ada")["facts"] == [OSLO]
    assert storage.load("coder", user_id="ada")["facts"] == storage.load("CODER", user_id="ada")["facts"] == [RUST]
    assert storage.load("coder")["facts"] == storage.load(user_id="bob")["facts"] == []
    assert storage.load("__default__", user_id="ada")["facts"] == [OSLO]


def test_an_agent_without_a_memory_has_the_empty_one_as_it_always_had(storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    assert storage.load("coder", user_id="ada")["facts"] == []


@pytest.mark.parametrize("name", ["", "../x", "a b", "ä", "x" * 65])
def test_bad_names_are_the_errors_that_deerflow_knows(storage, name):
    with pytest.raises(ValueError, match="agent name"):
        storage.load(name)
    with pytest.raises(ValueError, match="agent name"):
        storage.save(empty(), name)


def test_a_document_of_one_memory_saved_as_another_is_that_memory_from_then_on(storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    storage.save(created(storage.load(user_id="bob"), OSLO), user_id="bob")
    assert storage.save(storage.load(user_id="ada"), user_id="bob")
    assert storage.load(user_id="bob")["facts"] == [TEA]


def test_what_is_loaded_is_the_callers_own(storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    document = storage.load(user_id="ada")
    document["facts"][0]["content"] = "changed"
    document["user"]["workContext"]["summary"] = "changed"
    assert storage.load(user_id="ada")["facts"] == [TEA]
    assert storage.load(user_id="ada")["user"]["workContext"]["summary"] == ""


# Several at once.


@pytest.mark.parametrize("copied", [dict, deepcopy, lambda document: json.loads(json.dumps(document))])
def test_a_stale_document_undoes_nothing_that_others_did(older, storage, copied):
    storage.save(updated(storage.load(user_id="ada"), TEA, OSLO, workContext="Builds."), user_id="ada")
    stale = copied(storage.load(user_id="ada"))
    other = open_storage()
    other.save(updated(created(other.load(user_id="ada"), RUST), workContext="Bakes."), user_id="ada")
    assert storage.save(created(stale, fact("fact_mine", "Rows")), user_id="ada")
    contents = {one["content"] for one in other.load(user_id="ada")["facts"]}
    assert contents == {"Likes tea", "Lives in Oslo", "Writes Rust", "Rows"}


def test_a_stale_document_of_a_memory_that_was_empty_removes_nothing_either(older, storage):
    stale, other = json.loads(json.dumps(storage.load(user_id="ada"))), open_storage()
    assert stale["lastUpdated"]
    other.save(created(other.load(user_id="ada"), TEA), user_id="ada")
    storage.save(created(stale, OSLO), user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO]


def test_documents_that_are_made_from_nothing_replace_each_other(storage):
    storage.load(user_id="ada")
    for facts in ([TEA], [OSLO, RUST], [RUST]):
        assert storage.save({**empty(""), "facts": facts}, user_id="ada")
        assert storage.load(user_id="ada")["facts"] == facts


def test_what_others_removed_or_restated_does_not_come_back_with_a_stale_document(older, storage):
    storage.save(updated(storage.load(user_id="ada"), TEA, OSLO, RUST, workContext="Builds."), user_id="ada")
    stale, other = storage.load(user_id="ada"), open_storage()
    theirs = patched(deleted(other.load(user_id="ada"), TEA["id"]), OSLO["id"], content="Lives in Bergen")
    other.save(updated(theirs, workContext="Bakes."), user_id="ada")
    storage.save(patched(stale, "f-3", confidence=0.5), user_id="ada")
    document = storage.load(user_id="ada")
    assert [(one["content"], one["confidence"]) for one in document["facts"]] == [
        ("Lives in Bergen", 0.9),
        ("Writes Rust", 0.5),
    ]
    assert document["user"]["workContext"]["summary"] == "Bakes."


def test_where_both_changed_one_fact_the_later_save_holds_and_the_ledger_has_both(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    one, other = storage.load(user_id="ada"), storage.load(user_id="ada")
    storage.save(patched(one, TEA["id"], content="Likes coffee"), user_id="ada")
    storage.save(patched(other, TEA["id"], content="Likes water"), user_id="ada")
    assert [f["content"] for f in storage.load(user_id="ada")["facts"]] == ["Likes water"]
    with Backstory.open(older.home, background=False) as bs:
        assert [item.type for item in bs.memory("ada").why(TEA["id"]).history] == [
            "FactAdded",
            "FactRevised",
            "FactRevised",
        ]


def test_one_removes_what_the_other_restates_and_the_later_save_holds(storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    one, other = storage.load(user_id="ada"), storage.load(user_id="ada")
    storage.save(deleted(one, TEA["id"]), user_id="ada")
    storage.save(patched(other, TEA["id"], confidence=0.5), user_id="ada")
    assert [(f["id"], f["confidence"]) for f in storage.load(user_id="ada")["facts"]] == [(TEA["id"], 0.5)]


def test_one_document_that_is_saved_again_and_again_goes_on_from_what_it_said_last(storage):
    document = storage.load(user_id="ada")
    for facts in ([TEA], [TEA, OSLO], [OSLO], [OSLO, RUST], []):
        document["facts"] = facts
        assert storage.save(document, user_id="ada")
        assert storage.load(user_id="ada")["facts"] == facts


def test_a_copy_goes_on_from_its_own_last_state_and_not_from_the_originals(storage):
    original = storage.load(user_id="ada")
    copy = deepcopy(original)
    original["facts"].append(TEA)
    storage.save(original, user_id="ada")
    copy["facts"].append(OSLO)
    storage.save(copy, user_id="ada")
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO]


def test_threads_that_load_and_save_at_once_lose_nothing(older, storage):
    def work(number: int) -> None:
        for turn in range(5):
            one = fact(f"fact_{number}-{turn}", f"Said by {number} in turn {turn}")
            assert storage.save(created(storage.load(user_id="ada"), one), user_id="ada")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(storage.load(user_id="ada")["facts"]) == 30
    assert [entry.seq for entry in log_of(older)] == list(range(31, 0, -1))


def _save_one(base: Path, number: int, started) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        installed = Installed(monkeypatch, base)
        storage = open_storage()
        document = storage.load(user_id="ada")
        started.wait(20)
        ok = all(
            storage.save(updated(document, fact(f"fact_{number}-{turn}", f"{number} said {turn}")), user_id="ada")
            for turn in range(4)
        )
        installed.remove()
    sys.exit(0 if ok else 1)


@pytest.mark.slow
def test_processes_that_save_at_once_lose_nothing(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Barrier(3)
    workers = [spawn.Process(target=_save_one, args=(older.base, number, started)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(storage.load(user_id="ada")["facts"]) == 13


# Bad days.


def test_a_damaged_ledger_is_no_empty_memory(older, storage, caplog):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    storage.close()
    log = older.home / "users/ada/ledger.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0].replace(b"genesis", b"genesiz") + lines[1])
    (older.home / "users/ada/index.sqlite").unlink(missing_ok=True)
    storage = open_storage()
    with pytest.raises(CorruptLogError):
        storage.load(user_id="ada")
    assert storage.save(created(empty(), OSLO), user_id="ada") is False
    assert "was not saved" in caplog.text
    assert log.read_bytes().count(b"\n") == 2
    storage.close()
    with Backstory.open(older.home, background=False) as bs:
        told = {(f.doing, f.kind) for f in bs.faults.of(bs.memory("ada"))}
        assert told == {("load", "CorruptLogError"), ("save", "CorruptLogError")}


def test_a_disk_that_refuses_is_told_by_false_and_the_next_save_brings_it_all(older, storage, monkeypatch, caplog):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    document = created(storage.load(user_id="ada"), OSLO)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("os.fdatasync", full)
        assert storage.save(document, user_id="ada") is False
    assert "No space left" in caplog.text
    assert storage.save(document, user_id="ada") is True
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO]


def test_closing_writes_memory_json_and_a_load_opens_it_again(older, storage):
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    storage.close()
    storage.close()
    stated = json.loads((older.home / "users/ada/memory.json").read_text(encoding="utf-8"))
    assert stated["facts"] == [TEA]
    assert storage.load(user_id="ada")["facts"] == [TEA]


# Where it lies.


def test_it_lies_beside_the_files_of_a_configured_path_and_all_users_share_that_one(older, tmp_path):
    older.configure(str(tmp_path / "elsewhere" / "memory.json"))
    storage = open_storage()
    storage.save(created(storage.load(user_id="ada"), TEA), user_id="ada")
    assert storage.load(user_id="bob")["facts"] == storage.load()["facts"] == [TEA]
    assert storage.load("coder", user_id="ada")["facts"] == []
    assert (tmp_path / "elsewhere/backstory/ledger.jsonl").exists()
    assert not older.home.exists()


def test_a_relative_path_moves_nothing_but_what_is_read_for_nobody_in_particular(older):
    older.configure("kept/mine.json")
    (older.base / "kept").mkdir(parents=True)
    (older.base / "kept/mine.json").write_text(json.dumps({**empty(), "facts": [TEA]}), encoding="utf-8")
    storage = open_storage()
    assert storage.load()["facts"] == [TEA]
    assert storage.load(user_id="ada")["facts"] == []
    assert (older.home / "ledger.jsonl").exists()


# The newer contract.


@pytest.fixture
def newer(older: Installed, monkeypatch: pytest.MonkeyPatch) -> type:
    """A DeerFlow whose storages lie deeper, are made with a configuration, and may clear and be closed."""

    class Newer(MemoryStorage):
        def apply_changes(self, change_set, **scope):
            raise NotImplementedError

        def clear_all(self, *, user_id=None):
            raise NotImplementedError

        def close(self):
            raise NotImplementedError

    monkeypatch.setitem(sys.modules, "deerflow.agents.memory.storage", None)
    monkeypatch.delitem(sys.modules, "deerflow.agents.memory.storage")
    package = "deerflow.agents.memory.backends.deermem.deermem.core.storage"
    parts = package.split(".")
    for end in range(4, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        module.__path__ = []
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules[package].MemoryStorage = Newer  # type: ignore[attr-defined]
    return Newer


def test_newer_versions_hand_over_a_folder_and_clear_everything(newer, tmp_path):
    kind = backstory.__getattr__("deerflow:LedgerMemoryStorage")
    assert issubclass(kind, newer)
    storage = kind(SimpleNamespace(storage_path=str(tmp_path / "new")))
    for agent in ("__default__", "coder"):
        document = created(storage.load(agent, user_id="ada"), TEA)
        assert storage.save(document, agent, user_id="ada", expected_revision=0)
    assert (tmp_path / "new/backstory/users/ada/agents/coder/ledger.jsonl").exists()
    held = [(agent, storage.load(agent, user_id="ada")) for agent in ("__default__", "coder")]
    assert storage.clear_all(user_id="ada")["facts"] == []
    assert storage.load("coder", user_id="ada")["facts"] == []
    for agent, backup in held:
        assert storage.save(backup, agent, user_id="ada")
        assert storage.load(agent, user_id="ada")["facts"] == [TEA]
    assert kind.apply_changes is newer.apply_changes
    storage.close()


def test_what_newer_versions_clear_does_not_come_back_from_deerflows_own_files(newer, tmp_path):
    kind = backstory.__getattr__("deerflow:LedgerMemoryStorage")
    for place, one in (("users/ada", TEA), ("users/ada/agents/coder", OSLO), ("users/bob/agents/coder", RUST)):
        path = tmp_path / place / "memory.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**empty(), "facts": [one]}), encoding="utf-8")
    (tmp_path / "users/ada/agents/no name").mkdir()
    storage = kind(SimpleNamespace(storage_path=str(tmp_path)))
    storage.clear_all(user_id="ada")
    assert storage.load(user_id="ada")["facts"] == storage.load("coder", user_id="ada")["facts"] == []
    assert storage.load("coder", user_id="bob")["facts"] == [RUST]
    storage.clear_all(user_id="eve")
    storage.close()


def test_newer_versions_without_a_folder_have_one_that_the_environment_names(newer, tmp_path, monkeypatch):
    monkeypatch.setenv("DEERMEM_DATA_DIR", str(tmp_path / "data"))
    storage = backstory.__getattr__("deerflow:LedgerMemoryStorage")(SimpleNamespace(storage_path=""))
    assert storage.save(created(storage.load("a"), TEA), "a")
    assert (tmp_path / "data/backstory/agents/a/ledger.jsonl").exists()
    storage.close()
