"""Planted bugs: puts one small bug at a time into a copy of the project, and runs the tests that must notice it.

    python -m benchmarks.planted [--only TEXT]

`planted.toml` lists the bugs and, for each kind, the tests. What no test notices is a survivor, and the exit code is 1.
A text to replace that is not found exactly once ends the run before it begins: the list has to follow the code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LONGEST = 300
"""Seconds after which a bug counts as noticed: it has made something endless."""
IGNORED = shutil.ignore_patterns(".*", "__pycache__")


class Bug(NamedTuple):
    kind: str
    file: str
    find: str
    put: str

    def planted(self) -> str:
        text = (ROOT / self.file).read_text("utf-8")
        if text.count(self.find) != 1:
            raise SystemExit(f"{self.file} holds {self.find!r} {text.count(self.find)} times, and not once")
        return text.replace(self.find, self.put)


def noticed(bug: Bug, tests: list[str], copy: Path, number: int) -> bool:
    """Whether a test fails; the times of the file differ, so that no bytecode of another bug is taken for it."""
    path, sound = copy / bug.file, (ROOT / bug.file).read_text("utf-8")
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "--hypothesis-profile=planted", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        path.write_text(bug.planted(), "utf-8")
        os.utime(path, (number, number))
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(sound, "utf-8")
    if done.returncode not in (0, 1, 2):  # 2: a module cannot be imported
        raise SystemExit(f"the tests did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only bugs whose file or text contains this")
    chosen = parser.parse_args().only
    plan = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    bugs = [Bug(**bug) for bug in plan["bug"]]
    for bug in bugs:
        bug.planted()
    bugs = [bug for bug in bugs if chosen in bug.file or chosen in bug.find]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=IGNORED)
        for number, bug in enumerate(bugs, 1):
            begun = time.monotonic()
            found = noticed(bug, plan["tests"][bug.kind], copy, number)
            word = "noticed" if found else "SURVIVED"
            print(f"{word} {time.monotonic() - begun:5.1f} s  {bug.file}: {bug.find} -> {bug.put}", flush=True)
            survivors += [] if found else [bug]
    print(f"{len(bugs) - len(survivors)} of {len(bugs)} noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
