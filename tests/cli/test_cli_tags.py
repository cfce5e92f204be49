"""Tags and attributes on the command line: with what is recorded, by hand, and as filters."""

from __future__ import annotations

import pytest
from commandline import Cli, said


@pytest.fixture
def projects(cli: Cli) -> Cli:
    cli.run("fact", "add", "Deploys the heron", "--tag", "heron", "--attribute", "team=red", "--attribute", "rank=2")
    cli.run("fact", "add", "Deploys the gull", "--tag", "gull", "--tag", "heron")
    cli.run("fact", "add", "Is allergic to peanuts")
    return cli


def test_facts_are_listed_found_and_put_in_a_block_by_tags(projects: Cli) -> None:
    def ids(*words: str) -> list[str]:
        return [fact["id"] for fact in projects.json(*words)]

    assert ids("fact", "list", "--tag", "heron") == ["fact_2_0", "fact_3_0"]
    assert ids("fact", "list", "--tag", "heron", "--tag", "gull") == ["fact_3_0"]
    assert ids("fact", "list", "--tag", "team=red") == ["fact_2_0"]
    assert ids("search", "deploys", "--tag", "gull") == ["fact_3_0"]
    assert projects.json("context", "--tag", "team=red")["facts"] == ["fact_2_0", "fact_4_0"]
    shown = projects.run("fact", "list", "--tag", "team=red").stdout
    assert "Deploys the heron (by hand; tags heron; team=red; rank=2)" in " ".join(shown.split())


def test_an_edit_states_them_anew(projects: Cli) -> None:
    fact = projects.json("fact", "edit", "fact_3_0", "--tag", "wren", "--attribute", "open=true")["fact"]
    assert (fact["tags"], fact["attributes"]) == (["wren"], {"open": True})
    fact = projects.json("fact", "edit", "fact_3_0", "--tag", "", "--attribute", "")["fact"]
    assert "tags" not in fact
    assert "attributes" not in fact


def test_what_is_recorded_is_tagged_and_what_is_learned_from_it(cli: Cli) -> None:
    turns = cli.file("a.jsonl", said("t1", "a", "user", "I deploy on Fridays."))
    cli.run("record", turns, "--tag", "heron")
    reply = {"thread_id": "t1", "reply": {"newFacts": [{"content": "Deploys on Fridays", "confidence": 0.9}]}}
    cli.run("extract", "--replies", cli.file("replies.jsonl", reply))
    (fact,) = cli.json("fact", "list")
    assert fact["tags"] == ["heron"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fact", "add", "x", "--tag", "a,b"), "a tag must be a name of 1 to 64 characters in one line"),
        (("fact", "add", "x", "--attribute", "red"), "an attribute is NAME=VALUE, such as team=red, got 'red'"),
        (("fact", "list", "--tag", "=x"), "an attribute must be a name"),
    ],
)
def test_what_is_none_is_refused_with_what_one_is(cli: Cli, words: tuple[str, ...], says: str) -> None:
    assert says in " ".join(cli.run(*words, code=2).stderr.split())
