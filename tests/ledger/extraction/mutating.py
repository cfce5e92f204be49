"""Replies spoiled at random: the text cut, spliced and shuffled, or the object inside it grafted with others' parts.

All chance comes from the Random given, so a seed repeats every reply.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

LONGEST = 6_000
"""Characters of a spoiled reply, roughly; what is nasty about a text hardly ever needs more, and time does."""

_NASTY = (
    *"{}[]\",:\\/ \n\t`<>'0123456789.-+eE_*#",
    *"\x00\x1b\x7f\ufeff\u200b\u2028\u202e“”：，｛｝［］「」",
    "\ud800",
    "\udfff",
    "🍵",
)
_TOKENS = (
    '"newFacts"', '"factsToRemove"', '"factsToReinforce"', '"staleFactsToRemove"', '"staleFactsToExtend"',
    '"factsToConsolidate"', '"sourceIds"', '"consolidated"', '"extendByDays"', '"user"', '"history"', '"workContext"',
    '"topOfMind"', '"summary"', '"shouldUpdate"', '"content"', '"category"', '"confidence"', '"evidence"', '"id"',
    '"replacementFactIndex"', '"scope"', '"correction"', '"task"', '"fact_2_0"', '"fact_2_1"', '"fact_3_0"',
    "true", "false", "null", "NaN", "-Infinity", "0", "1", "-1", "0.95", "1e309", "1e-400", "9" * 400, '""', "[]", "{}",
    "<think>", "</think>", "```json", "```", "\\ud83d", "\\u0000", "undefined", "None", "...", "//",
)  # fmt: skip
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|[{}\[\],:]')
_VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 7, 0.95, 0.69, 0.49, 0.1, 1e309, float("nan"), 10**30, "", " ", "0.9", "fact_2_0",
    "fact_2_2", "fact_3_0", "fact_4_0", "*", "user", "task", "durable", "correction", "The user uploaded a file.",
    "Ada runs", "\ud83d", "用户上传了文件。", "x" * 5_000, [], {}, [[]], ["fact_2_0", "fact_2_2"], {"id": "fact_2_1"},
    {"id": {"id": "fact_2_1"}},
)  # fmt: skip

Spoiler = Callable[[random.Random, str, Sequence[str]], str]


def _part(chance: random.Random, text: str) -> tuple[int, int]:
    first, last = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
    return first, last


def _cut(chance: random.Random, text: str, _: Sequence[str]) -> str:
    first, last = _part(chance, text)
    return chance.choice([text[:first], text[last:], text[first:last], text[:first] + text[last:]])


def _splice(chance: random.Random, text: str, corpus: Sequence[str]) -> str:
    other = chance.choice(corpus)
    first, last = _part(chance, other)
    place = chance.randint(0, len(text))
    return text[:place] + other[first:last] + chance.choice(["", text[place:]])


def _swap(chance: random.Random, text: str, _: Sequence[str]) -> str:
    a, b, c, d = sorted(chance.randint(0, len(text)) for _ in range(4))
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def _flip(chance: random.Random, text: str, _: Sequence[str]) -> str:
    letters = list(text)
    for _number in range(chance.randint(1, 4) if letters else 0):
        letters[chance.randrange(len(letters))] = chance.choice(_NASTY)
    return "".join(letters)


def _repeat(chance: random.Random, text: str, _: Sequence[str]) -> str:
    first, last = _part(chance, text)
    return text[:last] + text[first:last] * chance.choice([1, 2, 20]) + text[last:]


def _nest(chance: random.Random, text: str, _: Sequence[str]) -> str:
    deep = chance.choice([1, 40, 2_000])
    return chance.choice(
        [
            f"```json\n{text}\n```",
            f"<think>{text}</think>{text}",
            f'{{"newFacts": [{text}]}}',
            f'{{"user": {text}}}',
            f'{{"reply": {text}}}',
            "[" * deep + text + "]" * deep,
            '{"newFacts": ' + "[" * deep + "]" * deep + "}",
            json.dumps(text),
        ]
    )


def _retoken(chance: random.Random, text: str, _: Sequence[str]) -> str:
    found = list(_TOKEN.finditer(text))
    for token in sorted(chance.sample(found, min(len(found), chance.randint(1, 3))), key=re.Match.start, reverse=True):
        text = text[: token.start()] + chance.choice(_TOKENS) + text[token.end() :]
    return text


def _graft(chance: random.Random, text: str, corpus: Sequence[str]) -> str:
    """Put another value, or a part of another reply's object, in the place of a part of this one's object."""
    stock, scion = _object_in(text), _object_in(chance.choice(corpus))
    if stock is None:
        return _retoken(chance, text, corpus)
    for _number in range(chance.randint(1, 4)):
        holder, key = chance.choice(list(_slots(stock)) or [(stock, "newFacts")])
        parts = [value[place] for value, place in _slots(scion)]  # type: ignore[index]
        value = chance.choice(parts) if parts and chance.random() < 0.6 else chance.choice(_VALUES)
        if isinstance(holder, list) and chance.random() < 0.5:
            holder.append(_copied(value))
        else:
            holder[key] = _copied(value)  # type: ignore[index]
    if scion is not None and chance.random() < 0.5:
        stock |= {key: value for key, value in scion.items() if key not in stock}
    return json.dumps(stock, ensure_ascii=chance.random() < 0.5)


SPOILERS: tuple[Spoiler, ...] = (_cut, _splice, _swap, _flip, _repeat, _nest, _retoken, _graft)
_OFTEN = (1, 1, 1, 2, 1, 1, 3, 12)
"""A text is soon broken beyond reading; a graft leaves it valid, so that deciding gets its share."""
_WORDS = (
    "tea",
    "runs",
    "Oslo",
    "Bergen",
    "Rust",
    "喝茶",
    "ＴＥＡ",
    "Tea.",
    "uploaded a file",
    "is 40",
    "no",
    "sails",
    "2026",
)
_ID = re.compile(r"fact_\d+_\d+")


def spoiled(chance: random.Random, corpus: Sequence[str], ids: Sequence[str] = ()) -> str:
    """Spoil one reply of a corpus, in up to four ways.

    Each @ in it becomes a word first, and often its ids become some of `ids`, so that it is about a memory as it is.
    """
    text = chance.choice(corpus)[:LONGEST]
    text = re.sub("@", lambda _: chance.choice(_WORDS), text)
    if ids and chance.random() < 0.6:
        text = _ID.sub(lambda found: chance.choice(ids) if chance.random() < 0.8 else found[0], text)
    ways = chance.choice([0, 1, 1, 1, 1, 2, 2, 3, 4])
    for spoil in chance.choices(SPOILERS, _OFTEN, k=ways):
        text = spoil(chance, text, corpus)[:LONGEST]
    return text


def _object_in(text: str) -> dict[str, object] | None:
    start = text.find("{")
    try:
        value = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _depth(value) < 50 else None


def _depth(value: object) -> int:
    """How deep brackets go, at most, by counting them: a value of three hundred levels is no fun to walk."""
    text = json.dumps(value)
    level = most = 0
    for letter, _next in pairwise(f"{text} "):
        level += (letter in "[{") - (letter in "]}")
        most = max(most, level)
    return most


def _slots(value: object) -> Iterator[tuple[object, object]]:
    if isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from _slots(inner)


def _copied(value: object) -> object:
    return json.loads(json.dumps(value))
