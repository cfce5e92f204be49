"""Every verb: what --json gives, and the exit code."""

from __future__ import annotations

import json

import pytest
from commandline import Cli, fact, reply, said

from backstory import __version__


def test_record_counts_threads_turns_and_what_was_skipped(cli: Cli) -> None:
    rows = [said("t1", "1", "user", "hi"), said("t1", "2", "assistant", "ho"), said("t2", "3", "tool", "42")]
    file = cli.file("c", *rows)
    for turns, skipped in ((2, 1), (0, 3)):
        counts = {"threads": 2, "turns": turns, "skipped": skipped, "superseded": 0, "cut": 0}
        scopes = [{"user": None, "agent": None, **counts}]
        assert cli.json("record", file) == {**counts, "backlog": False, "scopes": scopes}


def test_record_with_append_takes_everything_as_new(cli: Cli) -> None:
    file = cli.file("c", {"role": "user", "content": "I live in Oslo"}, {"role": "assistant", "content": "Noted"})
    assert cli.json("record", file, "--thread", "t", "--append")["turns"] == 2
    assert cli.json("record", file, "--thread", "t")["turns"] == 0
    assert cli.json("record", file, "--thread", "t", "--append")["turns"] == 2


def test_extract_with_replies_names_its_commits(story: Cli) -> None:
    assert [entry["seq"] for entry in story.json("log")] == [3, 2, 1]
    assert story.json("extract", "--replies", story.file("none")) == {"updates": 0, "failed": 0, "commits": []}


def test_a_reply_that_nothing_waits_for_is_told(story: Cli) -> None:
    result = story.run("--json", "extract", "--replies", story.file("more", reply("t9", fact("x"))))
    assert json.loads(result.stdout)["updates"] == 0
    assert "t9" in result.stderr


def test_extract_takes_only_the_thread_that_was_named(cli: Cli) -> None:
    rows = [said(t, f"{t}{n}", role, "I like tea.") for t in "ab" for n, role in enumerate(["user", "assistant"])]
    cli.run("record", cli.file("c", *rows))
    replies = cli.file("r", reply("a", fact("A likes tea")), reply("b", fact("B likes tea")))
    assert cli.json("extract", "--thread", "b", "--replies", replies)["commits"] == [2]
    assert [f["content"] for f in cli.json("fact", "list")] == ["B likes tea"]
    assert [p["thread"] for p in cli.json("status")["pending"]] == ["a"]


def test_clock_turns_dates_a_commit_by_what_was_said(cli: Cli) -> None:
    rows = [said("t", str(n), role, "I like tea.", at="2020-01-02T03:04:05Z") for n, role in enumerate(["user", "ai"])]
    cli.run("record", cli.file("c", *rows))
    cli.run("extract", "--clock", "turns", "--replies", cli.file("r", reply("t", fact("Likes tea"))))
    assert cli.json("log", "--limit", "1")[0]["at"] == "2020-01-02T03:04:05.000000Z"


def test_extract_asks_the_configured_model(cli: Cli, model) -> None:
    model(lambda _: json.dumps({"newFacts": [fact("User likes tea")]}))
    cli.run("record", cli.file("c", said("t", "1", "user", "I like tea."), said("t", "2", "assistant", "Me too.")))
    assert cli.json("extract") == {"updates": 1, "failed": 0, "commits": [2]}
    assert cli.json("log", "--limit", "1")[0]["cause"]["model"] == "stub-1"


def test_a_failed_update_exits_1_is_parked_and_can_be_retried_or_discarded(cli: Cli) -> None:
    rows = [said(t, f"{t}{n}", role, "I like tea.") for t in "ab" for n, role in enumerate(["user", "assistant"])]
    cli.run("record", cli.file("c", *rows))
    broken = cli.file("r", {"thread_id": "a", "reply": "{oh"}, {"thread_id": "b", "reply": "{no"})
    assert cli.json("extract", "--replies", broken, code=1) == {"updates": 2, "failed": 2, "commits": [2, 3]}
    parked = cli.json("status")["parked"]
    assert [(p["thread"], p["turns"], p["reason"], p["attempts"]) for p in parked] == [
        ("a", 2, "reply", 1),
        ("b", 2, "reply", 1),
    ]
    assert cli.json("retry", "--thread", "a", "--replies", broken, code=1)["failed"] == 1
    good = cli.file("g", reply("a", fact("Likes tea")), reply("b", fact("Likes coffee")))
    assert cli.json("retry", "--thread", "a", "--replies", good) == {"updates": 1, "failed": 0, "commits": [5]}
    assert cli.json("discard", "--thread", "b") == {"updates": 1, "failed": 0, "commits": [6]}
    assert cli.json("status")["parked"] == []
    assert [f["content"] for f in cli.json("fact", "list")] == ["Likes tea"]


def test_status(cli: Cli) -> None:
    cli.run("record", cli.file("c", said("t", "1", "user", "I like tea."), said("t", "2", "assistant", "ok")))
    status = cli.json("status")
    assert (status["seq"], status["facts"], status["parked"], status["user"]) == (0, 0, [], None)
    assert status["pending"][0]["thread"] == "t"
    assert 0 < status["pending"][0]["due_in"] <= 30
    assert status["model"] is None


def test_show_is_the_document_now_and_then(story: Cli) -> None:
    now = story.json("show")
    assert set(now) == {"version", "lastUpdated", "user", "history", "facts"}
    assert [f["content"] for f in now["facts"]] == ["User writes Rust", "User lives in Bergen"]
    assert now["user"]["workContext"]["summary"] == "Writes Rust."
    then = story.json("show", "--at", "2")
    assert [f["content"] for f in then["facts"]] == ["User writes Rust", "User lives in Oslo"]
    assert story.json("show", "--at", then["lastUpdated"]) == then
    assert story.json("show", "--at", "2000-01-01")["facts"] == []


def test_log_is_newest_first_and_narrowed(story: Cli) -> None:
    log = story.json("log")
    assert [entry["cause"]["kind"] for entry in log] == ["extraction", "extraction", "genesis"]
    assert set(log[0]) == {"seq", "at", "hash", "cause", "summary", "events"}
    assert [entry["seq"] for entry in story.json("log", "--limit", "2")] == [3, 2]
    assert [entry["seq"] for entry in story.json("log", "--thread", "t1")] == [2]
    assert [entry["seq"] for entry in story.json("log", "--fact", "fact_3")] == [3]
    assert [entry["seq"] for entry in story.json("log", "--since", log[0]["at"])] == [3]
    assert story.json("log", "--since", "2100-01-01") == []
    assert story.json("log", "--since", "0") == story.json("log", "--since", "1") == log


def test_threads_and_turns(story: Cli) -> None:
    assert [(t["thread"], t["turns"], t["pending"]) for t in story.json("threads")] == [("t1", 2, 0), ("t2", 2, 0)]
    assert story.json("threads")[0]["last"] > "2026"
    turns = story.json("turns", "t1")
    assert [(t["id"], t["role"], t["content"]) for t in turns] == [
        ("a1", "user", "I write Rust in Oslo."),
        ("a2", "assistant", "Noted."),
    ]
    assert turns[0]["at"] > "2026"


def test_why_a_live_fact_and_one_that_is_gone(story: Cli) -> None:
    live = story.json("why", "fact_2_0")
    assert (live["fact"]["content"], live["live"], live["removed"]) == ("User writes Rust", True, None)
    assert (live["added"]["seq"], live["added"]["cause"]["thread"]) == (2, "t1")
    assert [(e["turn"], e["role"], e["content"]) for e in live["evidence"]] == [("a1", "user", "I write Rust in Oslo.")]
    gone = story.json("why", "fact_2_1")
    assert not gone["live"]
    assert (gone["removed"]["seq"], gone["removed"]["reason"], gone["removed"]["note"]) == (3, "model", "moved")
    assert [(h["seq"], h["type"]) for h in gone["history"]] == [(2, "FactAdded"), (3, "FactRemoved")]
    assert [e["turn"] for e in gone["evidence"]] == ["a1", "a2"]


def test_why_said(story: Cli) -> None:
    given = story.json("context")
    note = {name: given[name] for name in ("seq", "digest", "facts", "turns")}
    turns = [
        {"role": "user", "content": "Where do I live?", "id": "q9"},
        {"role": "assistant", "content": "In Bergen.", "id": "a9", "metadata": {"context": note}},
    ]
    story.run("record", "-", "--thread", "friday", piped=json.dumps(turns))
    found = story.json("why-said", "a9")
    assert (found["thread"], found["noted"], found["holds"], found["seq"]) == ("friday", True, True, given["seq"])
    assert [fact["id"] for fact in found["facts"]] == given["facts"]
    page = story.run("why-said", "a9", "--thread", "friday").stdout
    assert "In Bergen." in page
    assert "User writes Rust" in page
    assert story.json("why-said", "q9", code=1)["noted"] is False


def test_why_not(story: Cli) -> None:
    found = story.json("why-not", "User may like tea")
    assert (found[0]["content"], found[0]["seq"], found[0]["rule"]) == ("User may like tea", 2, "threshold")
    assert "0.7" in found[0]["detail"]
    assert story.json("why-not", "zzz qqq", code=1) == []


def test_diff(story: Cli) -> None:
    found = story.json("diff", 2, 3)
    assert [f["id"] for f in found["added"]] == ["fact_3_0"]
    assert [f["id"] for f in found["removed"]] == ["fact_2_1"]
    assert (found["revised"], found["sections"]) == ([], [])
    assert [s["section"] for s in story.json("diff", 0, 3)["sections"]] == ["user.workContext"]


@pytest.mark.parametrize("target", ["3", "HEAD", "head"])
def test_revert_brings_back_what_was_superseded(story: Cli, target: str) -> None:
    dry = story.json("revert", target, "--dry-run")
    assert dry["commit"] is None
    assert story.json("head")["seq"] == 3
    done = story.json("revert", target)
    assert done["commit"] == 4
    assert [event["type"] for event in done["events"]] == ["FactRemoved", "FactAdded"]
    assert done["events"] == dry["events"]
    assert [f["id"] for f in story.json("fact", "list")] == ["fact_2_0", "fact_2_1"]


def test_a_revert_that_conflicts_writes_nothing_unless_forced(story: Cli) -> None:
    story.run("fact", "edit", "fact_3_0", "User lives in Tromsø")
    refused = story.json("revert", 3, code=1)
    assert refused["commit"] is None
    assert [note["kind"] for note in refused["conflicts"]] == ["revised"]
    assert story.json("revert", 3, "--dry-run", code=1)["conflicts"] == refused["conflicts"]
    assert story.json("head")["seq"] == 4
    assert story.json("revert", 3, "--force", "--dry-run")["commit"] is None
    assert story.json("revert", 3, "--force")["commit"] == 5


def test_rollback(story: Cli) -> None:
    assert story.json("rollback", "--to", 2, "--dry-run")["commit"] is None
    assert story.json("rollback", "--to", 2)["commit"] == 4
    assert story.json("diff", 2, 4) == {"added": [], "removed": [], "revised": [], "sections": [], "ended": {}}
    when = story.json("log")[1]["at"]
    assert story.json("rollback", "--to", when)["commit"] == 5
    assert [f["id"] for f in story.json("fact", "list")] == ["fact_2_0", "fact_3_0"]


def test_what_if_writes_nothing(story: Cli) -> None:
    lower = story.json("what-if", "--threshold", 0.2)
    assert [f["content"] for f in lower["added"]] == ["User may like tea"]
    assert (lower["removed"], lower["facts"]) == ([], 3)
    assert story.json("what-if", "--set", "fact_confidence_threshold=0.2") == lower
    fewer = story.json("what-if", "--max-facts", 1)
    assert (len(fewer["removed"]), fewer["facts"]) == (1, 1)
    assert story.json("what-if", "--threshold", 0.2, "--until", 2)["facts"] == 3
    assert story.json("what-if", "--threshold", 0.2, "--until", 1)["facts"] == 0
    assert story.json("head")["seq"] == 3


def test_facts_by_hand(cli: Cli) -> None:
    added = cli.json("fact", "add", "User has a dog", "--category", "context", "--confidence", "0.8")
    assert added["commit"] == 2
    assert (added["fact"]["content"], added["fact"]["confidence"], added["fact"]["byHand"]) == (
        "User has a dog",
        0.8,
        True,
    )
    assert cli.json("fact", "add", "user HAS a dog.", code=1)["error"]["kind"] == "DuplicateFactError"
    edited = cli.json("fact", "edit", "fact_2_0", "User has two dogs", "--category", "knowledge")
    assert (edited["commit"], edited["fact"]["content"], edited["fact"]["category"]) == (
        4,
        "User has two dogs",
        "knowledge",
    )
    assert cli.json("fact", "edit", "fact_2_0", "--content", "User has 3 dogs")["fact"]["content"] == "User has 3 dogs"
    assert cli.json("fact", "get", "fact_2_0")["content"] == "User has 3 dogs"
    assert [f["id"] for f in cli.json("fact", "list", "--category", "knowledge")] == ["fact_2_0"]
    assert cli.json("fact", "list", "--category", "goal") == []
    assert cli.json("fact", "remove", "fact_2_0")["fact"]["content"] == "User has 3 dogs"
    assert cli.json("fact", "list") == []


def test_policy_is_shown_and_changed(cli: Cli) -> None:
    assert cli.json("policy")["policy"]["max_facts"] == 100
    changed = cli.json("policy", "--set", "max_facts=20", "--set", "fact_confidence_threshold=0.5")
    assert changed["commit"] == 2
    assert (changed["policy"]["max_facts"], changed["policy"]["fact_confidence_threshold"]) == (20, 0.5)
    assert changed["configured"]["max_facts"] == 100
    assert cli.json("policy")["policy"] == changed["policy"]


def test_config_says_where_each_value_comes_from(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cli.folder / "backstory.yaml"
    file.write_text("memory:\n  max_facts: 30\n  model: {api_key: sk-secret, base_url: 'http://me:pw@host/v1'}\n")
    monkeypatch.setenv("BACKSTORY_WORKERS", "3")
    result = cli.run("--json", "--config", file, "--store", "jsonl:", "config")
    config = json.loads(result.stdout)
    assert config["max_facts"] == {"value": 30, "from": "file"}
    assert config["workers"] == {"value": 3, "from": "environment"}
    assert config["event_store"] == {"value": "jsonl:", "from": "argument"}
    assert config["debounce_seconds"] == {"value": 30.0, "from": "default"}
    assert config["model"]["value"]["base_url"] == "http://…@host/v1"
    for secret in ("sk-secret", "pw@"):
        assert secret not in result.output
        assert secret not in cli.run("--config", file, "config").output


def test_clear_keeps_history(story: Cli) -> None:
    assert story.json("clear")["facts"] == []
    assert story.json("rollback", "--to", 3)["commit"] == 5
    assert len(story.json("fact", "list")) == 2


def test_clear_all_agents_is_about_one_user(cli: Cli) -> None:
    owners = [("ada", None), ("ada", "a1"), ("ada", "a2"), ("bob", None), ("bob", "a3"), (None, None), (None, "a4")]
    for user, agent in owners:
        owner = [*(["--user", user] if user else []), *(["--agent", agent] if agent else [])]
        cli.run(*owner, "fact", "add", "Likes tea")

    def full() -> set[tuple[str | None, str | None]]:
        scopes = {(s["user"], s["agent"]): s["facts"] for s in cli.json("scopes")}
        assert set(scopes) == set(owners)
        return {owner for owner, count in scopes.items() if count}

    assert cli.json("--user", "ada", "clear")["facts"] == []
    assert full() == set(owners) - {("ada", None)}
    assert cli.json("--user", "ada", "clear", "--all-agents")["facts"] == []
    assert full() == {("bob", None), ("bob", "a3"), (None, None), (None, "a4")}
    assert "1 agent" in cli.run("clear", "--all-agents").stdout
    assert full() == {("bob", None), ("bob", "a3")}


def test_export_is_a_file_that_import_takes(story: Cli) -> None:
    exported = story.run("export").stdout
    assert exported == (story.home / "memory.json").read_text()
    file = story.folder / "memory.json"
    file.write_text(exported)
    taken = story.json("--user", "bob", "import", file)
    assert [f["content"] for f in taken["facts"]] == ["User writes Rust", "User lives in Bergen"]
    assert story.json("--user", "bob", "import", file)["facts"] == taken["facts"]
    story.run("--user", "bob", "fact", "add", "Has a dog")
    assert len(story.json("--user", "bob", "import", "-", "--replace", piped=exported)["facts"]) == 2


def test_verify_head_and_expect_head(story: Cli) -> None:
    head = story.json("head")
    assert (head["seq"], len(head["hash"])) == (3, 64)
    assert story.json("verify", "--expect-head", head["hash"]) == {"ok": True, "commits": 3, "turns": 4, "problems": []}
    story.run("fact", "add", "one more")
    assert story.json("verify", "--expect-head", head["hash"])["ok"]
    for other in ("0" * 64, "soon"):
        result = story.json("verify", "--expect-head", other, code=1)
        assert [p["kind"] for p in result["problems"]] == ["head_not_found"]
    empty = story.json("--user", "new", "head")
    assert story.json("--user", "new", "verify", "--expect-head", empty["hash"])["ok"]


def test_scopes_of_an_empty_home(cli: Cli) -> None:
    assert cli.json("scopes") == []
    assert not cli.home.exists()


def test_asking_creates_nothing(cli: Cli) -> None:
    for words in (["show"], ["log"], ["status"], ["threads"], ["head"], ["verify"], ["policy"], ["fact", "list"]):
        cli.run("--user", "ada", *words)
    assert not cli.home.exists()


def test_version_and_help(cli: Cli) -> None:
    assert cli.run("--version").stdout == f"backstory {__version__}\n"
    shown = cli.run("--help").stdout
    for verb in ("record", "why-not", "what-if", "fact", "demo", "--home"):
        assert verb in shown
    assert "Example: backstory revert HEAD --dry-run" in cli.run("revert", "--help").stdout


def test_a_verb_that_is_not_known_is_wrong_use(cli: Cli) -> None:
    assert "shwo" in cli.error("shwo", code=2)


def test_no_verb_at_all_is_wrong_use_and_shows_the_help(cli: Cli) -> None:
    assert "Usage: backstory" in cli.run(code=2).stdout
    assert cli.json(code=2)["error"]["exit"] == 2
