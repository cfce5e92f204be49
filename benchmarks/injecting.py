"""What a prompt block costs, and that it never is larger than allowed."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Fact, Section
from backstory.ledger.core.memory import Memory
from backstory.projections.context.block import Shares, fill
from backstory.projections.context.counting import ESTIMATE, Counter, load_vocabulary
from backstory.projections.context.lines import prepare
from benchmarks.rows import Row, ms

__all__ = ["FACTS", "injecting", "remembering"]

FACTS = 500
_TALK = [
    {"role": "user", "content": "How long does the train from Oslo to Bergen take, and can I bring the bicycle along?"},
    {"role": "assistant", "content": "About seven hours. Bicycles need a reservation of their own, which you can add."},
    {"role": "user", "content": "I usually work on the scheduling tool while I travel. Is there power at the seats?"},
    {
        "role": "assistant",
        "content": "Yes, in all carriages; the network is poor in the tunnels, so fetch packages first.",
    },
    {"role": "user", "content": "Then remind me what I still wanted to finish before the release in May."},
]
_VERBS = ("likes", "works with", "wants to finish", "has learnt about", "avoids", "travels for", "remembers")
_THINGS = (
    *(
        "the scheduling tool",
        "night trains",
        "Rust",
        "black coffee",
        "the release",
        "long tunnels",
        "Bergen",
        "bicycles",
    ),
    *("short answers", "the spring concert", "unit tests", "a red notebook", "the ferry", "wool sweaters", "packages"),
)
_FIRST = """
import sys, time
from backstory import Backstory
with Backstory.open(sys.argv[1], background=False) as bs:
    memory = bs.memory("ada")
    memory.facts()
    bs.warm()
    talk = {talk!r}
    start = time.perf_counter()
    memory.context(talk)
    print(time.perf_counter() - start)
"""
_KINDS = {
    "English": [
        "the",
        "and",
        "quick",
        "fox,",
        "lives",
        "in",
        "Oslo.",
        "don't",
        "(well)",
        "1984",
        "2026-03-12",
        "a@b.no",
    ],
    "Chinese": [*"用户住在奥斯陆喜欢咖啡不喜欢茶，。「」！医院护士每天早餐前跑步", "Rust", " "],
    "emoji": ["🎉", "👩‍💻", "🇳🇴", "👍🏽", "❤️", "😀", "🚲", " yes ", "!", "\u200d"],
    "code": [
        "def f(x):",
        "    ",
        "return",
        "{",
        "}",
        "();",
        "//",
        "</memory>",
        "&&",
        "x<<=2",
        "\n",
        "0x1F",
        '"""',
        "a_b",
    ],
}


def remembering(folder: Path) -> None:
    chance = random.Random(1)
    facts = [
        {
            "content": f"User {chance.choice(_VERBS)} {chance.choice(_THINGS)} and {chance.choice(_THINGS)}, case {i}",
            "category": chance.choice(("preference", "knowledge", "context", "goal", "correction")),
            "confidence": chance.choice((0.8, 0.9, 0.95, 1.0)),
        }
        for i in range(FACTS)
    ]
    with Backstory.open(folder, background=False, max_facts=FACTS) as bs:
        bs.memory("ada").import_document(facts)
        bs.memory("ada").context()


def _first(folder: Path) -> float:
    """In a process of its own: imports, reading the messages, ranking, counting."""
    code = _FIRST.format(talk=_TALK)
    run = [sys.executable, "-c", code, str(folder)]
    return statistics.median(
        float(subprocess.run(run, check=True, capture_output=True, text=True).stdout) for _ in range(9)
    )


def _vocabulary() -> float:
    code = (
        "import time; from backstory.projections.context.counting import load_vocabulary\n"
        "start = time.perf_counter(); load_vocabulary(None); print(time.perf_counter() - start)"
    )
    run = [sys.executable, "-c", code]
    return statistics.median(
        float(subprocess.run(run, check=True, capture_output=True, text=True).stdout) for _ in range(5)
    )


def _warm(memory: MemoryHandle, rounds: int) -> float:
    """A conversation goes on meanwhile: no two calls in turn are about the same."""
    talks = [_TALK[: -2 * i or None] for i in range(3)]
    spans = []
    for i in range(rounds):
        start = time.perf_counter()
        memory.context(talks[i % 3])
        spans.append(time.perf_counter() - start)
    return statistics.median(spans)


def _text(chance: random.Random, kind: str) -> str:
    between = "" if kind == "Chinese" else chance.choice(("", " ", " "))
    return between.join(chance.choice(_KINDS[kind]) for _ in range(chance.randint(1, 40)))


def _memory(chance: random.Random) -> Memory:
    kinds = chance.choice([[kind] for kind in _KINDS] + [[*_KINDS]])

    def text() -> str:
        return _text(chance, chance.choice(kinds))

    facts = [
        Fact(
            id=f"fact_2_{i}",
            content=text(),
            category=chance.choice(("goal", "correction", text())),
            confidence=chance.random(),
            created_at=f"2026-03-{chance.randint(1, 28):02}T10:00:00Z",
            source="t",
            seq=2,
            place=i,
            source_error=text() if chance.random() < 0.2 else None,
        )
        for i in range(chance.randint(0, 40))
    ]
    sections = {name: Section(text()) for name in DOCUMENT_SECTIONS if chance.random() < 0.5}
    return Memory(facts={fact.id: fact for fact in facts}, sections=sections)


def _over(counters: list[Counter], memories: int) -> tuple[int, int, float]:
    """Of so many random memories, those over budget in a counter's own count; of all blocks by estimate, those really
    over, and by how much at worst.
    """
    chance = random.Random(2)
    over = really = 0
    worst = 0.0
    for _ in range(memories):
        memory = _memory(chance)
        budget = chance.choice((20, 100, 300, 1000))
        like = {name: chance.random() for name in memory.facts}
        for counter in (*counters, ESTIMATE):
            made = fill(prepare(memory, counter), like, (), Shares(), budget)
            over += counter.count(made.text) > budget or counter.count(made.text) != made.tokens
        if counters:
            counted = counters[0].count(made.text)
            really += counted > budget
            worst = max(worst, counted / budget)
    return over, really, worst


def injecting(memories: int) -> Iterator[Row]:
    """Measure a block of 500 facts, and check the budget on so many random memories."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        remembering(folder)
        yield Row("the vocabulary that counts tokens: its load in a process", ms(_vocabulary()))
        yield Row("context, 500 facts: first call in a process, beyond that load", ms(_first(folder)), "≤ 25 ms")
        with Backstory.open(folder, background=False) as bs:
            counter = bs.warm()
            memory = bs.memory("ada")
            memory.context(_TALK)
            figure = 1e3 * _warm(memory, 300)
            yield Row(f"context, 500 facts: warm, {counter}, p50", f"{figure:.2f} ms", "≤ 1 ms")
    counters = [counter for model in ("gpt-5", "gpt-4") if (counter := load_vocabulary(model)) is not None]
    names = ", ".join([*(counter.name for counter in counters), ESTIMATE.name])
    over, really, worst = _over(counters, memories)
    yield Row(f"blocks over budget, of {memories:,} random memories, by {names}", str(over), "0")
    if counters:
        yield Row(f"  of those by {ESTIMATE.name}, in {counters[0].name}'s count", f"{really}; worst {worst:.2f} of it")
