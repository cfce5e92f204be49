"""Compare, print the tables and write them into docs/explanation/peers.md: `make bench-peers`.

Every figure comes from a process of its own, memories in turn. A memory is killed with SIGKILL while it writes, and
what it had acknowledged is looked for afterwards: that tests the process and not the power supply.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.deer_flow import MOST_FACTS, checkout
from benchmarks.peers.memories import LEARNERS, SEARCHES, STORES
from benchmarks.peers.stand_ins import fact

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "peers.md"
KILLED_AFTER = 25
PACKAGES = ("mem0ai", "faiss-cpu", "qdrant-client", "langgraph", "langgraph-checkpoint-sqlite", "eventsourcing")
PROCESSOR = ("write processor", "learn processor", "cold processor")

Figures = dict[str, list[float]]


def ask(name: str, task: str, folder: Path, facts: int) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.peers.child", name, task, str(folder), str(facts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}, {task}: {done.stderr[-2000:]}")
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def lost(name: str, folder: Path, task: str, asked: str) -> int:
    """Kill it during a task; return how many acknowledged facts are not there afterwards."""
    command = [sys.executable, "-m", "benchmarks.peers.child", name, task, str(folder), "1000000"]
    acknowledged = -1
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writing:
        assert writing.stdout is not None
        for line in writing.stdout:
            acknowledged = int(line)
            if acknowledged == KILLED_AFTER:
                writing.send_signal(signal.SIGKILL)
    kept = ask(name, asked, folder, 0)["kept"]
    assert isinstance(kept, list)
    return len({fact(number) for number in range(acknowledged + 1)} - set(kept))


def rounds_with_loss(name: str, task: str, asked: str, kills: int) -> str:
    losses = []
    for _ in range(kills):
        with tempfile.TemporaryDirectory() as place:
            losses.append(lost(name, Path(place), task, asked))
    return f"{sum(1 for one in losses if one)} of {kills}"


def size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1024 / 1024


def once(name: str, facts: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        figures = ask(name, "fill", folder, facts)
        if name in SEARCHES:
            figures |= ask(name, "search", folder, facts)
        figures |= ask(name, "cold", folder, facts) | {"size": size(folder)}
    if name in LEARNERS:
        with tempfile.TemporaryDirectory() as place:
            figures |= ask(name, "conversations", Path(place), facts)
    return figures


def measured(names: Iterable[str], facts: int, rounds: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {name: {} for name in names}
    for _ in range(rounds):
        for name, figures in found.items():
            for key, value in once(name, facts).items():
                parts = value.items() if isinstance(value, dict) else (("", value),)
                for part, one in parts:
                    figures.setdefault(f"{key} {part}".strip(), []).append(float(one))
    return found


def cells(figures: Figures) -> dict[str, str]:
    """Return the cells of a memory by the heads of their columns; a column that is not there was not measured."""
    mid = {key: statistics.median(values) for key, values in figures.items()}

    def spans(key: str) -> str:
        return f"{mid[f'{key} p50'] * 1000:.2f}; {mid[f'{key} p99'] * 1000:.2f}" if f"{key} p50" in mid else ""

    shown = {"write p50; p99, ms": spans("write"), "search p50; p99, ms": spans("search")}
    shown["found"] = f"{mid['found']:.0f}" if "found" in mid else ""
    if "learn" in mid:
        shown["record p50; p99, ms"] = spans("record")
        shown["learn, ms"] = f"{mid['learn'] * 1000:.0f}"
        shown["prompt text p50; p99, ms"] = spans("block")
    shown["processor: write; learn; cold, ms"] = "; ".join(f"{mid[key] * 1000:.1f}" for key in PROCESSOR if key in mid)
    shown["cold, ms"] = f"{mid['cold'] * 1000:,.0f}"
    shown["memory, MiB"] = f"{mid['mebibytes']:.0f}"
    shown["on disk, MiB"] = f"{mid['size']:.1f}"
    return shown


def losses(name: str, kills: int) -> dict[str, str]:
    shown = {"lost": rounds_with_loss(name, "write", "kept", kills)}
    if name in LEARNERS:
        shown["lost conversations"] = rounds_with_loss(name, "record", "learned", kills)
    return shown


def table(rows: dict[str, dict[str, str]]) -> str:
    heads = list(next(iter(rows.values())))
    lines = [f"| memory | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(row[head] for head in heads)} |" for name, row in rows.items()]
    return "\n".join(lines)


def replaced(page: str, part: str, text: str) -> str:
    """Return a page with the text of one part, which stands between two comments."""
    before, begin, rest = page.partition(f"<!-- {part} -->\n")
    _, end, after = rest.partition(f"<!-- end of {part} -->")
    if not begin or not end:
        raise SystemExit(f"{PAGE}: the comments of the part {part!r} are missing; put them back.")
    return f"{before}{begin}\n{text}\n{end}{after}"


def commit() -> str:
    """Return which commit of DeerFlow is measured, as its folder or the option says."""
    if named := os.environ.get("DEERFLOW_COMMIT"):
        return named
    if not (checkout() / ".git").exists():
        raise SystemExit(f"{checkout()} is no git checkout of DeerFlow; name one, or its commit in DEERFLOW_COMMIT.")
    asked = ["git", "-C", str(checkout()), "rev-parse", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    date = datetime.now(UTC).date().isoformat()
    kind = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    return f"{date}: {kind}, Python {platform.python_version()}"


def main() -> None:
    options = argparse.ArgumentParser(description="Compare memories and write a part of the page.")
    options.add_argument("part", choices=["stores", "deerflow"])
    options.add_argument("--facts", type=int, help="of one user")
    options.add_argument("--rounds", type=int, default=3, help="processes for each figure")
    options.add_argument("--kills", type=int, default=12, help="processes that are killed while they write")
    given = options.parse_args()
    stores = given.part == "stores"
    facts = given.facts or (1_000 if stores else MOST_FACTS)
    if stores:
        versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    else:
        versions = f"bytedance/deer-flow at {commit()[:8]}"
    found = measured(STORES if stores else LEARNERS, facts, given.rounds)
    rows = {name: cells(figures) | losses(name, given.kills) for name, figures in found.items()}
    how = f"{facts:,} facts of one user; each figure is the median of {given.rounds} processes"
    text = f"Measured on {machine()};\n{versions}. {how}.\n\n{table(rows)}\n"
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), given.part, text), encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
