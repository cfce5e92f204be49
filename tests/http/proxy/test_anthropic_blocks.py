"""Where the context block stands in a request of Anthropic's protocol: within what is cached, or behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import open_home
from hypothesis import given
from hypothesis import strategies as st
from served import FACT, Served, served_to_anthropic
from upstreams import StandIn, message

from backstory.http.proxy.anthropic.requests import read_request
from backstory.http.proxy.protocol import Asked
from backstory.ledger.text.scaffolding import load_scaffolding

MARK = {"type": "ephemeral"}
STANDING = "<memory>\nFacts:\n- [context | 0.90] User lives in Bergen\n</memory>"
FOUND = "<memory>\nFacts for this question:\n- [context | 0.90] User likes boats\n</memory>"
QUESTION = {"role": "user", "content": "Where do I live?"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}


def text(said: str, **fields: object) -> dict[str, object]:
    return {"type": "text", "text": said, **fields}


def asked(**fields: object) -> Asked:
    body = {"model": "m", "messages": [QUESTION], **fields}
    return read_request(json.dumps(body).encode(), lambda _: "", load_scaffolding())


def sent(standing: str = STANDING, found: str = "", **fields: object) -> dict[str, Any]:
    body = asked(**fields).with_block(standing, found)
    assert body is not None
    read: dict[str, Any] = json.loads(body)
    return read


# What stands.


def test_what_stands_is_the_end_of_a_system_text():
    assert sent(system="Be kind.")["system"] == f"Be kind.\n\n{STANDING}"
    assert sent()["system"] == STANDING
    assert sent(system=None)["system"] == STANDING
    assert sent(system=f"Be kind.\n\n{STANDING.replace('Bergen', 'Oslo')}")["system"] == f"Be kind.\n\n{STANDING}"


def test_what_stands_is_the_last_block_where_nothing_is_marked():
    assert sent(system=[text("Be kind."), text("Be brief.")])["system"] == [
        text("Be kind."),
        text("Be brief."),
        text(STANDING),
    ]


@pytest.mark.parametrize("behind", [[], [text("Today is Monday.")]])
def test_what_stands_is_before_the_block_with_the_last_mark(behind):
    before = [text("You are Claude Code."), text("Rules", cache_control={**MARK, "ttl": "1h", "scope": "global"})]
    system = [*before, text("Style", cache_control=MARK), *behind]
    assert sent(system=system)["system"] == [*before, text(STANDING), *system[2:]]


def test_what_stands_is_the_first_block_where_only_the_first_is_marked():
    system = [text("Be kind.", cache_control=MARK), text("Today is Monday.", cache_control=None)]
    assert sent(system=system)["system"] == [text(STANDING), *system]


def test_an_earlier_block_is_replaced():
    system = [text("Be kind."), text(STANDING.replace("Bergen", "Oslo")), text("Style", cache_control=MARK)]
    assert sent(system=system)["system"] == [text("Be kind."), text(STANDING), text("Style", cache_control=MARK)]
    assert sent("", system=system)["system"] == [text("Be kind."), text("Style", cache_control=MARK)]


# What was found.


def test_what_was_found_is_behind_the_question_and_its_mark():
    content = [text("<system-reminder>x</system-reminder>"), text("Where?", cache_control=MARK)]
    messages = [text_message("user", "Hello"), text_message("assistant", "Hi."), {"role": "user", "content": content}]
    got = sent("", FOUND, messages=messages)
    assert got["messages"] == [*messages[:2], {"role": "user", "content": [*content, text(FOUND)]}]
    assert "system" not in got


def text_message(role: str, said: str) -> dict[str, object]:
    return {"role": role, "content": said}


def test_a_question_that_is_a_text_becomes_a_block():
    got = sent("", FOUND, messages=[{**QUESTION, "id": 7}])
    assert got["messages"] == [{"role": "user", "content": [text("Where do I live?"), text(FOUND)], "id": 7}]


def test_a_mark_for_the_whole_request_stays_in_front_of_what_was_found():
    """It stands for a mark on the last block, so it moves to the last one of the caller's."""
    got = sent("", FOUND, cache_control={**MARK, "ttl": "1h"})
    marked = text("Where do I live?", cache_control={**MARK, "ttl": "1h"})
    assert got["messages"][0]["content"] == [marked, text(FOUND)]
    assert "cache_control" not in got
    content = [text("Where?", cache_control=MARK)]
    got = sent("", FOUND, cache_control=MARK, messages=[{"role": "user", "content": content}])
    assert got["messages"][0]["content"] == [*content, text(FOUND)]
    assert "cache_control" not in got


def run(calls: int, **fields: object) -> list[dict[str, object]]:
    """A question, and calls of tools since."""
    steps: list[dict[str, object]] = []
    for _ in range(calls):
        steps += [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}]
    steps[-1]["content"] = [{**RESULT, **fields}, text("<system-reminder>go on</system-reminder>")]
    return [QUESTION, *steps]


@pytest.mark.parametrize("fields", [{}, {"cache_control": MARK}])
def test_in_a_run_of_tools_the_question_keeps_what_was_found(fields):
    got = sent("", FOUND, messages=run(3, **fields))["messages"]
    assert got == [{"role": "user", "content": [text("Where do I live?"), text(FOUND)]}, *run(3, **fields)[1:]]
    auto = sent("", FOUND, messages=run(3), cache_control=MARK)
    assert (auto["messages"][0], auto["cache_control"]) == (got[0], MARK)


def test_in_a_long_run_that_is_cached_the_question_stays_as_it_was():
    """So the mark on the question is within what a cache looks back over, and the next request finds it."""
    assert asked(messages=run(7, cache_control=MARK)).with_block("", FOUND) is None
    assert asked(messages=run(7), cache_control=MARK).with_block("", FOUND) is None
    assert sent("", FOUND, messages=run(7))["messages"][0]["content"][-1] == text(FOUND)


@pytest.mark.parametrize(
    "messages", [[], [{"role": "assistant", "content": "Hi"}], run(1)[1:], [{"role": "user", "content": []}]]
)
def test_without_a_question_nothing_is_found_for_it(messages):
    assert asked(messages=messages).with_block("", FOUND) is None


# Properties.

TEXTS = st.text("ab <&é😀\n", max_size=8) | st.just("<memory>")
MARKS = st.sampled_from([{}, {"cache_control": MARK}, {"cache_control": {**MARK, "ttl": "1h"}}])
EXTRA = st.dictionaries(st.text("xyz", min_size=1, max_size=2), st.integers() | st.none() | st.floats(0, 1), max_size=2)
BLOCKS = st.one_of(
    st.builds(lambda said, mark, extra: {**text(said), **mark, **extra}, TEXTS, MARKS, EXTRA),
    st.builds(lambda mark: {"type": "image", "source": {"type": "base64", "data": "AA=="}, **mark}, MARKS),
    st.builds(lambda mark: {"type": "document", "source": {"type": "text", "data": "d"}, **mark}, MARKS),
    st.builds(lambda mark: {**RESULT, **mark}, MARKS),
    st.just({"type": "thinking", "thinking": "hm", "signature": "s"}),
    st.just(CALL),
)
CONTENTS = TEXTS | st.lists(BLOCKS, max_size=4)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant"]), CONTENTS
    )
)
SYSTEMS = st.one_of(
    st.none(), TEXTS, st.lists(st.builds(lambda said, mark: {**text(said), **mark}, TEXTS, MARKS), max_size=4)
)
BODIES = st.builds(
    lambda messages, system, mark, extra: {**extra, "messages": messages, "system": system, **mark},
    MESSAGES,
    SYSTEMS,
    MARKS,
    EXTRA,
)


def marks(value: object) -> int:
    if isinstance(value, list):
        return sum(map(marks, value))
    return sum(n == "cache_control" or marks(one) for n, one in value.items()) if isinstance(value, dict) else 0


@given(BODIES)
def test_without_a_block_nothing_changes(body):
    assert asked(**body).with_block("") is None


@given(BODIES)
def test_a_block_adds_no_mark_and_takes_nothing_away(body):
    got = sent(STANDING, FOUND, **body)
    assert marks(got) <= marks(body)
    whole = {"model": "m", **body}
    assert without(got) == without(whole)
    for one in got["messages"]:
        # Nothing that is marked is behind what was found.
        blocks = one["content"] if isinstance(one["content"], list) else []
        assert text(FOUND) not in blocks[:-1]


def spelled(value: object) -> str:
    return json.dumps(value)


def without(body: dict[str, Any]) -> dict[str, Any]:
    """A body without what memory adds: its blocks, a mark that moved, and a text that became a block."""
    ours = [text(STANDING), text(FOUND)]

    def bare(content: object) -> object:
        if isinstance(content, list):
            kept = [{k: v for k, v in one.items() if k != "cache_control"} for one in content if one not in ours]
            return kept[0]["text"] if len(kept) == 1 and kept[0] == text(str(kept[0].get("text"))) else kept
        said = str(content).replace(f"\n\n{STANDING}", "").replace(STANDING, "")
        return None if content is None else said

    messages = [{**one, "content": bare(one["content"])} for one in body["messages"]]
    system = bare(body.get("system"))
    return {
        **{name: value for name, value in body.items() if name not in ("system", "cache_control")},
        "messages": messages,
        "system": system or None,
    }


# Through the proxy.


@pytest.fixture
def learned(tmp_path: Path, upstream: StandIn) -> Iterator[Served]:
    """A proxy with so many facts that not all of them stand."""
    upstream.then(message("Noted."))
    with open_home(tmp_path / "many", max_facts=500) as bs, served_to_anthropic(bs, upstream.base_url) as one:
        said = [{"content": f"User likes place number {n} by the sea", "confidence": 0.9} for n in range(300)]
        bs.memory("ada").import_document(said)
        yield one


def test_what_the_caller_caches_is_the_same_in_the_next_request(learned, upstream):
    """All up to the mark of a question is the caller's own; the next request has it without the mark."""
    said: list[dict[str, object]] = []
    system = [text("You are helpful."), text("Rules.", cache_control=MARK)]
    for n in range(3):
        question = f"What of place number {200 + 7 * n}?"
        told = [*said, {"role": "user", "content": [text(question, cache_control=MARK)]}]
        learned.messages(told, system=system)
        *before, newest = upstream.last.body["messages"]
        assert [*before, {**newest, "content": newest["content"][:1]}] == told
        found = newest["content"][1]["text"]
        assert found.startswith("<memory>\nFacts for this question:\n")
        assert f"number {200 + 7 * n} by" in found
        said += [{"role": "user", "content": [text(question)]}, {"role": "assistant", "content": [text("Noted.")]}]
    [standing] = {spelled(request.body["system"]) for request in upstream.requests}
    assert [one["text"] for one in json.loads(standing)][::2] == ["You are helpful.", "Rules."]
    assert learned.turns()["thread-1"][-2:] == ["What of place number 214?", "Noted."]


def test_a_run_of_tools_is_told_again_with_the_same_bytes(learned, upstream):
    question = {"role": "user", "content": "What of place number 233?"}
    steps = [
        {"role": "assistant", "content": [text("I look at place number 234."), CALL]},
        {"role": "user", "content": [RESULT, text("<system-reminder>Place number 235</system-reminder>")]},
    ]
    for told in ([question], [question, *steps], [question, *steps, *steps]):
        learned.messages(told)
    first, second, third = (request.body for request in upstream.requests)
    assert "number 233 by" in spelled(first["messages"])
    assert second["messages"] == [*first["messages"], *steps]
    assert third["messages"] == [*second["messages"], *steps]
    assert first["system"] == second["system"] == third["system"]


def test_the_answer_notes_what_it_was_given(claude):
    claude.ask("Where do I live?")
    [fact] = claude.home.memory("ada").facts()
    _, answer = claude.home.memory("ada").transcript("thread-1")
    assert answer.metadata["context"]["facts"] == [fact.id]


def test_numbers_order_and_unknown_fields_keep_their_bytes(claude, upstream):
    body = (
        b'{"z": 1.50, "thinking": {"type": "enabled",  "budget_tokens": 1e3}, "metadata": {"user_id": "ada"},'
        b' "messages": [{"role": "user", "content": [{"type": "text", "text": "\\u00e9?", "x": 0.10}]}], "a": [1.0 ]}'
    )
    claude.post("/v1/messages", content=body)
    raw = upstream.last.raw
    assert FACT in raw.decode()
    for kept in (b'"z":1.50', b'{"type": "enabled",  "budget_tokens": 1e3}', b'"\\u00e9?", "x": 0.10}', b'"a":[1.0 ]'):
        assert kept in raw
