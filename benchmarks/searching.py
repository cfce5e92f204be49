"""What it costs to find something among 100,000 facts or turns, and what that takes in memory.

The texts are made up: words as frequent as in a language (Zipf), and as many of them as people use in a chat. Vectors
have random directions, which is as slow as any; to read a query takes no time here, so what is measured is the search.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import msgspec

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.policy import CATEGORIES
from benchmarks.rows import Row, ms

if TYPE_CHECKING:
    from backstory.projections.search.vectors.embedder import Floats

__all__ = ["first_of_facts", "look", "searching"]

_COMMON = """
the i to and a you it of that in is was for my on have so me with but we do at this be just not are like what he they
she can get about know all good if think really one out up had time would there go how love your when some from will
been as or more see day did has them too her work by really want who now then make
"""
_STOP = frozenset(_COMMON.split())
_WORDS = 30_000
_THREAD = 50
"""So many turns a thread has, and as many facts come from one."""
_DAYS = 300
_DIMENSIONS = 384
_QUERIES = 101


def _day(n: int, count: int) -> str:
    """When the n-th of so many was said: they are spread over `_DAYS` days, in months of 28."""
    month, day = divmod(n * _DAYS // count, 28)
    return f"2026-{month + 1:02}-{day + 1:02}T10:00:00.000000Z"


_LATELY = _day(9, 10)


_LEFT_OUT = Row("search by vectors: left out", "the extra [vectors] is not installed")


def _vocabulary() -> list[str]:
    """The common words, and made-up ones that are said the less the later they come."""
    chance = random.Random(0)
    syllables = [a + b for a in ("b", "d", "k", "l", "m", "n", "p", "r", "s", "t", "st", "tr") for b in "aeiou"]
    made = ("".join(chance.choices(syllables, k=chance.choice((2, 3, 3, 4)))) for _ in range(2 * _WORDS))
    return list(dict.fromkeys([*_COMMON.split(), *made]))[:_WORDS]


class _Language:
    """Texts by chance, the same in every run."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._words = _vocabulary()
        self._sums = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(self._words))))

    def words(self, count: int) -> list[str]:
        total = self._sums[-1]
        return [self._words[bisect(self._sums, self._chance.random() * total)] for _ in range(count)]

    def fact(self) -> str:
        return " ".join(self.words(self._chance.randint(5, 14)))

    def turn(self) -> str:
        return " ".join(self.words(max(1, round(self._chance.lognormvariate(2.7, 0.7)))))

    def query(self) -> str:
        """A question: common words around some that tell."""
        rare = [word for word in self.words(40) if word not in _STOP][: self._chance.randint(2, 4)]
        return " ".join(["what", "did", *self.words(2), *rare])


class Directions:
    """Stands in for a model: each text has a random direction, at once."""

    name = "random directions"
    local = False

    def __init__(self) -> None:
        import numpy as np

        self._chance = np.random.default_rng(0)

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:  # noqa: ARG002 it never waits
        import numpy as np

        vectors: Floats = self._chance.standard_normal((len(texts), _DIMENSIONS), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def query(self, text: str) -> Floats:
        return self.passages([text])[0]


@contextmanager
def _opened(folder: Path, *, vectors: bool, facts: int = 500) -> Iterator[MemoryHandle]:
    made = Directions() if vectors else None
    limits = {"max_facts": max(facts, 10), "max_facts_limit": max(facts, 500)}
    with (
        mock.patch("backstory.config.embedder_factory.as_embedder", return_value=made),
        Backstory.open(folder, background=False, **limits) as bs,
    ):
        yield bs.memory("ada")


class _Took(msgspec.Struct, frozen=True):
    """Median seconds of a search, and those of the processor in its thread."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{1e3 * self.wall:.2f} ms ({1e3 * self.cpu:.2f} ms of CPU)"


def _each(work: Callable[[str], object], queries: Sequence[str]) -> _Took:
    wall, cpu = [], []
    for query in queries:
        begun, began = time.thread_time(), time.perf_counter()
        work(query)
        wall.append(time.perf_counter() - began)
        cpu.append(time.thread_time() - begun)
    return _Took(statistics.median(wall), statistics.median(cpu))


def _narrowed(memory: MemoryHandle, queries: Sequence[str]) -> Iterator[tuple[str, _Took]]:
    find = memory.search
    yield "of one category", _each(lambda query: find(query, category="goal"), queries)
    yield "of one thread", _each(lambda query: find(query, thread="thread-7"), queries)
    yield "of the last tenth of the time", _each(lambda query: find(query, since=_LATELY), queries)
    both = _each(lambda query: find(query, since=_LATELY, category="correction"), queries)
    yield "of that and of one category", both


def _facts(count: int) -> Iterator[Row]:
    language = _Language(1)
    queries = [language.query() for _ in range(_QUERIES)]
    facts = [
        {
            "id": f"fact_{n}",
            "content": f"{language.fact()} {n}",
            "category": CATEGORIES[n * 7 % len(CATEGORIES)],
            "confidence": 0.9,
            "createdAt": _day(n, count),
            "source": f"thread-{n // _THREAD}",
        }
        for n in range(count)
    ]
    name = f"{count:,} facts"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with _opened(folder, vectors=False, facts=2 * count) as memory:
            memory.import_document({"facts": facts})
            began = time.perf_counter()
            memory.search(queries[0])
            first = time.perf_counter() - began
            yield Row(f"search, {name}, by words, p50", str(_each(memory.search, queries)), "≤ 3 ms")
            for how, took in _narrowed(memory, queries):
                yield Row(f"  {how}", str(took))
            yield Row("  the first one of all, which makes the index", ms(first))
            yield Row("  after a commit", str(_committed(memory, queries)), "≤ 3 ms")
        took, beside = _first_of_facts(folder)
        yield Row("  the first one in another process", str(took), "≤ 500 ms of CPU")
        yield Row("  resident memory that it takes, with the facts", _mb(beside))
        if find_spec("faiss") is None:
            yield _LEFT_OUT
            return
        with _opened(folder, vectors=True, facts=2 * count) as memory:
            began = time.perf_counter()
            memory.embed()
            kept = time.perf_counter() - began
            memory.search(queries[0])
            # Each query is a new one, and its vector is another every time.
            hybrid = _each(memory.search, queries[1:])
            yield Row(f"search, {name}, by words and {count:,} vectors, p50", str(hybrid), "≤ 15 ms")
            for how, took in _narrowed(memory, queries):
                yield Row(f"  {how}", str(took))
            yield Row("  keeping the vectors, the model aside", ms(kept))


def first_of_facts(folder: str) -> None:
    """Search a home's facts in this process, and print what that took, and how much memory."""
    with _opened(Path(folder), vectors=False) as memory:
        before = _resident()
        took = _each(memory.search, [_Language(2).query()])
        found = (took, _resident() - before)
    sys.stdout.write(msgspec.json.encode(found).decode())


def _first_of_facts(folder: Path) -> tuple[_Took, int]:
    run = [sys.executable, "-c", "import sys; from benchmarks.searching import first_of_facts as go; go(*sys.argv[1:])"]
    out = subprocess.run([*run, str(folder)], check=True, capture_output=True).stdout
    return msgspec.json.decode(out, type=tuple[_Took, int])


def _committed(memory: MemoryHandle, queries: Sequence[str]) -> _Took:
    """A search that has something new to take in."""

    def work(query: str) -> None:
        memory.search(query)

    took = []
    for query in queries[:11]:
        memory.add_fact(f"and this is new {query}")
        took.append(_each(work, [query]))
    return _Took(statistics.median(one.wall for one in took), statistics.median(one.cpu for one in took))


_FACTS = 500
"""Facts beside the turns, for blocks of both."""


class _Looked(msgspec.Struct, frozen=True):
    """What a process of its own found: the first search, and resident bytes before it, after it and after all."""

    first: _Took
    beside: int
    took: _Took
    narrowed: _Took
    quoted: _Took
    before: int
    after: int


def look(folder: str, vectors: str) -> None:
    """Search a home's turns in this process, and print how that went."""
    language = _Language(2)
    queries = [language.query() for _ in range(_QUERIES)]
    with _opened(Path(folder), vectors=bool(vectors)) as memory:
        memory.threads()
        before = _resident()
        first = _each(lambda query: memory.search(query, within="turns"), queries[:1])
        beside = _resident()
        took = _each(lambda query: memory.search(query, within="turns"), queries[1:])
        narrowed = _each(lambda query: memory.search(query, within="turns", since=_LATELY), queries[1:])
        after = _resident()
        memory.context(queries[0])
        quoted = _each(memory.context, queries[1:])
        looked = _Looked(first, beside, took, narrowed, quoted, before, after)
    sys.stdout.write(msgspec.json.encode(looked).decode())


def _resident() -> int:
    """What of this process is in memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _looked(folder: Path, *, vectors: bool) -> _Looked:
    code = "import sys; from benchmarks.searching import look; look(*sys.argv[1:])"
    run = [sys.executable, "-c", code, str(folder), "vectors" if vectors else ""]
    return msgspec.json.decode(subprocess.run(run, check=True, capture_output=True).stdout, type=_Looked)


def _turns(count: int) -> Iterator[Row]:
    language = _Language(3)
    name = f"{count:,} turns"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with _opened(folder, vectors=False) as memory:
            for first in range(0, count, _THREAD):
                turns = range(first, min(first + _THREAD, count))
                memory.record(
                    f"thread-{first // _THREAD}",
                    [
                        {"role": ("user", "assistant")[n % 2], "content": language.turn(), "at": _day(n, count)}
                        for n in turns
                    ],
                    mode="append",
                )
            memory.import_document([{"content": f"{language.fact()} {n}", "confidence": 0.9} for n in range(_FACTS)])
        made = _looked(folder, vectors=False)
        words = _looked(folder, vectors=False)
        size = sum(path.stat().st_size for path in folder.rglob("words.index"))
        yield Row(f"search, {name}, by words, p50", str(words.took))
        yield Row("  of the last tenth of the time", str(words.narrowed))
        yield Row("  the first one of all, which makes the index", str(made.first))
        yield Row("  the first one in another process", str(words.first), "≤ 250 ms of CPU")
        yield Row("  resident memory that it takes", _mb(words.beside - words.before), "≤ 40 MB")
        yield Row(f"context that quotes turns, {_FACTS} facts, {name}, p50", str(words.quoted), "≤ 6 ms")
        yield Row(
            "  resident memory before; after; the index's file", f"{_mb(words.before)}; {_mb(words.after)}; {_mb(size)}"
        )
        if find_spec("faiss") is None:
            yield _LEFT_OUT
            return
        with _opened(folder, vectors=True) as memory:
            memory.embed()
        both = _looked(folder, vectors=True)
        size = sum(path.stat().st_size for path in folder.rglob("vectors.sqlite"))
        yield Row(f"search, {name}, by words and {count:,} vectors, p50", str(both.took))
        yield Row("  of the last tenth of the time", str(both.narrowed))
        yield Row("  the first one in a process, which reads the vectors, too", str(both.first))
        yield Row(
            "  resident memory before; after; the vectors' file", f"{_mb(both.before)}; {_mb(both.after)}; {_mb(size)}"
        )


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


def searching(count: int) -> Iterator[Row]:
    """Measure searching so many facts, and so many turns."""
    yield from _facts(count)
    yield from _turns(count)
