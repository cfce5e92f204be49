"""Twelve clients, in the shapes of their requests: each conversation is one thread, with nothing that nobody said."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients import CLIENTS, STYLES
from served import Served
from upstreams import StandIn, completion, document, response

ROOT = Path(__file__).parents[3]
TALK = [(f" What is number {n} good for, then?", f"\nNumber {n} is good for {n + 2} things.\n") for n in range(5)]


@pytest.mark.parametrize(
    ("name", "style"),
    [
        # Each client and each style; all of them together are for `make torture`.
        pytest.param(name, style, marks=() if n % len(STYLES) == m else pytest.mark.torture)
        for n, name in enumerate(CLIENTS)
        for m, style in enumerate(STYLES)
    ],
)
def test_a_conversation_of_a_client_is_one_thread(proxy: Served, upstream: StandIn, name: str, style: str) -> None:
    for n, (question, answer) in enumerate(TALK):
        asks = CLIENTS[name](STYLES[style](TALK[:n]), question)
        is_chat = asks.path == "/chat/completions"
        upstream.then(completion(answer) if is_chat else document(response(answer, f"resp_{n}")))
        got = proxy.post(asks.path, json=asks.body, headers=asks.headers)
        assert (got.status_code, got.headers["x-backstory-memory"]) == (200, "used")
    said = [text.strip() for pair in TALK for text in pair]
    assert [[text.strip() for text in turns] for turns in proxy.turns().values()] == [said]


def test_the_table_of_clients_is_sorted_and_names_each_of_them() -> None:
    rows = [
        line for line in (ROOT / "docs" / "how-to" / "clients.md").read_text().splitlines() if line.startswith("| `")
    ]
    names = [row.split("`")[1] for row in rows]
    assert names == sorted(names)
    assert {*CLIENTS} <= {*names}
