"""What a person does to memory (row D16): each act, what is recorded of it, and how each refusal is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from fakes import exchange, open_home, reply
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.home import Backstory
from backstory.ledger.core.errors import (
    BackstoryError,
    CapError,
    ConfigError,
    DuplicateFactError,
    InputError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from backstory.ledger.core.events import CandidateRejected, FactAdded, FactRemoved, FactRevised
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle

Act = Callable[[MemoryHandle], object]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bs(home: Path) -> Backstory:
    return open_home(home, actor="ada")


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    """Commit 2 learns fact_2_0 and fact_2_1, and the third fact that fills memory is a person's: fact_4_0."""
    memory = bs.memory("ada")
    memory.record("t1", exchange("tea"))
    memory.extract([RecordedReply("t1", reply("Likes tea", "Runs"))])
    memory.set_policy(max_facts=3)
    memory.add_fact("Has a dog")
    return memory


def run(home: Path, *words: str, code: int = 0, piped: str | None = None) -> str:
    result = CliRunner().invoke(app, ["--home", str(home), "--user", "ada", *words], input=piped)
    assert result.exit_code == code, (words, result.output)
    return result.stdout if code == 0 else result.stderr


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


# What is refused: the error, the rule that is recorded (None: nothing is written), and the same at the command line.

REFUSALS: dict[str, tuple[Act, type[BackstoryError], str | None, list[str]]] = {
    "adding what is there": (
        lambda m: m.add_fact("ｌｉｋｅｓ  tea."),
        DuplicateFactError,
        "duplicate",
        ["fact", "add", "ｌｉｋｅｓ  tea."],
    ),
    "adding no text": (lambda m: m.add_fact("  "), UsageError, None, ["fact", "add", "  "]),
    "adding to no category": (
        lambda m: m.add_fact("Swims", category=" "),
        UsageError,
        None,
        ["fact", "add", "Swims", "--category", " "],
    ),
    "adding with no confidence": (
        lambda m: m.add_fact("Swims", confidence=1.1),
        UsageError,
        None,
        ["fact", "add", "Swims", "--confidence", "1.1"],
    ),
    "editing nobody": (
        lambda m: m.edit_fact("fact_9_9", "Swims"),
        NotFoundError,
        None,
        ["fact", "edit", "fact_9_9", "Swims"],
    ),
    "editing into what is there": (
        lambda m: m.edit_fact("fact_2_0", "runs"),
        DuplicateFactError,
        "duplicate",
        ["fact", "edit", "fact_2_0", "runs"],
    ),
    "editing nothing": (lambda m: m.edit_fact("fact_2_0"), UsageError, None, ["fact", "edit", "fact_2_0"]),
    "editing the beginning of an id": (
        lambda m: m.edit_fact("fact_2", "x"),
        NotFoundError,
        None,
        ["fact", "edit", "fact_2", "x"],
    ),
    "editing to the same": (
        lambda m: m.edit_fact("fact_4_0", "Has a dog"),
        RefusedError,
        "unchanged",
        ["fact", "edit", "fact_4_0", "Has a dog"],
    ),
    "removing nobody": (lambda m: m.remove_fact("fact_9_9"), NotFoundError, None, ["fact", "remove", "fact_9_9"]),
    "importing no memory": (lambda m: m.import_document(7), InputError, None, ["import", "-"]),
    "importing from nowhere": (lambda m: m.import_document("/nowhere"), InputError, None, ["import", "/nowhere"]),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_an_error_changes_nothing_and_is_recorded_where_it_was_decided(
    memory: MemoryHandle, name: str
) -> None:
    act, error, rule, _ = REFUSALS[name]
    before, seq = memory.document(), memory.head().seq
    with pytest.raises(error):
        act(memory)
    assert memory.document() == before
    newest = memory.log(limit=1)[0]
    told = [event.rule for event in newest.events if isinstance(event, CandidateRejected)]
    assert (newest.seq - seq, told if newest.seq > seq else []) == ((0, []) if rule is None else (1, [rule]))


@pytest.mark.parametrize("name", REFUSALS)
def test_the_command_line_tells_a_refusal_in_one_line_and_by_its_exit_code(
    bs: Backstory, memory: MemoryHandle, home: Path, name: str
) -> None:
    _, error, rule, words = REFUSALS[name]
    before = memory.document()
    bs.close()
    told = run(home, *words, code=error.exit_code, piped="7")
    assert told.startswith("backstory: ")
    assert told.count("\n") == 1
    assert rule is None or rule in told
    assert open_home(home).memory("ada").document() == before


def test_a_duplicate_names_the_fact_that_says_it_and_the_commit_that_refused_it(memory: MemoryHandle) -> None:
    with pytest.raises(DuplicateFactError) as caught:
        memory.add_fact("likes tea")
    assert (caught.value.fact_id, caught.value.seq) == ("fact_2_0", memory.head().seq)


def test_a_memory_full_of_what_people_entered_takes_no_more(bs: Backstory, memory: MemoryHandle, home: Path) -> None:
    memory.add_fact("Sings")
    memory.add_fact("Swims")
    assert texts(memory) == ["Has a dog", "Sings", "Swims"]
    with pytest.raises(CapError) as caught:
        memory.add_fact("Skis")
    assert caught.value.seq == memory.head().seq
    assert caught.value.exit_code == 1
    bs.close()
    told = run(home, "fact", "add", "Skis", code=1)
    assert (
        "memory holds 3 facts at most, and all of them were entered by hand: remove a fact or raise max_facts" in told
    )
    assert "cap" in run(home, "why-not", "Skis")


# What is done: what kind of commit it is, and its events.

DONE: dict[str, tuple[Act, str, str | None, list[tuple[type, str | None]], set[str]]] = {
    "adding evicts the weakest, with its ranking": (
        lambda m: m.add_fact("Swims"),
        "manual",
        "add",
        [(FactRemoved, "cap"), (FactAdded, None)],
        {"Runs", "Has a dog", "Swims"},
    ),
    "editing": (
        lambda m: m.edit_fact("fact_2_0", "Likes coffee"),
        "manual",
        "edit",
        [(FactRevised, "edited")],
        {"Likes coffee", "Runs", "Has a dog"},
    ),
    "removing": (
        lambda m: m.remove_fact("fact_2_0"),
        "manual",
        "remove",
        [(FactRemoved, "hand")],
        {"Runs", "Has a dog"},
    ),
    "clearing": (lambda m: m.clear(), "clear", None, [(FactRemoved, "clear")] * 3, set()),
    "importing": (
        lambda m: m.import_document([{"content": "Swims", "confidence": 1}]),
        "import",
        None,
        [(FactRemoved, "cap"), (FactAdded, None)],
        {"Runs", "Has a dog", "Swims"},
    ),
    "importing instead": (
        lambda m: m.import_document(["Swims"], replace=True),
        "import",
        None,
        [(FactRemoved, "import")] * 3 + [(FactAdded, None)],
        {"Swims"},
    ),
}


@pytest.mark.parametrize("name", DONE)
def test_what_a_person_does_is_one_commit_that_says_who_and_what_and_can_be_reverted(
    memory: MemoryHandle, name: str
) -> None:
    act, kind, action, events, left = DONE[name]
    before, seq = memory.document(), memory.head().seq
    act(memory)
    commit = memory.log(limit=1)[0]
    assert (commit.seq, commit.cause.kind, commit.cause.action, commit.cause.actor) == (seq + 1, kind, action, "ada")
    told = [(type(e), getattr(e, "reason", getattr(e, "change", None))) for e in commit.events]
    assert told == events
    assert set(texts(memory)) == left
    memory.revert("HEAD")
    assert memory.document().facts == before.facts


def test_what_a_person_added_or_edited_is_theirs(memory: MemoryHandle) -> None:
    added = memory.fact("fact_4_0")
    assert (added.by_hand, added.source, added.category, added.confidence) == (True, "manual", "context", 0.9)
    edited = memory.edit_fact("fact_2_0", category="goal", confidence=0.2).fact
    assert (edited.by_hand, edited.source, edited.category, edited.confidence) == (True, "t1", "goal", 0.2)


def test_an_import_never_evicts_what_people_entered(memory: MemoryHandle) -> None:
    memory.import_document([{"content": f"fact {n}", "confidence": 1} for n in range(5)])
    assert "Has a dog" in texts(memory)
    assert len(memory.facts()) == 3


# Clearing.


@pytest.fixture
def crowd(bs: Backstory) -> dict[tuple[str | None, str | None], MemoryHandle]:
    """Two users and nobody, each with an agent or two, each remembering one thing."""
    owners = [("ada", None), ("ada", "a1"), ("ada", "a2"), ("bob", None), ("bob", "a1"), (None, None), (None, "a1")]
    crowd = {owner: bs.memory_of(Scope(*owner)) for owner in owners}
    for memory in crowd.values():
        memory.add_fact("Likes tea")
    return crowd


@pytest.mark.parametrize(
    ("owner", "all_agents", "emptied"),
    [
        (("ada", "a1"), False, {("ada", "a1")}),
        (("ada", None), False, {("ada", None)}),
        (("ada", None), True, {("ada", None), ("ada", "a1"), ("ada", "a2")}),
        ((None, None), True, {(None, None), (None, "a1")}),
    ],
)
def test_clearing_empties_one_memory_or_all_that_a_user_owns_and_nobody_elses(
    crowd: dict[tuple[str | None, str | None], MemoryHandle],
    owner: tuple[str | None, str | None],
    emptied: set[tuple[str | None, str | None]],
    *,
    all_agents: bool,
) -> None:
    assert crowd[owner].clear(all_agents=all_agents).facts == ()
    assert {name for name, memory in crowd.items() if not memory.facts(joined=False)} == emptied
    for name in emptied:
        assert crowd[name].log(limit=1)[0].cause.kind == "clear"
        crowd[name].revert("HEAD")
        assert texts(crowd[name]) == ["Likes tea"]


def test_one_agent_has_no_agents_of_its_own_to_clear(
    crowd: dict[tuple[str | None, str | None], MemoryHandle], home: Path
) -> None:
    with pytest.raises(UsageError, match="all_agents"):
        crowd["ada", "a1"].clear(all_agents=True)
    assert texts(crowd["ada", "a1"]) == ["Likes tea"]
    assert "--all-agents" in run(home, "--agent", "a1", "clear", "--all-agents", code=2)


def test_the_command_line_clears_all_agents_and_says_how_many(
    crowd: dict[tuple[str | None, str | None], MemoryHandle], home: Path
) -> None:
    assert "2 agents" in run(home, "clear", "--all-agents")
    assert [len(crowd["ada", agent].facts()) for agent in (None, "a1", "a2")] == [0, 0, 0]


# Export, import and reload.


def test_what_was_exported_is_taken_in_elsewhere_as_it_was(bs: Backstory, memory: MemoryHandle) -> None:
    other = bs.memory("bob")
    other.import_document(memory.document())
    told = [(f.content, f.category, f.confidence, f.created_at, f.source, f.by_hand) for f in memory.facts()]
    assert [(f.content, f.category, f.confidence, f.created_at, f.source, f.by_hand) for f in other.facts()] == told


def test_reloading_shows_what_another_process_has_done_and_so_does_the_file(home: Path, memory: MemoryHandle) -> None:
    with open_home(home) as other:
        other.memory("ada").remove_fact("fact_2_0")
    document = memory.reload()
    assert [fact.content for fact in document.facts] == ["Runs", "Has a dog"]
    assert document == memory.document()
    file = home / "users/ada/memory.json"
    assert [fact["content"] for fact in json.loads(file.read_text())["facts"]] == ["Runs", "Has a dog"]


def test_reloading_an_agent_without_a_memory_of_its_own_gives_an_empty_one(bs: Backstory, memory: MemoryHandle) -> None:
    assert memory.document().facts
    assert bs.memory("ada", "coder").reload().facts == ()


def test_reloading_adopts_no_edit_and_import_does(home: Path, memory: MemoryHandle) -> None:
    memory.reload()
    file = home / "users/ada/memory.json"
    edited = file.read_text().replace("Likes tea", "Likes coffee")
    file.write_text(edited)
    memory.remove_fact("fact_2_1")
    assert [fact.content for fact in memory.reload().facts] == ["Likes tea", "Has a dog"]
    aside = file.with_name("memory.json.edited-1")
    assert aside.read_text() == edited
    memory.import_document(aside, replace=True)
    assert set(texts(memory)) == {"Likes coffee", "Runs", "Has a dog"}


# The verb import.


def test_the_command_line_imports_a_list_a_document_and_a_folder(home: Path, tmp_path: Path) -> None:
    assert "2 facts in memory now" in run(home, "import", "-", piped='["Likes tea", "Runs"]')
    file = tmp_path / "memory.json"
    file.write_text(run(home, "export"))
    assert "refused 2 duplicate" in run(home, "import", str(file))
    agent = tmp_path / "theirs/users/ada/agents/__default__/facts/aa"
    agent.mkdir(parents=True)
    (agent / "fact_x.md").write_text("---\nid: fact_x\nconfidence: 0.9\n---\n\n# Sings\n\nSings\n")
    (agent / "fact_y.md").write_text("nothing of the kind")
    told = run(home, "import", str(tmp_path / "theirs"))
    assert "+1 fact, refused" in told
    assert "1 malformed" in told
    document = json.loads(run(home, "--json", "import", str(tmp_path / "theirs"), "--replace"))
    assert [fact["content"] for fact in document["facts"]] == ["Sings"]
    assert "fact_y.md" in run(home, "why-not", "nothing of the kind")
    run(home, "revert", "HEAD")
    assert len(json.loads(run(home, "--json", "fact", "list"))) == 3


def test_the_command_line_says_where_it_looked_and_who_is_there(home: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs/users/bob").mkdir(parents=True)
    told = run(home, "import", str(tmp_path / "theirs"), code=2)
    assert str(tmp_path / "theirs") in told
    assert "the users there are bob" in told
    assert not home.exists()


def test_a_hand_edited_document_is_adopted_whatever_its_facts_rest_on(tmp_path: Path) -> None:
    with open_home(tmp_path, consolidation_enabled=True, consolidation_min_facts=3) as bs:
        memory = bs.memory("ada")
        facts = [{"content": f"Likes dish {n}", "confidence": 0.9, "evidence": [1]} for n in range(4)]
        merged = {"sourceIds": ["fact_2_1", "fact_2_2"], "consolidated": {"content": "Likes two dishes"}}
        for lists in ({"newFacts": facts}, {"factsToConsolidate": [merged]}):
            memory.record("t1", exchange("tea"), mode="append")
            memory.extract([RecordedReply("t1", json.dumps(lists))])
        document = json.loads(json.dumps(msgspec.to_builtins(memory.document())))
        for fact in document["facts"]:
            fact["content"] += "!!"
            fact.pop("consolidatedFrom", None)
        memory.import_document(document, replace=True)
        assert [fact.content[-2:] for fact in memory.facts()] == ["!!"] * 3
        assert [fact.consolidated_from for fact in memory.facts()][-1] == ("fact_2_1", "fact_2_2")
        assert memory.verify().ok
        assert memory.what_if().facts == 3


# A whole id names that fact or none: fact_2_1 is never short for fact_2_11.


@pytest.fixture
def twelve(home: Path) -> Iterator[MemoryHandle]:
    """fact_2_0 to fact_2_11, of which fact_2_1 is gone; dish and dish-2 came from elsewhere, and dish is gone."""
    with open_home(home) as bs:
        memory = bs.memory("ada")
        memory.record("t1", exchange("tea"))
        memory.extract([RecordedReply("t1", reply(*(f"Likes dish {n:02}" for n in range(12))))])
        memory.remove_fact("fact_2_1")
        memory.import_document([{"id": name, "content": f"Owns a {name}"} for name in ("dish", "dish-2")])
        memory.remove_fact("dish")
        yield memory


@pytest.mark.parametrize("name", ["fact_2_1", "dish"])
@pytest.mark.parametrize(
    "act",
    [
        lambda memory, name: memory.fact(name),
        lambda memory, name: memory.edit_fact(name, "Hates it"),
        lambda memory, name: memory.remove_fact(name),
    ],
)
def test_the_id_of_a_fact_that_is_gone_names_no_other(
    twelve: MemoryHandle, act: Callable[[MemoryHandle, str], object], name: str
) -> None:
    before = twelve.document(), twelve.head()
    with pytest.raises(NotFoundError, match=f"fact {name}[: ]"):
        act(twelve, name)
    assert (twelve.document(), twelve.head()) == before


def test_history_is_told_of_the_fact_that_is_gone(twelve: MemoryHandle) -> None:
    assert twelve.why("fact_2_1").fact.content == "Likes dish 01"
    assert twelve.fact_id("dish") == "dish"
    assert [len(twelve.log(fact=name)) for name in ("fact_2_1", "fact_2_11")] == [2, 1]
    told = twelve.forget("fact_2_1")
    assert {one.fact for one in told.redacted if one.what == "fact"} == {"fact_2_1"}
    assert len(twelve.facts()) == 12


@pytest.mark.parametrize(
    "act",
    [
        lambda memory: memory.fact("fact_2_1"),
        lambda memory: memory.why("fact_2_1"),
        lambda memory: memory.fact_id("fact_2_1"),
        lambda memory: memory.log(fact="fact_2_1"),
        lambda memory: memory.forget("fact_2_1"),
    ],
)
def test_a_complete_id_that_never_was_is_not_found_although_others_begin_so(home: Path, act: Act) -> None:
    facts = [{"content": f"Likes dish {n:02}", "confidence": 0.1 if n == 1 else 0.9} for n in range(12)]
    with open_home(home) as bs:
        memory = bs.memory("ada")
        for count in (11, 12):
            memory.record("t1", exchange("tea"), mode="append")
            memory.extract([RecordedReply("t1", json.dumps({"newFacts": facts[:count]}))])
            with pytest.raises(NotFoundError):
                act(memory)
        assert memory.fact("fact_2_10").id == memory.fact_id("fact_2_10") == "fact_2_10"
        assert memory.fact("fact_3").id == memory.fact_id("fact_3_") == "fact_3_11"


@pytest.mark.parametrize("words", [["edit", "fact_2_", "Hates it"], ["remove", "dish-"], ["remove", ""]])
def test_a_change_takes_no_beginning_of_an_id(home: Path, twelve: MemoryHandle, words: list[str]) -> None:
    assert "give its id in full" in run(home, "fact", *words, code=1)
    assert twelve.facts()[-1].id == "dish-2"


@pytest.mark.parametrize("verb", ["edit", "remove", "get", "forget"])
def test_the_command_line_takes_the_id_of_a_gone_fact_for_no_other(home: Path, twelve: MemoryHandle, verb: str) -> None:
    named = {"forget": ["forget", "--fact", "fact_9_1", "--yes"], "edit": ["fact", "edit", "fact_2_1", "Hates it"]}
    run(home, *named.get(verb, ["fact", verb, "fact_2_1"]), code=1)
    assert "fact_2_11" in {fact.id for fact in twelve.facts()}


# The policy: what configuration refuses is refused at the command line too.


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("max_facts=5", "10 to max_facts_limit"),
        ("max_facts=600", "max_facts_limit, 500"),
        ("staleness_age_days=10", "30 to 365"),
        ("consolidation_min_facts=2", "3 to 30"),
        ("max_fact=50", "the nearest is max_facts"),
        ("luck=1", "they are max_facts, "),
        ("debounce_seconds=5", "no policy key"),
        ("eviction_access_weight=0.5", "must add up to 1"),
    ],
)
def test_a_rule_that_configuration_would_not_take_is_refused(home: Path, setting: str, told: str) -> None:
    assert told in run(home, "policy", "--set", setting, code=2)
    assert not home.exists()


def test_a_rule_may_go_as_far_as_configuration_lets_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_MAX_FACTS_LIMIT", "1000")
    run(home, "policy", "--set", "max_facts=600")
    with open_home(home) as bs:
        assert bs.memory("ada").policy().policy.max_facts == 600
    assert "staleness_age_days" not in run(home, "what-if", "--set", "staleness_age_days=10", "--max-facts", "5")


def test_the_words_of_configuration_are_understood(home: Path) -> None:
    words = ["fact_eviction_policy=hybrid-v1", "gate_enabled=off", "consolidation_enabled=Yes"]
    run(home, "policy", *(word for setting in words for word in ("--set", setting)))
    with open_home(home) as bs:
        policy = bs.memory("ada").policy().policy
    assert (policy.fact_eviction_policy, policy.gate_enabled, policy.consolidation_enabled) == ("hybrid", False, True)


def test_rules_that_are_in_force_already_write_no_commit(home: Path, memory: MemoryHandle) -> None:
    before = memory.head()
    assert memory.set_policy(max_facts=3).commit is None
    assert memory.head() == before
    memory.set_policy(max_facts=30)
    before = memory.head()
    assert "in force already" in run(home, "policy", "--set", "max_facts=30")
    assert json.loads(run(home, "--json", "policy", "--set", "max_facts=30"))["commit"] is None
    assert memory.head() == before


def test_other_rules_are_added_to_what_configuration_asks_for_now(home: Path) -> None:
    with open_home(home) as bs:
        bs.memory("ada").add_fact("Has a dog")
    with open_home(home, fact_confidence_threshold=0.8) as bs:
        policy = bs.memory("ada").set_policy(max_facts=100, gate_enabled=False).policy
    assert (policy.fact_confidence_threshold, policy.gate_enabled) == (0.8, False)


def test_clearing_what_is_empty_promises_no_revert(home: Path, memory: MemoryHandle) -> None:
    assert f"revert {memory.head().seq + 1}" in run(home, "clear")
    page = run(home, "clear")
    assert "was empty already" in page
    assert "revert" not in page


def test_reading_needs_no_patterns_and_learning_does(
    home: Path, memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.record("t2", exchange("milk"))
    before = memory.status().pending
    monkeypatch.setenv("BACKSTORY_PATTERNS_DIR", str(home / "nowhere"))
    for verb in ("show", "log", "config", "status"):
        run(home, verb)
    replies = home.parent / "replies.jsonl"
    replies.write_text(json.dumps({"thread_id": "t2", "reply": {"newFacts": []}}), "utf-8")
    assert "patterns_dir" in run(home, "extract", "--replies", str(replies), code=2)
    assert memory.status().pending == before
    with pytest.raises(ConfigError, match="patterns_dir"):
        Backstory.open(home)
