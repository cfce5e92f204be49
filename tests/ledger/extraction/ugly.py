"""Replies as small models really spoil them, each with what is to be read of it; every word here is invented.

`places` are those of the candidates that come of a reply, in the order they are read; None where the whole reply is
broken. `unread` are those among them that cannot be read, marked with a ! in the calls below. The ids are those of the
memory in `hearing.py`: a model's facts fact_2_0 to fact_2_4, a person's fact_3_0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Ugly:
    name: str
    text: str
    places: tuple[str, ...] | None
    unread: frozenset[str] = frozenset()


def _broken(name: str, text: str) -> Ugly:
    return Ugly(name, text, None)


def _read(name: str, text: str, *places: str) -> Ugly:
    named = tuple(place.removeprefix("!") for place in places)
    return Ugly(name, text, named, frozenset(place[1:] for place in places if place.startswith("!")))


def _one(name: str, place: str = "newFacts/0", /, **fields: object) -> Ugly:
    """One new fact, with these fields to spoil it."""
    fact = {"content": "Ada drinks tea", "category": "preference", "confidence": 0.9, **fields}
    return _read(name, json.dumps({"newFacts": [fact]}, ensure_ascii=False), place)


def _one_unread(name: str, **fields: object) -> Ugly:
    return _one(name, "!newFacts/0", **fields)


FACT = '{"content": "Ada drinks green tea", "category": "preference", "confidence": 0.9}'
REPLY = f'{{"newFacts": [{FACT}], "factsToRemove": []}}'
_SECTION = '{"user": {"workContext": %s}}'

WRAPPED = (
    _read("prose around it", f"Sure! Here is the JSON:\n\n{REPLY}\n\nLet me know if you need more.", "newFacts/0"),
    _read("a fence in a fence", f"```json\n```json\n{REPLY}\n```\n```", "newFacts/0"),
    _read("a fence that is never closed", f"```json\n{REPLY}", "newFacts/0"),
    _read("a fence that calls it Python", f"```python\nreply = {REPLY}\n```", "newFacts/0"),
    _read("a byte order mark and line ends of Windows", f"\ufeff\r\n{REPLY}\r\n", "newFacts/0"),
    _read("the marks of a chat template", f"<|im_start|>assistant\n{REPLY}<|im_end|>\n<|im_start|>user", "newFacts/0"),
    _read("a tool call in tags", f"<tool_call>\n{REPLY}\n</tool_call>", "newFacts/0"),
    _read("a list around it", f"[{REPLY}]", "newFacts/0"),
    _read("braces doubled as in a template", "{{%s}}" % REPLY[1:-1], "newFacts/0"),  # noqa: UP031 braces
    _read("two objects", f"{REPLY}\n{REPLY.replace('green', 'black')}", "newFacts/0"),
    _read("thought before it", f"<think>Tea? {{maybe}} yes.</think>{REPLY}", "newFacts/0"),
    _read("only the end of a thought", f'Draft: {{"newFacts": []}} no.</think>\n{REPLY}', "newFacts/0"),
    _read("a thought begun after it", f"{REPLY}\n<think>Was that all?", "newFacts/0"),
    _read("its format explained first", f'Format: {{"type": "object"}}. Answer: {REPLY}', "newFacts/0"),
    _broken("a thought that never ends", f"<think>The user likes tea, so {REPLY}"),
    _broken("a draft begun and begun again", f'{{"newFacts": [{{"content": "Ada\n\n{REPLY}'),
    _broken("a function call around it", f'{{"name": "update_memory", "arguments": {REPLY}}}'),
    _broken("an envelope of its own", f'{{"response": {REPLY}}}'),
    _broken("JSON in a string", json.dumps(REPLY)),
    _broken("JSON in the string of an envelope", json.dumps({"output": REPLY})),
    _broken("HTML with entities", f"<pre><code>{REPLY.replace(chr(34), '&quot;')}</code></pre>"),
)

NO_JSON = (
    _broken("nothing", ""),
    _broken("white space", " \n\t\n "),
    _broken("a refusal", "I'm sorry, but I can't help with remembering personal information."),
    _broken("a bulleted list", "New facts:\n- Ada drinks green tea (0.9)\n- Ada lives in Oslo (0.8)"),
    _broken("a table", "| content | category | confidence |\n|---|---|---|\n| Ada drinks tea | preference | 0.9 |"),
    _broken("YAML", "newFacts:\n  - content: Ada drinks green tea\n    confidence: 0.9\nfactsToRemove: []"),
    _broken("XML", "<newFacts><fact confidence='0.9'>Ada drinks green tea</fact></newFacts>"),
    _broken("a number", "0"),
    _broken("null", "null"),
    _broken("one word for ever", "tea " * 2_000),
)

BROKEN_JSON = (
    _broken("half of it", REPLY[: len(REPLY) // 2]),
    _broken("cut in the third fact", f'{{"newFacts": [{FACT}, {FACT}, {{"content": "Ada pl'),
    _broken("cut after its last fact", f'{{"newFacts": [{FACT}, {FACT}]'),
    _broken("a loop until the tokens were gone", '{"newFacts": [' + f"{FACT}, " * 80),
    _broken("spaces until the tokens were gone", '{"newFacts": [' + " \n" * 1_000),
    _broken("single quotes", REPLY.replace('"', "'")),
    _broken("keys without quotes", "{newFacts: [{content: 'Ada drinks tea', confidence: 0.9}]}"),
    _broken("single quotes inside", "{\"newFacts\": [{'content': 'Ada drinks tea'}]}"),
    _broken("trailing commas", f'{{"newFacts": [{FACT},], "factsToRemove": [],}}'),
    _broken("no comma between", f'{{"newFacts": [{FACT} {FACT}]}}'),
    _broken("comments of JSON5", f'{{"newFacts": [ // what is new\n {FACT} /* tea */]}}'),
    _broken("the words of Python", '{"newFacts": [], "factsToRemove": None, "ok": True}'),
    _broken("Chinese quotes", "{“newFacts”：[{“content”：“艾达喜欢喝茶”}]}"),
    _broken("Chinese colons", '{"newFacts"：[{"content"："艾达喜欢喝茶"，"confidence"：0.9}]}'),
    _broken("an ellipsis from the prompt", '{"user": {"workContext": {"summary": "…"}, "topOfMind": {…}}}'),
    _broken("three dots for the rest", f'{{"newFacts": [{FACT}, ...]}}'),
    _broken("a line break in a string", '{"newFacts": [{"content": "Ada drinks\ntea"}]}'),
    _broken("a control character in a string", '{"newFacts": [{"content": "Ada drinks\x00tea"}]}'),
    _broken("an escape that does not exist", '{"newFacts": [{"content": "C:\\Ada\\notes"}]}'),
    _broken("a quote not escaped", '{"newFacts": [{"content": "Ada says "tea" a lot"}]}'),
    _broken("a sum for a number", '{"newFacts": [{"content": "Ada drinks tea", "confidence": 0.4+0.5}]}'),
    _broken("a number with a leading zero", '{"newFacts": [{"content": "Ada drinks tea", "confidence": 09}]}'),
    _broken("brackets without end", '{"newFacts": ' + "[" * 5_000),
    _broken("objects without end", '{"user": ' * 3_000),
)

WRONG_SHAPE = (
    _broken("a bare list of facts", f"[{FACT}]"),
    _broken("one fact without a list", FACT),
    _broken("one fact a line", f"{FACT}\n{FACT}"),
    _broken("keys in another case", REPLY.replace("newFacts", "NewFacts").replace("factsTo", "FactsTo")),
    _broken("keys in snake case", '{"new_facts": [{"content": "Ada drinks tea"}], "facts_to_remove": []}'),
    _broken("only the schema", '{"type": "object", "properties": {"newFacts": {"type": "array"}}}'),
    _read("null for lists", '{"user": null, "newFacts": null, "factsToRemove": null}'),
    _read("everything empty", '{"user": {}, "history": {}, "newFacts": [], "factsToRemove": []}'),
    _read("an object for a list", '{"newFacts": {"0": {"content": "Ada drinks tea"}}}', "!newFacts"),
    _read("a string for a list", '{"newFacts": "Ada drinks tea"}', "!newFacts"),
    _read("a boolean for a list", '{"newFacts": false, "factsToRemove": true}', "!newFacts", "!factsToRemove"),
    _read("facts as strings", '{"newFacts": ["Ada drinks tea", "Ada runs"]}', "!newFacts/0", "!newFacts/1"),
    _read("null for facts", f'{{"newFacts": [null, {FACT}, null]}}', "!newFacts/0", "newFacts/1", "!newFacts/2"),
    _read("lists in lists", f'{{"newFacts": [[{FACT}], []]}}', "!newFacts/0", "!newFacts/1"),
    _broken("nested thousands of levels deep", '{"newFacts": [' + "[" * 5_000 + "]" * 5_000 + "]}"),
    _read("nested very deep", '{"newFacts": [' + "[" * 300 + "]" * 300 + "]}", "!newFacts/0"),
    _read("sections in a list", '{"user": [{"workContext": "Ada writes Rust"}]}', "!user"),
    _read("sections as one text", '{"history": "Ada moved twice."}', "!history"),
    _read("a section as a bare text", _SECTION % '"Ada writes Rust"', "!user.workContext"),
    _read("a section without its switch", _SECTION % '{"summary": "Ada writes Rust"}', "!user.workContext"),
    _read("a switch as text", _SECTION % '{"summary": "Rust", "shouldUpdate": "true"}', "!user.workContext"),
    _read("a switch as a number", _SECTION % '{"summary": "Rust", "shouldUpdate": 1}', "!user.workContext"),
    _read("a section without its text", _SECTION % '{"shouldUpdate": true}', "user.workContext"),
    _read("a section that is null", _SECTION % '{"summary": null, "shouldUpdate": true}', "!user.workContext"),
    _read("a section that does not exist", '{"user": {"hobbies": {"summary": "tea", "shouldUpdate": true}}}'),
    _read(
        "keys given twice",
        f'{{"newFacts": [{FACT}], "factsToRemove": [], "newFacts": [{FACT}]}}',
        "newFacts/0",
        "!newFacts/again0",
    ),
)

WRONG_VALUES = (
    _one_unread("NaN", confidence=float("nan")),
    _one_unread("infinity", confidence=float("inf")),
    _one_unread("a number as text", confidence="0.9"),
    _one_unread("a word for a number", confidence="high"),
    _one_unread("a percentage", confidence=90),
    _one_unread("a hair above one", confidence=1.0000000000000002),
    _one("minus nothing", confidence=-0.0),
    _one_unread("a boolean for a number", confidence=True),
    _one_unread("a text that is null", content=None),
    _one_unread("a text that is a list", content=["Ada", "drinks tea"]),
    _one("a text that is white space", content=" \n　\t"),
    _one("a text without end", content="tea " * 20_000),
    _one("a category of its own", category="hobbies / 爱好"),
    _one_unread("a category that is null", category=None),
    _one("labels in odd case", scope="USER", durability="Durable ", authority="DESCRIPTIVE"),
    _one("labels from the prompt", scope="user|task", durability="durable or transient", authority="descriptive"),
    _one("labels of other types", scope=["user"], durability=1, authority={"is": "descriptive"}),
    _one("evidence in words", evidence="the first turn"),
    _one("evidence as long as a book", evidence=["t" * 3_000]),
    _one("evidence as an object", evidence={"turn": 1}),
    _one("evidence of all kinds", evidence=[1, "2", 3.0, None, True, [4], "t1", -1, 10**30]),
    _one("lifetimes as text", expectedValidDays="one year"),
    _one("a lifetime below nothing", expectedValidDays=-30),
    _one("a lifetime past all reason", expectedValidDays=10**40),
    _one("half a day", expected_valid_days=0.5),
    _one("keys nobody asked for", id="fact_2_0", by_hand=True, byHand=True, seq=1, created_at="now", source="manual"),
    _one("half an emoji", content="Ada drinks \ud83c tea"),
    _one("a NUL and an escape", content="Ada\u0000 drinks \u001b[31mtea"),
    _one("text that runs backwards", content="\u202eAda\u202c\u200b\u2066 drinks \ufefftea\u2028and runs"),
    _read("half an emoji, escaped", '{"newFacts": [{"content": "Ada \\ud83c drinks \\udf75 tea"}]}', "newFacts/0"),
    _read(
        "a number of five thousand digits",
        f'{{"newFacts": [{{"content": "x", "confidence": {"9" * 5000}}}]}}',
        "!newFacts/0",
    ),
    _read(
        "a number past every float", '{"newFacts": [{"content": "Ada drinks tea", "confidence": 1e999}]}', "!newFacts/0"
    ),
    _read("one fact forty times", f'{{"newFacts": [{", ".join([FACT] * 40)}]}}', *(f"newFacts/{i}" for i in range(40))),
)

REFERENCES = (
    _read("an id that never was", '{"factsToRemove": ["fact_99_0", "fact_abc"]}', "factsToRemove/0", "factsToRemove/1"),
    _read("ids as numbers", '{"factsToRemove": [0, "fact_2_0"]}', "!factsToRemove/0", "factsToRemove/1"),
    _read("everything", '{"factsToRemove": ["*"]}', "factsToRemove/0"),
    _read(
        "an id with its line",
        '{"factsToRemove": ["fact_2_0 [preference | 0.90] Ada lives in Oslo"]}',
        "factsToRemove/0",
    ),
    _read(
        "an id in brackets and spaces",
        '{"factsToRemove": [" fact_2_1 ", "[fact_2_2]"]}',
        "factsToRemove/0",
        "factsToRemove/1",
    ),
    _read("the fact itself for its id", '{"factsToRemove": [{"content": "Ada lives in Oslo"}]}', "!factsToRemove/0"),
    _read(
        "what a person entered",
        '{"factsToRemove": ["fact_3_0"], "factsToReinforce": ["fact_3_0"]}',
        "factsToRemove/0",
        "factsToReinforce/0",
    ),
    _read(
        "removed and confirmed at once",
        '{"factsToReinforce": ["fact_2_0"], "factsToRemove": ["fact_2_0", "fact_2_0"]}',
        "factsToRemove/0",
        "factsToRemove/1",
        "factsToReinforce/0",
    ),
    _read(
        "a replacement that is not there",
        '{"factsToRemove": [{"id": "fact_2_0", "replacementFactIndex": 7}]}',
        "factsToRemove/0",
    ),
    _read(
        "a replacement below nothing",
        '{"factsToRemove": [{"id": "fact_2_0", "replacementFactIndex": -1}]}',
        "!factsToRemove/0",
    ),
    _read(
        "a replacement in words",
        '{"factsToRemove": [{"id": "fact_2_0", "replacementFactIndex": "the first"}]}',
        "!factsToRemove/0",
    ),
    _read(
        "a replacement too weak to enter",
        '{"newFacts": [{"content": "Ada lives in Rome", "confidence": 0.1}], '
        '"factsToRemove": [{"id": "fact_2_0", "replacementFactIndex": 0}]}',
        "newFacts/0",
        "factsToRemove/0",
    ),
    _read(
        "a confirmation without an id",
        '{"factsToReinforce": [{}, null, ""]}',
        "!factsToReinforce/0",
        "!factsToReinforce/1",
        "factsToReinforce/2",
    ),
    _read(
        "a review nobody asked for",
        '{"staleFactsToRemove": [{"id": "fact_2_0", "reason": "old"}], '
        '"staleFactsToExtend": [{"id": "fact_2_1", "extendByDays": 1e9}]}',
        "staleFactsToRemove/0",
        "!staleFactsToExtend/0",
    ),
    _read(
        "facts merged with themselves",
        '{"factsToConsolidate": [{"sourceIds": ["fact_2_0", "fact_2_0", 3], "consolidated": {"content": "Ada"}}]}',
        "!factsToConsolidate/0",
    ),
    _read(
        "all kinds of change to the same facts",
        '{"factsToReinforce": [{"id": "fact_2_0"}], "staleFactsToRemove": [{"id": "fact_2_0"}, {"id": "fact_2_1"}], '
        '"staleFactsToExtend": [{"id": "fact_2_1", "extendByDays": 999999}, {"id": "fact_2_2", "extend_by_days": 1}], '
        '"factsToConsolidate": [{"sourceIds": ["fact_2_0", "fact_2_2"], "consolidated": {"content": "Ada, in Oslo"}}, '
        '{"sourceIds": ["fact_2_2", "fact_2_3"], "consolidated": {"content": "Ada runs", "confidence": 1}}]}',
        "factsToReinforce/0",
        "staleFactsToRemove/0",
        "staleFactsToRemove/1",
        "staleFactsToExtend/0",
        "staleFactsToExtend/1",
        "factsToConsolidate/0",
        "factsToConsolidate/1",
    ),
    _read(
        "the same facts merged again and again",
        '{"factsToConsolidate": ['
        '{"sourceIds": ["fact_2_0", "fact_2_2", "fact_2_0"], "consolidated": {"content": "Ada, of Oslo"}}, '
        '{"sourceIds": ["fact_2_0", "fact_2_2"], "consolidated": {"content": "Ada and Oslo", "confidence": 1.0}}, '
        '{"sourceIds": ["fact_2_2", "fact_2_0"], "consolidated": {"content": "Oslo and Ada"}}, '
        '{"sourceIds": [], "consolidated": {"content": "Nobody"}}]}',
        *(f"factsToConsolidate/{i}" for i in range(4)),
    ),
    _read("merging in words", '{"factsToConsolidate": ["fact_2_0 and fact_2_1"]}', "!factsToConsolidate/0"),
)

UGLY = (*WRAPPED, *NO_JSON, *BROKEN_JSON, *WRONG_SHAPE, *WRONG_VALUES, *REFERENCES)

_LASTING = {"scope": "user", "durability": "durable", "authority": "descriptive"}
_ONE_FACT: dict[str, object] = {"content": "Ada @", "confidence": 0.8, "expectedValidDays": 1}
_SEVERAL: list[object] = [{"content": text, "confidence": 0.9, **_LASTING} for text in ("@ @", "@", "@ in @", "@, @")]
_MERGED: dict[str, object] = {"sourceIds": ["fact_2_0", "fact_2_2"], "consolidated": {"content": "Ada @", **_LASTING}}
_HEALTHY: tuple[dict[str, object], ...] = (
    {"newFacts": [{"content": "Ada @ @", "category": "behavior", "confidence": 0.9, "evidence": [1]}, _ONE_FACT]},
    {"newFacts": [{"content": "Not @", "category": "correction", "confidence": 0.9, "sourceError": "@"}]},
    {"user": {"topOfMind": {"summary": "Ada uploaded a file. Ada @.", "shouldUpdate": True}}},
    {"history": {"recentMonths": {"summary": "@. @.", "shouldUpdate": True, "scope": "user"}}, "newFacts": _SEVERAL},
    {"newFacts": [_ONE_FACT], "factsToRemove": ["fact_2_4", {"id": "fact_2_0", "replacementFactIndex": 0}]},
    {"factsToReinforce": [{"id": "fact_2_1"}, "fact_2_3"], "newFacts": []},
    {"staleFactsToRemove": [{"id": f"fact_2_{n}", "reason": "@"} for n in range(4)]},
    {"staleFactsToExtend": [{"id": f"fact_2_{n}", "extendByDays": 30, "reason": "@"} for n in range(4)]},
    {"factsToConsolidate": [_MERGED, {**_MERGED, "sourceIds": ["fact_2_1", "fact_2_3"]}], "newFacts": _SEVERAL},
)
HEALTHY = tuple(map(json.dumps, _HEALTHY))
"""Replies as they should be; each @ stands for a word, so that they do not always say the same."""
