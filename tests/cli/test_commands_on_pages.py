"""Every command that a page shows, also in passing, is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from backstory.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINES = re.compile(r"^(?: {4,}|\$ )(?:\$ )?(?:[A-Z_]+=\S+ )*backstory (.*(?:\\\n.*)*)", re.MULTILINE)
BLOCKS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_A_BLOCK = re.compile(r"^(?:[A-Z_]+=\S+ )*backstory (.*)", re.MULTILINE)
INLINE = re.compile(r"`backstory ([^`]+)`")
ENDS = re.compile(r"\s#\s|\s\d?[|>&;<]|\)|\s\[-")
ACTS_AT_ONCE = ("--version", "--install-completion", "--show-completion")


def commands(text: str) -> set[str]:
    """The words after `backstory` of each command that a page shows."""
    blocks = [words for block in BLOCKS.findall(text) for words in IN_A_BLOCK.findall(block)]
    found = [*LINES.findall(text), *INLINE.findall(text), *blocks]
    whole = [ENDS.split(re.sub(r"\\?\n", " ", words))[0].strip() for words in found]
    return {words for words in whole if words and not words.startswith(ACTS_AT_ONCE)}


def refused(words: str) -> str | None:
    """Why the command line does not take these words; None if it does, whatever their values."""
    command = typer.main.get_command(app)
    context = None
    name, given = "backstory", shlex.split(words)
    try:
        while True:
            context = command.make_context(name, given, parent=context)
            rest = [*context._protected_args, *context.args]
            if not rest or not hasattr(command, "resolve_command"):
                return None
            name, command, given = command.resolve_command(context, rest)
    except typer.Exit:
        return None
    except Exception as error:  # noqa: BLE001 the errors of the parser are private names of Typer
        named = type(error).__name__
        return None if named in {"MissingParameter", "BadParameter"} else f"{words}: {error}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_command_line_takes_every_command_that_a_page_shows(page: Path) -> None:
    assert [why for words in sorted(commands(page.read_text(encoding="utf-8"))) if (why := refused(words))] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    text = "Run `backstory shw`.\n\n    $ backstory --user ada show --when 3   # later\n\n```sh\nbackstory show\n```\n"
    assert commands(text) == {"shw", "--user ada show --when 3", "show"}
    assert [words for words in sorted(commands(text)) if refused(words)] == ["--user ada show --when 3", "shw"]
