"""Ranges of ordinals say the same as the ordinals one by one, and lie apart."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.threads import ranges
from backstory.ledger.threads.ranges import Ranges

ONE = st.tuples(st.integers(1, 30), st.integers(0, 5)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


def ordinals(told: Ranges) -> set[int]:
    found = [n for first, last in told for n in range(first, last + 1)]
    assert len(found) == len(set(found))
    assert ranges.members(told) == set(found)
    return set(found)


@given(st.lists(st.tuples(st.booleans(), ONE), max_size=12), ONE)
def test_ranges_hold_what_a_set_would(changes, asked):
    told: Ranges = []
    known: set[int] = set()
    for adding, (first, last) in changes:
        one = set(range(first, last + 1))
        if adding:
            ranges.add(told, first, last)
            known |= one
        else:
            ranges.remove(told, first, last)
            known -= one
        assert ordinals(told) == known
        assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(told))
    first, last = asked
    wanted = set(range(first, last + 1))
    assert ordinals(ranges.without(told, first, last)) == wanted - known
    assert ordinals(ranges.complement(told, first, 50)) == set(range(first, 51)) - known
    assert bool(ranges.overlap(told, first, last)) == bool(wanted & known)
    assert ordinals(ranges.overlap(told, first, last)) & wanted == wanted & known
