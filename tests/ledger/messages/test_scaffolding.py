"""Scaffolding: a block at the beginning of a message that a known harness puts there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.text.scaffolding import Scaffolding, load_scaffolding

KNOWN = load_scaffolding()
AGENTS = "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
ENVIRONMENT = "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"
DOCUMENTS = "### Task:\nRespond to the user query using the provided context, with citations…\n<context>\nx\n</context>"


def cut(text: str, answer: str = "", known: Scaffolding = KNOWN) -> tuple[str, list[str]]:
    rest, cuts = known.stripped(text, answer)
    assert sum(one.size for one in cuts) <= len(text)
    return rest, [one.wrapper for one in cuts]


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        (AGENTS, "", ("", ["agents-md"])),
        ("# AGENTS.md instructions for /repo\n\nUse tabs.", "", ("", ["agents-md"])),
        (f"{AGENTS}\n\n{ENVIRONMENT}\nWhere am I?", "", ("Where am I?", ["agents-md", "environment-context"])),
        ("<user_instructions>Be brief</user_instructions>\n\nHello", "", ("Hello", ["user-instructions"])),
        ("  <system-reminder>no todos</system-reminder>", "", ("", ["system-reminder"])),
        ("# Context from my IDE setup:\n\n## My request for Codex:\nMend it", "", ("Mend it", ["ide-context"])),
        ("New task:\nWhere do I live?", "", ("Where do I live?", ["new-task"])),
        ("Observation: 12 degrees", "Thought: look\nAction: weather[Bergen]", ("", ["observation"])),
        ("Observation:\nIt is 0.\nNew task:\nSince when?", "Calling tools:\n[…]", ("Since when?", ["observation"])),
        ("<examples>\nQ: 1? A: 2.\n</examples>\nQ: 3?", "", ("Q: 3?", ["examples"])),
        (f"{DOCUMENTS}\nWhy?", "", ("Why?", ["documents"])),
    ],
)
def test_a_block_at_the_beginning_of_a_message_is_taken_out(text, answer, expected):
    assert cut(text, answer) == expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"What does this mean: {ENVIRONMENT}", ""),
        (f"Where am I?\n{AGENTS}", ""),
        ("<environment_context> is a tag, is it not?", ""),
        ("<system-reminder>I never close it", ""),
        ("Observation: the sky is blue today", ""),
        ("Observation: the sky is blue today", "How is the sky?"),
        ("<think>I wonder</think> where I live", ""),
        ("  spaces stay  ", ""),
        ("", ""),
    ],
)
def test_the_words_of_a_person_stay(text, answer):
    assert cut(text, answer) == (text, [])


@pytest.mark.parametrize(
    ("role", "text", "expected"),
    [
        ("user", "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n…", True),
        ("user", "Generate a concise 3-7 word title for this conversation, omitting punctuation. Go", True),
        ("system", "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>", True),
        ("user", "You are a title generator. You output ONLY a thread title. Nothing else.", False),
        ("user", "Generate a title for my book about Bergen, please", False),
        ("user", "Please: ### Task:\nGenerate a concise, 3-5 word title with an emoji", False),
    ],
)
def test_a_request_for_a_title_is_known_by_its_exact_prompt(role, text, expected):
    assert KNOWN.is_title(role, text) is expected


def test_a_host_adds_wrappers_and_titles_of_its_own(tmp_path: Path):
    (tmp_path / "scaffolding.toml").write_text(
        '[[wrapper]]\nname = "crm"\nbegins = "[customer"\nends = "]"\n\n'
        '[[title]]\nname = "crm"\nbegins = "Name this case"\n'
    )
    own = load_scaffolding(tmp_path)
    assert cut("[customer 12, gold]\nWhere is my order?", known=own) == ("Where is my order?", ["crm"])
    assert cut(ENVIRONMENT, known=own) == ("", ["environment-context"])
    assert own.is_title("user", "Name this case: x")


@pytest.mark.parametrize(
    "content",
    [
        "[[wrapper]",
        '[[wrapper]]\nname = "x"',
        '[[wrapper]]\nname = "x"\nbegins = " "',
        "wrappers = 3\n",
        '[[title]]\nname = "x"\nbegins = "y"\nrole = "tool"',
    ],
)
def test_a_file_of_another_shape_is_an_error_that_names_it(tmp_path: Path, content):
    (tmp_path / "scaffolding.toml").write_text(content)
    with pytest.raises(ConfigError, match=r"scaffolding\.toml"):
        load_scaffolding(tmp_path)


def test_very_many_blocks_end():
    rest, cuts = KNOWN.stripped("<system-reminder></system-reminder>" * 10_000)
    assert rest
    assert len(cuts) == 64
