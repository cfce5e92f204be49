"""What the page costs a person: time to the first paint, a step of the slider, a search, on a long history.

A real browser opens the page of a server in a process of its own. Times are taken in the page, from the event to the
frame after the one that shows its outcome. What the browser has cached is not used for the first paint: each round
opens the page in a profile of its own.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from playwright.sync_api import Page, sync_playwright

from backstory import Backstory
from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, head_of, seal
from backstory.ledger.core.events import Fact, FactAdded, FactRemoved, PolicyChanged, Turn, TurnRange, TurnRecorded
from backstory.ledger.core.policy import CATEGORIES, Policy
from benchmarks.rows import Row, ms

__all__ = ["long_history", "paging"]

_THREADS = 1000
_BY_HAND = 50
_PATIENCE = 60
_START = datetime(2024, 9, 1, tzinfo=UTC)
_SPAN = timedelta(days=730)
_WORDS = (
    "walk",
    "bakery",
    "Oslo",
    "peanuts",
    "dinner",
    "violin",
    "garden",
    "train",
    "river",
    "sister",
    "chess",
    "novel",
)
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)


def _timed(act: str, shown: str) -> str:
    """Return a script that acts, and answers how many milliseconds it takes until something is shown and painted."""
    return f"""async () => {{
      performance.clearResourceTimings();
      const begin = performance.now();
      {act}
      while (!({shown})) {{
        if (performance.now() - begin > {1000 * _PATIENCE}) throw new Error("the outcome is not shown");
        await new Promise(requestAnimationFrame);
      }}
      // The frame that shows it is painted before the next one begins.
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - begin;
    }}"""


def long_history(folder: Path, commits: int, live: int) -> None:
    """Write a home whose shared memory has so many commits and facts, learned and entered by hand over two years."""
    _write(folder / "ledger.jsonl", _ledger(commits, live))
    _write(folder / "transcript.jsonl", _transcript(commits))


def _write(path: Path, drafts: Iterator[Draft]) -> None:
    salts = itertools.count()
    head: Head = EMPTY
    with path.open("wb") as file:
        for draft in drafts:
            line = seal(draft, head, lambda: f"{next(salts):032x}")
            head = head_of(line)
            file.write(line + b"\n")


def _at(seq: int, commits: int = 100_000) -> str:
    return (_START + _SPAN * (seq / commits)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fact(seq: int) -> Fact:
    chosen = random.Random(seq)
    return Fact(
        id=f"fact_{seq}_0",
        content=f"Ada keeps note {seq} about {' and '.join(chosen.sample(_WORDS, 4))}",
        category=chosen.choice(CATEGORIES),
        confidence=round(chosen.uniform(0.7, 0.99), 2),
        created_at=_at(seq),
        source=f"thread-{seq % _THREADS}",
        seq=seq,
    )


def _ledger(commits: int, live: int) -> Iterator[Draft]:
    policy = msgspec.structs.replace(Policy(), max_facts=live)
    yield Draft(_at(0), Cause(kind="genesis"), (PolicyChanged(None, policy),))
    for seq in range(2, commits + 1):
        gone = (FactRemoved(_fact(seq - live), "cap"),) if seq > live + 1 else ()
        if seq % _BY_HAND == 0:
            cause = Cause(kind="manual", actor="ada", action="add")
            yield Draft(_at(seq), cause, (*gone, FactAdded(_fact(seq))))
            continue
        n = (seq - 2) // _THREADS + 1
        cause = Cause(
            kind="extraction",
            thread=f"thread-{seq % _THREADS}",
            turns=TurnRange(n, n),
            model=f"model-{'ab'[seq % 7 == 0]}",
            tokens_in=900 + seq % 100,
            tokens_out=80,
        )
        yield Draft(_at(seq), cause, (*gone, FactAdded(_fact(seq), "newFacts/0")))


def _transcript(commits: int) -> Iterator[Draft]:
    for seq in range(2, commits + 1):
        n = (seq - 2) // _THREADS + 1
        cause = Cause(kind="record", thread=f"thread-{seq % _THREADS}", turns=TurnRange(n, n))
        said = f"I want note {seq}: {_fact(seq).content}"
        turn = Turn(n=n, id=f"t{n}", role="user", content=said, at=_at(seq), anonymous=True)
        yield Draft(_at(seq), cause, (TurnRecorded(turn),))


class _Url(msgspec.Struct):
    url: str


@contextmanager
def _served(home: Path, live: int) -> Iterator[str]:
    run = [sys.executable, "-m", "backstory.cli", "--home", str(home), "--json", "serve", "--port", "0"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    cap = {"BACKSTORY_MAX_FACTS": str(live), "BACKSTORY_MAX_FACTS_LIMIT": str(live)}
    with subprocess.Popen(run, stdout=subprocess.PIPE, env={**environ, **cap}) as process:
        try:
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline(), type=_Url).url
        finally:
            process.terminate()


def paging(commits: int, live: int, rounds: int = 30) -> Iterator[Row]:
    """Measure the page on a history of so many commits, with so many facts in memory."""
    browser = shutil.which("chromium")
    if browser is None:
        yield Row("the page: left out", "Chromium is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        long_history(home, commits, live)
        with Backstory.open(home, background=False, max_facts=live, max_facts_limit=live) as bs:
            assert len(bs.memory(scope="global").facts()) == min(live, commits - 1)
        with _served(home, live) as url, sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=browser, args=list(_OPTIONS))
            first, whole = [], []
            for _ in range(max(3, rounds // 3)):
                page = opened.new_context(viewport={"width": 1280, "height": 800}).new_page()
                page.goto(f"{url}/#/memory")
                page.wait_for_selector(".fact-list .fact .fact-text")
                first.append(_first_paint(page))
                whole.append(page.evaluate("() => performance.now() / 1000"))
                page.context.close()
            page = opened.new_context(viewport={"width": 1280, "height": 800}).new_page()
            slid = _slide(page, url, commits, rounds)
            found = _search(page, url, rounds)
            opened.close()
    name = f"the page, {commits:,} commits and {live:,} facts"
    yield _row(f"{name}: first contentful paint", first, "≤ 1 s")
    yield _row("  facts on the screen", whole)
    yield _row("  a step of the slider, painted", slid, "≤ 150 ms")
    yield _row("  a search, painted", found, "≤ 200 ms")


def _row(what: str, took: list[float], target: str = "") -> Row:
    return Row(what, f"{ms(statistics.median(took))}; worst {ms(max(took))}", target)


def _first_paint(page: Page) -> float:
    return float(
        page.evaluate(
            """() => new Promise((resolve) => new PerformanceObserver((list) => {
              const [found] = list.getEntriesByName("first-contentful-paint");
              if (found) resolve(found.startTime);
            }).observe({ type: "paint", buffered: true }))"""
        )
        / 1000
    )


def _slide(page: Page, url: str, commits: int, rounds: int) -> list[float]:
    """Move the slider to other moments, as a drag does; seconds until memory of that moment is on the screen."""
    page.goto(f"{url}/#/timeline")
    page.wait_for_selector(".moment .fact .fact-text")
    took = []
    chosen = random.Random(7)
    for _ in range(rounds):
        to = chosen.randrange(2, commits - 1)
        act = f"""
          const slider = document.querySelector(".slider input[type=range]");
          slider.value = {to - 1};
          slider.dispatchEvent(new Event("input", {{ bubbles: true }}));
        """
        shown = f"""document.querySelector(".slider-told").dataset.busy === "false"
          && document.querySelector(".slider-told").dataset.seq === "{to}"
          && document.querySelector('.moment .is-added[data-fact="fact_{to}_0"]') !== null"""
        took.append(page.evaluate(_timed(act, shown)) / 1000)
    return took


def _search(page: Page, url: str, rounds: int) -> list[float]:
    """Type a search; seconds until its hits are on the screen, the pause after typing included."""
    page.goto(f"{url}/#/memory")
    page.wait_for_selector(".fact-list .fact .fact-text")
    took = []
    for one, other in itertools.islice(itertools.permutations(_WORDS, 2), rounds):
        query = f"{one} {other}"
        act = f"""
          const field = document.querySelector(".finding input[type=search]");
          field.value = {query!r};
          field.dispatchEvent(new Event("input", {{ bubbles: true }}));
        """
        shown = f"""new URLSearchParams(location.hash.split("?")[1]).get("q") === {query!r}
          && document.querySelector(".hit-list [data-fact]") !== null
          && document.querySelector(".hit-list")?.closest("[aria-busy=true]") === null
          && performance.getEntriesByType("resource").some((one) => one.name.includes("/v1/search"))"""
        took.append(page.evaluate(_timed(act, shown)) / 1000)
    return took


if __name__ == "__main__":
    for row in paging(100_000, 5_000):
        print(f"{row.what:60} {row.figure:30} {row.target}")
