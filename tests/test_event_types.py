"""A new event type, and a new command: mypy names every place that has to answer, and the page lists the files."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from backstory.ledger.core.commands import Command
from backstory.ledger.core.events import Candidate, Event
from backstory.ledger.erasure.requests import Erasure

ROOT = Path(__file__).parent.parent
PACKAGES = ("ledger", "projections", "backstory")
PAGE = ROOT / "docs/how-to/add-an-event-type.md"
CLOSED = {kind.__name__ for union in (Event, Command, Candidate, Erasure) for kind in get_args(union)}
PLANTED = '''class FactDoubted(_Event, frozen=True):
    """A fact was doubted."""

    fact: Fact


LedgerEvent: TypeAlias = (
    FactDoubted
    | '''


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path for path in (ROOT / package).rglob("*.py") if path.is_file())


def matches(path: Path) -> Iterator[ast.Match]:
    """Yield the matches of a module over events, commands, candidates or requests for an erasure."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if re.search(r"^ *match ", text, re.MULTILINE) else ():
        patterns = [ast.walk(case.pattern) for case in node.cases] if isinstance(node, ast.Match) else []
        named = {ast.unparse(p.cls) for walk in patterns for p in walk if isinstance(p, ast.MatchClass)}
        if isinstance(node, ast.Match) and named & CLOSED:
            yield node


def test_no_match_over_events_or_commands_swallows_a_new_type() -> None:
    found = [(path, match) for path in modules() for match in matches(path)]
    silent = [
        f"{path.relative_to(ROOT)}:{match.lineno}"
        for path, match in found
        if not ast.unparse(match.cases[-1]).startswith("case _:\n    assert_never(")
    ]
    assert len(found) > 30
    assert not silent, f"end these with assert_never: {silent}"


@pytest.mark.process
def test_mypy_names_every_file_that_has_to_answer_a_new_event_type(tmp_path: Path) -> None:
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.js", "*.css", "*.html")
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True, ignore=ignored)
    events = tmp_path / "ledger/core/events.py"
    text = events.read_text("utf-8")
    assert text.count("LedgerEvent: TypeAlias = (\n    ") == 1
    events.write_text(text.replace("LedgerEvent: TypeAlias = (\n    ", PLANTED), "utf-8")
    # Imports are not followed, so that this takes seconds: the core and the modules that match on its types are read.
    read = {*(ROOT / "ledger/core").glob("*.py"), *(path for path in modules() if any(matches(path)))}
    paths = [path.relative_to(ROOT).with_suffix("").as_posix() for path in sorted(read)]
    names = [("backstory/" * (not path.startswith("backstory/")) + path).replace("/", ".") for path in paths]
    options = ("--config-file=", "--strict", "--follow-imports=skip", "--cache-dir", str(tmp_path / "cache"))
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(f"-m{name}" for name in names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    named = set(re.findall(r'^(?:backstory/(?=ledger|proj))?(\S+?):\d+: .*"FactDoubted"', answer.stdout, re.MULTILINE))
    table = "\n".join(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `"))
    assert named == set(re.findall(r"`([\w/]+\.py)`", table)), answer.stdout[-2_000:] + answer.stderr
