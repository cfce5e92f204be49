"""Table of test durations: how many tests each folder of the tests holds, and how long they take.

    python -m benchmarks.durations REPORT.xml

The report is what `pytest --junitxml` writes. Seconds are those of the tests and their fixtures, added up over all
workers: on a busy machine they also count the waiting.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

__all__ = ["Folder", "by_folder", "folder_of", "table"]


class Folder(NamedTuple):
    """Tests of a folder and their seconds."""

    tests: int
    seconds: float


def folder_of(classname: str) -> tuple[str, str]:
    """Return the top folder of a test and the folder or module below it.

    `tests.ledger.rules.test_undo` is ("ledger", "rules"), `tests.page.test_page` ("page", "test_page").
    """
    parts = [part for part in classname.split(".") if not part[:1].isupper()]
    top, *below = parts[1:] or [classname]
    return top, below[0] if below else ""


def by_folder(report: Path) -> dict[tuple[str, str], Folder]:
    """Read a report: tests and seconds of each folder on the second level."""
    folders: dict[tuple[str, str], Folder] = defaultdict(lambda: Folder(0, 0.0))
    for case in ET.parse(report).iter("testcase"):
        key = folder_of(case.get("classname", ""))
        tests, seconds = folders[key]
        folders[key] = Folder(tests + 1, seconds + float(case.get("time", "0")))
    return dict(folders)


def table(folders: Mapping[tuple[str, str], Folder]) -> Iterator[str]:
    """Spell the table: the slowest top folder first, below it its folders, and the sum at the end."""
    whole = _sum(folders.values())
    tops = {top: {below: found for (of, below), found in folders.items() if of == top} for top, _ in folders}
    yield f"{'folder':<40} {'tests':>7} {'seconds':>9} {'share':>7}"
    for top in sorted(tops, key=lambda top: -_sum(tops[top].values()).seconds):
        yield _line(top, _sum(tops[top].values()), whole)
        for below, found in sorted(tops[top].items(), key=lambda item: -item[1].seconds):
            if below:
                yield _line(f"  {below}", found, whole)
    yield _line("all", whole, whole)


def _sum(folders: Iterable[Folder]) -> Folder:
    tests, seconds = zip(*folders, strict=True)
    return Folder(sum(tests), sum(seconds))


def _line(name: str, folder: Folder, whole: Folder) -> str:
    share = folder.seconds / whole.seconds if whole.seconds else 0
    return f"{name:<40} {folder.tests:>7,} {folder.seconds:>9.1f} {share:>7.1%}"


def main() -> int:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    report = Path(sys.argv[1])
    folders = by_folder(report)
    if not folders:
        raise SystemExit(f"{report} names no test: did pytest run with --junitxml={report}?")
    print(*table(folders), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
