"""Why something is remembered, and why something is not."""

from __future__ import annotations

import getpass
import json

import pytest
from fakes import CountingSalts, exchange, open_home, reply
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.ledger.core.commit import Cause, Draft, erase, seal
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import Fact, PolicyChanged, Redacted
from backstory.ledger.core.policy import Policy
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.history.audit import why
from backstory.projections.history.views import policy_in_words, revision_in_words, value_in_words


@pytest.fixture
def memory(tmp_path):
    with open_home(tmp_path) as bs:
        yield bs.memory("ada")


def tell(memory, thread, *facts, **more):
    memory.extract([RecordedReply(thread, reply(*facts, **more))])


def cited(content, *evidence):
    return json.dumps({"newFacts": [{"content": content, "confidence": 0.9, "evidence": list(evidence)}]})


def test_why_shows_the_turns_that_were_cited_by_id_or_by_number(memory):
    memory.record("t", [*exchange("tea", 1), *exchange("rain", 2)])
    memory.extract([RecordedReply("t", cited("Ada likes rain", "u2", "3", "nowhere"))])
    why = memory.why("fact_2_0")
    assert why.cited
    assert [(e.turn, e.role, e.content) for e in why.evidence] == [("u2", "user", "I like rain.")]
    assert (why.added.seq, why.added.cause.thread, why.added.cause.model) == (2, "t", "recorded")


def test_where_none_was_cited_the_evidence_is_every_turn_of_the_update(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada likes tea")
    memory.record("t", exchange("rain", 2))
    tell(memory, "t", "Ada likes rain")
    why = memory.why("fact_3_0")
    assert not why.cited
    assert [e.turn for e in why.evidence] == ["u2", "a2"]


def test_the_evidence_is_the_text_that_was_read_then_not_what_it_was_edited_to(memory):
    memory.record("t", exchange("tea", 1))
    memory.extract([RecordedReply("t", cited("Ada likes tea", "u1"))])
    memory.record("t", [{"role": "user", "content": "I like coffee.", "id": "u1"}])
    assert [e.content for e in memory.why("fact_2_0").evidence] == ["I like tea."]


def test_why_tells_the_whole_life_of_a_fact_that_is_gone(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada likes tea")
    memory.record("t", exchange("rain", 2))
    tell(memory, "t", remove=("fact_2_0",))
    why = memory.why("fact_2_0")
    assert not why.live
    assert why.removed is not None
    assert (why.removed.seq, why.removed.reason) == (3, "model")
    assert [(item.seq, item.type) for item in why.history] == [(2, "FactAdded"), (3, "FactRemoved")]
    memory.revert(3)
    back = memory.why("fact_2_0")
    assert (back.live, back.removed, back.added.seq) == (True, None, 2)


def test_why_names_who_removed_a_fact(memory):
    added = memory.add_fact("Ada runs")
    memory.remove_fact(added.fact.id)
    removed = memory.why(added.fact.id).removed
    assert (removed.seq, removed.reason, removed.actor) == (3, "hand", getpass.getuser())


def test_why_names_who_edited_restored_and_removed_a_fact_and_no_one_for_an_update(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada likes tea")
    memory.by("bob").edit_fact("fact_2_0", content="Ada likes green tea")
    memory.by("agent:lead").remove_fact("fact_2_0")
    memory.by("eve").revert(4)
    history = memory.why("fact_2_0").history
    assert [(item.seq, item.type, item.actor) for item in history] == [
        (2, "FactAdded", None),
        (3, "FactRevised", "bob"),
        (4, "FactRemoved", "agent:lead"),
        (5, "FactAdded", "eve"),
    ]


def test_the_page_of_why_names_them_too(tmp_path):
    home = tmp_path / "home"
    with open_home(home) as bs:
        fact = bs.memory("ada").by("bob").add_fact("Ada runs").fact
        bs.memory("ada").by("eve").edit_fact(fact.id, content="Ada swims")
    told = CliRunner().invoke(app, ["--home", str(home), "--user", "ada", "why", fact.id]).stdout
    assert ", by bob." in told
    assert ", by eve" in told.split("Since then", 1)[1]
    entries = json.loads(
        CliRunner().invoke(app, ["--home", str(home), "--user", "ada", "--json", "why", fact.id]).stdout
    )["history"]
    assert [entry["actor"] for entry in entries] == ["bob", "eve"]


def test_words_that_are_told_again_behind_another_answer_are_not_withdrawn_but_the_answer_is(memory):
    """As a host does that sends all without ids: the first answer is given again, and the rest follows it."""
    said = [{key: one[key] for key in ("role", "content")} for one in (*exchange("tea", 1), *exchange("rain", 2))]
    memory.record("t", said)
    tell(memory, "t", "Ada likes tea and rain")
    memory.record("t", [said[0], {"role": "assistant", "content": "Tea is what you like."}, *said[2:]])
    found = memory.why("fact_2_0").evidence
    assert {e.content: e.withdrawn for e in found} == {one["content"]: one == said[1] for one in said}
    memory.forget("fact_2_0", with_evidence=True)
    assert [turn.content for turn in memory.turns.get()] == ["Tea is what you like."]


def test_evidence_from_outside_the_update_is_found_in_its_thread(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada likes tea")
    memory.record("t", exchange("rain", 2))
    memory.record("u", [{"role": "user", "content": "another's words", "id": "a9"}])
    memory.extract([RecordedReply("t", cited("Ada likes both", "u1", "u2", "a9"))])
    assert [(e.turn, e.content) for e in memory.why("fact_3_0").evidence] == [
        ("u1", "I like tea."),
        ("u2", "I like rain."),
    ]


def test_the_words_behind_a_merged_fact_are_those_behind_its_sources_in_their_own_threads(tmp_path):
    with open_home(tmp_path, consolidation_enabled=True, consolidation_min_facts=3) as bs:
        memory = bs.memory("ada")
        for thread in ("t1", "t2", "t3"):
            memory.record(thread, exchange(f"dish {thread}", 1))
        drinks = [f"Likes dish {n}" for n in range(3)]
        facts = [{"content": drink, "confidence": 0.9, "category": "goal", "evidence": ["u1"]} for drink in drinks]
        tell_raw(memory, "t1", newFacts=facts[:2])
        tell_raw(memory, "t2", newFacts=facts[2:])
        two = {"sourceIds": ["fact_2_0", "fact_2_1"], "consolidated": {"content": "Likes two dishes"}}
        memory.set_policy(consolidation_min_facts=2)
        tell_raw(memory, "t3", factsToConsolidate=[two])
        first = next(fact.id for fact in memory.facts() if fact.consolidated_from)
        found = memory.why(first)
        assert [(told.thread, told.turn) for told in found.evidence] == [("t1", "u1")]
        assert found.cited
        memory.record("t3", exchange("dish four", 2))
        three = {"sourceIds": [first, "fact_3_0"], "consolidated": {"content": "Likes three dishes"}}
        tell_raw(memory, "t3", factsToConsolidate=[three])
        merged = next(fact.id for fact in memory.facts() if len(fact.consolidated_from) == 2)
        assert [told.content for told in memory.why(merged).evidence] == ["I like dish t1.", "I like dish t2."]


def tell_raw(memory, thread, **lists):
    memory.extract([RecordedReply(thread, json.dumps(lists))])


def test_why_of_an_erased_fact_tells_when_it_came_and_who_erased_it(tmp_path, memory):
    memory.record("t", exchange("tea", 1))
    memory.extract([RecordedReply("t", cited("Ada likes tea", "u1"))])
    memory.edit_fact("fact_2_0", content="Ada loves tea")
    memory.add_fact("Ada runs")
    memory.flush()  # Else memory.json, written in the background, may complete the erasure first.
    erase_fact(tmp_path, "fact_2_0", {2: 1, 3: 0})
    with open_home(tmp_path) as bs:
        why = bs.memory("ada").why("fact_2")
        assert (why.id, why.fact, why.live) == ("fact_2_0", None, False)
        assert (why.added.seq, why.added.cause.thread) == (2, "t")
        assert (why.removed.seq, why.removed.reason, why.removed.actor) == (5, "erased", "bob")
        assert [(item.seq, item.type, item.detail) for item in why.history] == [
            (5, "Redacted", "its content in commit 2 was erased by bob"),
            (5, "Redacted", "its content in commit 3 was erased by bob"),
        ]
        assert (why.cited, [e.turn for e in why.evidence]) == (False, ["u1", "a1"])
        assert [entry.seq for entry in bs.memory("ada").log(fact="fact_2_0")] == [5]
        with pytest.raises(NotFoundError):
            bs.memory("ada").why("fact_4_1")


def erase_fact(home, fact, slots):
    store, stream = JsonlStore(home), "users/ada/ledger"
    head = store.head(stream)
    events = tuple(Redacted(stream, seq, index, "fact", fact=fact) for seq, index in slots.items())
    draft = Draft("2026-03-02T12:00:00.000000Z", Cause(kind="redaction", actor="bob"), events)
    store.append(stream, [seal(draft, head, CountingSalts())], head.seq)
    lines = {seq: erase(next(store.read(stream, seq - 1)).line, {index}) for seq, index in slots.items()}
    with store.locked(stream):
        store.redact(stream, lines)


def test_a_beginning_of_an_id_will_do_if_only_one_fact_has_it(memory):
    for n in range(11):
        memory.add_fact(f"note {n}")
    assert memory.why("fact_12").fact.content == "note 10"
    assert memory.why("fact_2_0").fact.content == "note 0"
    with pytest.raises(UsageError, match="begins the ids"):
        memory.why("fact_1")


def test_why_not_finds_refusals_and_removals_the_best_match_first(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada may like green tea", confidence=0.3)
    memory.record("t", exchange("tea", 2))
    tell(memory, "t", "Ada owns a red bicycle")
    memory.remove_fact("fact_3_0")
    best = memory.why_not("green tea")[0]
    assert (best.content, best.rule, best.seq) == ("Ada may like green tea", "threshold", 2)
    gone = memory.why_not("Ada owns a red bicycle.")[0]
    assert (gone.rule, gone.fact, gone.score) == ("hand", "fact_3_0", 1.0)


def test_why_not_knows_chinese_without_spaces(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "用户喜欢绿茶", "用户住在奥斯陆", confidence=0.2)
    found = memory.why_not("绿茶")
    assert [refusal.content for refusal in found] == ["用户喜欢绿茶"]


def test_why_not_is_silent_on_what_is_unlike_anything_and_on_what_is_remembered(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada likes tea")
    assert memory.why_not("zzz qqq xxx") == ()
    assert memory.why_not("") == ()
    assert memory.why_not("Ada likes tea") == ()


def test_diff_tells_what_the_second_moment_has_that_the_first_has_not(memory):
    added = memory.add_fact("Ada runs")
    memory.edit_fact(added.fact.id, content="Ada swims")
    memory.add_fact("Ada reads")
    memory.remove_fact(added.fact.id)
    forth, back = memory.diff(2, 5), memory.diff(5, 2)
    assert [f.content for f in forth.added] == ["Ada reads"]
    assert [f.content for f in forth.removed] == ["Ada runs"]
    assert (forth.added, forth.removed) == (back.removed, back.added)
    (revised,) = memory.diff(2, 3).revised
    assert (revised.before.content, revised.after.content) == ("Ada runs", "Ada swims")
    assert memory.diff(3, 3).empty


def test_the_log_is_newest_first_and_can_be_narrowed(memory):
    memory.record("t1", exchange("tea", 1))
    tell(memory, "t1", "Ada likes tea")
    memory.add_fact("Ada runs")
    assert [entry.seq for entry in memory.log()] == [3, 2, 1]
    assert [entry.seq for entry in memory.log(limit=1)] == [3]
    assert [entry.seq for entry in memory.log(thread="t1")] == [2]
    assert [entry.seq for entry in memory.log(fact="fact_3")] == [3]
    assert [entry.seq for entry in memory.log(since="2")] == [3, 2]
    assert [entry.seq for entry in memory.log(since="2", limit=1, thread="t1")] == [2]
    assert [entry.seq for entry in memory.log(since="3", thread="t1")] == []
    assert [entry.seq for entry in memory.log(fact="fact_2_0", thread="t1")] == [2]
    assert [entry.seq for entry in memory.log(fact="fact_2_0", thread="t2")] == []
    assert memory.log(since="2030-01-01") == ()
    assert len(memory.log(since=memory.log()[0].at)) == 3
    assert memory.log()[-1].summary == "the empty memory"
    assert memory.log()[1].summary == "+1 fact"


# What changed, in words.

TEA = {"id": "f", "content": "Ada likes tea", "category": "goal", "created_at": "", "source": "t", "seq": 2}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"expected_valid_days": 560}, "lifetime none -> 560 days"),
        ({"expected_valid_days": 90}, {"expected_valid_days": 1}, "lifetime 90 days -> 1 day"),
        ({"expected_valid_days": 90}, {}, "lifetime 90 days -> none"),
        ({}, {"confirmations": 1, "confirmed_at": "2026"}, "confirmed once"),
        ({"confirmations": 2}, {"confirmations": 3}, "confirmed 3 times"),
        ({"confirmations": 1}, {}, "no longer confirmed"),
        ({}, {"confirmed_at": "2026"}, "last confirmed at 2026"),
        ({}, {"content": "Ada likes rum"}, "Ada likes tea -> Ada likes rum"),
        ({}, {"confidence": 0.5, "confirmations": 1}, "goal, 0.90 -> goal, 0.50; confirmed once"),
        ({}, {"source_error": "rum"}, "changed in source_error"),
        ({}, {}, "unchanged"),
    ],
)
def test_a_revision_says_what_differs_and_nothing_else(before, after, told):
    then, now = (Fact(**(TEA | {"confidence": 0.9} | more)) for more in (before, after))
    assert revision_in_words(then, now) == told


def test_a_change_of_the_policy_names_the_rules_and_their_values_as_configuration_spells_them():
    after = Policy(max_facts=50, gate_enabled=False, eviction_access_half_life_days=7.5, staleness_max_extension_days=9)
    change = PolicyChanged(Policy(eviction_access_half_life_days=30.0), after)
    first = "max_facts 100 -> 50, eviction_access_half_life_days 30 -> 7.5, gate_enabled true -> false"
    assert policy_in_words(change, 3) == f"{first}, 1 more rule changed"
    assert policy_in_words(change, 4) == f"{first}, staleness_max_extension_days 3650 -> 9"
    assert [value_in_words(value) for value in (("correction", "goal"), (), "", "exact")] == [
        "correction, goal",
        "none",
        "none",
        "exact",
    ]


def test_the_log_tells_apart_all_that_can_happen_to_facts(upkeep):
    summaries = [entry.summary for entry in upkeep.log()]
    assert summaries == [
        "+1 fact, -1 fact, 3 merged into 1, refused 2 duplicates, 1 threshold",
        "1 out of date, 1 confirmed, 2 extended",
        "+6 facts",
        "consolidation_enabled false -> true, consolidation_min_facts 8 -> 3",
        "the empty memory",
    ]


def test_the_history_of_a_fact_says_what_was_done_to_it(upkeep):
    said = {f"fact_3_{n}": [item.detail for item in upkeep.why(f"fact_3_{n}").history[1:]] for n in range(6)}
    assert said == {
        "fact_3_0": ["removed after review: moved away"],
        "fact_3_1": [
            "extended: lifetime none -> 562 days (still so)",
            "merged into fact_5_10000",
        ],
        "fact_3_2": ["extended: lifetime 30 days -> 262 days", "merged into fact_5_10000"],
        "fact_3_3": ["confirmed once", "merged into fact_5_10000"],
        "fact_3_4": ["model (no more)"],
        "fact_3_5": [],
    }


@pytest.fixture
def upkeep(tmp_path):
    """Six facts; one is found out of date, two are kept for longer, one is confirmed; then three become one."""
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.set_policy(consolidation_enabled=True, consolidation_min_facts=3)
        words = ("tea", "rain", "snow", "jazz", "rum", "Oslo")
        facts = [{"content": f"Likes {word}", "confidence": 0.9, "category": "goal"} for word in words]
        facts[2]["expectedValidDays"] = 30
        upkept = {
            "staleFactsToRemove": [{"id": "fact_3_0", "reason": "moved away"}],
            "staleFactsToExtend": [
                {"id": "fact_3_1", "extendByDays": 400, "reason": "still so"},
                {"id": "fact_3_2", "extendByDays": 100},
            ],
            "factsToReinforce": ["fact_3_3"],
        }
        three = {"sourceIds": [f"fact_3_{n}" for n in (1, 2, 3)], "consolidated": {"content": "Likes three things"}}
        last = {
            "newFacts": [
                {"content": "Likes sun", "confidence": 0.9},
                {"content": "Likes Oslo", "confidence": 0.9},
                {"content": "likes OSLO.", "confidence": 0.9},
                {"content": "Likes fog", "confidence": 0.1},
            ],
            "factsToRemove": [{"id": "fact_3_4", "reason": "no more"}],
            "factsToConsolidate": [three],
        }
        replies = {"2027-01-01": {"newFacts": facts}, "2027-06-12": upkept, "2027-06-13": last}
        for n, (day, lists) in enumerate(replies.items()):
            at = f"{day}T00:00:00Z"
            memory.record(f"t{n}", [turn | {"at": at} for turn in exchange("it", n)])
            memory.extract([RecordedReply(f"t{n}", json.dumps(lists))], backdate=True)
        yield memory


def test_why_not_names_the_facts_in_memory_that_are_like_the_text_the_best_match_first(memory):
    memory.add_fact("Ada likes green tea with milk")
    memory.add_fact("Ada likes green tea")
    memory.add_fact("Ada owns a red bicycle")
    found = memory.why_not("ada likes GREEN tea")
    assert found == ()
    assert [fact.content for fact in found.remembered] == ["Ada likes green tea", "Ada likes green tea with milk"]
    assert memory.why_not("zzz qqq").remembered == ()
    assert memory.why_not("").remembered == ()


def test_why_not_tells_refusals_and_what_is_remembered_apart(memory):
    memory.record("t", exchange("tea", 1))
    tell(memory, "t", "Ada may like black tea", confidence=0.3)
    memory.add_fact("Ada likes tea")
    found = memory.why_not("Ada likes black tea")
    assert [refusal.content for refusal in found] == ["Ada may like black tea"]
    assert [fact.content for fact in found.remembered] == ["Ada likes tea"]


def test_why_tells_nothing_of_what_came_after_memory_was_read(memory, monkeypatch):
    fact = memory.add_fact("Likes tea").fact.id
    logs = memory._services.logs(memory._services.writer)
    read = logs.memory

    def read_before_a_removal():
        found = read()
        memory.remove_fact(fact)
        return found

    monkeypatch.setattr(type(logs), "memory", lambda _: read_before_a_removal())
    found = why(logs, fact, "")
    assert (found.live, found.removed) == (True, None)
    assert [item.type for item in found.history] == ["FactAdded"]
