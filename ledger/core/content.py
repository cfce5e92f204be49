"""What of an event is content, and how a text is found in it: what an erasure has to look at.

Content is what somebody said or a model made of it. Names are not: threads, users, turn ids, fact ids and times stay
when content goes, and so do the words in which our own rules refuse something.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.core.commands import labels_of
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    SummaryUpdated,
    Turn,
    TurnRecorded,
    Unread,
    UpdateFailed,
)
from backstory.ledger.core.policy import CATEGORIES

__all__ = ["Phrases", "Words", "about", "asides", "fact_texts", "folded", "texts_of", "turn_texts", "words_in"]

_NAMES = frozenset({"id", "at", "source"})
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_FACT_ID = re.compile(r"fact_[\w-]{1,64}", re.ASCII)
_BLANKS = frozenset("nrt")


# Nobody sees them: soft hyphens, joiners, directions, variants; and the dot that folding leaves on a Turkish capital I.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\U000e0000-\U000e0fff]|(?<=i)\u0307"
)


def folded(text: str) -> str:
    """Return what texts that differ in case, Unicode form, white space or unseen characters alone have in common."""
    if text.isascii():
        return " ".join(text.lower().split())
    once = _UNSEEN.sub("", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_UNSEEN.sub("", unicodedata.normalize("NFKC", once)).split())


def fact_texts(fact: Fact) -> tuple[str, ...]:
    """Return what a fact says."""
    return (fact.content,) if fact.source_error is None else (fact.content, fact.source_error)


def turn_texts(turn: Turn) -> Iterator[str]:
    """Yield what was said in a turn, and what the host sent along with it."""
    yield turn.content
    yield from filter(None, (turn.name, turn.cause_by, turn.sent_from, *turn.send_to))
    yield from _spelled(turn.metadata)


def _spelled(value: object) -> Iterator[str]:
    """Yield the texts and numbers in a value, its keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _spelled(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _spelled(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _quoted(text: str) -> Iterator[str]:
    """Yield a text that quotes another one in JSON or Python spelling, as it is and with its escapes undone."""
    yield text
    if "\\" in text:
        yield _ESCAPE.sub(_meant, text)


def _meant(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    if code:
        return chr(int(code, 16))
    return " " if escape[3] in _BLANKS else escape[3]


def _no_ids(named: Iterable[str]) -> Iterator[str]:
    """Yield what a model wrote where an id belongs; small ones write out the fact itself."""
    return (text for text in named if _FACT_ID.fullmatch(text) is None)


def _category(category: str | None) -> Iterator[str]:
    if category and category not in CATEGORIES:
        yield category


def _candidate_texts(candidate: Candidate) -> Iterator[str]:
    if not isinstance(candidate, Edit | Unread):
        # A label is a word of ours, or else of the model's.
        yield from labels_of(candidate).values()
    match candidate:
        case NewFact():
            yield candidate.content
            yield from _category(candidate.category)
            yield candidate.source_error or ""
        case Removal() | Extension():
            yield from _no_ids((candidate.id,))
            yield candidate.reason or ""
        case Reinforcement():
            yield from _no_ids((candidate.id,))
        case NewSummary():
            yield candidate.summary
        case Consolidation():
            yield from _no_ids(candidate.sources)
            yield candidate.content
            yield from _category(candidate.category)
        case Edit():
            yield from _category(candidate.category)
            yield candidate.content or ""
        case Unread():
            yield from _quoted(candidate.text)
            yield from _quoted(candidate.detail)


def _proposed(fields: Mapping[str, str | int | float | bool | None]) -> Iterator[str]:
    return (value for key, value in fields.items() if key not in _NAMES and isinstance(value, str))


def asides(event: Event) -> Iterator[str]:
    """Yield the content of an event beyond what its fact says: all there is where it is about no fact."""
    match event:
        case FactAdded():
            yield from _proposed(event.proposed)
        case FactRevised():
            yield from _proposed(event.proposed)
        case FactRemoved():
            yield event.note or ""
            yield from event.labels.values()
        case SummaryUpdated():
            yield from (event.before.summary, event.after.summary, event.proposed or "")
            yield from event.labels.values()
        case CandidateRejected():
            yield from _candidate_texts(event.candidate)
        case UpdateFailed():
            yield from _quoted(event.detail)
        case TurnRecorded():
            yield from turn_texts(event.turn)
        case _:
            pass


def texts_of(event: Event) -> Iterator[str]:
    """Yield all content of an event."""
    match event:
        case FactAdded(fact=fact) | FactRemoved(fact=fact):
            yield from fact_texts(fact)
        case FactRevised(before=before, after=after):
            yield from fact_texts(before)
            yield from fact_texts(after)
        case _:
            pass
    yield from asides(event)


def about(event: Event) -> Fact | None:
    """Return the fact that an event is about, as the event leaves it, or as it was removed."""
    match event:
        case FactAdded(fact=fact) | FactRemoved(fact=fact) | FactRevised(after=fact):
            return fact
        case _:
            return None


# Scripts whose words no spaces part, and Hangul, whose words carry their endings.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
    r"\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# Signs that belong to the letter before them are no letters to `re`.
_WORD = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff])+")
# Scripts without spaces that are alphabets, so that two characters say nothing yet.
_LETTERS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_NAME = re.compile(r"(?<![\w'])(?:[A-Z]{2,3}|(?<=[^\s.!?] )[A-Z][a-z]{1,2})(?!\w)")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_SHORTEST = 4
_STEM = 6


class Phrases:
    """Texts to be found wherever they stand; a short one that is a fact's only as a word of its own."""

    def __init__(self) -> None:
        self._known: set[tuple[str, bool]] = set()
        self._any: list[str] = []
        self._apart: list[re.Pattern[str]] = []
        self._by_word: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, text: str, *, anywhere: bool) -> None:
        """Take one in; an empty one is passed over. `anywhere`: as it was given, be it within a word."""
        phrase = folded(text) if anywhere else dedup_key(text)
        if not phrase or (phrase, anywhere) in self._known:
            return
        self._known.add((phrase, anywhere))
        # What stands between two spaces stands so in every text that says the phrase: a quick look tells most apart.
        inner = phrase.split(" ")[1:-1]
        if not anywhere and len(phrase) < _SHORTEST and _UNSPACED.search(phrase) is None:
            self._apart.append(re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)"))
        elif inner:
            self._by_word.setdefault(max(inner, key=len), []).append(phrase)
        else:
            self._any.append(phrase)

    def stand_in(self, texts: Iterable[str]) -> bool:
        """Whether any of some texts says one of them; the texts need not be folded."""
        return bool(self._known) and any(map(self._stand_in, map(folded, texts)))

    def _stand_in(self, text: str) -> bool:
        for phrase in self._any:
            if phrase in text:
                return True
        for pattern in self._apart:
            if pattern.search(text):
                return True
        for word in self._by_word.keys() & text.split(" ") if self._by_word else ():
            if any(phrase in text for phrase in self._by_word[word]):
                return True
        return False


def words_in(text: str) -> set[str]:
    """Return, folded, the words of a text that can give somebody away.

    These have four letters or more, or two characters and a digit among them, or are shorter and written as a name is:
    with a capital within a sentence, or in capitals. Of scripts without spaces they are pieces of two characters, or of
    three where an alphabet writes them.
    """
    plain = folded(text)
    return _pieces(plain) | {word for word in _spaced(plain) if _tells(word)} | set(map(folded, _NAME.findall(text)))


def _pieces(text: str) -> set[str]:
    """Nobody can tell where a word of these scripts begins: each piece of a run stands for the words it may be in."""
    pieces: set[str] = set()
    for run in _UNSPACED.findall(text):
        size = 3 if _LETTERS.match(run) else 2
        pieces.update(run[start : start + size] for start in range(len(run) - size + 1))
    return pieces


def _spaced(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return _WORD.findall(_UNSPACED.sub(" ", text))


def _tells(word: str) -> bool:
    return len(word) >= _SHORTEST or (len(word) > 1 and any(char.isdigit() for char in word))


class Words:
    """Words to be found; one of six letters or more also as the beginning of a longer one."""

    def __init__(self, words: Iterable[str]) -> None:
        self.all = frozenset(words)
        self._unspaced = any(_UNSPACED.fullmatch(word) for word in self.all)
        stems = [word for word in self.all if len(word) >= _STEM]
        self._begun = frozenset(word[:_STEM] for word in stems)
        self._lengths = sorted({len(word) for word in stems})

    def __bool__(self) -> bool:
        return bool(self.all)

    def used_in(self, texts: Iterable[str]) -> set[str]:
        """Return those that any of some texts uses; the texts need not be folded."""
        used: set[str] = set()
        for text in map(folded, texts if self.all else ()):
            words = set(_spaced(text))
            used |= self.all & words
            used.update(
                word[:length]
                for word in words
                if word[:_STEM] in self._begun
                for length in self._lengths
                if word[:length] in self.all
            )
            if self._unspaced:
                used |= self.all & _pieces(text)
        return used
