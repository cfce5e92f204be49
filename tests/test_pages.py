"""The pages to be followed: each of their blocks runs as it is pasted, in order, with no key and an empty home.

A block of `sh` or `python` runs; a block of `text` directly after it shows its output, in which … stands for anything.
Blocks of other languages, such as `py` for a fragment, and indented ones are shown only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from doubles.loaded import answering, program_at
from sizes import LONG

pytestmark = pytest.mark.slow  # processes: more than an inner loop needs

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FOLDER = re.compile(r"""(?:--keep |--home |BACKSTORY_HOME=(?:\$PWD/)?|\.open\(")([^/\s",)]+)""")
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]


# What a block exports holds for those after it, as in one terminal.
SHELL = ["sh", "-ec", '[ ! -e .exported ] || . ./.exported; eval "$(cat)"; export -p > .exported']
PYTHON = ["sh", "-ec", "[ ! -e .exported ] || . ./.exported; exec python -"]


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCED.findall(page.read_text(encoding="utf-8"))]


def runs(block: Block) -> bool:
    return block.language in {"sh", "python"} and not block.text.startswith("make ")


# Its program needs arguments; test_log_format runs it.
ELSEWHERE = ROOT / "docs/reference/log-format.md"
FOLLOWED = [page for page in PAGES if page != ELSEWHERE and any(map(runs, blocks(page)))]


def paste(command: list[str], text: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program on a text, as a newcomer does: an empty HOME, no key, nothing configured."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    return subprocess.run(
        command,
        input=text,
        cwd=home,
        env={**bare, "HOME": str(home), "PATH": f"{home / 'bin'}:{bare['PATH']}", "USER": "you", "LOGNAME": "you"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a process that has loaded the package: the pages start 60 processes, and each would load it."""
    path = tmp_path_factory.mktemp("loaded") / "socket"
    with answering(path):
        yield path


@pytest.fixture
def home(tmp_path: Path, loaded: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, arguments in {"backstory": ["-m", "backstory.cli"], "python": []}.items():
        command = tmp_path / "bin" / name
        started = f'#!/bin/sh\nexec {sys.executable} {" ".join(arguments)} "$@"\n'
        command.write_text(started if LONG else program_at(loaded, *arguments))
        command.chmod(0o755)
    return tmp_path


def agrees(shown: str, said: str) -> bool:
    """Whether an output is what a page shows: … stands for anything within a line, alone in its line for any lines."""
    wanted = "".join(
        r"(?:.*\n)*?" if line == "…" else r".*?".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown.rstrip("\n").split("\n")
    )
    return re.fullmatch(wanted, said) is not None


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_that_is_followed_to_the_letter_does_what_it_shows(page: Path, home: Path) -> None:
    for block, after in pairwise([*blocks(page), Block("", "")]):
        if not runs(block):
            continue
        done = paste(SHELL if block.language == "sh" else PYTHON, block.text, home)
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        if after.language == "text":
            assert agrees(after.text, done.stdout), f"{block.text}\nprints\n{done.stdout}\nnot\n{after.text}"


def folders(page: Path) -> set[str]:
    """The folders in which a page keeps its homes."""
    return {name for block in blocks(page) if runs(block) for name in FOLDER.findall(block.text)}


def test_pages_that_are_followed_one_after_another_in_one_folder_do_not_meet() -> None:
    used = Counter(name for page in FOLLOWED for name in folders(page))
    assert [name for name, pages in used.items() if pages > 1] == []
    opening = [page for page in FOLLOWED if any("ackstory " in b.text for b in blocks(page) if runs(b))]
    assert [page.name for page in opening if not folders(page)] == []


def test_the_example_of_the_readme_can_be_pasted_again_and_into_the_prompt_of_python(home: Path) -> None:
    example, shown = next(pair for pair in pairwise(blocks(ROOT / "README.md")) if pair[0].language == "python")
    assert [paste([sys.executable, "-"], example.text, home).stdout for _ in range(2)] == [shown.text] * 2
    done = paste([sys.executable, "-i", "-q"], example.text, home)
    assert "Error" not in done.stderr
    assert [line for line in shown.text.splitlines() if line not in done.stdout] == []


def test_what_the_readme_shows_of_the_demo_is_what_the_demo_prints(home: Path) -> None:
    shown = next(block.text for block in blocks(ROOT / "README.md") if "why fact_3_0" in block.text)
    said = paste(["backstory", "demo"], "", home).stdout
    assert [part for part in shown.strip().split("\n\n$ ") if part.removeprefix("$ ") not in said] == []


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_two_commands_are_targets_of_the_makefile(page: str) -> None:
    targets = re.findall(r"^make (\w+)$", "\n".join(block.text for block in blocks(ROOT / page)), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["demo", "test"]
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_a_block_that_fails_is_noticed(home: Path) -> None:
    assert paste(SHELL, "backstory nope", home).returncode == 2
    failed = paste(PYTHON, "import os\nassert os.environ['HOME'] != os.getcwd(), 'as it should be'", home)
    assert failed.returncode == 1
    assert failed.stderr.endswith("AssertionError: as it should be\n")
    assert paste(SHELL, "backstory --version | tr a-z A-Z", home).stdout.startswith("BACKSTORY ")


def test_another_output_than_a_page_shows_is_noticed() -> None:
    shown = "commit 2, …: by …\n…\nend\n"
    assert agrees(shown, "commit 2, today: by me\nend\n")
    assert agrees(shown, "commit 2, today: by me\none\ntwo\nend\n")
    assert not agrees(shown, "commit 3, today: by me\nend\n")
    assert not agrees(shown, "commit 2, today: by me\nend\nmore\n")
