"""One task on one memory in a process of its own: `python -m benchmarks.peers.child MEMORY TASK FOLDER FACTS`."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

START = time.perf_counter()

from benchmarks.peers.memories import MEMORIES, SEARCHES  # noqa: E402 its import is part of a start
from benchmarks.peers.stand_ins import Opened, fact  # noqa: E402

WARM = 20
QUERIES = 100
CONVERSATIONS = 50


def p50_p99(spans: list[float]) -> dict[str, float]:
    return {"p50": statistics.median(spans), "p99": statistics.quantiles(spans, n=100)[98]}


def timed(work: object, *arguments: object) -> float:
    assert callable(work)
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def until_killed(work: Callable[[int], object], count: int) -> None:
    """Work on; each line says that a call has returned."""
    for number in range(count):
        work(number)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def conversations(memory: Opened) -> dict[str, object]:
    """Return what it takes to record conversations, to learn from each, and to give what goes into a prompt."""
    assert memory.record is not None
    assert memory.learn is not None
    assert memory.block is not None
    recorded = [timed(memory.record, number, fact(number)) for number in range(CONVERSATIONS)]
    before = time.process_time()
    learned = timed(memory.learn) / CONVERSATIONS
    processor = (time.process_time() - before) / CONVERSATIONS
    assert {fact(number) for number in range(CONVERSATIONS)} <= memory.kept()
    blocks = [timed(memory.block, fact(number)) for number in range(WARM + QUERIES)][WARM:]
    return {"record": p50_p99(recorded), "learn": learned, "learn processor": processor, "block": p50_p99(blocks)}


def main(name: str, task: str, folder: Path, facts: int) -> None:
    result: dict[str, object] = {}
    with MEMORIES[name](folder) as memory:
        if task == "fill":
            before = time.process_time()
            result["write"] = p50_p99([timed(memory.add, fact(number)) for number in range(facts)])
            result["write processor"] = (time.process_time() - before) / facts
        elif task == "search":
            for number in range(WARM):
                memory.search(fact(number * 7))
            spans = [timed(memory.search, fact(number * 13 % facts)) for number in range(QUERIES)]
            result["search"] = p50_p99(spans)
            asked = [fact(number * 13 % facts) for number in range(QUERIES)]
            result["found"] = sum(one in memory.search(one) for one in asked)
        elif task == "cold":
            answered = memory.search(fact(3)) if name in SEARCHES else memory.kept()
            assert answered, name
            result["cold"] = time.perf_counter() - START
            result["cold processor"] = time.process_time()
            result["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        elif task == "write":
            until_killed(lambda number: memory.add(fact(number)), facts)
        elif task == "record":
            until_killed(lambda number: memory.record(number, fact(number)), facts)
        elif task == "conversations":
            result |= conversations(memory)
        elif task in {"kept", "learned"}:
            if task == "learned":
                memory.learn()
            result["kept"] = sorted(memory.kept())
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
