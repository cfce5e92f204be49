"""One task on one memory in a process of its own: `python -m benchmarks.peers.child MEMORY TASK FOLDER FACTS`."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from pathlib import Path

START = time.perf_counter()

from benchmarks.peers.memories import MEMORIES, SEARCHES  # noqa: E402 its import is part of a start

WARM = 20
QUERIES = 100
VERBS = ("likes", "collects", "repairs", "avoids", "teaches", "paints", "sells", "studies")
THINGS = ("maps", "kettles", "violins", "orchids", "bicycles", "clocks", "stamps", "lamps", "boats", "shells")


def fact(number: int) -> str:
    """Return a fact; no two are the same."""
    return f"Ada {VERBS[number % 8]} {THINGS[number // 8 % 10]} of shelf {number} in town {number % 37}"


def p50_p99(spans: list[float]) -> dict[str, float]:
    return {"p50": statistics.median(spans), "p99": statistics.quantiles(spans, n=100)[98]}


def timed(work: object, *arguments: object) -> float:
    assert callable(work)
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def main(name: str, task: str, folder: Path, facts: int) -> None:
    result: dict[str, object] = {}
    with MEMORIES[name](folder) as memory:
        if task == "fill":
            result["write"] = p50_p99([timed(memory.add, fact(number)) for number in range(facts)])
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
            result["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        elif task == "write":
            # It is killed while it goes on; each line says that a fact was acknowledged.
            for number in range(facts):
                memory.add(fact(number))
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
        elif task == "kept":
            result["kept"] = sorted(memory.kept())
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
