"""The pages: every module path, link and anchor that they name exists."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from fakes import exchange, open_home

from backstory import Backstory, MemoryHandle
from backstory.lifecycle.copying import _OF_HOME

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULE = re.compile(r"(?<![\w/.{<…-])[\w.-]+(?:/[\w.-]+)*/\w+\.py\b")
BARE = re.compile(r"`([\w-]+\.py)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", word).strip().replace(" ", "-") for word in words}


def broken(page: Path) -> list[str]:
    links = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    missing = []
    for link in links:
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(link)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_module_path_on_a_page_exists(page: Path) -> None:
    paths = MODULE.findall(page.read_text(encoding="utf-8"))
    assert [path for path in paths if not ((page.parent if path.startswith("..") else ROOT) / path).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_module_that_a_page_names_without_its_folder_exists(page: Path) -> None:
    assert set(BARE.findall(page.read_text(encoding="utf-8"))) <= modules()


@functools.cache
def modules() -> set[str]:
    folders = ("backstory", "benchmarks", "deploy", "examples", "ledger", "projections", "tests")
    return {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}


def test_the_table_of_a_home_names_every_file_in_it(tmp_path: Path) -> None:
    with open_home(tmp_path, fact_eviction_policy="hybrid", witness=str(tmp_path / "heads")) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        memory.add_fact("Drinks tea")
        memory.search("tea")
        memory.embed()
        memory.touch(memory.facts()[0].id)
        bs.faults.count(memory, "record", "StoreError")
    page = (ROOT / "docs/reference/log-format.md").read_text(encoding="utf-8")
    found = {path.name for path in (tmp_path / "users/ada").iterdir()}
    assert found >= {"access.json", "faults.json", "vectors.sqlite", "witness.json"}
    assert [name for name in sorted({*found, *_OF_HOME}) if name not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_method_of_a_home_or_a_memory_on_a_page_exists(page: Path) -> None:
    called = re.findall(r"\b(bs|memory)\.(\w+)\(", page.read_text(encoding="utf-8"))
    owners = {"bs": Backstory, "memory": MemoryHandle}
    assert [f"{owner}.{name}" for owner, name in called if not hasattr(owners[owner], name)] == []


def test_some_pages_name_modules() -> None:
    assert any(MODULE.search(page.read_text(encoding="utf-8")) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_of_a_page_leads_to_a_page_and_a_heading_that_exist(page: Path) -> None:
    assert broken(page) == []


def test_a_link_to_a_missing_page_or_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here\n[a](#here) [b](#there) [c](none.md) [d](page.md#here) [e](https://x.invalid/#y)\n")
    assert broken(page) == ["#there", "none.md"]


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    rooms = {page.resolve() for page in index.parent.rglob("*.md") if page.parent.name != "adr"} - {index.resolve()}
    assert sorted(named(page) for page in rooms - linked) == []


def test_the_benchmarks_begin_with_ten_rows_that_were_measured() -> None:
    from benchmarks.run import FIRST

    page = (ROOT / "docs/explanation/benchmarks.md").read_text(encoding="utf-8")
    assert len(FIRST) == 10
    for begins, said in FIRST.items():
        assert f"\n| {begins}" in page
        assert f"\n| {said} | " in page
