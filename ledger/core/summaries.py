"""Summaries of long threads: their names, the turns they cover, and what becomes of a new one.

They are sections of memory, in addition to those of the document. A summary of level 1 covers some turns of a thread. A
summary of a higher level covers summaries of the level below, which leave memory. Summaries of a thread never overlap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from backstory.ledger.core.commands import Summarize
from backstory.ledger.core.events import LedgerEvent, Section, SummaryUpdated, TurnRange, UpdateFailed
from backstory.ledger.core.memory import Memory

_PREFIX = "thread/"
_PARTS = 4
# No section of the document has a slash in its name. The thread's name comes last, because it may hold anything.
_NAME = re.compile(r"thread/([1-9]\d*)/([1-9]\d*)-([1-9]\d*)/(.+)", re.ASCII | re.DOTALL)


class SummaryKey(msgspec.Struct, frozen=True):
    """The thread, level and turns of a summary, which the name of its section encodes."""

    thread: str
    level: int
    turns: TurnRange

    @property
    def section(self) -> str:
        """The name of the summary's section."""
        return f"{_PREFIX}{self.level}/{self.turns.first}-{self.turns.last}/{self.thread}"

    @classmethod
    def of(cls, section: str) -> SummaryKey | None:
        """Parse the name of a section; None if it is not a thread's summary."""
        found = _NAME.fullmatch(section)
        return found and cls(found[4], int(found[1]), TurnRange(int(found[2]), int(found[3])))

    def overlaps(self, other: SummaryKey) -> bool:
        """Whether both cover a common turn."""
        apart = self.turns.last < other.turns.first or other.turns.last < self.turns.first
        return self.thread == other.thread and not apart

    def holds(self, other: SummaryKey) -> bool:
        """Whether the other summary may have been merged into this one."""
        inside = self.turns.first <= other.turns.first and other.turns.last <= self.turns.last
        return self.thread == other.thread and self.level > other.level and inside


class ThreadSummaryText(msgspec.Struct, frozen=True):
    """One summary of a thread: the ordinals and the times of the first and the last turn that it covers.

    A summary of level 1 was made from turns, one of a higher level from summaries of the level below. Times are ISO
    8601, UTC.
    """

    level: int
    first: int
    last: int
    since: str
    until: str
    text: str


def live_summaries(memory: Memory, thread: str) -> list[tuple[SummaryKey, Section]]:
    """Return a thread's summaries that are in memory, in the order of their turns."""
    names = _by_thread(memory.sections).get(thread, ())
    found = [(key, memory.sections[name]) for name in names if (key := SummaryKey.of(name)) is not None]
    return sorted(found, key=lambda one: (one[0].turns.first, one[0].turns.last))


_grouped: tuple[Mapping[str, Section], Mapping[str, list[str]]] = ({}, {})
"""The sections that were grouped last, and their names by thread; assigned at once, so that threads need no lock."""


def _by_thread(sections: Mapping[str, Section]) -> Mapping[str, list[str]]:
    """Group the names of summaries by thread; done once for each memory, because its sections never change."""
    global _grouped  # noqa: PLW0603
    known, names = _grouped
    if known is sections:
        return names
    # To parse a name costs several times as much as to split it, and most names are never asked for.
    found: dict[str, list[str]] = {}
    for name in sections:
        if name.startswith(_PREFIX) and len(parts := name.split("/", 3)) == _PARTS:
            found.setdefault(parts[3], []).append(name)
    _grouped = (sections, found)
    return found


def thread_summaries(memory: Memory, thread: str) -> tuple[ThreadSummaryText, ...]:
    """Return a thread's summaries, oldest turns first and without overlap; the newest turns have none yet."""
    return tuple(
        ThreadSummaryText(key.level, key.turns.first, key.turns.last, section.since, section.until, section.summary)
        for key, section in live_summaries(memory, thread)
    )


def overlapping_summaries(now: Mapping[str, Section], planned: Mapping[str, Section]) -> set[str]:
    """Return the summaries that a plan brings back although one that stays covers some of the same turns.

    Args:
        now: the current sections, by name.
        planned: the sections after the plan, by name.

    Returns:
        The names of the sections that have to stay out.
    """
    live = {name: key for name, section in planned.items() if section.summary and (key := SummaryKey.of(name))}
    staying: dict[str, list[SummaryKey]] = {}
    for name, key in live.items():
        if name in now:
            staying.setdefault(key.thread, []).append(key)
    return {
        name for name, key in live.items() if name not in now and any(map(key.overlaps, staying.get(key.thread, ())))
    }


# A new summary.


def _overtaken_by(memory: Memory, command: Summarize) -> str | None:
    """Return why an answer came too late to be used, as a kind of commit or another reason; None if it did not."""
    if (barrier := memory.barrier_after(command.basis)) is not None:
        return barrier[1]
    if command.lost or _changed(memory, command):
        return "expired"
    return "covered" if command.covered else None


def is_done_with(memory: Memory, command: Summarize) -> bool:
    """Whether these turns need no further summary: they have one now, were cleared, or some of them were erased.

    After an erasure of other content the answer is discarded and the model is asked again.
    """
    overtaken = _overtaken_by(memory, command)
    if overtaken == "redaction":
        return command.lost or _changed(memory, command)
    return overtaken == "clear" or (overtaken is None and command.failed is None)


def _changed(memory: Memory, command: Summarize) -> bool:
    """Whether one of the summaries that it was made from was changed or removed."""
    return any(memory.section(name) != section for name, section in command.sources.items())


_DETAILS = {
    "expired": "some of what it was made from is gone since",
    "covered": "another summary of these turns came first",
}


def sum_up(memory: Memory, command: Summarize) -> tuple[LedgerEvent, ...]:
    """Return the events that put a summary in the place of its sources, or that record why it failed."""
    overtaken = _overtaken_by(memory, command)
    if overtaken is not None:
        detail = _DETAILS.get(overtaken, f"a {overtaken} came after the memory this summary was asked for on")
        return (UpdateFailed("covered" if overtaken == "covered" else "basis", detail, command.attempts),)
    if command.failed is not None:
        return (UpdateFailed(command.failed, command.detail, command.attempts),)
    name = SummaryKey(command.thread, command.level, command.turns).section
    after = Section(command.text, command.at, command.since, command.until)
    return (
        SummaryUpdated(name, memory.section(name), after),
        *(SummaryUpdated(source, section, Section()) for source, section in command.sources.items()),
    )
