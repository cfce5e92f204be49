"""Content of events, and how an erasure finds a text or single words in it.

Content is what people or models wrote. Names of threads and users, ids of turns and facts, times, and the details that
our own rules give for a refusal are not content; they stay when content is erased.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import TIMES, labels_of
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    ErasureEvent,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactEvent,
    FactRemoved,
    FactRevised,
    Fields,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    SectionEvent,
    SettingEvent,
    SharingEvent,
    SummaryShared,
    SummaryUpdated,
    Turn,
    TurnEvent,
    TurnRecorded,
    Unread,
    UpdateEvent,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.kinds import ErasedKind
from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.core.summaries import SummaryKey

_NAMES = frozenset({"id", "at", "source", *TIMES})
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_FACT_ID = re.compile(r"fact_[\w-]{1,64}", re.ASCII)
_BLANKS = frozenset("nrt")


# Soft hyphens, joiners, direction marks, variation selectors, and the dot that folding leaves on a Turkish capital I.
@cache
def _invisible() -> re.Pattern[str]:
    return re.compile(
        "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
        "\uffa0\U000e0000-\U000e0fff]|(?<=i)\u0307"
    )


def folded(text: str) -> str:
    """Return a text folded: texts that differ only in case, Unicode form, white space or invisible characters agree."""
    if text.isascii():
        return " ".join(text.lower().split())
    once = _invisible().sub("", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_invisible().sub("", unicodedata.normalize("NFKC", once)).split())


def fact_texts(fact: Fact) -> tuple[str, ...]:
    """Return the content of a fact."""
    return (fact.content,) if fact.source_error is None else (fact.content, fact.source_error)


def all_fact_texts(fact: Fact) -> Iterator[str]:
    """Yield the content of a fact, its category if that is a free one, its tags and attributes.

    These are no texts to look for elsewhere: other facts have the same ones.
    """
    yield from fact_texts(fact)
    yield from _labels(fact)


def turn_texts(turn: Turn) -> Iterator[str]:
    """Yield the content of a turn: its text, and the routing and metadata that the host sent with it."""
    yield turn.content
    yield from filter(None, (turn.name, turn.cause_by, turn.sent_from, *turn.send_to))
    yield from _leaves(turn.metadata)
    yield from turn.tags


def _leaves(value: object) -> Iterator[str]:
    """Yield the texts, numbers and keys of a JSON value as texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # As a log spells it: see `may_say`.
        yield msgspec.json.encode(value).decode()


def _quoted(text: str) -> Iterator[str]:
    """Yield a text that may quote another one as a JSON or Python literal, as it is and with its escapes decoded."""
    yield text
    if "\\" in text:
        yield _ESCAPE.sub(_unescaped, text)


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    if code:
        return chr(int(code, 16))
    return " " if escape[3] in _BLANKS else escape[3]


def _not_ids(ids: Iterable[str]) -> Iterator[str]:
    """Yield the ids that are not ids: small models write the text of the fact instead."""
    return (text for text in ids if _FACT_ID.fullmatch(text) is None)


def _category(category: str | None) -> Iterator[str]:
    if category and category not in CATEGORIES:
        yield category


def _labels(labelled: Fact | NewFact | Edit) -> Iterator[str]:
    yield from _category(labelled.category)
    yield from labelled.tags or ()
    yield from _leaves(labelled.attributes)


def _candidate_texts(candidate: Candidate) -> Iterator[str]:
    if not isinstance(candidate, Edit | Unread):
        # A model may write any text as a label.
        yield from labels_of(candidate).values()
    match candidate:
        case NewFact():
            yield candidate.content
            yield from _labels(candidate)
            yield candidate.source_error or ""
        case Removal() | Extension():
            yield from _not_ids((candidate.id,))
            yield candidate.reason or ""
        case Reinforcement():
            yield from _not_ids((candidate.id,))
        case NewSummary():
            yield candidate.summary
        case Consolidation():
            yield from _not_ids(candidate.sources)
            yield candidate.content
            yield from _category(candidate.category)
        case Edit():
            yield from _labels(candidate)
            yield candidate.content or ""
        case Unread():
            yield from _quoted(candidate.text)
            yield from _quoted(candidate.detail)
        case _:
            assert_never(candidate)


def _proposed(fields: Fields) -> Iterator[str]:
    for name, value in fields.items():
        if name not in _NAMES and not isinstance(value, int | float):
            yield from _leaves(value)


def texts_beside_fact(event: Event) -> Iterator[str]:
    """Yield the content of an event except that of its fact: all content, if the event has no fact."""
    match event:
        case FactAdded(fact=fact):
            yield from _labels(fact)
            yield from _proposed(event.proposed)
        case FactRevised(before=before, after=after):
            yield from _labels(before)
            yield from _labels(after)
            yield from _proposed(event.proposed)
        case FactRemoved(fact=fact):
            yield from _labels(fact)
            yield event.note or ""
            yield from event.labels.values()
        case SummaryUpdated():
            yield from (event.before.summary, event.after.summary, event.proposed or "")
            yield from event.labels.values()
        case SummaryShared():
            yield from (event.text, event.proposed or "")
            yield from event.labels.values()
        case CandidateRejected():
            yield from _candidate_texts(event.candidate)
        case UpdateFailed():
            yield from _quoted(event.detail)
        case TurnRecorded():
            yield from turn_texts(event.turn)
        case SharingEvent() | UpdateProposed() | SettingEvent() | ErasureEvent() | TurnEvent():
            pass
        case _:
            assert_never(event)


def texts_of(event: Event) -> Iterator[str]:
    """Yield all content of an event."""
    yield from fact_texts_in(event)
    yield from texts_beside_fact(event)


def fact_of(event: Event) -> Fact | None:
    """Return the fact that an event adds, revises (as revised) or removes; None for any other event."""
    match event:
        case FactAdded(fact=fact) | FactRemoved(fact=fact) | FactRevised(after=fact):
            return fact
        case SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return None
        case _:
            assert_never(event)


def facts_in(event: Event) -> tuple[str, ...]:
    """Return the ids of the facts whose content an event holds, even if only in what a model says about them."""
    match event:
        case CandidateRejected(candidate=Consolidation(sources=sources)):
            return sources
        case (
            CandidateRejected(candidate=Edit(id=fact_id))
            | CandidateRejected(candidate=Removal(id=fact_id, reason=str()))
            | CandidateRejected(candidate=Extension(id=fact_id, reason=str()))
            | FactAdded(fact=Fact(id=fact_id))
            | FactRemoved(fact=Fact(id=fact_id))
            | FactRevised(after=Fact(id=fact_id))
        ):
            return (fact_id,)
        case SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return ()
        case _:
            assert_never(event)


def summary_in(event: Event) -> SummaryKey | None:
    """Return the key of the thread summary that an event writes; None if it writes none."""
    return SummaryKey.of(event.section) if isinstance(event, SummaryUpdated) else None


def document_section_in(event: Event) -> str | None:
    """Return the section of the document that an event writes or refuses to write.

    It is empty for an event that may hold the text of any section, and None for one that holds none.
    """
    match event:
        case SummaryUpdated(section=section):
            return section if section in DOCUMENT_SECTIONS else None
        case CandidateRejected(candidate=NewSummary(place=section)):
            return section
        case CandidateRejected(candidate=Unread()) | SummaryShared() | UpdateFailed():
            return ""
        case FactEvent() | SharingEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return None
        case _:
            assert_never(event)


def erased_kind(event: Event) -> ErasedKind | None:
    """Return which kind of content an event holds that an erasure may have to take; None if it holds none."""
    match event:
        case FactEvent():
            return "fact"
        case SummaryUpdated():
            return "section"
        case SummaryShared():
            return "shared"
        case CandidateRejected():
            return "candidate"
        case UpdateFailed():
            return "failure"
        case UpdateProposed():
            return "proposal"
        case SharingEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return None
        case _:
            assert_never(event)


def fact_texts_in(event: Event) -> tuple[str, ...]:
    """Return the content of an event's fact, before and after the event."""
    fact = fact_of(event)
    if fact is None:
        return ()
    return (*fact_texts(event.before), *fact_texts(fact)) if isinstance(event, FactRevised) else fact_texts(fact)


_MOST_NEEDLES = 64
"""With more of them, to read a line costs less than to look for each."""


def may_say(line: bytes, needles: Collection[str]) -> bool:
    """Whether a text on a line of a log may hold one of these folded ones; False is certain.

    A line that is folded as a whole holds each of its texts, folded, as long as JSON has escaped nothing in it.
    """
    if len(needles) > _MOST_NEEDLES or b"\\" in line:
        return True
    text = folded(line.decode("utf-8", "replace"))
    return any(needle in text for needle in needles)


def may_name(line: bytes, names: Collection[str]) -> bool:
    """Whether a line of a log may hold one of these ids or names of threads, spelled so; False is certain."""
    if len(names) > _MOST_NEEDLES or b"\\" in line:
        return True
    return any(name.encode("utf-8", "surrogatepass") in line for name in names)


_NAME = re.compile(r"(?<![\w'])(?:[A-Z]{2,3}|(?<=[^\s.!?] )[A-Z][a-z]{1,2})(?!\w)")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_SHORTEST = 4
_STEM = 6


# Scripts that do not separate words by spaces, and Hangul, whose words carry endings.
@cache
def _unspaced_run() -> re.Pattern[str]:
    return re.compile(
        r"[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
        r"\uf900-\ufaff\U00020000-\U0003ffff]+"
    )


# `re` does not count combining marks as letters.
@cache
def _any_word() -> re.Pattern[str]:
    return re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff])+")


# Alphabets among the scripts without spaces: in these, two characters are too few to identify a word.
@cache
def _letters() -> re.Pattern[str]:
    return re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


class Phrases:
    """Texts to find in other texts."""

    def __init__(self) -> None:
        self._known: set[tuple[str, bool]] = set()
        self.texts: set[str] = set()
        """The texts, folded."""
        self._any: list[str] = []
        self._apart: list[re.Pattern[str]] = []
        self._by_word: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def all(self) -> tuple[tuple[str, bool], ...]:
        """The texts, folded, each with whether it is found anywhere; they can be added to other phrases."""
        return tuple(sorted(self._known))

    def add(self, text: str, *, anywhere: bool) -> None:
        """Add a text to find; an empty one is ignored.

        Args:
            text: the text; it is folded.
            anywhere: find it also within a word, with its punctuation. Otherwise it is reduced to its dedup key, and a
                text of fewer than four characters is only found as a word.
        """
        phrase = folded(text) if anywhere else dedup_key(text)
        if not phrase or (phrase, anywhere) in self._known:
            return
        self._known.add((phrase, anywhere))
        self.texts.add(phrase)
        # A word with a space on both sides is a word of every text that holds the phrase. This rules out most texts.
        inner = phrase.split(" ")[1:-1]
        if not anywhere and len(phrase) < _SHORTEST and _unspaced_run().search(phrase) is None:
            self._apart.append(re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)"))
        elif inner:
            self._by_word.setdefault(max(inner, key=len), []).append(phrase)
        else:
            self._any.append(phrase)

    def may_occur(self, _: int, line: bytes) -> bool:
        """Whether a text on a line of a log may hold one of the phrases; False is certain."""
        return may_say(line, self.texts)

    def occur_in(self, texts: Iterable[str]) -> bool:
        """Whether one of these texts holds one of the phrases; the texts need not be folded."""
        return bool(self._known) and any(map(self._occur_in, map(folded, texts)))

    def _occur_in(self, text: str) -> bool:
        if any(phrase in text for phrase in self._any) or any(pattern.search(text) for pattern in self._apart):
            return True
        words = self._by_word.keys() & text.split(" ") if self._by_word else ()
        return any(phrase in text for word in words for phrase in self._by_word[word])


def words_in(text: str) -> set[str]:
    """Return the words of a text that may identify a person or thing, folded.

    These are words of four characters or more, of two or more with a digit, and shorter ones that are written like a
    name: capitalised within a sentence, or in capitals. In scripts without spaces they are all pieces of two
    characters, or three in alphabets.
    """
    plain = folded(text)
    words = {word for word in _spaced(plain) if _may_identify(word)}
    return _pieces(plain) | words | set(map(folded, _NAME.findall(text)))


def _pieces(text: str) -> set[str]:
    """Return all pieces of the runs in scripts without spaces, where a word may begin at any character."""
    pieces: set[str] = set()
    for run in _unspaced_run().findall(text):
        size = 3 if _letters().match(run) else 2
        pieces.update(run[start : start + size] for start in range(len(run) - size + 1))
    return pieces


def _spaced(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return _any_word().findall(_unspaced_run().sub(" ", text))


def _may_identify(word: str) -> bool:
    return len(word) >= _SHORTEST or (len(word) > 1 and any(char.isdigit() for char in word))


class ErasedWords:
    """Words to find in texts; one of six characters or more is also found as the beginning of a longer word."""

    def __init__(self, words: Iterable[str]) -> None:
        self.all = frozenset(words)
        self._unspaced = any(_unspaced_run().fullmatch(word) for word in self.all)
        stems = [word for word in self.all if len(word) >= _STEM]
        self._stems = frozenset(word[:_STEM] for word in stems)
        self._lengths = sorted({len(word) for word in stems})

    def __bool__(self) -> bool:
        return bool(self.all)

    def used_in(self, texts: Iterable[str]) -> set[str]:
        """Return the words that occur in one of these texts; the texts need not be folded."""
        used: set[str] = set()
        for text in map(folded, texts if self.all else ()):
            words = set(_spaced(text))
            used |= self.all & words
            used.update(
                word[:length]
                for word in words
                if word[:_STEM] in self._stems
                for length in self._lengths
                if word[:length] in self.all
            )
            if self._unspaced:
                used |= self.all & _pieces(text)
        return used
