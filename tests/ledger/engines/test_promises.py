"""Every engine locks the streams of a removal in the order of an erasure, and follows one stream only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Record
from backstory.ledger.engines.promises import in_lock_order
from backstory.testing.conformance import STREAM
from backstory.testing.lines import chain, fill


def test_agents_come_before_their_user_and_a_transcript_before_its_ledger() -> None:
    wanted = [
        "users/eve/agents/a/transcript",
        "users/eve/agents/a/ledger",
        "users/eve/transcript",
        "users/eve/ledger",
        "transcript",
    ]
    for streams in permutations(wanted):
        assert sorted(streams, key=in_lock_order) == wanted


def test_a_stream_that_begins_anew_between_two_looks_is_not_followed_into_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(tmp_path)
    fill(store, STREAM, chain(1))
    following = store.follow(STREAM)
    assert next(following).line == chain(1)[0]
    real = store.read

    def read(stream: str, after: int = 0) -> Iterator[Record]:
        if after:
            store.remove("users/ada")
            fill(store, STREAM, chain(3, text="new"))
        return real(stream, after)

    monkeypatch.setattr(store, "read", read)
    assert list(following) == []
