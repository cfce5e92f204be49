"""A DeerFlow that remembered before: what it knew is there from the first use on, and its files are left alone."""

from __future__ import annotations

import json
from pathlib import Path

from hosts import EMPTY, ChatModel, Host, contents, learned, learning, talk, without_times

from backstory import Backstory


def stated(*words: str, work: str = "") -> str:
    facts = [
        {
            "id": f"fact_{number:08x}",
            "content": content,
            "category": "preference",
            "confidence": 0.9,
            "createdAt": "2026-01-02T03:04:05Z",
            "source": "thread-1",
        }
        for number, content in enumerate(words)
    ]
    return json.dumps({"version": "1.0", "user": {"workContext": {"summary": work}}, "history": {}, "facts": facts})


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def fill(host: Host) -> dict[Path, tuple[bytes, int]]:
    """Lay a home of DeerFlow's down; return what its files hold, and when they were written."""
    ada = host.folder / "users" / "ada"
    write(ada / "memory.json", stated("Likes tea", work="Builds bridges"))
    write(ada / "agents" / "coder" / "memory.json", stated("Writes Go"))
    write(ada / "agents" / "painter" / "config.yaml", "name: painter\n")
    fact = (
        "---\nid: fact_0badcafe\ncategory: preference\nconfidence: 0.9\nstatus: active\n"
        "createdAt: '2026-01-02T03:04:05Z'\nsource:\n  type: conversation\n  threadId: t9\n---\n\nSalts late\n"
    )
    write(ada / "agents" / "cook" / "facts" / "0b" / "fact_0badcafe.md", fact)
    write(host.folder / "users" / "bob" / "memory.json", stated("Likes rum"))
    write(host.folder / "memory.json", stated("Is nobody's"))
    return snapshot(host)


def snapshot(host: Host) -> dict[Path, tuple[bytes, int]]:
    files = (file for file in host.folder.rglob("*") if file.is_file())
    return {
        file: (file.read_bytes(), file.stat().st_mtime_ns)
        for file in files
        if "backstory" not in file.relative_to(host.folder).parts
    }


def test_each_memory_is_taken_over_on_its_first_use_and_deerflows_files_stay_as_they_are(host):
    before = fill(host)
    manager = host.manager()
    assert contents(manager) == ["Likes tea"]
    assert "Builds bridges" in manager.get_context("ada")
    assert contents(manager, agent="Coder") == ["Writes Go"]
    assert [fact["content"] for fact in manager.search("salt", user_id="ada", agent_name="cook")] == ["Salts late"]
    assert contents(manager, "bob") == ["Likes rum"]
    assert contents(manager, None) == ["Is nobody's"]
    assert contents(manager, "cid") == []
    assert snapshot(host) == before


def test_an_agent_that_has_only_a_configuration_shows_the_users_summaries(host):
    fill(host)
    manager = host.manager()
    assert manager.get_context("ada", agent_name="painter") == "User Context:\n- Work: Builds bridges"
    assert contents(manager, agent="painter") == []


def test_what_is_said_first_does_not_keep_what_was_known_before_away(host):
    fill(host)
    manager = host.manager(ChatModel(learning("Likes coffee")))
    manager.add("t1", talk("I like coffee."), user_id="ada")
    assert learned(manager) == ["Likes tea", "Likes coffee"]


def test_all_that_a_user_owns_is_cleared_also_what_was_never_used_here(host):
    fill(host)
    manager = host.manager()
    assert without_times(manager.clear_memory(user_id="ada")) == EMPTY
    for agent in (None, "coder", "cook", "painter"):
        assert contents(manager, agent=agent) == []
    assert contents(manager, "bob") == ["Likes rum"]
    manager.close()
    again = host.manager()
    for agent in (None, "coder", "cook"):
        assert contents(again, agent=agent) == []


def test_agents_that_cannot_be_looked_for_are_a_fault_that_is_told_and_no_hindrance_to_a_clear(host):
    fill(host)
    manager = host.manager()
    assert contents(manager) == ["Likes tea"]
    agents = host.folder / "users" / "ada" / "agents"
    agents.rename(agents.with_name("elsewhere"))
    agents.symlink_to(agents)
    assert without_times(manager.clear_memory(user_id="ada")) == EMPTY
    assert [fault.doing for fault in manager._hosting.home.memory("ada").status().faults] == ["import"]


def test_what_was_cleared_unseen_can_still_be_brought_back(host):
    fill(host)
    host.manager().clear_memory(user_id="ada")
    with Backstory.open(host.folder / "backstory") as home:
        home.memory("ada", "coder").revert()
        assert [fact.content for fact in home.memory("ada", "coder").facts()] == ["Writes Go"]


def test_an_agent_is_cleared_alone_and_the_users_summaries_stay(host):
    fill(host)
    manager = host.manager()
    cleared = manager.clear_memory(user_id="ada", agent_name="coder")
    assert cleared["facts"] == []
    assert cleared["user"]["workContext"]["summary"] == "Builds bridges"
    assert contents(manager) == ["Likes tea"]
    assert contents(manager, agent="cook") == ["Salts late"]


def test_an_import_overwrites_what_deerflow_remembered(host):
    fill(host)
    manager = host.manager()
    manager.import_memory(json.loads(stated("Likes cocoa")), user_id="ada")
    assert contents(manager) == ["Likes cocoa"]


def test_a_home_that_cannot_be_read_is_counted_and_the_agent_goes_on(host):
    write(host.folder / "users" / "ada" / "memory.json", "{broken")
    manager = host.manager(ChatModel())
    assert manager.get_context("ada") == ""
    manager.add("t1", talk(), user_id="ada")
    assert learned(manager) == ["Likes tea"]
    assert [fault.doing for fault in manager._hosting.home.memory("ada").status().faults] == ["import"]
    write(host.folder / "users" / "ada" / "memory.json", stated("Likes rye"))
    assert sorted(contents(manager)) == ["Likes rye", "Likes tea"]
