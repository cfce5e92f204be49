"""Readers of notes: plain text with one fact a line, Markdown such as MEMORY.md or CLAUDE.md, Claude's own memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.importing.formats.facts import FactDict, read
from backstory.ledger.importing.formats.tally import Tally, fields, text

_COMMENT = re.compile(r"<!--\s*(?P<id>.*?)\s*-->")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?(?P<words>.*)")
_WHEN = re.compile(r" \((?:(?:, )?(?:from|until|expires) \d{4}[^\s,)]*)+\)$")
_TIME = re.compile(r"(from|until|expires) (\d{4}[^\s,)]*)")
_OWN = " <!-- category -->"
_TIMES = {"from": "validFrom", "until": "validUntil", "expires": "expiresAt"}
"""The times that our own export states behind a fact."""
_FENCE = re.compile(r"\s*(?:```|~~~)")
_INCLUDED = re.compile(r"\s*(?:[-*+]\s+)?@\S*[./]\S*")
"""A line that stands for a file, as in CLAUDE.md."""
_BOLD = re.compile(r"\*\*(?P<title>[^*]+)\*\*:?")
_HEADING = re.compile(r"#{1,6}\s+(?P<title>.*?)\s*#*\s*")


def read_text(lines: Iterable[str], tally: Tally) -> Iterator[FactDict]:
    """Yield each line that is not empty."""
    return read((line.strip() for line in lines if line.strip()), tally)


def read_markdown(lines: Iterable[str], tally: Tally) -> Iterator[FactDict]:
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
        included = not inside and _INCLUDED.fullmatch(line) is not None
        tally.pass_over("files that are included", included)
        if inside or fence or included or line == "---":
            continue
        heading, item = _HEADING.fullmatch(line), _ITEM.fullmatch(line)
        if not line.strip() or heading or item:
            yield from _fact(words, category)
            words = []
        if heading:
            title = heading["title"].casefold()
            own = title.endswith(_OWN)
            known = next((one for one in CATEGORIES if title in (one, f"{one}s")), "")
            category = heading["title"][: -len(_OWN)] if own else known
        elif line.strip():
            words.append(item["words"] if item else line.strip())
    yield from _fact(words, category)


def read_claude_memory(items: Iterable[object], tally: Tally) -> Iterator[FactDict]:
    """Yield what Claude's export holds as its memory (`memories.json`): Markdown whose headings are lines in bold."""
    for item in tally.objects(items):
        if tally.takes(item.get("account_uuid")):
            for written in (item.get("conversations_memory"), *fields(item.get("project_memories")).values()):
                lines = (
                    _BOLD.sub(r"# \g<title>", line) if _BOLD.fullmatch(line) else line
                    for line in text(written).splitlines()
                )
                yield from ({**fact, "source": "claude"} for fact in read_markdown(lines, tally))


def _fact(words: list[str], category: str) -> Iterator[FactDict]:
    said = " ".join(words)
    named = _COMMENT.search(said)
    said = _COMMENT.sub("", said).replace("&lt;!--", "<!--").strip()
    fact: FactDict = {"category": category} if category else {}
    if named is not None and named["id"]:
        fact["id"] = unquote(named["id"])
    if (when := _WHEN.search(said)) is not None:
        fact |= {_TIMES[word]: time for word, time in _TIME.findall(when[0])}
        said = said[: when.start()]
    if said:
        yield {"content": said, **fact}
