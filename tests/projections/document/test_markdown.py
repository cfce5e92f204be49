"""MEMORY.md: what a person reads, and equal for equal memories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.home import Backstory
from backstory.projections.document.markdown import markdown_of

FACTS = [
    {"id": "a", "content": "Lives in\n\nOslo", "category": "knowledge", "confidence": 0.9},
    {"id": "b", "content": "Is vegetarian", "category": "preference", "confidence": 0.9},
    {"id": "c--><b>", "content": "Has a dog", "category": "pets", "confidence": 0.9},
    {"id": "d", "content": "Bakes <!-- bread", "category": "knowledge", "expiresAt": "2099-01-01", "confidence": 0.9},
]
SHOWN = """# Memory

## Work

Runs a &lt;!-- bakery.

## preference

- Is vegetarian <!-- b -->

## knowledge

- Lives in Oslo <!-- a -->
- Bakes &lt;!-- bread (expires 2099-01-01) <!-- d -->

## pets <!-- category -->

- Has a dog <!-- c%2D%2D%3E%3Cb%3E -->
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Backstory.open(tmp_path / "home", background=False) as bs:
        sections = {"workContext": {"summary": "Runs a <!-- bakery.", "updatedAt": ""}}
        bs.memory("ada").import_document({"user": sections, "facts": FACTS})
    return tmp_path / "home"


def exported(home: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["--home", str(home), "--user", "ada", *words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_sections_and_facts_by_category_with_ids_as_comments(home: Path) -> None:
    assert exported(home, "export", "--markdown") == SHOWN


def test_it_changes_only_where_the_memory_does(home: Path) -> None:
    with Backstory.open(home, background=False) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Likes tea", category="preference")
        memory.revert("HEAD")
        assert markdown_of(memory.document()) == SHOWN


def test_an_empty_memory_is_a_title(tmp_path: Path) -> None:
    assert exported(tmp_path / "none", "export", "--markdown") == "# Memory\n"


def test_markdown_and_json_exclude_each_other(home: Path) -> None:
    assert "--markdown and --json exclude each other" in exported(home, "--json", "export", "--markdown", code=2)
    assert json.loads(exported(home, "export"))["facts"][0]["content"] == "Lives in\n\nOslo"
