"""Summaries as DeerFlow keeps them: the user's own, written by every agent's update and shown to all of them."""

from __future__ import annotations

import json

from hosts import EMPTY, ChatModel, Host, contents, learned, learning, talk, without_times

from backstory import Backstory

WORK = {"user": {"workContext": {"summary": "Writes Go", "shouldUpdate": True}}}


def work(manager, agent: str | None = None) -> str:
    return manager.get_memory(user_id="ada", agent_name=agent)["user"]["workContext"]["summary"]


def old_memory(host: Host, *parts: str, at: str = "2026-01-01T00:00:00Z", **sections: str) -> None:
    """Lay down a memory of DeerFlow's with a fact, and sections of `user` written at a time."""
    file = host.folder.joinpath("users", "ada", *parts, "memory.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    fact = {"id": f"fact_{len(parts):08x}", "content": f"Fact of {parts}", "category": "context", "confidence": 0.9}
    user = {name: {"summary": summary, "updatedAt": at} for name, summary in sections.items()}
    file.write_text(json.dumps({"version": "1.0", "user": user, "history": {}, "facts": [fact]}), encoding="utf-8")


def test_what_one_agent_learns_is_in_the_summaries_that_all_agents_and_the_settings_page_show(host):
    manager = host.manager(ChatModel(learning("Likes tea", **WORK)))
    manager.add("t1", talk(), user_id="ada", agent_name="coder")
    assert learned(manager, agent="coder") == ["Likes tea"]
    assert [work(manager, agent) for agent in (None, "coder", "cook")] == ["Writes Go"] * 3
    assert contents(manager) == contents(manager, agent="cook") == []
    assert "Writes Go" in manager.get_context("ada", agent_name="cook")


def test_the_summaries_that_a_person_changes_are_the_agents_next_prompt(host):
    model = ChatModel(learning("Likes tea", **WORK))
    manager = host.manager(model)
    manager.add("t1", talk(), user_id="ada", agent_name="coder")
    learned(manager, agent="coder")
    manager.import_memory({"user": {"workContext": {"summary": "Bakes bread"}}, "facts": []}, user_id="ada")
    model.answer = learning("Likes rye")
    manager.add("t1", [*talk(), *talk("I like rye.", number=2)], user_id="ada", agent_name="coder")
    assert learned(manager, agent="coder") == ["Likes tea", "Likes rye"]
    prompt = str(model.asked[-1].messages)
    assert "Bakes bread" in prompt
    assert "Writes Go" not in prompt
    assert work(manager, "coder") == "Bakes bread"


def test_an_agents_import_writes_the_users_summaries_and_what_it_leaves_out_is_emptied(host):
    manager = host.manager()
    manager.create_fact("Is tall", user_id="ada")
    manager.import_memory({"user": {"topOfMind": {"summary": "The ferry"}}, "facts": []}, user_id="ada")
    manager.create_fact("Is tall", user_id="ada")
    written = manager.import_memory(
        {"user": {"workContext": {"summary": "Writes Go"}}, "facts": []}, user_id="ada", agent_name="coder"
    )
    assert without_times(written)["user"] == without_times(manager.get_memory(user_id="ada"))["user"]
    assert written["user"]["workContext"]["summary"] == "Writes Go"
    assert written["user"]["topOfMind"]["summary"] == ""
    assert contents(manager) == ["Is tall"]
    emptied = manager.import_memory({"facts": []}, user_id="ada", agent_name="coder")
    assert without_times(emptied) == EMPTY


def test_an_agent_takes_facts_over_and_not_the_users_summaries(host):
    old_memory(host, workContext="Builds bridges")
    file = host.folder / "users" / "ada" / "agents" / "coder" / "facts" / "0b" / "fact_0badcafe.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nid: fact_0badcafe\nconfidence: 0.9\n---\n\nSalts late\n", encoding="utf-8")
    manager = host.manager()
    assert contents(manager, agent="coder") == ["Salts late"]
    assert work(manager, "coder") == "Builds bridges"
    log = manager._hosting.home.memory("ada", "coder").log()
    assert [type(event).__name__ for entry in log for event in entry.events] == ["FactAdded", "PolicyChanged"]


def test_an_agents_own_summaries_of_an_early_deerflow_reach_the_user_where_they_are_newer(host):
    old_memory(host, workContext="Builds bridges", personalContext="Is tall", at="2026-02-01T00:00:00Z")
    old_memory(host, "agents", "coder", workContext="Builds sheds", topOfMind="The ferry")
    manager = host.manager()
    user = manager.get_memory(user_id="ada", agent_name="coder")["user"]
    assert [user[name]["summary"] for name in ("workContext", "personalContext", "topOfMind")] == [
        "Builds bridges",
        "Is tall",
        "The ferry",
    ]
    assert user == manager.get_memory(user_id="ada")["user"]


def test_a_home_of_the_version_before_is_brought_back_by_the_first_manager(host):
    with Backstory.open(host.folder / "backstory") as home:
        home.memory("ada", "coder").import_document({"user": {"workContext": {"summary": "Writes Go"}}, "facts": []})
    manager = host.manager()
    assert work(manager) == "Writes Go"
    home = manager._hosting.home
    assert home.memory("ada").log()[0].cause.agent == "coder"
    home.memory("ada", "coder").revert()
    assert work(manager) == work(manager, "coder") == ""


def test_the_setting_can_be_turned_off(host):
    manager = host.manager(ChatModel(learning("Likes tea", **WORK)), shared_summaries=False)
    manager.add("t1", talk(), user_id="ada", agent_name="coder")
    learned(manager, agent="coder")
    assert [work(manager), work(manager, "coder")] == ["", "Writes Go"]
