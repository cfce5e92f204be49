"""The architecture: arrows run one way between files and between folders, and every folder says what it is."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_MODULES = 12
MOST_LINES = 500
LISTS = {
    "ledger/core/events.py": "one list: every event, with what it holds",
    "backstory/testing/conformance.py": "one list: every test that an engine has to pass",
}
"""Modules that may be longer, and why."""
WIRE = {"backstory.http.bodies", "backstory.http.access.refusals", "backstory.mcp.tools.results"}
"""Modules whose types describe what goes over the wire: their names are those of its schemas."""
SAME_NAME = {"Context", "Refusal"}
"""Names that stay as they are because others use both: a step of a memory test and a block; two results."""


def sources() -> dict[str, Path]:
    """Every module by its import name, at its place in the repository."""
    found = {}
    for folder, package in (
        ("ledger", "backstory.ledger"),
        ("projections", "backstory.projections"),
        ("backstory", "backstory"),
    ):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / folder)
            if folder == "backstory" and inside.parts[0] in {"ledger", "projections"}:
                continue  # Python 3.13 follows the links here
            parts = inside.with_suffix("").parts
            found[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


def imports(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Modules that a file imports anywhere: at its top, inside functions, or for type checkers alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


MODULES = sources()
FOLDERS = sorted({path.parent.relative_to(ROOT).as_posix() for path in MODULES.values()})


@functools.cache
def drawn() -> dict[str, set[str]]:
    """What each module imports; read when first asked, for whoever collects the tests needs none of it."""
    return {name: {*imports(path, MODULES)} - {name} for name, path in MODULES.items()}


def cycles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Find what reaches itself, by removing what nothing left points at or what points at nothing left."""
    left = {name: set(to) & set(arrows) for name, to in arrows.items()}
    while True:
        pointed_at = {to for targets in left.values() for to in targets}
        ends = {name for name, targets in left.items() if not targets or name not in pointed_at}
        if not ends:
            return [[name, *sorted(targets)] for name, targets in sorted(left.items())]
        left = {name: targets - ends for name, targets in left.items() if name not in ends}


def folder(name: str) -> str:
    return MODULES[name].parent.relative_to(ROOT).as_posix()


def test_no_file_imports_itself_by_way_of_others() -> None:
    # The package's own exports point at nearly everything; a file that imports one of them means that file.
    arrows = {name: targets - {"backstory"} for name, targets in drawn().items()}
    assert cycles(arrows) == []
    assert [name for name, targets in drawn().items() if "backstory" in targets and name in reached("backstory")] == []


def reached(start: str) -> set[str]:
    """What the package imports, however indirectly."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in drawn()[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def test_between_folders_arrows_run_one_way() -> None:
    """A folder may use what lies inside it; any two others are never on both ends of an arrow."""
    between: dict[str, set[str]] = {}
    for name, targets in drawn().items():
        for target in targets:
            here, there = folder(name), folder(target)
            if name != "backstory" and here != there and not f"{there}/".startswith(f"{here}/"):
                between.setdefault(here, set()).add(there)
    # What lies inside a folder may use the modules beside that folder's own __init__, never the other way round.
    assert cycles(between) == []


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_says_what_lives_there_and_holds_no_more_than_fits_on_a_screen(name: str) -> None:
    init = ROOT / name / "__init__.py"
    assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), f"{name}/__init__.py has no docstring"
    modules = [path for path in (ROOT / name).glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES, f"{name} holds {len(modules)} modules"


def test_a_module_is_no_longer_than_500_lines() -> None:
    lines = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8").count("\n") for path in MODULES.values()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES and name not in LISTS} == {}
    assert [name for name in LISTS if lines.get(name, 0) <= MOST_LINES] == []


def types_of(path: Path) -> Iterator[str]:
    """Names of the public types and aliases that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name.isupper():
                    continue
            case _:
                continue
        if name[0].isupper():
            yield name


def test_a_public_type_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in types_of(path) if module not in WIRE else ():
            found.setdefault(name, []).append(module)
    assert {name for name, modules in found.items() if len(modules) > 1} == SAME_NAME


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b"], ["b", "c"], ["c", "a"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
