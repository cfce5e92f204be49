"""Recorded answers: what a line of them may look like, and that one never claims to have been asked."""

from __future__ import annotations

import json

import pytest
from fakes import open_home, reply

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.sanitize import MAX_NAME
from backstory.ledger.extraction.models.model import Answer, Prompt
from backstory.ledger.extraction.models.recorded import RecordedReply, as_reply, read_replies

PROMPT = Prompt(system="s", user="u", digest="0" * 64, schema={})


def test_a_reply_is_an_object_or_the_raw_text_of_an_answer():
    read = read_replies(
        [
            '{"thread_id": "t1", "reply": {"newFacts": []}}',
            b'{"thread_id": "t2", "reply": "<think>hm</think> {\\"newFacts\\": []}"}\n',
            "  \n",
            b"",
            '{"thread_id": 7, "reply": {"user": {"a": "\xe9\xe8"}}, "model": "ignored"}',
        ]
    )
    assert [item.thread for item in read] == ["t1", "t2", "7"]
    assert json.loads(read[0].text) == {"newFacts": []}
    assert read[1].text == '<think>hm</think> {"newFacts": []}'
    assert json.loads(read[2].text) == {"user": {"a": "\xe9\xe8"}}


@pytest.mark.parametrize("value", [None, 5, True, [], [1]])
def test_a_reply_that_is_no_object_is_kept_to_fail_as_one(value):
    (read,) = read_replies([json.dumps({"thread_id": "t", "reply": value})])
    assert json.loads(read.text) == value


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{",
        b"\xff\xfe",
        "[]",
        "5",
        "null",
        "{}",
        '{"thread_id": "t"}',
        '{"reply": {}}',
        '{"thread_id": null, "reply": {}}',
        '{"thread_id": true, "reply": {}}',
        '{"thread_id": 1.5, "reply": {}}',
        '{"thread_id": ["t"], "reply": {}}',
        '{"thread_id": "", "reply": {}}',
        '{"thread_id": "t", "reply": ' + "[" * 100_000,
        '{"thread_id": "t", "reply": ' + "[" * 5_000 + "]" * 4_999 + "}",
        '{"thread_id": "t", "reply": ' + "[" * 5_000 + "]" * 5_000,
        '{"thread_id": "t", "reply": ' + "[" * 5_000 + "]" * 5_000 + "} x",
        '{"thread_id": ["t"], "reply": ' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"thread_id": "t", "replies": ' + "[" * 5_000 + "]" * 5_000 + "}",
        '[{"thread_id": "t", "reply": ' + "[" * 5_000 + "]" * 5_000 + "}]",
        '{"thread_id": ' + "9" * 5_000 + ', "reply": {}}',
    ],
    ids=lambda line: repr(line)[:40],
)
def test_a_line_that_is_something_else_is_named(line):
    with pytest.raises(InputError, match="line 3 "):
        read_replies([b'{"thread_id": "t", "reply": {}}', "", line])


DEEP = "[" * 5_000 + "]" * 5_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (f'{{"thread_id": "t", "reply": {{"newFacts": {DEEP}}}}}', f'{{"newFacts": {DEEP}}}'),
        (
            f'{{"reply": {{"a": "]}}\\\\\\"[", "newFacts": {DEEP}}}, "thread_id": "t"}}',
            f'{{"a": "]}}\\\\\\"[", "newFacts": {DEEP}}}',
        ),
        (f'{{"note": {{"x": [1]}}, "thread_id": "t", "reply": {DEEP}, "more": [2]}}', DEEP),
        (f'{{"note": {DEEP}, "thread_id": "t", "reply": "text"}}', "text"),
        (f'{{"thread_id": "t", "reply": {{"newFacts": [{LONG}]}}}}', f'{{"newFacts": [{LONG}]}}'),
        (f'{{"thread_id": "t", "reply": {LONG}}}', "Infinity"),
        (f'\ufeff{{"thread_id": "t", "reply": {DEEP}}}'.encode(), DEEP),
    ],
    ids=["nested", "brackets in a text", "among others", "beside", "digits", "digits alone", "bytes"],
)
def test_what_no_parser_takes_is_one_reply_and_not_the_file(line, text):
    before, reply, after = read_replies(['{"thread_id": "b", "reply": {}}', line, '{"thread_id": "a", "reply": {}}'])
    assert (before.thread, reply.thread, after.thread) == ("b", "t", "a")
    assert reply.text == text


def test_a_reply_that_nests_too_deep_is_a_failed_update_and_a_number_too_long_a_refused_item(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    for thread in ("deep", "long"):
        memory.record(thread, [{"role": "user", "content": "I like tea"}, {"role": "ai", "content": "Noted"}])
    said = [
        f'{{"thread_id": "deep", "reply": {{"newFacts": {DEEP}}}}}',
        f'{{"thread_id": "long", "reply": {{"newFacts": [{LONG}, {{"content": "Likes tea", "confidence": 0.9}}]}}}}',
    ]
    extracted = memory.extract(read_replies(said))
    assert (extracted.updates, extracted.failed) == (2, 1)
    assert [fact.content for fact in memory.facts()] == ["Likes tea"]
    (parked,) = memory.status().parked
    assert (parked.thread, parked.turns) == ("deep", 2)
    assert "nested too deep" in parked.detail


@pytest.mark.parametrize("value", [json.loads("[" * 900 + "]" * 900), [10**5000], {1, 2}, {"a": object()}])
def test_a_reply_from_python_that_is_no_json_is_named(value):
    nested = value
    for _ in range(200):
        nested = [nested]
    with pytest.raises(InputError, match="the recorded reply for thread t cannot be written as JSON"):
        as_reply({"thread_id": "t", "reply": nested})


def test_what_a_model_may_say_and_strict_json_may_not_costs_one_item_and_no_file():
    (nan, surrogate, mark) = read_replies(
        [
            '{"thread_id": "t", "reply": {"newFacts": [{"content": "x", "confidence": NaN}]}}',
            '{"thread_id": "t", "reply": "half an emoji \\ud83c"}',
            b'\xef\xbb\xbf{"thread_id": "t", "reply": {}}',
        ]
    )
    assert "NaN" in nan.text
    assert surrogate.text == "half an emoji \ufffd"
    assert mark.text == "{}"


def test_names_are_bounded_and_safe():
    (read,) = read_replies([json.dumps({"thread_id": "x" * 600, "reply": {}})])
    assert len(read.thread) == MAX_NAME
    (read,) = read_replies(['{"thread_id": "t\\ud800", "reply": {}}'])
    assert read.thread == "t\ufffd"


def test_a_recorded_reply_answers_whatever_it_is_asked_and_was_never_prompted():
    recorded = RecordedReply("t", "text")
    assert recorded.name == "recorded"
    assert recorded.ask(PROMPT) == Answer("text", "recorded", prompted=False)


def test_a_commit_made_from_a_recorded_reply_claims_no_prompt_and_no_model(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record("t", [{"role": "user", "content": "I like tea"}, {"role": "ai", "content": "Noted"}])
    memory.extract([RecordedReply("t", reply("Likes tea"))])
    memory.record("t", [{"role": "user", "content": "I like milk"}, {"role": "ai", "content": "Noted"}], mode="append")
    memory.extract([RecordedReply("t", "no reply at all")])
    for entry in memory.log(limit=2):
        assert (entry.cause.model, entry.cause.prompt, entry.cause.tokens_in) == ("recorded", None, None)


def test_a_recorded_reply_cites_the_host_s_own_ids_also_where_they_are_numbers(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record(
        "t",
        [
            {"role": "user", "content": "I like tea", "id": 0},
            {"role": "ai", "content": "Noted", "id": 1},
            {"role": "user", "content": "I live in Oslo", "id": 2},
            {"role": "ai", "content": "Noted", "id": 3},
        ],
    )
    said = {"newFacts": [{"content": "Lives in Oslo", "confidence": 0.9, "evidence": [2]}]}
    memory.extract([RecordedReply("t", json.dumps(said))])
    (fact,) = memory.facts()
    assert [item.content for item in memory.why(fact.id).evidence] == ["I live in Oslo"]
