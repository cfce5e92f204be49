"""Words of the page: the same in both languages, all used, and no text of the page outside of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from browsing import WEB
from npm import JS, installed, run_node

from backstory.ledger.core.commands import TIMES
from backstory.ledger.core.events import DOCUMENT_SECTIONS
from backstory.ledger.core.policy import CATEGORIES, Policy
from backstory.ledger.rules.decide import RULES

KINDS = ("genesis", "extraction", "summary", "manual", "import", "revert", "rollback", "clear", "policy", "redaction")
NAMES = {
    *CATEGORIES,
    *KINDS,
    "share",
    "expiry",
    *TIMES,
    *DOCUMENT_SECTIONS,
    *Policy.__struct_fields__,
}
"""Names that the server sends: a word that is called as one of them is used, though no module spells it."""


class Unused(msgspec.Struct):
    """A word that no module calls for."""

    file: str
    key: str


class Found(msgspec.Struct):
    """What the check of the words found."""

    problems: list[str]
    unused: list[Unused]
    keys: dict[str, list[str]]


def words_of(web: Path, folder: Path) -> Found:
    """Check a copy of the page's files."""
    installed("espree")
    shutil.copytree(web, folder)
    # Older versions of node take a .js file for a module only where this says so.
    (folder / "package.json").write_text(json.dumps({"type": "module"}))
    done = run_node(JS / "words.js", folder)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Found)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return words_of(WEB, tmp_path_factory.mktemp("words") / "web")


def test_the_words_are_the_same_in_both_languages_and_all_used(found: Found) -> None:
    assert found.problems == []
    assert [f"{one.file}: {one.key}" for one in found.unused if one.key not in NAMES] == []


def test_each_category_section_and_kind_has_a_word(found: Found) -> None:
    assert {*CATEGORIES, *KINDS, *DOCUMENT_SECTIONS} <= set(found.keys["components/common.words.js"])


def test_each_rule_that_refuses_has_a_word(found: Found) -> None:
    keys = found.keys["components/refusals.words.js"]
    assert set(RULES) <= {key.removeprefix("rule-") for key in keys}


PLANTED = {
    'export const words = { en: { a: "A", b: "B" }, zh: { a: "甲" } };': "b has no word in zh",
    'export const words = { en: { a: "{x}" }, zh: { a: "{y}" } };': "a names other values in zh: x,y",
    "export const words = { en: { a: ({ x }) => x }, zh: { a: ({ n }) => n } };": "a names other values in zh",
    'export const words = { en: { a: "A" } };': "has en, not en and zh",
}
MODULE = """import {{ html }} from "./lib/html.js";
import {{ useWords }} from "./lib/words.js";
import {{ words }} from "./planted.words.js";
export function Planted({{ x }}) {{
  const t = useWords(words);
  return html`{0}`;
}}
"""
GOOD = 'export const words = { en: { a: "A {x}" }, zh: { a: "甲{x}" } };'
SHOWN = {
    "<p>${t('a', { x })}</p>": "",
    "<p>Hello</p>": '"Hello" stands in a template',
    "<p title='Hello'>${x}</p>": 'title="Hello" stands in a template',
    "<p class='hello'>${x ? t('a', { x }) : 'nothing'}</p>": '"nothing" stands in a template',
    "<p>${t('b')}</p>": "there is no word for b",
    "<p>${t('a')}</p>": "a needs the value x",
    "<p>${t('a', { x, y: 1 })}</p>": "a does not name the value y",
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A page of nothing but its library, for what a test puts there."""
    for part in ("lib", "vendor"):
        shutil.copytree(WEB / part, tmp_path / "planted" / part)
    return tmp_path / "planted"


def test_words_that_differ_are_found(planted: Path, tmp_path: Path) -> None:
    for number, words in enumerate(PLANTED):
        (planted / f"planted{number}.words.js").write_text(words)
    problems = words_of(planted, tmp_path / "web").problems
    for number, problem in enumerate(PLANTED.values()):
        assert any(problem in one for one in problems if one.startswith(f"planted{number}.")), problems


def test_text_in_a_template_and_wrong_calls_are_found(planted: Path, tmp_path: Path) -> None:
    (planted / "planted.words.js").write_text(GOOD)
    for number, template in enumerate(SHOWN):
        (planted / f"planted{number}.js").write_text(MODULE.format(template))
    problems = words_of(planted, tmp_path / "web").problems
    for number, problem in enumerate(SHOWN.values()):
        found = [one for one in problems if one.startswith(f"planted{number}.js")]
        assert len(found) == (1 if problem else 0), found
        assert all(problem in one for one in found)


def test_an_unused_word_is_found(planted: Path, tmp_path: Path) -> None:
    (planted / "planted.words.js").write_text(GOOD)
    (planted / "planted.js").write_text(MODULE.format("${x}"))
    assert [one.key for one in words_of(planted, tmp_path / "web").unused] == ["a"]
