"""A model's reply (row D9): what is found in it, what becomes of each item, and that nothing in it does harm."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path

import pytest
from fakes import open_home
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sizes import examples, sized

from backstory.ledger.core.errors import ReplyError
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    Candidate,
    CandidateRejected,
    Consolidation,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Turn,
    Unread,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_FACT, MAX_NAME
from backstory.ledger.extraction.items import reply_schema
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.extraction.reply import read_reply
from backstory.memory import MemoryHandle

LISTS = (
    "newFacts",
    "factsToRemove",
    "factsToEnd",
    "factsToReinforce",
    "staleFactsToRemove",
    "staleFactsToExtend",
    "factsToConsolidate",
)
MEGABYTE = 1024 * 1024
MUCH = sized(MEGABYTE // 4, MEGABYTE)
"""A reply may have eight megabytes: `make test` is content with two."""


def read(reply: object, **more: object) -> tuple[Candidate, ...]:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return read_reply(text, **more).candidates


def facts(reply: object) -> list[str]:
    return [candidate.content for candidate in read(reply) if isinstance(candidate, NewFact)]


def one_fact(**fields: object) -> Candidate:
    (candidate,) = read({"newFacts": [{"content": "Likes tea", **fields}]})
    return candidate


def fact(content: str) -> str:
    return json.dumps({"newFacts": [{"content": content}]})


def turn(n: int, turn_id: str) -> Turn:
    return Turn(n=n, id=turn_id, role="user", content="x", at="2026-03-01T12:00:00.000000Z")


# Finding the object


@pytest.mark.parametrize(
    "text",
    [
        "%s",
        "  \n\t%s\n ",
        "```json\n%s\n```",
        "```\n%s\n```",
        "Here is what changes:\n\n%s\n\nAnything else?",
        "<think>Tea. Not {coffee}.</think>\n```json\n%s\n```",
        '<think>{"newFacts": [{"content": "a draft"}]}</think>%s',
        "<THINKING>\nhm\n</THINKING>%s",
        "<think>a</think><think>b</think>%s",
        "<think>a <think> b</think> c</think>%s",
        'Reasoning without an opening tag, {"newFacts": [{"content": "a draft"}]}</think>%s',
        'A broken draft {"newFacts": [{"conte </think>%s',
        "</think>%s",
        "The set {x | x > 1} and {curly} and {} and { } and {{mustache}}: %s",
        'Format {"format": "json"} then %s',
        '{"status": "done"} %s',
        "[1, 2] %s",
        "%s <think>was that right?",
        "%s <think>was that right?</think> Yes.",
        "\ufeff%s",
        "\x00%s\x00",
        "“%s”",
    ],
)
def test_the_first_object_with_a_known_key_is_found_wherever_it_stands(text):
    assert facts(text.replace("%s", fact("Likes tea"))) == ["Likes tea"]


def test_of_two_objects_with_a_known_key_the_first_is_taken():
    assert facts(f"{fact('first')}\n{fact('second')}") == ["first"]


def test_an_object_inside_an_unknown_one_is_not_dug_out():
    with pytest.raises(ReplyError, match="newFacts"):
        read({"reply": {"newFacts": [{"content": "Likes tea"}]}})


def test_an_empty_list_under_a_known_key_is_an_answer():
    assert read({"newFacts": []}) == ()
    assert read({"user": None}) == ()


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<think></think>", "</thinking> <think>", "<think>{</think>"])
def test_a_fact_about_thinking_tags_is_a_fact(tag):
    content = f"Ada strips {tag} from replies"
    assert facts(fact(content)) == [content]
    assert facts(f"<think>hm</think>{fact(content)} <think>") == [content]
    assert facts(f"Sure!\n```json\n{fact(content)}\n```\n") == [content]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "I would rather not.",
        "null",
        "[]",
        '"newFacts"',
        "{}",
        '{"a": 1}',
        '[{"content": "Likes tea"}]',
        "{'newFacts': []}",
        '{newFacts: [{"content": "Likes tea"}]}',
        '{"newFacts": [{"content": "Likes tea"}',
        '{"newFacts": [{"content": "Likes tea"},]}',
        '{"newFacts": [{"content": "Likes te',
        '{"newFacts"',
        '{"newFacts": [] "user": {}}',
        '{"newFacts": [{"content": "a\nb"}]}',
        '{"newFacts": [{"content": "a\\x"}]}',
        '{"newFacts": [// none\n]}',
        '{"broken": [} {"newFacts": [{"content": "a part is not the whole"}]}',
        '{"reply": {"newFacts": [{"content": "a part"}]}',
        '<think>{"newFacts": [{"content": "only thought"}]}',
        '<think>{"newFacts": [{"content": "only thought"}]}</think>',
        '{"newFacts": [{"content": "only thought"}]}</think> I am done.',
    ],
)
def test_what_holds_no_whole_object_is_no_reply(text):
    with pytest.raises(ReplyError) as caught:
        read_reply(text)
    assert str(caught.value)


@pytest.mark.parametrize("text", ['{"newFacts": [1', "nothing"])
def test_a_failure_says_what_is_wrong_and_in_brief(text):
    with pytest.raises(ReplyError, match="JSON") as caught:
        read_reply(text + "x" * 10_000)
    assert len(str(caught.value)) < 500


def test_the_proposal_names_the_raw_text_by_its_digest():
    text = f"<think>茶</think> {fact('Likes tea')}"
    proposal = read_reply(text)
    assert proposal.digest == hashlib.sha256(text.encode()).hexdigest()
    assert proposal.size == len(text)


# Facts


def test_a_fact_is_read_with_all_that_it_says():
    assert one_fact(
        category="Preference",
        confidence=0.75,
        sourceError=" said coffee ",
        expectedValidDays=30,
        scope="user",
        durability="durable",
        authority="descriptive",
        extra={"x": 1},
    ) == NewFact(
        place="newFacts/0",
        content="Likes tea",
        category="preference",
        confidence=0.75,
        source_error="said coffee",
        expected_valid_days=30,
        scope="user",
        durability="durable",
        authority="descriptive",
    )


def test_what_a_fact_leaves_out_has_a_default():
    assert one_fact() == NewFact(place="newFacts/0", content="Likes tea", category="context", confidence=0.5)


def test_content_is_stripped():
    assert facts({"newFacts": [{"content": " \n Likes  tea \t"}]}) == ["Likes  tea"]


@pytest.mark.parametrize(
    ("days", "read_as"),
    [
        (1, 1),
        (365.0, 365),
        (999_999, 999_999),
        (0, None),
        (-3, None),
        (0.5, None),
        (30.5, 30),
        (10**6, None),
        (10**400, None),
        (True, None),
        ("30", None),
        (None, None),
        ([30], None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
@pytest.mark.parametrize("key", ["expectedValidDays", "expected_valid_days"])
def test_days_are_taken_where_they_can_be_read(days, read_as, key):
    assert one_fact(**{key: days}).expected_valid_days == read_as


def test_of_two_spellings_of_the_days_ours_is_read():
    assert one_fact(expected_valid_days=1, expectedValidDays=2).expected_valid_days == 2


@pytest.mark.parametrize("confidence", [0, 1, 0.0, 1.0, 0.123])
def test_a_confidence_from_zero_to_one_is_read(confidence):
    assert one_fact(confidence=confidence).confidence == confidence


@pytest.mark.parametrize(
    "confidence",
    [True, False, "0.9", "high", None, [], {}, -0.1, 1.1, 90, 10**400, float("nan"), float("inf"), float("-inf")],
)
def test_a_confidence_that_is_none_costs_its_fact_alone(confidence):
    broken, fine = read({"newFacts": [{"content": "a", "confidence": confidence}, {"content": "b", "confidence": 0.9}]})
    assert isinstance(broken, Unread)
    assert "confidence" in broken.detail
    assert fine == NewFact(place="newFacts/1", content="b", confidence=0.9)


def test_a_number_of_thousands_of_digits_costs_its_item_alone():
    digits = "9" * 6_000
    text = (
        f'{{"newFacts": [{{"content": "a", "confidence": {digits}}}, {{"content": "b", "note": {digits}}}, {digits}]}}'
    )
    broken, fine, number = read(text)
    assert (type(broken), type(number)) == (Unread, Unread)
    assert fine == NewFact(place="newFacts/1", content="b")


@pytest.mark.parametrize(
    "item",
    [
        None,
        5,
        True,
        "Likes tea",
        [],
        ["Likes tea"],
        {},
        {"content": None},
        {"content": 5},
        {"content": ["Likes tea"]},
        {"content": "a", "category": 5},
        {"content": "a", "category": None},
        {"Content": "a"},
        {"text": "a"},
    ],
)
def test_a_fact_that_cannot_be_read_is_told_and_harms_no_neighbour(item):
    before, broken, after = read({"newFacts": [{"content": "a"}, item, {"content": "b"}]})
    assert isinstance(broken, Unread)
    assert broken.place == "newFacts/1"
    assert json.loads(broken.text) == item
    assert broken.detail
    assert (before.place, after.place) == ("newFacts/0", "newFacts/2")


@pytest.mark.parametrize(
    ("evidence", "cited"),
    [
        ([1, 2], ("a", "b")),
        (["1", "b"], ("a", "b")),
        ("a", ("a",)),
        (2, ("b",)),
        # What is no turn of the conversation is no evidence: it may be anything, and be taken for another turn's id.
        ([3, "zz", "a"], ("a",)),
        ([True, None, 1.0, {}, []], ()),
        (None, ()),
        ({}, ()),
        (["a", "a", 1], ("a",)),
    ],
)
def test_evidence_is_cited_by_number_or_by_id(evidence, cited):
    (candidate,) = read({"newFacts": [{"content": "x", "evidence": evidence}]}, turns=[turn(1, "a"), turn(2, "b")])
    assert candidate.evidence == cited


def test_a_recorded_reply_may_cite_any_turn_of_its_thread_and_nothing_else():
    reply = {"newFacts": [{"content": "x", "evidence": ["a", "z", 1, "Ada lives in Oslo"]}]}
    turns, thread = [turn(2, "b")], [turn(1, "a"), turn(2, "b")]
    (recorded,) = read(reply, turns=turns, prompted=False, thread=thread)
    assert recorded.evidence == ("a",)
    (asked,) = read(reply, turns=turns, thread=thread)
    assert asked.evidence == ()


def test_a_model_that_was_shown_numbers_cites_numbers_also_where_ids_look_like_them():
    turns = [turn(1, "0"), turn(2, "1"), turn(3, "2")]
    reply = {"newFacts": [{"content": "x", "evidence": [1, "3"]}]}
    (shown,) = read(reply, turns=turns)
    assert shown.evidence == ("0", "2")


def test_a_recorded_reply_cites_ids_also_where_they_look_like_numbers():
    turns = [turn(1, "0"), turn(2, "1"), turn(3, "2")]
    reply = {"newFacts": [{"content": "x", "evidence": ["1", 2, 3]}]}
    (recorded,) = read(reply, turns=turns, prompted=False)
    assert recorded.evidence == ("1", "2")


def test_no_fact_has_more_evidence_than_can_be_looked_at():
    assert len(one_fact(evidence=[f"m{i}" for i in range(10_000)]).evidence) <= 50


# Removals, confirmations, sections


def test_removals_are_ids_or_objects():
    assert read(
        {
            "factsToRemove": [
                " fact_1 ",
                {"id": "fact_2"},
                {"id": "fact_3", "reason": "moved", "replacementFactIndex": 0},
                {"id": "fact_3", "reason": None, "replacementFactIndex": None},
            ]
        }
    ) == (
        Removal(place="factsToRemove/0", id="fact_1"),
        Removal(place="factsToRemove/1", id="fact_2"),
        Removal(place="factsToRemove/2", id="fact_3", reason="moved", replacement=0),
        Removal(place="factsToRemove/3", id="fact_3"),
    )


@pytest.mark.parametrize(
    "item",
    [
        None,
        5,
        [],
        {},
        {"id": 5},
        {"id": "fact_1", "reason": 5},
        {"id": "fact_1", "replacementFactIndex": -1},
        {"id": "fact_1", "replacementFactIndex": "0"},
        {"id": "fact_1", "replacementFactIndex": True},
        {"id": "fact_1", "replacementFactIndex": 0.5},
    ],
)
def test_a_removal_that_cannot_be_read_removes_nothing(item):
    (candidate,) = read({"factsToRemove": [item]})
    assert isinstance(candidate, Unread)


def test_confirmations_are_ids_or_objects():
    candidates = read({"factsToReinforce": ["fact_1", {"id": " fact_2 "}, {"id": 5}, 5]})
    assert candidates[:2] == (
        Reinforcement(place="factsToReinforce/0", id="fact_1"),
        Reinforcement(place="factsToReinforce/1", id="fact_2"),
    )
    assert [type(candidate) for candidate in candidates[2:]] == [Unread, Unread]


@pytest.mark.parametrize("name", DOCUMENT_SECTIONS)
def test_a_section_is_rewritten_where_the_reply_says_so(name):
    group, _, key = name.partition(".")
    assert read({group: {key: {"summary": " Rust. ", "shouldUpdate": True}}}) == (
        NewSummary(place=name, summary="Rust."),
    )
    assert read({group: {key: {"summary": "Rust.", "shouldUpdate": False}}}) == ()
    assert read({group: {key: None}}) == ()


@pytest.mark.parametrize(
    "section",
    [
        5,
        "Rust",
        [],
        {},
        {"summary": "Rust"},
        {"summary": 5, "shouldUpdate": True},
        {"summary": "Rust", "shouldUpdate": "true"},
        {"summary": "Rust", "shouldUpdate": 1},
        {"summary": "Rust", "shouldUpdate": None},
    ],
)
def test_a_section_that_cannot_be_read_is_told(section):
    (candidate,) = read({"user": {"workContext": section}})
    assert isinstance(candidate, Unread)
    assert candidate.place == "user.workContext"


def test_sections_nobody_knows_are_passed_over():
    assert read({"user": {"shoeSize": {"summary": "42", "shouldUpdate": True}}, "history": {}, "mood": "fine"}) == ()


@pytest.mark.parametrize("value", [5, "x", {"content": "a"}, True])
@pytest.mark.parametrize("name", LISTS)
def test_what_should_be_a_list_and_is_none_is_told(name, value):
    (candidate,) = read({name: value})
    assert (type(candidate), candidate.place) == (Unread, name)


@pytest.mark.parametrize("value", [5, "x", [{"summary": "x"}], True])
@pytest.mark.parametrize("group", ["user", "history"])
def test_what_should_hold_sections_and_does_not_is_told(group, value):
    (candidate,) = read({group: value})
    assert (type(candidate), candidate.place) == (Unread, group)


# Reviews, mergings, labels


def test_what_a_review_asks_for_is_read():
    assert read(
        {
            "staleFactsToRemove": [" fact_1 ", {"id": "fact_2", "reason": "moved", "scope": "user"}],
            "staleFactsToExtend": [
                {"id": " fact_3 ", "extendByDays": 30},
                {"id": "fact_4", "extend_by_days": 7, "reason": "still runs", "durability": "durable"},
                {"id": "fact_5", "extendByDays": 1.0, "extend_by_days": 7},
            ],
        }
    ) == (
        Removal(place="staleFactsToRemove/0", id="fact_1"),
        Removal(place="staleFactsToRemove/1", id="fact_2", reason="moved", scope="user"),
        Extension(place="staleFactsToExtend/0", id="fact_3", days=30),
        Extension(place="staleFactsToExtend/1", id="fact_4", days=7, reason="still runs", durability="durable"),
        Extension(place="staleFactsToExtend/2", id="fact_5", days=1),
    )


@pytest.mark.parametrize(
    "item",
    [
        None,
        "fact_1",
        {"id": "fact_1"},
        {"extendByDays": 3},
        {"id": 5, "extendByDays": 3},
        {"id": "fact_1", "reason": 5, "extendByDays": 3},
        *({"id": "fact_1", "extendByDays": days} for days in (0, -1, 1.5, "30", True, None, 10**6, [3])),
    ],
)
def test_an_extension_that_cannot_be_read_is_told(item):
    (candidate,) = read({"staleFactsToExtend": [item]})
    assert (type(candidate), candidate.place, json.loads(candidate.text)) == (Unread, "staleFactsToExtend/0", item)


def test_what_is_to_be_merged_is_read_with_the_labels_of_the_merged_fact():
    assert read(
        {
            "factsToConsolidate": [
                {"sourceIds": [" fact_1 ", "fact_2"], "consolidated": {"content": " Runs and swims "}},
                {
                    "sourceIds": ["fact_1", "fact_1"],
                    "consolidated": {
                        "content": "Runs",
                        "category": " Behavior",
                        "confidence": 1,
                        "scope": "user",
                        "durability": "durable",
                        "authority": "descriptive",
                    },
                },
                {"sourceIds": [], "consolidated": {"content": "", "category": "", "confidence": None}},
            ]
        }
    ) == (
        Consolidation(place="factsToConsolidate/0", sources=("fact_1", "fact_2"), content="Runs and swims"),
        Consolidation(
            place="factsToConsolidate/1",
            sources=("fact_1", "fact_1"),
            content="Runs",
            category="behavior",
            confidence=1,
            scope="user",
            durability="durable",
            authority="descriptive",
        ),
        Consolidation(place="factsToConsolidate/2", sources=(), content=""),
    )


@pytest.mark.parametrize(
    "item",
    [
        None,
        "fact_1",
        {},
        {"sourceIds": ["fact_1", "fact_2"]},
        {"consolidated": {"content": "Runs"}},
        {"sourceIds": "fact_1", "consolidated": {"content": "Runs"}},
        {"sourceIds": ["fact_1", 2], "consolidated": {"content": "Runs"}},
        {"sourceIds": ["fact_1", "fact_2"], "consolidated": "Runs"},
        {"sourceIds": ["fact_1", "fact_2"], "consolidated": {}},
        {"sourceIds": ["fact_1", "fact_2"], "consolidated": {"content": ["Runs"]}},
        *(
            {"sourceIds": ["fact_1", "fact_2"], "consolidated": {"content": "Runs", "confidence": confidence}}
            for confidence in (1.1, -0.1, "0.9", True)
        ),
    ],
)
def test_a_merging_that_cannot_be_read_is_told(item):
    (candidate,) = read({"factsToConsolidate": [item]})
    assert (type(candidate), candidate.place, json.loads(candidate.text)) == (Unread, "factsToConsolidate/0", item)


def test_a_confidence_that_is_no_number_costs_its_merging_alone():
    text = '{"factsToConsolidate": [{"sourceIds": [], "consolidated": {"content": "x", "confidence": NaN}}, %s]}'
    one, two = read(text % '{"sourceIds": ["a", "b"], "consolidated": {"content": "y"}}')
    assert (type(one), type(two)) == (Unread, Consolidation)


LABELLED = {
    "newFacts": {"content": "Runs"},
    "factsToRemove": {"id": "fact_1"},
    "factsToReinforce": {"id": "fact_1"},
    "staleFactsToRemove": {"id": "fact_1"},
    "staleFactsToExtend": {"id": "fact_1", "extendByDays": 3},
}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize(
    ("labels", "read_as"),
    [
        ({}, (None, None, None)),
        (
            {"scope": "user", "durability": "durable", "authority": "descriptive"},
            ("user", "durable", "descriptive"),
        ),
        ({"scope": " Task\n"}, ("Task", None, None)),
        ({"scope": "", "durability": "  ", "authority": None}, (None, None, None)),
        # What is no text lets nothing in, so what it was stays to be seen.
        ({"scope": ["task"], "durability": False, "authority": {"x": 1}}, ('["task"]', "false", '{"x": 1}')),
    ],
)
def test_every_kind_of_item_may_carry_labels(name, labels, read_as):
    (candidate,) = read({name: [{**LABELLED[name], **labels}]})
    assert (candidate.scope, candidate.durability, candidate.authority) == read_as


def test_a_section_may_carry_labels():
    section = {"summary": "Rust.", "shouldUpdate": True, "scope": "task", "authority": "descriptive"}
    assert read({"user": {"workContext": section}}) == (
        NewSummary(place="user.workContext", summary="Rust.", scope="task", authority="descriptive"),
    )


def test_labels_reasons_and_sources_are_bounded():
    long = "x" * 100_000
    fact, removal, extension, merging, many = read(
        {
            "newFacts": [{"content": "Runs", "scope": long}],
            "factsToRemove": [{"id": long, "reason": long}],
            "staleFactsToExtend": [{"id": long, "extendByDays": 3, "reason": long}],
            "factsToConsolidate": [
                {"sourceIds": [long], "consolidated": {"content": long, "category": long}},
                {"sourceIds": ["fact_1"] * 1_001, "consolidated": {"content": "x"}},
            ],
        }
    )
    assert len(fact.scope) <= MAX_NAME
    assert (len(removal.id), len(removal.reason)) <= (MAX_NAME, MAX_CONTENT)
    assert (len(extension.id), len(extension.reason)) <= (MAX_NAME, MAX_CONTENT)
    assert len(merging.sources[0]) <= MAX_NAME
    assert len(merging.content) <= MAX_CONTENT
    assert len(merging.category) <= MAX_NAME
    assert isinstance(many, Unread)


# Twice


def test_a_list_given_twice_is_read_as_it_was_last_and_the_first_is_told():
    text = '{"newFacts": [{"content": "first"}], "user": {}, "newFacts": [{"content": "last"}]}'
    told, last = sorted(read(text), key=lambda candidate: isinstance(candidate, NewFact))
    assert last == NewFact(place="newFacts/0", content="last")
    assert isinstance(told, Unread)
    assert "first" in told.text


def test_a_section_given_twice_is_read_as_it_was_last_and_the_first_is_told():
    section = '{"summary": "%s", "shouldUpdate": true}'
    text = f'{{"user": {{"workContext": {section % "first"}, "workContext": {section % "last"}}}}}'
    candidates = read(text)
    assert NewSummary(place="user.workContext", summary="last") in candidates
    assert [candidate.text for candidate in candidates if isinstance(candidate, Unread) if "first" in candidate.text]
    assert len(candidates) == 2


def test_places_stay_apart_whatever_is_given_how_often():
    text = '{"newFacts": 1, "newFacts": 2, "newFacts": [], "user": 1, "user": 2, "newFacts": 3}'
    places = [candidate.place for candidate in read(text)]
    assert len(places) == len(set(places)) == 6


def test_a_field_given_twice_in_one_item_is_read_as_it_was_last():
    assert facts('{"newFacts": [{"content": "first", "content": "last"}]}') == ["last"]


# Bounds and odd characters


def test_lone_surrogates_become_replacement_characters():
    text = (
        '{"newFacts": [{"content": "a\\ud800", "category": "\\udfff", "evidence": ["\\ud800"], "scope": "\\ud800"}],'
        '"factsToRemove": ["\\ud800", {"id": "\\ud800", "reason": "\\ud800"}], "factsToReinforce": ["\\ud800"],'
        '"user": {"workContext": {"summary": "\\ud800", "shouldUpdate": true}, "\\ud800": 1},'
        '"staleFactsToRemove": ["\\ud800", {"\\ud800": "\\ud800"}]}'
    )
    candidates = read(text)
    assert len(candidates) == 7
    assert candidates[1].content == "a\ufffd"
    for candidate in candidates:
        repr(candidate).encode()
    assert facts('{"newFacts": [{"content": "raw \ud83c"}]}') == ["raw \ufffd"]


def test_everything_is_bounded():
    long = "x" * 2_000_000
    fact_read, removal, summary, unread = (
        one_fact(content=long, category=long, sourceError=long, scope=long),
        *read({"factsToRemove": [{"id": long, "reason": long}]}),
        *read({"user": {"workContext": {"summary": long, "shouldUpdate": True}}}),
        *read({"newFacts": [{"words": long}]}),
    )
    assert len(fact_read.content) == len(fact_read.source_error) == MAX_CONTENT
    assert len(fact_read.category) == len(fact_read.scope) == MAX_NAME
    assert (len(removal.id), len(removal.reason), len(summary.summary)) == (MAX_NAME, MAX_CONTENT, MAX_CONTENT)
    assert len(unread.text) == MAX_FACT


def test_a_reply_of_ten_megabytes_is_refused_unread():
    with pytest.raises(ReplyError, match="characters"):
        read_reply('{"newFacts": [' + " " * (10 * MEGABYTE) + "]}")


def test_a_reply_with_more_items_than_a_memory_could_ever_want_is_refused():
    with pytest.raises(ReplyError, match="items"):
        read({"newFacts": [0] * 6_000, "factsToRemove": ["fact_1"] * 6_000})
    assert len(read({"newFacts": [{"content": "x"}] * 5_000})) == 5_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        '{"' * (4 * MUCH),
        '{"a":' * (MUCH * 8 // 5),
        "[" * (8 * MUCH),
        "{" * (8 * MUCH),
        "{ " * (4 * MUCH),
        "{" + " " * (8 * MUCH - 1),
        '{"newFacts":[' + "[" * (7 * MUCH),
        '{"newFacts":[' + '{"content":' * (MUCH // 2),
        '{"newFacts":"' + "\\\\" * (3 * MUCH),
        "<think>" * MUCH,
        "</think>" * MUCH,
        "<think></think>" * (MUCH // 2),
        "<" * (8 * MUCH),
        '{"a":1}</think>' * (MUCH // 2),
        '{"newFacts":1}' + '{"a":</think>' * (MUCH // 2) + "x",
        '{"newFacts":[' * (MUCH // 2) + "</think>",
        ('{"newFacts":[' + "</think>") * (MUCH // 4),
        ('{"newFacts":[]}' + "</think>") * (MUCH // 4),
        ('{"newFacts":[]}' + "<think>") * (MUCH // 4),
        '{"a":1}' * MUCH,
        "```json\n" * MUCH,
        '{"newFacts":[' + "0," * (3 * MUCH) + "0]}",
        '{"newFacts":[' + '"x",' * MUCH + '""]}',
        '{"newFacts":[],' + '"newFacts":[],' * (MUCH // 2) + '"user":{}}',
    ],
    ids=lambda text: text[:16],
)
def test_hostile_text_takes_no_square_of_the_time(text):
    began = time.process_time()
    with contextlib.suppress(ReplyError):
        read_reply(text)
    assert time.process_time() - began < 15


@pytest.mark.parametrize("depth", [*range(900, 1010, 3), 5_000])
def test_deep_nesting_is_read_or_refused(depth):
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deep = opening * depth + ("1" if closing == "}" else "") + closing * depth
        for text in (
            f'{{"newFacts": [{deep}, {{"content": "b"}}]}}',
            f'{{"newFacts": [{{"content": "b", "evidence": {deep}}}]}}',
            f'{{"user": {deep}}}',
            f'{{"user": {{"workContext": {deep}}}}}',
            f'{{"factsToRemove": {deep}}}',
        ):
            with contextlib.suppress(ReplyError):
                read_reply(text)


def test_nesting_too_deep_to_be_told_is_still_told(monkeypatch):
    # The decoder may come back from a depth that no encoder gets down to.
    def refuse(*args, **kwargs):
        raise RecursionError

    monkeypatch.setattr("backstory.ledger.extraction.reply.json.dumps", refuse)
    (candidate,) = read('{"newFacts": [' + "[" * 200 + "]" * 200 + "]}")
    assert isinstance(candidate, Unread)


# Any reply at all

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4) | st.just("fact_1"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*LISTS, "user", "history", "workContext", "content", "confidence", "id", "summary", "x"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
items = values | st.fixed_dictionaries(
    {},
    optional={
        "content": st.text(max_size=4) | values,
        "confidence": st.floats() | values,
        "evidence": st.lists(st.integers(0, 3) | st.text(max_size=2)) | values,
        "id": st.text(max_size=4) | values,
        "replacementFactIndex": st.integers(-1, 3) | values,
        "extendByDays": st.integers(-1, 10**6) | values,
        "sourceIds": st.lists(st.sampled_from(["fact_1", "fact_2"])) | values,
        "consolidated": st.fixed_dictionaries({"content": st.text(max_size=4)}) | values,
        "scope": st.sampled_from(["user", "task"]) | values,
    },
)
replies = st.fixed_dictionaries(
    {},
    optional={name: st.lists(items, max_size=3) | values for name in LISTS}
    | {
        group: st.dictionaries(st.sampled_from([n.partition(".")[2] for n in DOCUMENT_SECTIONS]), values) | values
        for group in ("user", "history")
    },
)


def told_of(found: dict[str, object]) -> int:
    """How many candidates the lists of a reply come to: one an item, or one for what is no list."""
    return sum(
        len(value) if isinstance(value, list) else value is not None for value in (found.get(name) for name in LISTS)
    )


@settings(max_examples=examples(2))
@given(replies)
@example({"newFacts": None})
def test_every_item_of_every_list_ends_in_exactly_one_candidate(reply):
    if not reply:
        with pytest.raises(ReplyError):
            read(reply)
        return
    candidates = read(reply)
    places = [candidate.place for candidate in candidates]
    assert len(places) == len(set(places))
    assert sum(place.partition("/")[0] in LISTS for place in places) == told_of(reply)
    for candidate in candidates:
        repr(candidate).encode()


@settings(max_examples=examples(2))
@given(values | replies, st.sampled_from(["%s", "<think>%s</think>%s", "```json\n%s", "%s</think>", '{"%s', "%s%s"]))
def test_any_text_is_read_or_refused(value, around):
    try:
        read_reply(around.replace("%s", json.dumps(value)))
    except ReplyError as error:
        assert str(error)  # noqa: PT017 a refusal always says what is wrong


@given(st.text(st.characters() | st.sampled_from('{}[]":,<>/'), max_size=40), st.text(max_size=20))
def test_any_scribble_is_read_or_refused(before, after):
    try:
        read_reply(f'{before}{{"newFacts": []}}{after}')
    except ReplyError as error:
        assert str(error)  # noqa: PT017 a refusal always says what is wrong


# Through the public surface


@pytest.fixture
def memory(tmp_path: Path) -> MemoryHandle:
    return open_home(tmp_path).memory("ada")


def say(memory: MemoryHandle, number: int = 1) -> None:
    memory.record("t", [{"role": "user", "content": f"I say {number}"}, {"role": "assistant", "content": "Noted"}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "{}",
        '{"newFacts": [{"content": "half',
        '{"newFacts": [{"content": "good", "confidence": 0.9}], "factsToRemove": [',
        "[" * 100_000,
        '{"newFacts":' * 100_000,
        '{"newFacts": ' + "[" * 990 + "]" * 990 + "",
        "x" * (9 * MEGABYTE),
        "\ud800",
    ],
    ids=lambda text: text[:20].encode("ascii", "replace").decode(),
)
def test_a_broken_reply_changes_nothing_and_its_reason_is_recorded(memory, text):
    memory.add_fact("Lives in Oslo")
    say(memory)
    before = memory.document()
    result = memory.extract([RecordedReply("t", text)])
    assert (result.updates, result.failed) == (1, 1)
    assert memory.document() == before
    (last,) = memory.log(limit=1)
    (failed,) = last.events
    assert isinstance(failed, UpdateFailed)
    assert failed.reason == "reply"
    assert 10 < len(failed.detail) < 2_100
    (parked,) = memory.status().parked
    assert (parked.turns, parked.reason, parked.attempts) == (2, "reply", 1)
    assert memory.verify().ok


@settings(max_examples=examples(1 / 3))
@given(story=st.lists(replies, max_size=3))
def test_whatever_a_reply_holds_the_ledger_stands(story, tmp_path_factory):
    memory = open_home(tmp_path_factory.mktemp("home")).memory("ada")
    memory.add_fact("Lives in Oslo")
    for number, reply in enumerate(story):
        say(memory, number)
        result = memory.extract([RecordedReply("t", json.dumps(reply))])
        assert result.updates == 1
        (last,) = memory.log(limit=1)
        if result.failed:
            memory.discard("t")
            continue
        assert isinstance(last.events[0], UpdateProposed)
        refused = [event.candidate for event in last.events if isinstance(event, CandidateRejected)]
        settled = [event for event in last.events[1:] if getattr(event, "place", None) is not None]
        assert len(refused) + len(settled) == len(read(reply))
    assert memory.status().pending == ()
    assert "Lives in Oslo" in [known.content for known in memory.facts()]
    assert memory.verify().ok


def test_the_schema_offered_to_servers_takes_a_good_reply():
    assert reply_schema()["type"] == "object"
    properties = reply_schema()["properties"]
    assert set(properties) <= {"user", "history", *LISTS}
    assert {"newFacts", "factsToRemove", "user", "history"} <= set(properties)
    assert json.loads(json.dumps(reply_schema())) == reply_schema()
    # A reference would point at the top of the document, where what it means is not.
    assert "$ref" not in json.dumps(reply_schema())


# When facts hold


def test_times_are_read_as_they_are_written_in_the_offset_of_the_first_cited_turn() -> None:
    told = Turn(n=3, id="u3", role="user", content="x", at="2026-03-01T00:00:00.000000Z", offset="-07:00")
    stated = {"validFrom": 2024, "validUntil": " 2026-03 ", "expiresAt": "2026-03-05T10:00Z"}
    fact = {"content": "Rents a flat", "confidence": 0.9, **stated}
    cited, uncited = read({"newFacts": [{**fact, "evidence": [3]}, fact]}, turns=(told,))
    assert isinstance(cited, NewFact)
    assert (cited.valid_from, cited.valid_until, cited.expires_at) == (
        "2024-07:00",
        "2026-03-07:00",
        "2026-03-05T10:00",
    )
    assert isinstance(uncited, NewFact)
    assert (uncited.valid_from, uncited.valid_until) == ("2024", "2026-03")


@pytest.mark.parametrize("time", ["soon", "", None, True, 2.5, [], "2026-13", "2026-02-30", "26-03"])
def test_what_is_no_time_is_left_out(time: object) -> None:
    (fact,) = read({"newFacts": [{"content": "Has a visa", "confidence": 0.9, "validUntil": time}]})
    assert isinstance(fact, NewFact)
    assert fact.valid_until is None


def test_a_fact_ends_by_its_own_list_or_by_a_word_in_a_removal() -> None:
    ended = {"id": "fact_1", "validUntil": "2025", "replacementFactIndex": 0, "reason": "moved"}
    reply = {"factsToEnd": [ended, "fact_2"], "factsToRemove": [{"id": "fact_3", "ended": True}, {"id": "fact_4"}]}
    found = {candidate.id: candidate for candidate in read(reply) if isinstance(candidate, Removal)}
    assert [(found[i].ended, found[i].valid_until) for i in sorted(found)] == [
        (True, "2025"),
        (True, None),
        (True, None),
        (False, None),
    ]
    assert found["fact_1"].place == "factsToEnd/0"
