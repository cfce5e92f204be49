"""Readers of notes: plain text with one fact a line, and Markdown such as MEMORY.md or CLAUDE.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.importing.formats.facts import Fact, read
from backstory.ledger.importing.formats.tally import Tally

_COMMENT = re.compile(r"<!--\s*(?P<id>.*?)\s*-->")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?(?P<words>.*)")
_UNTIL = re.compile(r" \(until (?P<until>\d{4}\S*)\)$")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_HEADING = re.compile(r"#{1,6}\s+(?P<title>.*?)\s*#*\s*")


def read_text(lines: Iterable[str], tally: Tally) -> Iterator[Fact]:
    """Yield each line that is not empty."""
    return read((line.strip() for line in lines if line.strip()), tally)


def read_markdown(lines: Iterable[str], tally: Tally) -> Iterator[Fact]:
    """Yield each item of a list and each paragraph; a heading that names a category is that of what follows.

    Front matter and code are left out. The ids in comments of an own export stay.
    """
    category, inside = "", ""
    words: list[str] = []
    for number, line in enumerate(map(str.rstrip, lines)):
        fence = _FENCE.match(line)
        if (line == "---" and (number == 0 or inside == "front")) or fence:
            inside = "" if inside else "code" if fence else "front"
            tally.pass_over("blocks of code and front matter", bool(inside))
        if inside or fence or line == "---":
            continue
        heading, item = _HEADING.fullmatch(line), _ITEM.fullmatch(line)
        if not line.strip() or heading or item:
            yield from _fact(words, category)
            words = []
        if heading:
            title = heading["title"].casefold()
            category = next((one for one in CATEGORIES if title in (one, f"{one}s")), "")
        elif line.strip():
            words.append(item["words"] if item else line.strip())
    yield from _fact(words, category)


def _fact(words: list[str], category: str) -> Iterator[Fact]:
    said = " ".join(words)
    named = _COMMENT.search(said)
    said = _COMMENT.sub("", said).strip()
    fact: Fact = {"category": category} if category else {}
    if named is not None and named["id"]:
        fact["id"] = unquote(named["id"])
    if (until := _UNTIL.search(said)) is not None:
        fact["validUntil"] = until["until"]
        said = said[: until.start()]
    if said:
        yield {"content": said, **fact}
