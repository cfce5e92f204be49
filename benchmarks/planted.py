"""Planted bugs: puts one small bug at a time into a copy of the project, and runs the tests that must notice it.

    python -m benchmarks.planted [--only TEXT] [--workers N]

`planted.toml` lists the bugs and, for each kind, the tests. What no test notices is a survivor; the survivors are named
at the end, and the exit code is 1. Each worker has a copy of its own. Before any bug the tests run on the code as it
is: a test that fails then would notice every bug. A text to replace that is not found exactly once ends the run before
it begins: the list has to follow the code.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LONGEST = 3600
"""Seconds after which a bug counts as noticed: it has made something endless that the limit of a test does not end."""
IGNORED = shutil.ignore_patterns(".*", "__pycache__")


class Bug(NamedTuple):
    """One text of one file, and what takes its place; the tests of `kind` must notice."""

    kind: str
    file: str
    find: str
    put: str

    def __str__(self) -> str:
        return f"{self.file}: {self.find} -> {self.put}"

    def planted(self) -> str:
        """Return the text of the file with the bug in it."""
        return (ROOT / self.file).read_text("utf-8").replace(self.find, self.put)

    def distance(self, tests: str) -> int:
        """Return how unlikely some tests are to notice: first those named like the file, then those that import it."""
        path = Path(self.file)
        if path.stem in tests:
            return 0
        module = ".".join(("backstory", *path.with_suffix("").parts))
        files = (ROOT / tests).rglob("*.py") if (ROOT / tests).is_dir() else [ROOT / tests]
        return 1 if any(module in file.read_text("utf-8") for file in files) else 2

    def times(self) -> int:
        """Return how often the file holds the text."""
        path = ROOT / self.file
        return path.read_text("utf-8").count(self.find) if path.exists() else 0


class Plan(NamedTuple):
    """The list: the bugs, and the tests of each kind."""

    bugs: list[Bug]
    tests: dict[str, list[str]]


def read_plan() -> Plan:
    """Return the list as it stands."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return Plan([Bug(**bug) for bug in listed["bug"]], listed["tests"])


def misfits(plan: Plan) -> list[str]:
    """Return where the list does not follow the code: a bug that cannot be planted, tests that are not there."""
    found = [
        f"{bug.file} holds {bug.find!r} {bug.times()} times, and not once" for bug in plan.bugs if bug.times() != 1
    ]
    found += [f"{bug} is of kind {bug.kind!r}, which has no tests" for bug in plan.bugs if bug.kind not in plan.tests]
    named = sorted({path for tests in plan.tests.values() for path in tests})
    return found + [f"planted.toml names {path}, which is not there" for path in named if not (ROOT / path).exists()]


def passes(tests: list[str], copy: Path) -> bool:
    """Whether these tests pass in a copy; they are stopped at the first that fails.

    Raises:
        subprocess.TimeoutExpired: they did not end.
    """
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "--hypothesis-profile=planted", *tests]
    done = subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode not in (0, 1, 2):  # 2: a module cannot be imported
        raise SystemExit(f"the tests did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def noticed(bug: Bug, tests: list[str], copy: Path, number: int) -> bool:
    """Whether a test fails; the times of the file differ, so that no bytecode of another bug is taken for it."""
    path, sound = copy / bug.file, (ROOT / bug.file).read_text("utf-8")
    try:
        path.write_text(bug.planted(), "utf-8")
        os.utime(path, (number, number))
        return not passes(sorted(tests, key=bug.distance), copy)
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(sound, "utf-8")


class Copies:
    """Copies of the project, one a worker."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(count):
            shutil.copytree(ROOT, folder / str(number), symlinks=True, ignore=IGNORED)
            self._free.put(folder / str(number))

    @contextlib.contextmanager
    def one(self) -> Iterator[Path]:
        """Lend a copy that no other worker has."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


def survivors_of(bugs: list[Bug], tests: dict[str, list[str]], workers: int) -> list[Bug]:
    """Plant each bug, say what became of it, and return those that no test noticed.

    Raises:
        SystemExit: tests of a kind fail without any bug.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        copies = Copies(Path(folder), workers)

        def sound(kind: str) -> bool:
            with copies.one() as copy:
                return passes(tests[kind], copy)

        def timed(number: int, bug: Bug) -> tuple[bool, float]:
            with copies.one() as copy:
                begun = time.monotonic()
                return noticed(bug, tests[bug.kind], copy, number), time.monotonic() - begun

        kinds = sorted({bug.kind for bug in bugs})
        broken = [kind for kind, passed in zip(kinds, pool.map(sound, kinds), strict=True) if not passed]
        if broken:
            raise SystemExit(f"the tests of {', '.join(broken)} fail without any bug, so they can tell nothing")
        running = {pool.submit(timed, number, bug): bug for number, bug in enumerate(bugs, 1)}
        survivors = []
        for one in as_completed(running):
            found, seconds = one.result()
            print(f"{'noticed' if found else 'SURVIVED'} {seconds:5.1f} s  {running[one]}", flush=True)
            survivors += [] if found else [running[one]]
        return survivors


def main() -> int:
    """Run the list, or the part of it that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only bugs whose file, kind or text contains this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="bugs at a time (default: processors)")
    chosen = parser.parse_args()
    plan = read_plan()
    if wrong := misfits(plan):
        raise SystemExit("\n".join(wrong))
    bugs = [bug for bug in plan.bugs if any(chosen.only in text for text in (bug.kind, bug.file, bug.find))]
    survivors = survivors_of(bugs, plan.tests, chosen.workers)
    print(f"{len(bugs) - len(survivors)} of {len(bugs)} noticed")
    for bug in survivors:
        print(f"SURVIVED {bug}")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
