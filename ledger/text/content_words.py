"""Content words: the words of a text that carry what it says, compared in spite of their endings."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_ENDINGS = ("ing", "ed", "es", "s", "e")
_SHORTEST_STEM = 3
_FUNCTION_TEXT = """
a an and are as at be been but by can could did do does for from had has have he her hers him his i if in
into is it its just me my no not now of on or our she so that the their them then there they this to too
user users was we were what when which who will with would you your again still also very m s t re ve ll d
don
"""


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


@cache
def _word() -> re.Pattern[str]:
    return re.compile(r"[^\W_]+")


def _terms(text: str) -> set[str]:
    """Return the words of a text without endings, and pairs of characters where words have no spaces between them."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    terms: set[str] = set()
    for run in _unspaced().findall(folded):
        terms.update(run[start : start + 2] for start in range(max(1, len(run) - 1)))
    terms.update(map(_stem, _word().findall(_unspaced().sub(" ", folded))))
    return terms


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


_FUNCTION_STEMS = frozenset(map(_stem, _FUNCTION_TEXT.split()))


def shared_words(text: str, other: str) -> float:
    """Return the share of a text's content words that another text has, from 0 to 1.

    Content words are all but the function words of English; of a text without any, all words count.
    """
    terms = _terms(text)
    content = terms - _FUNCTION_STEMS or terms
    return len(content & _terms(other)) / len(content) if content else 0.0
