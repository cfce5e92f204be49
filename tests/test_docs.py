"""The pages: every module path that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULE = re.compile(r"(?<![\w/.{<…-])[\w.-]+(?:/[\w.-]+)*/\w+\.py\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_path_on_a_page_exists(page: Path) -> None:
    named = MODULE.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not ((page.parent if path.startswith("..") else ROOT) / path).is_file()] == []


def test_some_pages_name_modules() -> None:
    assert any(MODULE.search(page.read_text(encoding="utf-8")) for page in PAGES)
