"""What the memory of the conversation costs: adding to it, reading it anew, and asking it."""

from __future__ import annotations

import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.projections.turns import TurnFilter, TurnLog
from benchmarks.rows import Row, ms, times

__all__ = ["turning"]

_ACTIONS = 100
_SINGLE = 3_000


def _messages(count: int, name: str = "m") -> list[object]:
    return [
        {
            "id": f"{name}{n}",
            "role": ("user", "assistant")[n % 2],
            "content": f"I took walk {n} in the woods behind the house, and it rained on {n % 31} days of the month.",
            "cause_by": f"action{n % _ACTIONS}",
            "send_to": [f"role{n % 7}"],
        }
        for n in range(count)
    ]


def _took(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _median(work: Callable[[], object], rounds: int = 31) -> float:
    return statistics.median(_took(work) for _ in range(rounds))


def turning(count: int) -> Iterator[Row]:
    """Measure adding so many turns durably, the view of them, and asking it."""
    single = min(_SINGLE, count)
    with tempfile.TemporaryDirectory() as folder, Backstory.open(folder, background=False) as bs:
        bs.memory("warm").turns.add_batch(_messages(100))
        few, many, one, alike = (bs.memory(name).turns for name in ("few", "many", "one", "alike"))
        messages = _messages(count)
        added = _took(lambda: many.add_batch(messages))
        again = _took(lambda: many.add_batch(messages))
        read = _took(many.count)
        few.add_batch(_messages(max(1, count // 100)))
        few.count()
        by_action = _median(lambda: many.get_by_action("action7"))
        newest = _median(lambda: many.get(10))
        by_id = _median(lambda: many.get_by_id("m7"))
        news, more_news = _messages(1_000, "new"), _messages(10_000, "new")
        many.find_news(news)
        known, unknown = _median(lambda: many.find_news(news), 11), _median(lambda: few.find_news(news), 11)
        tenfold = _median(lambda: many.find_news(more_news), 5)
        singly = _messages(single)
        one_by_one = _took(lambda: [one.add(message) for message in singly])
        view = alike.view(ignore_id=True)
        ignoring = _took(lambda: [view.add(message) for message in singly])
        taken = _median(many.delete_newest, 11)
        size = _bytes_per_turn(Path(folder), count)
    name = f"{count:,} turns"
    yield Row(f"turns.add_batch of {name}, durable", ms(added), "≤ 2 s")
    yield Row("  the same again, all of them known; reading them all into the view", f"{ms(again)}; {ms(read)}")
    yield Row("  memory of the view, a turn", f"{size:,.0f} bytes")
    yield Row(f"by action, {count // _ACTIONS:,} of {name}, p50", ms(by_action), "≤ 1 ms")
    yield Row(f"  the newest ten; by id, of {name}, p50", f"{1e6 * newest:.0f} µs; {1e6 * by_id:.0f} µs")
    yield Row("find_news in 10,000 observed / in 1,000", times(tenfold / known), "10 ×")
    yield Row(f"find_news over {name} / over a hundredth of them", times(known / unknown), "1 ×")
    yield Row(f"{single:,} single turns.add, each durable (MetaGPT's Memory, in RAM: 5.8 s)", ms(one_by_one), "≤ 5.8 s")
    yield Row("  the same where equal content is one; delete_newest, durable", f"{ms(ignoring)}; {ms(taken)}")


def _bytes_per_turn(folder: Path, count: int) -> float:
    log = TurnLog(JsonlStore(folder), Scope("many"))
    tracemalloc.start()
    with log.look(TurnFilter()) as look:
        assert look.count() > count // 2
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / count
