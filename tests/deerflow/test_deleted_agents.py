"""A custom agent that DeerFlow deletes: a new agent of its name does not remember what the first one knew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deerflow.config.app_config import AppConfig
from deerflow.config.paths import get_paths
from deerflow.persistence.agents import FileAgentStore, SqlAgentStore, get_agent_store
from hosts import ChatModel, Host, contents, learned, learning, talk

from backstory import Backstory
from backstory.deerflow import BackstoryMemoryManager
from backstory.deerflow.agent_markers import MARKER, RECORD


@pytest.fixture(autouse=True)
def _at_home(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEER_FLOW_HOME", str(host.folder))
    monkeypatch.setattr(SqlAgentStore, "rows", set())
    monkeypatch.setattr(AppConfig, "backend", None)


@pytest.fixture(params=["file", "db"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FileAgentStore | SqlAgentStore:
    monkeypatch.setattr(AppConfig, "backend", request.param)
    return get_agent_store()


def folder_of(agent: str = "coder"):
    return get_paths().user_agent_dir("ada", agent)


def taught(host: Host, words: str = "Writes Go", **config: object) -> BackstoryMemoryManager:
    """A manager whose agent has learned something."""
    manager = host.manager(ChatModel(learning(words)), **config)
    manager.add("t1", talk(), user_id="ada", agent_name="coder")
    assert words in learned(manager, agent="coder")
    return manager


def kinds(host: Host) -> list[str]:
    with Backstory.open(host.folder / "backstory") as home:
        return [commit.cause.kind for commit in home.memory("ada", "coder").log()]


def test_a_new_agent_of_the_name_knows_nothing_of_the_deleted_one(host, store):
    store.create("coder", user_id="ada")
    manager = taught(host)
    manager.create_fact("Likes tea", user_id="ada")
    assert store.delete("coder", user_id="ada") == "deleted"
    store.create("Coder", user_id="ada")
    assert manager.get_context("ada", agent_name="coder") == ""
    assert contents(manager, agent="coder") == []
    assert contents(manager) == ["Likes tea"]


@pytest.mark.parametrize(
    "use",
    [
        lambda manager: manager.search("go", user_id="ada", agent_name="coder"),
        lambda manager: manager.get_context("ada", agent_name="coder", thread_id="t1"),
        lambda manager: manager.add("t2", [], user_id="ada", agent_name="coder"),
        lambda manager: manager.create_fact("Likes Rust", user_id="ada", agent_name="coder"),
    ],
    ids=["search", "context", "add", "create"],
)
def test_whatever_the_new_agent_does_first_finds_an_empty_memory(host, store, use: Callable[..., object]):
    store.create("coder", user_id="ada")
    manager = taught(host)
    store.delete("coder", user_id="ada")
    store.create("coder", user_id="ada")
    use(manager)
    assert "Writes Go" not in contents(manager, agent="coder")
    assert kinds(host).count("clear") == 1


def test_the_deletion_shows_also_to_a_process_that_starts_afterwards(host, store):
    store.create("coder", user_id="ada")
    taught(host).close()
    store.delete("coder", user_id="ada")
    store.create("coder", user_id="ada")
    assert contents(host.manager(), agent="coder") == []


def test_one_commit_cleared_it_says_who_and_can_be_undone(host, store, caplog):
    store.create("coder", user_id="ada")
    manager = taught(host)
    store.delete("coder", user_id="ada")
    store.create("coder", user_id="ada")
    assert contents(manager, agent="coder") == []
    assert "its memory was cleared" in caplog.text
    with Backstory.open(host.folder / "backstory") as home:
        memory = home.memory("ada", "coder")
        newest = memory.log()[0].cause
        assert (newest.kind, newest.actor) == ("clear", "deerflow:agent-deleted")
        memory.revert()
        assert [fact.content for fact in memory.facts()] == ["Writes Go"]
    assert contents(manager, agent="coder") == ["Writes Go"]


def test_turns_that_were_pending_or_came_late_are_not_learned_for_the_new_agent(host, store):
    store.create("coder", user_id="ada")
    manager = taught(host)
    manager.add("t2", talk("I like Rust.", number=2), user_id="ada", agent_name="coder")
    store.delete("coder", user_id="ada")
    manager.add("t3", talk("I like C.", number=3), user_id="ada", agent_name="coder")
    store.create("coder", user_id="ada")
    assert contents(manager, agent="coder") == []
    assert learned(manager, agent="coder") == []


def test_the_new_agent_learns_and_keeps_it(host, store):
    store.create("coder", user_id="ada")
    taught(host).close()
    store.delete("coder", user_id="ada")
    store.create("coder", user_id="ada")
    manager = host.manager(ChatModel(learning("Writes Rust")))
    manager.add("t1", talk("I write Rust.", number=7), user_id="ada", agent_name="coder")
    assert learned(manager, agent="coder") == ["Writes Rust"]
    manager.close()
    assert contents(host.manager(), agent="coder") == ["Writes Rust"]
    assert kinds(host).count("clear") == 1


def test_each_deletion_clears_once(host, store):
    for number in (1, 2, 3):
        store.create("coder", user_id="ada")
        manager = host.manager(ChatModel(learning(f"Writes Go {number}")))
        manager.add("t1", talk(f"Go {number}", number=number), user_id="ada", agent_name="coder")
        assert learned(manager, agent="coder") == [f"Writes Go {number}"]
        manager.close()
        store.delete("coder", user_id="ada")
    assert kinds(host).count("clear") == 2


def test_a_memory_from_before_the_markers_is_kept(host, store):
    manager = taught(host)
    assert not folder_of().exists()
    store.create("coder", user_id="ada")
    assert contents(manager, agent="coder") == ["Writes Go"]
    assert (folder_of() / MARKER).exists()
    assert kinds(host).count("clear") == 0


def test_a_name_without_an_agent_is_left_free(host, store):
    manager = taught(host)
    assert contents(manager, agent="coder") == ["Writes Go"]
    assert not folder_of().exists()
    store.create("coder", user_id="ada")


def test_an_agent_of_the_older_layout_keeps_its_memory_also_through_the_move_to_a_user(host):
    shared = get_paths().agent_dir("coder")
    shared.mkdir(parents=True)
    (shared / "config.yaml").write_text("name: coder\n")
    manager = taught(host)
    assert not folder_of().exists()
    folder_of().parent.mkdir(parents=True, exist_ok=True)
    shared.rename(folder_of())
    assert contents(manager, agent="coder") == ["Writes Go"]
    assert (folder_of() / MARKER).exists()
    assert FileAgentStore().delete("coder", user_id="ada") == "deleted"
    FileAgentStore().create("coder", user_id="ada")
    assert contents(manager, agent="coder") == []


def test_the_shared_agent_behind_a_deleted_one_does_not_know_what_that_knew(host):
    FileAgentStore().create("coder", user_id="ada")
    shared = get_paths().agent_dir("coder")
    shared.mkdir(parents=True)
    (shared / "config.yaml").write_text("name: coder\n")
    manager = taught(host)
    FileAgentStore().delete("coder", user_id="ada")
    assert contents(manager, agent="coder") == []
    assert not folder_of().exists()


def test_agents_that_move_into_the_database_keep_their_memory(host, monkeypatch):
    FileAgentStore().create("coder", user_id="ada")
    manager = taught(host)
    monkeypatch.setattr(AppConfig, "backend", "db")
    SqlAgentStore().create("coder", user_id="ada")
    assert contents(manager, agent="coder") == ["Writes Go"]


def test_a_disk_that_is_missing_clears_nothing(host, store):
    store.create("coder", user_id="ada")
    manager = taught(host)
    away = folder_of().parent
    away.rename(away.with_name("away"))
    assert contents(manager, agent="coder") == ["Writes Go"]
    away.with_name("away").rename(away)
    assert contents(manager, agent="coder") == ["Writes Go"]
    assert kinds(host).count("clear") == 0


def test_the_memory_of_a_deleted_agent_is_kept_as_long_as_there_is_no_other(host, store):
    store.create("coder", user_id="ada")
    manager = taught(host)
    store.delete("coder", user_id="ada")
    assert contents(manager, agent="coder") == ["Writes Go"]


def test_an_older_home_put_back_does_not_know_the_agent_that_was_deleted_since(host, store):
    store.create("coder", user_id="ada")
    manager = taught(host)
    record = host.folder / "backstory" / "users" / "ada" / "agents" / "coder" / RECORD
    number = record.read_text()
    store.delete("coder", user_id="ada")
    store.create("coder", user_id="ada")
    assert contents(manager, agent="coder") == []
    manager.close()
    with Backstory.open(host.folder / "backstory") as home:
        home.memory("ada", "coder").revert()
    record.write_text(number)
    assert contents(host.manager(), agent="coder") == []


@pytest.mark.parametrize("damaged", ["marker", "record"])
def test_a_damaged_marker_or_record_proves_nothing(host, store, damaged):
    store.create("coder", user_id="ada")
    manager = taught(host)
    record = host.folder / "backstory" / "users" / "ada" / "agents" / "coder" / RECORD
    {"marker": folder_of() / MARKER, "record": record}[damaged].write_text("")
    assert contents(manager, agent="coder") == ["Writes Go"]
    assert kinds(host).count("clear") == 0


def test_a_store_of_agents_that_cannot_be_asked_is_counted_and_clears_nothing(host, monkeypatch):
    monkeypatch.setattr(AppConfig, "backend", "db")
    SqlAgentStore().create("coder", user_id="ada")
    manager = taught(host)
    SqlAgentStore().delete("coder", user_id="ada")

    def fail(*_: object, **__: object) -> bool:
        raise OSError("the database is away")

    monkeypatch.setattr(SqlAgentStore, "exists", fail)
    assert contents(manager, agent="coder") == ["Writes Go"]
    faults = manager._hosting.home.memory("ada", "coder").status().faults
    assert [fault.doing for fault in faults] == ["agent"]


def test_an_end_between_the_clear_and_its_record_loses_nothing_of_the_new_agent(host, store):
    store.create("coder", user_id="ada")
    manager = taught(host)
    record = host.folder / "backstory" / "users" / "ada" / "agents" / "coder" / RECORD
    number = record.read_text()
    store.delete("coder", user_id="ada")
    store.create("coder", user_id="ada")
    assert contents(manager, agent="coder") == []
    (folder_of() / MARKER).unlink()
    record.write_text(number)
    manager.close()
    manager = host.manager(ChatModel(learning("Writes Rust")))
    manager.add("t2", talk("I write Rust.", number=2), user_id="ada", agent_name="coder")
    assert learned(manager, agent="coder") == ["Writes Rust"]
    assert contents(manager, agent="coder") == ["Writes Rust"]
