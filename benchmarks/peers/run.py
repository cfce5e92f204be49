"""Compare, print the table and write docs/explanation/peers.md: `make bench-peers`.

Every figure comes from a process of its own, memories in turn. A memory is killed with SIGKILL while it writes, and
what it had acknowledged is looked for afterwards: that tests the process and not the power supply.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.child import fact
from benchmarks.peers.memories import MEMORIES, SEARCHES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "peers.md"
FACTS = 1_000
ROUNDS = 3
KILLS = 12
KILLED_AFTER = 25
PACKAGES = ("mem0ai", "faiss-cpu", "qdrant-client", "langgraph", "langgraph-checkpoint-sqlite", "eventsourcing")

TEXT = """# Beside other memories

Written by `make bench-peers` on {date}: {machine}, Python {python};
{packages}.

{facts:,} facts of one user, the same queries, the same stand-in embedder, each memory with its defaults and
`infer=False` where a model would be asked. Each figure is the median of {rounds} processes; the machine is shared, so
compare within the table.

{table}

- **Write** is one fact, until the call has returned. Backstory has then synced it to the disk; whether the others have
  is not tested here. `eventsourcing` keeps events and searches nothing.
- **Found** is how many of 100 facts are among the five hits for their own words.
- **Cold** is from the start of a process, imports included, to its first answer; **memory** is the most it had by then.
- **Lost**: of {kills} processes that were killed while they wrote, how many had lost a fact whose call had returned.
- What none of the others keeps: why a fact is there, memory at an earlier moment, and the undo of one update.
"""


def ask(name: str, task: str, folder: Path, facts: int = FACTS) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.peers.child", name, task, str(folder), str(facts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}, {task}: {done.stderr[-2000:]}")
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def lost(name: str, folder: Path) -> int:
    """Kill it while it writes; return how many acknowledged facts are not there afterwards."""
    command = [sys.executable, "-m", "benchmarks.peers.child", name, "write", str(folder), "1000000"]
    acknowledged = -1
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writing:
        assert writing.stdout is not None
        for line in writing.stdout:
            acknowledged = int(line)
            if acknowledged == KILLED_AFTER:
                writing.send_signal(signal.SIGKILL)
    kept = ask(name, "kept", folder)["kept"]
    assert isinstance(kept, list)
    return len({fact(number) for number in range(acknowledged + 1)} - set(kept))


def size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1024 / 1024


def measured() -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {name: {} for name in MEMORIES}
    for _ in range(ROUNDS):
        for name in MEMORIES:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                figures = ask(name, "fill", folder)
                if name in SEARCHES:
                    figures |= ask(name, "search", folder)
                figures |= ask(name, "cold", folder) | {"size": size(folder)}
            for key, value in figures.items():
                parts = value.items() if isinstance(value, dict) else (("", value),)
                for part, one in parts:
                    found[name].setdefault(f"{key} {part}".strip(), []).append(float(one))
    for name in MEMORIES:
        losses = []
        for _ in range(KILLS):
            with tempfile.TemporaryDirectory() as place:
                losses.append(lost(name, Path(place)))
        found[name]["lost"] = [sum(1 for one in losses if one)]
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    lines = [
        "| memory | write p50; p99, ms | search p50; p99, ms | found | cold, ms | memory, MiB | on disk, MiB | lost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, figures in found.items():
        mid = {key: statistics.median(values) for key, values in figures.items()}
        search = f"{mid['search p50'] * 1000:.2f}; {mid['search p99'] * 1000:.2f}" if "search p50" in mid else ""
        hits = f"{mid['found']:.0f}" if "found" in mid else ""
        lines.append(
            f"| {name} | {mid['write p50'] * 1000:.2f}; {mid['write p99'] * 1000:.2f} | {search} | {hits} "
            f"| {mid['cold'] * 1000:,.0f} | {mid['mebibytes']:.0f} | {mid['size']:.1f} | {mid['lost']:.0f} of {KILLS} |"
        )
    return "\n".join(lines)


def main() -> None:
    shown = TEXT.format(
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores",
        python=platform.python_version(),
        packages=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        facts=FACTS,
        rounds=ROUNDS,
        kills=KILLS,
        table=table(measured()),
    )
    PAGE.write_text(shown, encoding="utf-8")
    sys.stdout.write(shown)


if __name__ == "__main__":
    main()
