"""The size of results: within the budget of tokens for any memory, with the rest paged or counted."""

from __future__ import annotations

import orjson
import pytest
from assistants import call, result_of, text_of, using
from fakes import open_home
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from sizes import sized

from backstory.mcp.answering import Opened
from backstory.mcp.budget import Budget, ToolReply, cut, quoted
from backstory.mcp.server import memory_server

FACTS, IMPORTS = sized(4_000, 10_000), 20
IMPORTED = 2 + IMPORTS
"""The last of the commits that import facts."""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    with open_home(tmp_path_factory.mktemp("large")) as home:
        memory = home.memory("ada")
        memory.set_policy(max_facts=2 * FACTS)
        for first in range(0, FACTS, FACTS // IMPORTS):
            numbers = range(first, first + FACTS // IMPORTS)
            memory.import_document([f"Ada keeps note number {n} about tea in drawer {n * 7}" for n in numbers])
        memory.add_fact("Ada said " + "tea and " * 6000)
        for n in range(60):
            memory.add_fact(f"Ada drinks tea of sort {n} at the harbour")
        yield home


@pytest.fixture
def server(large):
    return memory_server(large, lambda _request, _need: Opened(large.memory("ada")))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("memory_search", {"query": "tea", "limit": 50}),
        ("memory_search", {"query": "Ada said tea and tea and", "limit": 3}),
        ("memory_context", {"about": "tea"}),
        ("memory_context", {"max_tokens": 100_000}),
        ("memory_why", {"fact_id": "fact_3_150"}),
        ("memory_history", {"limit": 100}),
        ("memory_diff", {"a": 1, "limit": 100}),
        ("memory_revert", {"seq": 3}),
    ],
)
def test_no_result_exceeds_the_budget(large, server, tool, arguments):
    result = result_of(server, tool, **arguments)
    assert not result.is_error, result.content
    most = large.config.settings.max_injection_tokens
    assert 100 < large.count_tokens(text_of(result)) <= most
    assert 100 < large.count_tokens(orjson.dumps(result.structured_content).decode()) <= most


def test_the_prompt_is_within_the_budget_and_says_what_is_missing(large, server):
    shown = using(server, lambda client: client.get_prompt("what_do_you_remember"))
    (message,) = shown.messages
    assert large.count_tokens(message.content.text) <= large.config.settings.max_injection_tokens
    assert f"of {FACTS + 61} facts are shown" in message.content.text


def test_a_text_that_is_cut_says_so(server):
    (first, *_) = call(server, "memory_search", query="Ada said tea and tea and", limit=1)["results"]
    assert first["content"].startswith("Ada said tea and")
    assert first["content"].endswith(" more characters]")


def test_the_history_is_paged_without_gaps(large, server):
    seen, before = [], None
    while True:
        more = {} if before is None else {"before": before}
        page = call(server, "memory_history", limit=100, **more)
        assert page["count"] == len(page["commits"]) > 0
        seen += [one["seq"] for one in page["commits"]]
        before = page.get("next")
        if before is None:
            break
    assert seen == list(range(large.memory("ada").head().seq, 0, -1))


def test_the_history_of_a_fact_is_paged_by_its_own_changes(tmp_path):
    with open_home(tmp_path / "home") as home:
        memory = home.memory("ada")
        memory.add_fact("Ada has 0 cats")
        for n in range(1, 8):
            memory.add_fact(f"Ada met {n} dogs")
            memory.edit_fact("fact_2_0", f"Ada has {n} cats")
        server = memory_server(home, lambda _request, _need: Opened(memory))
        first = call(server, "memory_history", fact_id="fact_2_0", limit=5)
        second = call(server, "memory_history", fact_id="fact_2_0", limit=5, before=first["next"])
        assert [one["seq"] for one in first["commits"] + second["commits"]] == [16, 14, 12, 10, 8, 6, 4, 2]
        assert "next" not in second


def test_a_difference_is_paged_without_gaps(server):
    seen, after = [], 0
    while after < 300:
        page = call(server, "memory_diff", a=IMPORTED, b=IMPORTED + 61, limit=100, after=after)
        assert page["total"] == 61
        assert page["count"] > 0
        seen += [one["id"] for one in page["changes"]]
        if "next" not in page:
            break
        after = page["next"]
    assert seen == [f"fact_{seq}_0" for seq in range(IMPORTED + 1, IMPORTED + 62)]


class Shown(BaseModel):
    items: list[str]


@given(st.lists(st.text(max_size=3000), max_size=30), st.integers(0, 3000))
def test_a_reply_is_as_long_as_the_budget_allows_and_no_longer(texts: list[str], tokens: int) -> None:
    budget = Budget(len, tokens)

    def build(items: int, length: int) -> ToolReply:
        shown = [cut(text, length) for text in texts[:items]]
        return ToolReply(Shown(items=shown), "\n".join(shown))

    reply = budget.fill(len(texts), build)
    assert budget.excess(reply) <= 0
    items = len(reply.content.items)
    if items < len(texts):
        assert any(budget.excess(build(items + 1, length)) > 0 for length in (2000, 500, 120, 40))


@given(st.text())
def test_a_quoted_text_is_the_same_text(text: str) -> None:
    line = quoted(text)
    assert orjson.loads(line) == text
    assert "\n" not in line
    assert not [letter for letter in line if ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0]


def test_the_smallest_budget_still_answers(tmp_path):
    with open_home(tmp_path / "home", max_injection_tokens=100) as home:
        memory = home.memory("ada")
        server = memory_server(home, lambda _request, _need: Opened(memory))
        added = call(server, "memory_add", content="Ada likes " + "long words " * 400)
        assert added["status"] == "added"
        assert "more characters]" in added["content"]
        found = call(server, "memory_search", query="long words")
        assert (found["count"], found["left_out"]) == (1, 0)
