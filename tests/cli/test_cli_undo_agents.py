"""`revert` of a clear that took the memories of a user's agents along."""

from __future__ import annotations

import pytest
from commandline import Cli

ADA = ("--user", "ada")


@pytest.fixture(params=["false", "true"])
def cleared(cli: Cli, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A user and two of three agents had facts, and all were cleared at once."""
    monkeypatch.setenv("BACKSTORY_SHARED_SUMMARIES", request.param)
    cli.run(*ADA, "fact", "add", "Likes tea")
    for agent in ("coder", "cook"):
        cli.run(*ADA, "--agent", agent, "fact", "add", f"Told the {agent}")
    cli.run(*ADA, "--agent", "painter", "policy", "--set", "max_facts=50")
    cli.run(*ADA, "clear", "--all-agents")
    return cli


def facts(cli: Cli, *agent: str) -> list[str]:
    return [fact["content"] for fact in cli.json(*ADA, *agent, "show")["facts"]]


def test_the_revert_names_the_agents_that_were_cleared_with_it(cleared: Cli) -> None:
    told = cleared.run(*ADA, "revert", "HEAD").stdout
    assert "agent coder, cleared at the same time: 1 fact" in told
    assert "agent cook, cleared" in told
    assert "painter" not in told
    assert "--with-agents" in told
    assert facts(cleared) == ["Likes tea"]
    assert facts(cleared, "--agent", "coder") == []


def test_with_agents_all_come_back(cleared: Cli) -> None:
    before = cleared.json(*ADA, "revert", "HEAD", "--with-agents", "--dry-run")
    assert [(one["agent"], one["facts"], len(one["undo"]["events"])) for one in before["agents"]] == [
        ("coder", 1, 1),
        ("cook", 1, 1),
    ]
    assert facts(cleared, "--agent", "coder") == []
    cleared.run(*ADA, "revert", "HEAD", "--with-agents")
    assert facts(cleared) == ["Likes tea"]
    for agent in ("coder", "cook"):
        assert facts(cleared, "--agent", agent) == [f"Told the {agent}"]
        assert cleared.json(*ADA, "--agent", agent, "verify")["ok"]


def test_a_conflict_in_one_agents_memory_leaves_all_as_they_are(cleared: Cli) -> None:
    cleared.run(*ADA, "--agent", "cook", "fact", "add", "told the COOK")
    assert "conflict" in cleared.run(*ADA, "revert", "HEAD", "--with-agents", code=1).stdout
    assert facts(cleared) == facts(cleared, "--agent", "coder") == []
    cleared.run(*ADA, "revert", "HEAD", "--with-agents", "--force")
    assert facts(cleared, "--agent", "coder") == ["Told the coder"]


def test_the_clear_of_one_agent_is_not_undone_with_a_later_one_of_the_user(cli: Cli) -> None:
    cli.run(*ADA, "fact", "add", "Likes tea")
    cli.run(*ADA, "--agent", "cook", "fact", "add", "Told the cook")
    cli.run(*ADA, "--agent", "cook", "clear")
    cli.run(*ADA, "clear")
    assert "agents" not in cli.json(*ADA, "revert", "HEAD", "--with-agents")
    assert facts(cli, "--agent", "cook") == []


def test_the_graph_of_an_agent_does_not_take_the_commit_of_its_user_for_one_of_its_own(cleared: Cli) -> None:
    edges = cleared.json(*ADA, "--agent", "coder", "graph")["edges"]
    assert "returned-to" not in {edge["kind"] for edge in edges}
