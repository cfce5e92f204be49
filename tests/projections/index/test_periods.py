"""The interval tree of periods: what a span touches is in its ranges of keys, each period once, and little besides."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.moments import begins, ends, spell_moment
from backstory.projections.index.periods import EndedPeriod, ended_by, keys_of, ranges_of

DAY = datetime(2026, 3, 1, tzinfo=UTC)
FACT = msgspec.Raw(b"\x00")


def moment(day: float) -> str:
    return spell_moment(DAY + timedelta(days=day))


# Half of them are midnights: what ends with a day ends at one.
moments = (st.integers(-6, 6) | st.integers(-80, 80)).map(lambda half: moment(half / 2)) | st.sampled_from(
    [ends("9999"), begins("0001")]
)
periods = st.builds(EndedPeriod, st.just("") | moments, moments, st.just(FACT))
spans = (
    moments.map(lambda one: (one, one))
    | st.tuples(moments, moments).map(lambda both: (min(both), max(both)))
    | st.just(("", "~"))
)


def check(kept: list[EndedPeriod], first: str, behind: str) -> None:
    keys = {key: seq for seq, period in enumerate(kept) for key in keys_of(period, seq, f"fact_{seq}")}
    found: Counter[int] = Counter()
    for start, stop in ranges_of(first, behind):
        found.update(seq for key, seq in keys.items() if start <= key < stop)
    true = [n for n, one in enumerate(kept) if one.end > first and (one.begin <= first or one.begin < behind)]
    assert [found[seq] for seq in true] == [1] * len(true)
    assert all(ended_by(key) == seq for key, seq in keys.items())


@given(st.lists(periods, max_size=20), spans)
def test_the_ranges_of_a_span_hold_each_period_of_it_once(kept: list[EndedPeriod], span: tuple[str, str]) -> None:
    check(kept, *span)


def test_the_same_of_all_periods_and_spans_within_four_days() -> None:
    within = list(combinations_with_replacement([moment(half / 2) for half in range(-4, 5)], 2))
    kept = [EndedPeriod(begin, end, FACT) for begin, end in within]
    for first, behind in within:
        check(kept, first, behind)


def test_a_moment_among_many_periods_reads_few_others() -> None:
    kept = [EndedPeriod(moment(day), moment(day + 7), FACT) for day in range(5_000)]
    keys = sorted(key for seq, period in enumerate(kept) for key in keys_of(period, seq, "f"))
    asked = moment(2_500)
    read = [key for start, stop in ranges_of(asked, asked) for key in keys if start <= key < stop]
    assert len(read) < 20
