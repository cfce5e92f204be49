"""What DeerFlow remembered before is taken over once, on first use, and left as it is."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import stat
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes import FakeClock, open_home
from older import Installed, created, empty, fact, open_storage

from backstory.deerflow.home_import import HomeImport
from backstory.home import Backstory
from backstory.ledger.core.errors import InputError, StoreError
from backstory.ledger.core.events import CandidateRejected, FactAdded
from backstory.ledger.core.scope import Scope

TEA, OSLO, RUST = fact("fact_0a1b2c3d", "Likes tea"), fact("fact_12345678", "Lives in Oslo"), fact("f-3", "Writes Rust")


@pytest.fixture
def deer(tmp_path: Path) -> Path:
    """A home in which both of DeerFlow's generations left something."""
    root = tmp_path / "deer"
    write(root / "memory.json", "Nobody's.", fact("fact_root", "Said to nobody"))
    write(root / "users/ada/memory.json", "Builds compilers.", TEA, OSLO)
    write(root / "users/ada/agents/coder/memory.json", "", RUST)
    write(root / "users/bob/memory.json", "Bakes.")
    keep(root / "users/bob/agents/__default__", "fact_bread", "Bakes bread")
    keep(root / "users/bob/agents/coder", "fact_go", "Writes Go")
    (root / "users/ada/agents/idle").mkdir()
    (root / "users/ada/agents/idle/config.yaml").write_text("name: idle\n")
    return root


@pytest.fixture
def bs(deer: Path) -> Iterator[Backstory]:
    with open_home(deer / "backstory", clock=FakeClock()) as bs:
        yield bs


def write(path: Path, work: str, *facts: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**empty(), "facts": list(facts)}
    document["user"]["workContext"] = {"summary": work, "updatedAt": "2026-05-01T00:00:00Z"}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def keep(agent: Path, fact_id: str, content: str, **stated: object) -> Path:
    """Write a fact as DeerFlow 2 does."""
    front = {"id": fact_id, "category": "preference", "confidence": 0.9, "createdAt": "2026-04-01T00:00:00Z"}
    path = agent / "facts" / hashlib.sha256(fact_id.encode()).hexdigest()[:2] / f"{fact_id}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{yaml.safe_dump({**front, **stated})}---\n\n# {content}\n\n{content}\n", encoding="utf-8")
    return path


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """All that could be changed of DeerFlow's files."""
    found = {}
    for path in [root, *root.rglob("*")]:
        if "backstory" in path.relative_to(root).parts[:1] or path == root:
            continue
        state = path.stat()
        found[str(path)] = (
            path.read_bytes() if path.is_file() else None,
            state.st_mtime_ns,
            stat.S_IMODE(state.st_mode),
        )
    return found


def contents(bs: Backstory, user: str | None, agent: str | None = None) -> list[str]:
    return [one.content for one in bs.memory_of(Scope(user, agent)).own.document().facts]


def faults(bs: Backstory, user: str | None = None, agent: str | None = None) -> dict[tuple[str, str], int]:
    return {(one.doing, one.kind): one.count for one in bs.faults.of(bs.memory_of(Scope(user, agent)))}


IMPORTS: weakref.WeakKeyDictionary[Backstory, HomeImport] = weakref.WeakKeyDictionary()
ONE = threading.Lock()


def imports_of(bs: Backstory) -> HomeImport:
    with ONE:
        return IMPORTS.setdefault(bs, HomeImport(bs))


def import_once(bs: Backstory, source: Path, user: str | None, agent: str | None) -> bool:
    return imports_of(bs).once(source, Scope.of(user, agent))


# What comes, and whose it is.


@pytest.mark.parametrize(
    ("user", "agent", "expected"),
    [
        (None, None, ["Said to nobody"]),
        ("ada", None, ["Likes tea", "Lives in Oslo"]),
        ("ada", "coder", ["Writes Rust"]),
        ("ada", "Coder", ["Writes Rust"]),
        ("bob", None, ["Bakes bread"]),
        ("bob", "coder", ["Writes Go"]),
    ],
)
def test_each_memory_gets_its_own_part_in_one_commit_that_says_from_where(bs, deer, user, agent, expected):
    before = seen(deer)
    assert import_once(bs, deer, user, agent) is True
    assert contents(bs, user, agent) == expected
    newest, genesis = bs.memory_of(Scope(user, agent)).log()
    assert genesis.cause.kind == "genesis"
    assert (newest.cause.kind, newest.cause.action, newest.cause.origin) == ("import", "home", str(deer))
    assert seen(deer) == before


def test_sections_ids_and_times_come_along(bs, deer):
    import_once(bs, deer, "ada", None)
    document = bs.memory("ada").document()
    assert document.user.work_context.summary == "Builds compilers."
    assert [(one.id, one.created_at, one.source) for one in document.facts] == [
        (one["id"], one["createdAt"], one["source"]) for one in (TEA, OSLO)
    ]


def test_for_an_agent_the_users_memory_comes_too_since_it_is_read_until_there_is_another(bs, deer):
    assert import_once(bs, deer, "ada", "idle") is False
    assert [one.content for one in bs.memory("ada", "idle").facts()] == ["Likes tea", "Lives in Oslo"]
    assert contents(bs, "ada", "idle") == []
    assert bs.memory("ada", "idle").head().seq == 0


def test_a_user_without_a_folder_does_not_get_what_was_said_to_nobody_in_particular(bs, tmp_path):
    old = tmp_path / "old"
    write(old / "memory.json", "Nobody's.", fact("fact_root", "Said to nobody"))
    (old / "users").mkdir()
    for user in ("eve", "users", "..", "memory.json", "x" * 900):
        assert import_once(bs, old, user, None) is False
        assert contents(bs, user) == []
        assert faults(bs, user) == {}
    assert import_once(bs, old, None, None) is True


def test_a_folder_that_is_another_persons_by_deerflows_spelling_is_not_taken_for_ours(bs, deer):
    write(deer / "users/_41/memory.json", "Somebody else.", fact("fact_x", "Not A's"))
    assert import_once(bs, deer, "A", None) is False
    assert contents(bs, "A") == []


def test_a_name_that_deerflow_had_to_change_is_found_under_what_it_made_of_it(bs, deer):
    name = "ada@example.com"
    folder = f"ada-example-com-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    write(deer / "users" / folder / "memory.json", "Mails.", RUST)
    assert import_once(bs, deer, name, None) is True
    assert contents(bs, name) == ["Writes Rust"]


def test_our_own_home_is_never_taken_for_deerflows(bs, deer):
    import_once(bs, deer, "ada", None)
    bs.memory("ada").flush()
    with open_home(deer / "other") as other:
        assert import_once(other, bs.home, "ada", None) is True
    with open_home(deer / "backstory") as again:
        assert import_once(again, again.home / "users/ada", None, None) is False
        assert import_once(again, again.home, None, None) is False
        assert contents(again, None) == []


def test_one_file_can_be_all_that_deerflow_has(bs, tmp_path):
    path = write(tmp_path / "one/mine.json", "Works.", TEA)
    assert import_once(bs, path, None, None) is True
    assert contents(bs, None) == ["Likes tea"]
    assert bs.memory(scope="global").log()[0].cause.origin == str(path)


def test_empty_documents_are_nothing_to_take_over(bs, tmp_path):
    write(tmp_path / "none/memory.json", "")
    assert import_once(bs, tmp_path / "none", None, None) is False
    assert bs.memory(scope="global").head().seq == 0


# Once.


def test_it_comes_once_and_what_was_emptied_or_cleared_stays_so(bs, deer):
    assert import_once(bs, deer, "ada", None) is True
    assert import_once(bs, deer, "ada", None) is False
    memory = bs.memory("ada")
    for one in memory.facts():
        memory.remove_fact(one.id)
    import_once(bs, deer, "bob", None)
    bs.memory("bob").clear()
    bs.memory("bob", "coder").clear()
    bs.close()
    with open_home(deer / "backstory") as again:
        for user, agent in (("ada", None), ("bob", None), ("bob", "coder")):
            assert import_once(again, deer, user, agent) is False
            assert contents(again, user, agent) == []


def test_a_memory_that_was_used_before_is_left_alone(bs, deer):
    bs.memory("ada").add_fact("By hand")
    assert import_once(bs, deer, "ada", None) is False
    assert contents(bs, "ada") == ["By hand"]


def test_rules_that_were_set_before_the_first_use_are_no_use(bs, deer):
    bs.memory("ada").set_policy(max_facts=1)
    assert import_once(bs, deer, "ada", None) is True
    assert len(contents(bs, "ada")) == 1


def test_a_crash_after_the_first_line_of_the_ledger_does_not_lose_it(bs, deer):
    own = bs.memory("ada").own
    own._services.writer.put_policy_in_force()
    assert bs.memory("ada").head().seq == 1
    assert import_once(bs, deer, "ada", None) is True


def test_where_there_is_nothing_the_disk_is_looked_at_once(bs, tmp_path, monkeypatch):
    import backstory.deerflow.home_import as module

    looked = []
    monkeypatch.setattr(module, "read_home_if_any", lambda *args, **_: looked.append(args))
    (tmp_path / "none").mkdir()
    for _ in range(3):
        assert import_once(bs, tmp_path / "none", None, None) is False
    assert len(looked) == 1
    assert import_once(bs, tmp_path / "absent", "ada", None) is False
    assert len(looked) == 1


def test_threads_that_come_at_once_take_it_over_once(bs, deer):
    ready, came = threading.Barrier(8), []

    def work() -> None:
        ready.wait(20)
        came.append(import_once(bs, deer, "ada", "coder"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [False] * 7 + [True]
    for agent in (None, "coder"):
        assert [entry.cause.kind for entry in bs.memory("ada", agent).log()] == ["import", "genesis"]


def test_who_comes_second_between_reading_and_writing_writes_nothing(bs, deer):
    """Another process, as this one sees it: each reads DeerFlow's files, then one of them is first."""
    with open_home(deer / "backstory") as other:
        own = bs.memory("ada").own
        candidates = (*_first_candidates(deer),)
        commit = own._services.writer.commit
        came = []

        def late(command, cause):
            came.append(import_once(other, deer, "ada", None))
            own._services.writer.commit = commit
            return commit(command, cause)

        own._services.writer.commit = late
        assert own.take_over(candidates, "theirs") is None
    assert came == [True]
    assert [entry.cause.origin for entry in bs.memory("ada").log()] == [str(deer), None]


def _first_candidates(deer: Path) -> tuple[object, ...]:
    from backstory.ledger.importing import read_import

    return read_import(deer / "users/ada/memory.json", None)  # type: ignore[arg-type]


def _bring(deer: Path, started, came) -> None:
    with Backstory.open(deer / "backstory", background=False) as bs:
        started.wait(30)
        came.put(import_once(bs, deer, "ada", None))


@pytest.mark.slow
def test_processes_that_come_at_once_take_it_over_once(deer):
    spawn = multiprocessing.get_context("spawn")
    started, came = spawn.Barrier(3), spawn.SimpleQueue()
    workers = [spawn.Process(target=_bring, args=(deer, started, came)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert sorted(came.get() for _ in workers) == [False, False, True]
    with open_home(deer / "backstory") as bs:
        assert [entry.cause.kind for entry in bs.memory("ada").log()] == ["import", "genesis"]


def test_sections_that_say_nothing_are_no_refusals_by_take_over_or_import(bs, deer, caplog):
    source = write(deer / "users/ada/memory.json", "", TEA)
    document = json.loads(source.read_text(encoding="utf-8"))
    document["user"]["topOfMind"]["summary"] = " \n"
    source.write_text(json.dumps(document), encoding="utf-8")
    with caplog.at_level(logging.INFO):
        assert import_once(bs, deer, "ada", None) is True
    bs.memory("eve").import_document(source)
    for user in ("ada", "eve"):
        newest, _ = bs.memory(user).log()
        assert [type(event).__name__ for event in newest.events] == ["FactAdded"]
    assert "facts imported: 1; refused: none" in caplog.text


# Broken things.


def test_what_of_the_files_is_broken_is_recorded_and_the_rest_comes(bs, deer, caplog):
    keep(deer / "users/bob/agents/__default__", "fact_gone", "Was archived", status="archived")
    (deer / "users/bob/agents/__default__/facts/zz.md").write_bytes(b"\xff\xfe no fact")
    (deer / "users/bob/memory.json").write_text("{ torn", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert import_once(bs, deer, "bob", None) is True
    assert contents(bs, "bob") == ["Bakes bread"]
    refused = [event for event in bs.memory("bob").log()[0].events if isinstance(event, CandidateRejected)]
    assert [event.rule for event in refused] == ["malformed"] * 3
    assert any("memory.json" in event.detail and "no JSON" in event.detail for event in refused)
    assert "facts imported: 1; refused: 3 malformed" in caplog.text


def test_a_fact_that_deerflow_was_sure_enough_of_comes_whatever_our_threshold(bs, deer):
    write(deer / "users/ada/memory.json", "", TEA, fact("fact_low", "Maybe", confidence=0.5))
    assert import_once(bs, deer, "ada", None) is True
    assert {one.content: (one.confidence, one.by_hand) for one in bs.memory("ada").facts()} == {
        "Likes tea": (0.9, False),
        "Maybe": (0.5, True),
    }
    # Nor does the next update take it away again.
    bs.memory("ada").add_fact("Lives in Rome")
    assert "Maybe" in contents(bs, "ada")


def test_what_an_agents_tool_stored_in_deerflow_is_the_models_here_too(bs, deer):
    """DeerFlow calls it manual, as it calls a person's; but its gateway, which serves people, never names an agent."""
    painter = deer / "users/ada/agents/painter"
    for number in range(12):
        stated = {"source": {"type": "manual", "threadId": None}, "createdAt": "2026-01-01T00:00:00Z"}
        keep(painter, f"fact_{number:08}", f"Fact {number}", **stated)
    keep(deer / "users/ada/agents/__default__", "fact_own", "Has a dog", source={"type": "manual", "threadId": None})
    for agent in (None, "painter"):
        assert import_once(bs, deer, "ada", agent) is True
    assert {fact.content: fact.by_hand for fact in bs.memory("ada").facts()}["Has a dog"]
    memory = bs.memory("ada", "painter")
    assert {(fact.by_hand, fact.source) for fact in memory.document().facts} == {(False, "import")}
    memory.set_policy(max_facts=12)
    memory.by("agent:painter", by_model=True).add_fact("One more")
    assert len(memory.document().facts) == 12
    assert "One more" in contents(bs, "ada", "painter")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda bucket: (bucket / "memory.json").write_text("{ torn", encoding="utf-8"),
        lambda bucket: (bucket / ".memory.journal.json").write_text('{"state": "prepared"}', encoding="utf-8"),
    ],
)
def test_a_home_that_cannot_be_read_is_a_fault_that_is_told_and_tried_again(bs, deer, caplog, spoil):
    bucket = deer / "users/ada"
    sound = (bucket / "memory.json").read_bytes()
    spoil(bucket)
    for _ in range(2):
        assert import_once(bs, deer, "ada", None) is False
    assert faults(bs, "ada") == {("import", "InputError"): 2}
    assert str(bucket) in caplog.text
    assert bs.memory("ada").head().seq == 0
    (bucket / "memory.json").write_bytes(sound)
    (bucket / ".memory.journal.json").unlink(missing_ok=True)
    assert import_once(bs, deer, "ada", None) is True
    assert contents(bs, "ada") == ["Likes tea", "Lives in Oslo"]


def test_what_could_not_be_read_at_first_comes_after_what_was_learned_meanwhile(bs, deer):
    path = deer / "users/ada/memory.json"
    sound = path.read_bytes()
    path.write_text("{ torn", encoding="utf-8")
    assert import_once(bs, deer, "ada", None) is False
    bs.memory("ada").add_fact("Likes tea.")
    bs.memory("ada").add_fact("Learned meanwhile")
    path.write_bytes(sound)
    bs.close()
    for expected in (True, False, False):
        with open_home(deer / "backstory") as again:
            assert import_once(again, deer, "ada", None) is expected
            assert [entry.cause.action for entry in again.memory("ada").log()] == ["home", "add", "add", None]
            assert contents(again, "ada") == ["Likes tea.", "Learned meanwhile", "Lives in Oslo"]
        # As a process leaves it that is killed right after its commit.
        (deer / "backstory/users/ada/import.due").touch()


@pytest.mark.parametrize("emptied", [lambda memory: memory.clear(), lambda memory: memory.forget(matching="tea")])
def test_what_could_not_be_read_at_first_does_not_fill_what_was_cleared_or_forgotten_meanwhile(bs, deer, emptied):
    path = deer / "users/ada/memory.json"
    sound = path.read_bytes()
    path.write_text("{ torn", encoding="utf-8")
    import_once(bs, deer, "ada", None)
    bs.memory("ada").add_fact("Likes tea")
    emptied(bs.memory("ada"))
    path.write_bytes(sound)
    assert import_once(bs, deer, "ada", None) is False
    assert contents(bs, "ada") == []


def test_what_our_own_disk_kept_out_at_first_comes_after_what_was_learned_meanwhile(bs, deer, monkeypatch):
    def refused(*_: object, **__: object) -> object:
        raise StoreError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("backstory.operations.document_access.DocumentAccess.taken_over", refused)
        with pytest.raises(StoreError):
            imports_of(bs).if_due(deer, Scope("ada"))
    bs.memory("ada").add_fact("Was learned meanwhile")
    assert import_once(bs, deer, "ada", None) is True
    assert {"Was learned meanwhile", "Likes tea"} <= set(contents(bs, "ada"))


def test_a_fault_of_our_own_store_is_told_and_nobody_falls_over_it(bs, deer, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", full)
        assert import_once(bs, deer, "ada", None) is False
    assert ("import", "StoreError") in faults(bs, "ada")
    assert import_once(bs, deer, "ada", None) is True


def test_a_damaged_ledger_of_long_ago_is_not_filled_once_it_is_mended(bs, deer):
    bs.memory("ada").add_fact("Long ago")
    bs.close()
    log = deer / "backstory/users/ada/ledger.jsonl"
    sound = log.read_bytes()
    log.write_bytes(sound.replace(b"genesis", b"genesiz"))
    for index in log.parent.glob("index.sqlite*"):
        index.unlink()
    with open_home(deer / "backstory") as again:
        assert import_once(again, deer, "ada", None) is False
        assert ("import", "CorruptLogError") in faults(again, "ada")
    log.write_bytes(sound)
    with open_home(deer / "backstory") as again:
        assert import_once(again, deer, "ada", None) is False
        assert contents(again, "ada") == ["Long ago"]


@pytest.mark.parametrize("closed", ["users/ada", "users/ada/agents", "users/ada/memory.json"])
def test_what_may_not_be_looked_into_is_a_fault_and_no_empty_home(bs, deer, monkeypatch, caplog, closed):
    shut = deer / closed

    def refusing(method):
        def refuse(path, *args, **kwargs):
            if path == shut:
                raise PermissionError(13, "Permission denied", str(path))
            return method(path, *args, **kwargs)

        return refuse

    with monkeypatch.context() as patch:
        for name in ("iterdir", "read_bytes"):
            patch.setattr(Path, name, refusing(getattr(Path, name)))
        assert import_once(bs, deer, "ada", None) is False
    assert faults(bs, "ada") == {("import", "InputError"): 1}
    assert f"{shut}: Permission denied" in caplog.text
    assert import_once(bs, deer, "ada", None) is True


# The storage.


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch, deer: Path) -> Iterator[Installed]:
    installed = Installed(monkeypatch, deer)
    yield installed
    installed.remove()


def test_the_storage_has_all_that_its_files_had_also_what_is_unsure_or_many(older, deer):
    many = [fact(f"fact_{n:08d}", f"Fact number {n}", confidence=n / 200) for n in range(200)]
    write(deer / "users/ada/memory.json", "Builds.", *many)
    before = seen(deer)
    storage = open_storage()
    assert storage.load(user_id="ada")["facts"] == many
    assert storage.save(created(storage.load("coder", user_id="ada"), TEA), "coder", user_id="ada")
    assert storage.load("coder", user_id="ada")["facts"] == [RUST, TEA]
    assert seen(deer) == before


def test_the_storage_saves_nothing_over_a_home_that_it_could_not_read(older, deer, caplog):
    path = deer / "users/ada/memory.json"
    sound = path.read_bytes()
    path.write_text("{ torn", encoding="utf-8")
    storage = open_storage()
    with pytest.raises(InputError, match="no JSON"):
        storage.load(user_id="ada")
    assert storage.save(created(empty(), RUST), user_id="ada") is False
    path.write_bytes(sound)
    assert storage.load(user_id="ada")["facts"] == [TEA, OSLO]
    events = [event for event in _log(deer)[0].events if isinstance(event, FactAdded)]
    assert len(events) == 2


def _log(deer: Path):
    with open_home(deer / "backstory") as bs:
        return bs.memory("ada").log()


def test_what_is_cleared_through_the_storage_stays_cleared(older, deer):
    storage = open_storage()
    storage.load(user_id="ada")
    storage.save(empty("2026-06-01T00:00:00Z"), user_id="ada")
    storage.close()
    assert open_storage().load(user_id="ada")["facts"] == []
    assert sys.modules["backstory.deerflow.storage"]
