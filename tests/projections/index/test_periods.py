"""The interval tree of periods: what a span touches is in its ranges of keys, each period once, and little besides."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.moments import begins, ends
from backstory.projections.index.periods import Period, ended_by, keys_of, ranges_of

DAY = date(2026, 3, 1)
FACT = msgspec.Raw(b"\x00")


def moment(day: int) -> str:
    return begins(str(DAY + timedelta(days=day)))


moments = st.integers(-40, 40).map(moment) | st.sampled_from(
    ["2026-03-01T12:00:00.000000Z", ends("9999"), begins("0001")]
)
periods = st.builds(Period, st.just("") | moments, moments, st.just(FACT))
spans = st.tuples(moments, moments).map(lambda both: (min(both), max(both))) | st.just(("", "~"))


@given(st.lists(periods, max_size=20), spans)
def test_the_ranges_of_a_span_hold_each_period_of_it_once(kept: list[Period], span: tuple[str, str]) -> None:
    first, behind = span
    keys = {key: seq for seq, period in enumerate(kept) for key in keys_of(period, seq, f"fact_{seq}")}
    found: Counter[int] = Counter()
    for start, stop in ranges_of(first, behind):
        found.update(seq for key, seq in keys.items() if start <= key < stop)
    true = [n for n, one in enumerate(kept) if one.end > first and (one.begin <= first or one.begin < behind)]
    assert [found[seq] for seq in true] == [1] * len(true)
    assert all(ended_by(key) == seq for key, seq in keys.items())


def test_a_moment_among_many_periods_reads_few_others() -> None:
    kept = [Period(moment(day), moment(day + 7), FACT) for day in range(5_000)]
    keys = sorted(key for seq, period in enumerate(kept) for key in keys_of(period, seq, "f"))
    asked = moment(2_500)
    read = [key for start, stop in ranges_of(asked, asked) for key in keys if start <= key < stop]
    assert len(read) < 20
