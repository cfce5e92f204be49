"""The public API: what `backstory` exports, what docs/reference/python.md lists, and the classes have are the same."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference_commands
from reference import OBJECTS, PAGE, page

import backstory
from backstory.config.keys import SettingKeys
from backstory.config.settings import Settings

ROOT = Path(__file__).parent.parent
KINDS = [getattr(backstory, name) for name, _ in OBJECTS]
NO_TWIN = {
    "open",
    "memory",
    "memory_of",
    "renew",
    "by",
    "expecting",
    "once",
    "view",
    "of",
    "count_tokens",
    "must_learn",
}
"""Methods that do no I/O, and the one that opens a home."""


def public(kind: type) -> dict[str, object]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def methods(kind: type) -> dict[str, object]:
    return {name: member for name, member in public(kind).items() if not isinstance(member, property)}


def is_twin(member: object) -> bool:
    return inspect.iscoroutinefunction(member)


def listed(title: str) -> list[str]:
    """The names that a part of the page lists."""
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"(?m)^- `(\w+)", part)


def test_the_page_is_what_make_docs_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_of_the_command_line_shows_its_verbs_as_they_are() -> None:
    assert reference_commands.PAGE.read_text(encoding="utf-8") == reference_commands.page()


def test_the_page_of_rest_shows_its_routes_as_they_are() -> None:
    reference_rest = pytest.importorskip("reference_rest", reason="the extra server is not installed")
    assert reference_rest.PAGE.read_text(encoding="utf-8") == reference_rest.page()


def test_the_examples_of_rest_are_what_a_server_answers() -> None:
    reference_examples = pytest.importorskip("reference_examples", reason="the extra server is not installed")
    assert reference_examples.FILE.read_text(encoding="utf-8") == reference_examples.text()


def test_the_site_has_every_page_once_in_its_navigation() -> None:
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    pages += [path.name for path in ROOT.glob("*.md")]
    named = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(pages)


@pytest.mark.parametrize(("name", "title"), OBJECTS)
def test_the_page_lists_every_public_member_of_a_class_once(name: str, title: str) -> None:
    members = public(getattr(backstory, name))
    assert sorted(listed(title)) == sorted(name for name, member in members.items() if not is_twin(member))


def test_every_exported_name_is_on_the_page_and_no_other() -> None:
    others = [*listed("Types"), *listed("Errors")]
    assert sorted([*others, *(name for name, _ in OBJECTS)]) == sorted(backstory.__all__)


def test_every_exported_name_resolves_and_completion_sees_it() -> None:
    assert backstory.__all__ == sorted(set(backstory.__all__))
    for name in backstory.__all__:
        assert getattr(backstory, name) is not None
    assert set(backstory.__all__) <= set(dir(backstory))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        backstory.Nothing  # noqa: B018 what is tested is that it is not there


NOT_OURS = {*dir(typing), *dir(collections.abc), "None", "Path", "UUID", "T", "TracebackType"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_that_a_public_signature_names_can_be_imported_from_the_package(kind: type) -> None:
    signatures = [inspect.signature(getattr(kind, name)) for name in methods(kind)]
    stated = [part.annotation for one in signatures for part in one.parameters.values()]
    stated += [one.return_annotation for one in signatures]
    named = {word for part in stated for word in re.findall(r"\b[A-Z]\w+", str(part))}
    assert named - NOT_OURS <= set(backstory.__all__)


def test_type_checkers_and_the_interpreter_find_the_same_names_in_the_same_modules() -> None:
    tree = ast.parse(inspect.getsource(backstory))
    checked = {
        (imported.module, alias.asname)
        for block in tree.body
        if isinstance(block, ast.If)
        for imported in block.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert checked == {(module, name) for name, module in backstory._MODULE_OF.items()}
    assert set(backstory._MODULE_OF) == set(backstory.__all__)


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_that_does_io_has_a_twin_with_the_same_signature(kind: type) -> None:
    plain = {name for name, member in methods(kind).items() if not is_twin(member)}
    twins = {name for name, member in methods(kind).items() if is_twin(member)}
    assert twins == {f"a{name}" for name in plain - NO_TWIN}
    for name in plain - NO_TWIN:
        assert inspect.signature(getattr(kind, name)) == inspect.signature(getattr(kind, f"a{name}"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_docstring_describes_the_parameters_and_the_result(kind: type) -> None:
    def missing() -> Iterator[str]:
        for name, member in methods(kind).items():
            if not is_twin(member):
                function = getattr(kind, name)
                text, signature = inspect.getdoc(function) or "", inspect.signature(function)
                given = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
                yield from (f"{name}: {one.name}" for one in given if not re.search(rf"\n +\**{one.name}: ", text))
                if signature.return_annotation != "None" and "\nReturns:\n" not in text:
                    yield f"{name}: its result"

    assert list(missing()) == []


CALLS = """
from typing import assert_type
from backstory import Backstory, Diff, Flushed, Found, MemoryHandle, RecordResult, Turns, TurnView, WhatIf

async def right(bs: Backstory, memory: MemoryHandle, turns: Turns) -> None:
    assert_type(await memory.arecord("t", [], mode="append"), RecordResult)
    assert_type(await memory.adiff(1, b=2), Diff)
    assert_type(await memory.asearch("tea", top_k=3), Found)
    assert_type(await memory.awhat_if(until=3, max_facts=10), WhatIf)
    assert_type(await turns.aget(k=2), list[TurnView])
    assert_type(await bs.aflush(timeout=1), Flushed)
    Backstory.open("home", max_facts=300, dedup_key="exact", guaranteed_categories=["correction"])

async def wrong(bs: Backstory, memory: MemoryHandle, turns: Turns) -> None:
    await memory.arecord("t", [], modus="append")
    await memory.alog(limt=3)
    await memory.adiff(1)
    await memory.asearch("tea", top_k="three")
    await memory.awhat_if(until=3.5)
    await turns.aget(n=2)
    await bs.aflush(1, 2)
    Backstory.open("home", max_fact=300)
    Backstory.open("home", max_facts="many")
"""


@pytest.mark.slow
def test_a_type_checker_finds_a_wrong_argument_of_an_async_twin_and_a_wrong_key(tmp_path: Path) -> None:
    calls = tmp_path / "calls.py"
    calls.write_text(CALLS, encoding="utf-8")
    # What the linter of `make test` has found is read again.
    command = [sys.executable, "-m", "mypy", "--strict", str(calls)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    first = next(number for number, line in enumerate(CALLS.splitlines(), 1) if "modus" in line)
    found = {int(line) for line in re.findall(r"calls\.py:(\d+): error", done.stdout)}
    assert found == set(range(first, first + 9)), done.stdout


def test_the_keys_that_a_type_checker_knows_are_those_of_the_settings() -> None:
    # The model is an argument of its own.
    assert [*SettingKeys.__annotations__] == [name for name in Settings.model_fields if name != "model"]
