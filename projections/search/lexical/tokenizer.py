"""Tokenizer: the words of a text, cut the same way for entries and for queries."""

from __future__ import annotations

import re
import threading
import unicodedata
from datetime import date
from functools import cache, lru_cache
from itertools import pairwise
from string import ascii_lowercase
from typing import Protocol

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"  # kana, Han, Hangul
)
_MARKS = "\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"  # vowel signs, which Python's \w leaves out
_PICTURES = "\u2600-\u27bf\U0001f300-\U0001faff"
_SIGNED = r"\b[a-z](?:\+\+|\#)"  # c++, c#
_PLAIN = re.compile(rf"{_SIGNED}|[a-z0-9]+")
_ACCENTS = re.compile("([a-z])[\u0300-\u036f]+")

_STEMMERS = (
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x04FF, "russian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
)
_CACHED = 1 << 15
_SHORTEST, _LONGEST = 4, 24
"""A shorter word has too many neighbours to guess which one was meant; a longer one is none that people write, and the
ways to mistype it grow with its length."""

# Closed classes only: articles, pronouns, prepositions, conjunctions, auxiliaries, question words, and what is left of
# contractions. "may" is a month, and "will" is a name as often as people are asked about.
_CLOSED = """
    a an the and or but nor if then else than as so too very just also only not no
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves one
    this that these those there here what which who whom whose when where why how
    am is are was were be been being do does did doing done have has had having can could would should shall might must
    to of in on at by for from with about into onto over under up down out off between through during before after
    again more most some any each other own same such both all
    s t d m ll re ve don isn aren wasn weren doesn didn haven hasn hadn won wouldn couldn shouldn
    """
_PARTICLES = (
    "的了着过是我你您他她它们自己在有和与就不没也都还很太这那哪谁什么怎为个些几多少吗呢吧啊呀把被从到对给让会能可以要"
)


@cache
def _any_word() -> re.Pattern[str]:
    return re.compile(
        rf"\d{{1,4}}[年月日号]|(?P<run>[{_UNSPACED}]+)|{_SIGNED}|(?:[^\W_{_UNSPACED}]|[{_MARKS}])+|[{_PICTURES}]"
    )


@cache
def _stops() -> frozenset[str]:
    pairs = frozenset(first + second for first in _PARTICLES for second in _PARTICLES)
    return frozenset(_CLOSED.split()) | frozenset(_PARTICLES) | pairs


def words_of(text: str) -> list[str]:
    """Cut a text into words to compare, in their order: normalized (NFKC, no case, no accents) and stemmed.

    Scripts without spaces give characters and pairs of them. Words that carry no meaning of their own (articles,
    pronouns, question words) are left out, unless the text has no others.
    """
    return [_stem(word) for word in _meant(text)]


def words_of_day(day: str) -> list[str]:
    """Spell out a day (YYYY-MM-DD, UTC) as it is asked for, in English and Chinese; nothing where it is no day."""
    try:
        on = date.fromisoformat(day)
    except ValueError:
        return []
    return words_of(f"{on.day} {_MONTHS[on.month - 1]} {on.year} {on.year}年 {on.month}月 {on.day}日 {on.day}号")


def as_said(text: str) -> dict[str, str]:
    """Return the words of a text, as `words_of` does but each once, with how the text has it, normalized alone."""
    said: dict[str, str] = {}
    for word in _meant(text):
        said.setdefault(_stem(word), word)
    return said


def spellings(said: str) -> list[str]:
    """Return what a word may have been meant to be, as `words_of` would cut it: all that is one slip of a key away.

    `said` is the word before stemming. A short or very long word, or one in other letters than Latin, has none.
    """
    if not _SHORTEST <= len(said) <= _LONGEST or not (said.isascii() and said.isalpha()):
        return []
    halves = [(said[:at], said[at:]) for at in range(1, len(said) + 1)]
    slips = [left + right[1:] for left, right in halves if right]
    slips += [left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1]
    slips += [left + letter + right[1:] for left, right in halves if right for letter in ascii_lowercase]
    slips += [left + letter + right for left, right in halves for letter in ascii_lowercase]
    # Not through the cache, which hundreds of made-up words would sweep.
    stem = _stemmers.of("english").stemWord
    return list(dict.fromkeys(stem(slip) for slip in slips if slip not in _stops()))


def _meant(text: str) -> list[str]:
    found = _cut(text)
    return [word for word in found if word not in _stops()] or found


def _cut(text: str) -> list[str]:
    text = text.casefold()
    if text.isascii():
        return _PLAIN.findall(text)
    text = unicodedata.normalize("NFKC", _ACCENTS.sub(r"\1", unicodedata.normalize("NFKD", text))).casefold()
    found: list[str] = []
    for match in _any_word().finditer(text):
        word = match[0]
        if match["run"] is None:
            found.append(word)
        else:
            found += word
            found += map("".join, pairwise(word))
    return found


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802, the library's name


class _Stemmers(threading.local):
    """A thread's own stemmers: the library's must not be shared."""

    def __init__(self) -> None:
        self._known: dict[str, _Stemmer] = {}

    def of(self, language: str) -> _Stemmer:
        stemmer = self._known.get(language)
        if stemmer is None:
            import Stemmer

            stemmer = self._known[language] = Stemmer.Stemmer(language)
        return stemmer


_stemmers = _Stemmers()


@lru_cache(_CACHED)
def _stem(word: str) -> str:
    first = ord(word[0])
    language = "english"
    if first >= _STEMMERS[0][0]:
        language = next((name for low, high, name in _STEMMERS if low <= first <= high), language)
    return _stemmers.of(language).stemWord(word)
