"""The README: each of its snippets runs as it is pasted, in order, on a machine with no key and an empty home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # processes: more than an inner loop needs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def snippets(language: str) -> list[str]:
    return [textwrap.dedent(body) for _, named, body in FENCED.findall(PAGE) if named == language]


def paste(command: list[str], text: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program on a text, as a newcomer does: an empty HOME, no key, nothing configured."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    return subprocess.run(
        command,
        input=text,
        cwd=home,
        env={**bare, "HOME": str(home), "PATH": f"{home}:{bare['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    command = tmp_path / "backstory"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m backstory.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


def test_the_example_prints_what_the_page_shows_also_when_it_is_pasted_again(home: Path) -> None:
    example, (shown,) = snippets("python")[0], snippets("text")
    for _ in range(2):
        done = paste([sys.executable, "-"], example, home)
        assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)
    assert (home / ".backstory" / "users" / "ada" / "memory.json").exists()


def test_the_example_can_be_pasted_into_the_prompt_of_python(home: Path) -> None:
    example, (shown,) = snippets("python")[0], snippets("text")
    done = paste([sys.executable, "-i", "-q"], example, home)
    assert "Error" not in done.stderr
    assert [line for line in shown.splitlines() if line not in done.stdout] == []


def test_the_agent_of_the_page_answers_and_its_question_is_recorded(home: Path) -> None:
    _, agent = snippets("python")
    done = paste([sys.executable, "-"], agent, home)
    assert (done.returncode, done.stdout) == (0, "In Bergen.\n")
    (said,) = re.findall(r".*no facts are extracted.*", done.stderr)
    assert "OPENAI_API_KEY" in said
    assert "Where do I live?" in (home / ".backstory" / "users" / "ada" / "transcript.jsonl").read_text()


def test_the_session_of_the_command_line_runs_to_its_end(home: Path) -> None:
    session = next(body for body in snippets("sh") if "backstory " in body)
    done = paste(["sh", "-ex"], session, home)
    assert done.stderr.splitlines()[-1] == "+ backstory doctor", f"{done.stderr}\n{done.stdout}"
    assert done.returncode in (0, 1)  # the last one finds that there is no model
    for said in ("Bob drinks green tea", "confidence 0.2", "I moved to Bergen, and I drink green tea", "<memory>"):
        assert said in done.stdout


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^make (\w+)$", "\n".join(snippets("sh")), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["demo", "test"]
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_every_page_and_example_that_it_names_is_there() -> None:
    named = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", PAGE)
    assert [path for path in named if not (ROOT / path).exists()] == []
