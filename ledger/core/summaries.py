"""Summaries of long threads: how they are named, what of a thread they tell, and what becomes of a new one.

They are sections of memory beside those of the document. One of level 1 tells some turns of a thread; one of the next
level tells those of the level before, which go from memory when it comes. The summaries of a thread never overlap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from backstory.ledger.core.commands import Summarize
from backstory.ledger.core.events import LedgerEvent, Section, SummaryUpdated, TurnRange, UpdateFailed
from backstory.ledger.core.memory import BARRIERS, Memory

__all__ = [
    "Summed",
    "ThreadSummaryText",
    "is_done_with",
    "live_summaries",
    "sum_up",
    "thread_summaries",
    "told_elsewhere",
]

_PREFIX = "thread/"
_PARTS = 4
# No section of the document has a slash in its name, and the thread's own stands last: it may be anything.
_NAME = re.compile(r"thread/([1-9]\d*)/([1-9]\d*)-([1-9]\d*)/(.+)", re.ASCII | re.DOTALL)


class Summed(msgspec.Struct, frozen=True):
    """What a summary tells: turns of a thread, at a level; a section's name says it."""

    thread: str
    level: int
    turns: TurnRange

    @property
    def section(self) -> str:
        """The name of its section."""
        return f"{_PREFIX}{self.level}/{self.turns.first}-{self.turns.last}/{self.thread}"

    @classmethod
    def of(cls, section: str) -> Summed | None:
        """Read a section's name; None where it is no thread's."""
        found = _NAME.fullmatch(section)
        return found and cls(found[4], int(found[1]), TurnRange(int(found[2]), int(found[3])))

    def overlaps(self, other: Summed) -> bool:
        """Whether both tell of some turn."""
        apart = self.turns.last < other.turns.first or other.turns.last < self.turns.first
        return self.thread == other.thread and not apart

    def holds(self, other: Summed) -> bool:
        """Whether the other may have been merged into this one."""
        inside = self.turns.first <= other.turns.first and other.turns.last <= self.turns.last
        return self.thread == other.thread and self.level > other.level and inside


class ThreadSummaryText(msgspec.Struct, frozen=True):
    """One summary of a thread: the turns that it tells, by ordinal, and the times of the first and the last of them.

    Of level 1 it was made from turns, of a higher one from summaries of the level before. Times are ISO 8601, UTC.
    """

    level: int
    first: int
    last: int
    since: str
    until: str
    text: str


def live_summaries(memory: Memory, thread: str) -> list[tuple[Summed, Section]]:
    """Return a thread's summaries that are in memory, by the turns they tell."""
    near = _by_thread(memory.sections).get(thread, ())
    found = [(summed, memory.sections[name]) for name in near if (summed := Summed.of(name)) is not None]
    return sorted(found, key=lambda one: (one[0].turns.first, one[0].turns.last))


_grouped: tuple[Mapping[str, Section], Mapping[str, list[str]]] = ({}, {})
"""The sections that were grouped last, and their names by thread; replaced as one, so that threads need no lock."""


def _by_thread(sections: Mapping[str, Section]) -> Mapping[str, list[str]]:
    """Group names by the thread they end in; once for each memory, whose sections never change."""
    global _grouped  # noqa: PLW0603
    known, names = _grouped
    if known is sections:
        return names
    # Names are only split here: to read each costs several times as much, and most are never asked for.
    found: dict[str, list[str]] = {}
    for name in sections:
        if name.startswith(_PREFIX) and len(parts := name.split("/", 3)) == _PARTS:
            found.setdefault(parts[3], []).append(name)
    _grouped = (sections, found)
    return found


def thread_summaries(memory: Memory, thread: str) -> tuple[ThreadSummaryText, ...]:
    """Return what tells a thread, the oldest turns first and without overlap; its newest turns are in none yet."""
    return tuple(
        ThreadSummaryText(
            summed.level, summed.turns.first, summed.turns.last, section.since, section.until, section.summary
        )
        for summed, section in live_summaries(memory, thread)
    )


def told_elsewhere(now: Mapping[str, Section], planned: Mapping[str, Section]) -> set[str]:
    """Name the summaries that a plan brings back although one that is there now, and stays, tells of the same turns."""
    live = {name: summed for name, section in planned.items() if section.summary and (summed := Summed.of(name))}
    staying: dict[str, list[Summed]] = {}
    for name, summed in live.items():
        if name in now:
            staying.setdefault(summed.thread, []).append(summed)
    return {
        name
        for name, summed in live.items()
        if name not in now and any(map(summed.overlaps, staying.get(summed.thread, ())))
    }


# A new one.


def _overtaken_by(memory: Memory, command: Summarize) -> str | None:
    """Say what came between question and answer so that the answer is not used: a kind of commit, or another reason."""
    if memory.barriers.get("redaction", 0) > command.basis:
        # Whatever else came between: this one forbids to keep a word of it.
        return "redaction"
    seq, kind = max((memory.barriers.get(kind, 0), kind) for kind in BARRIERS)
    if seq > command.basis:
        return kind
    if command.lost or _changed(memory, command):
        return "expired"
    return "covered" if command.covered else None


def is_done_with(memory: Memory, command: Summarize) -> bool:
    """Whether nobody is asked about these turns once more: they are summed up now, were cleared, or partly erased.

    After an erasure of something else the answer is discarded like any other, and asked for again.
    """
    overtaken = _overtaken_by(memory, command)
    if overtaken == "redaction":
        return command.lost or _changed(memory, command)
    return overtaken == "clear" or (overtaken is None and command.failed is None)


def _changed(memory: Memory, command: Summarize) -> bool:
    """Whether a summary that it was made from is another by now, or gone."""
    return any(memory.section(name) != section for name, section in command.sources.items())


_IN_WORDS = {
    "expired": "some of what it was made from is gone since",
    "covered": "another summary of these turns came first",
}


def sum_up(memory: Memory, command: Summarize) -> tuple[LedgerEvent, ...]:
    """Put a summary in memory and take those out that it was made from; or tell why nothing came of it."""
    overtaken = _overtaken_by(memory, command)
    if overtaken is not None:
        why = _IN_WORDS.get(overtaken, f"a {overtaken} came after the memory this summary was asked for on")
        return (UpdateFailed("covered" if overtaken == "covered" else "basis", why, command.attempts),)
    if command.failed is not None:
        return (UpdateFailed(command.failed, command.detail, command.attempts),)
    name = Summed(command.thread, command.level, command.turns).section
    after = Section(command.text, command.at, command.since, command.until)
    return (
        SummaryUpdated(name, memory.section(name), after),
        *(SummaryUpdated(source, section, Section()) for source, section in command.sources.items()),
    )
