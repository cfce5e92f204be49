"""Every engine locks the streams of a removal in one order, which is also that of an erasure."""

from __future__ import annotations

from itertools import permutations

from backstory.ledger.engines.promises import in_lock_order


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
