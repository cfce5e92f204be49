"""Bare acknowledgements ("ok, thanks!"): messages that nothing is learned from."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple, TypeAlias

from backstory.ledger.text.word_lists import word_lists

_MAX_TEXT = 80
"""Characters; an acknowledgement that takes longer to say is about something."""
_SUBSTANCE_BYTES = 8

_LONG_RUN = re.compile(r"(.)\1{2,}")
_APOSTROPHES = str.maketrans("", "", "'’‘`´")
_DENIALS = frozenset("👎❌🚫✖✗✘⛔❎🙅")
"""Signs that answer no; every other emoji only decorates."""

_Phrase: TypeAlias = tuple[str, ...]


class _Phrases(NamedTuple):
    """Known phrases, each as its words: whole acknowledgements, and what may stand before and after one."""

    whole: frozenset[_Phrase]
    before: frozenset[_Phrase]
    after: frozenset[_Phrase]
    first: frozenset[_Phrase]
    """The words that begin any of them: most messages have another one, so they are decided at once."""
    longest: int


@cache
def _word() -> re.Pattern[str]:
    return re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


@cache
def _known() -> _Phrases:
    lists = word_lists("acknowledgements")
    whole, before, after = (
        frozenset(tuple(_word().findall(phrase)) for phrase in lists[name]) for name in ("whole", "before", "after")
    )
    every = whole | before | after
    return _Phrases(whole, before, after, frozenset((phrase[0],) for phrase in every), max(map(len, every)))


def is_acknowledgement(text: str) -> bool:
    """Say whether a message is nothing but a bare acknowledgement, in English or in Chinese.

    After normalising (full-width forms, case, punctuation, emoji) the text has to be a row of known phrases and nothing
    else: "ok", "great, thanks a lot", "好的，谢谢！". A text without any word, like "👍" or "…", is one as well. One
    word beyond that makes it a message with something in it, and so does a denial ("no", "not really", 👎), for a
    denial answers a question. A letter drawn out ("yesss", "okkkk") counts as said once or twice. A text of more than
    80 characters is never one.
    """
    text = text.strip()
    if len(text) > _MAX_TEXT or not _DENIALS.isdisjoint(text):
        return False
    words = _word().findall(unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES))
    known = _known()
    drawn_out = any(map(_LONG_RUN.search, words))
    # whole: the words so far are a row of acknowledgements; led: besides, words that lead to the next one.
    whole, led = {0}, set[int]()
    for at in range(len(words)):
        if (at not in led and at not in whole) or known.first.isdisjoint(
            _spellings(words[at : at + 1], drawn_out=drawn_out)
        ):
            continue
        for length in range(1, known.longest + 1):
            spellings = _spellings(words[at : at + length], drawn_out=drawn_out)
            if not known.whole.isdisjoint(spellings) or (at and at in whole and not known.after.isdisjoint(spellings)):
                whole.add(at + length)
            if not known.before.isdisjoint(spellings):
                led.add(at + length)
    return len(words) in whole


def _spellings(phrase: list[str], *, drawn_out: bool) -> set[_Phrase]:
    """Return the ways a phrase may be meant: as it stands, and with what was drawn out said twice or once.

    Without `drawn_out` no letter of it stands three times in a row.
    """
    last = phrase[-1]
    undoubled = last[:-1] if last[-2:-1] == last[-1:] else last
    if not drawn_out:
        return {tuple(phrase), (*phrase[:-1], undoubled)}
    return {
        tuple(phrase),
        (*phrase[:-1], undoubled),
        tuple(_LONG_RUN.sub(r"\1\1", word) for word in phrase),
        tuple(_LONG_RUN.sub(r"\1", word) for word in phrase),
    }


def has_substance(content: str) -> bool:
    """Say whether a text says enough to be recognised by: more than a greeting, "yes", or "thank you very much"."""
    letters = 0
    for character in content:
        if character.isalnum():
            # A Chinese character says as much as a syllable.
            letters += len(character.encode("utf-8", "replace"))
            if letters >= _SUBSTANCE_BYTES:
                return not is_acknowledgement(content)
    return False
