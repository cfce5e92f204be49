"""What a verb that reads pays for: what it loads, which patterns it compiles, and how its process ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from commandline import Cli

SCRIPT = """
import atexit, gc, json, re, re._compiler, sys
import backstory.cli

compiled, compile_pattern = [], re._compiler.compile

def noting(pattern, flags=0):
    frame = sys._getframe(1)
    while frame.f_code.co_filename == re.__file__:
        frame = frame.f_back
    compiled.append((frame.f_globals["__name__"], str(getattr(pattern, "pattern", pattern))))
    return compile_pattern(pattern, flags)

def report():
    noted = [list(one) for one in compiled if one[0].startswith("backstory")]
    print(json.dumps({"modules": list(sys.modules), "compiled": noted, "frozen": gc.get_freeze_count()}))

re._compiler.compile = noting
atexit.register(report)
sys.argv = ["backstory", *sys.argv[1:]]
backstory.cli.main()
"""
LIBRARIES = frozenset(
    ("asyncio", "httpx", "markdown_it", "numpy", "openai", "pygments", "rich", "tenacity", "tiktoken", "yaml")
)
DOORS = frozenset(("deerflow", "hooks", "http", "langchain", "llm", "mcp", "memory_tests", "page", "testing"))


def _read(cli: Cli, *words: str) -> dict[str, list[str]]:
    command = [sys.executable, "-c", SCRIPT, "--home", str(cli.home), *words]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))


@pytest.mark.parametrize("words", [("show",), ("log",), ("status",), ("fact", "list"), ("threads",)])
def test_a_verb_that_reads_loads_no_library_of_others_and_compiles_no_pattern_of_other_scripts(
    story: Cli, words: tuple[str, ...]
) -> None:
    found = _read(story, *words)
    assert LIBRARIES.isdisjoint(found["modules"])
    assert {name.split(".")[1] for name in found["modules"] if name.startswith("backstory.")}.isdisjoint(DOORS)
    # A range of other scripts takes a millisecond to compile: where it is needed, at the first use.
    ranges = [(module, pattern) for module, pattern in found["compiled"] if _has_wide_range(pattern)]
    assert ranges == []


def test_a_process_ends_without_a_search_for_cycles(story: Cli) -> None:
    assert _read(story, "show")["frozen"]


def _has_wide_range(pattern: str) -> bool:
    written = pattern.encode().decode("unicode_escape") if pattern.isascii() and "\\u" in pattern else pattern
    return any(
        sign == "-" and before < "\u0370" < after
        for before, sign, after in zip(written, written[1:], written[2:], strict=False)
    )
