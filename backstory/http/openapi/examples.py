"""Examples of answers, for the OpenAPI document: what the demo's story gives."""

from __future__ import annotations

from typing import Any

_STORED_FACT: dict[str, Any] = {
    "id": "fact_2_0",
    "content": "Ada is allergic to peanuts",
    "category": "preference",
    "confidence": 0.95,
    "createdAt": "2026-03-02T09:00:00Z",
    "source": "monday",
}
_FACT: dict[str, Any] = {**_STORED_FACT, "seq": 2, "evidence": ["m1"]}
_CAUSE = {"kind": "extraction", "thread": "monday", "turns": {"first": 1, "last": 2}, "model": "recorded"}
_HASH = "5f0c4a1be2a94f5c7f7d3b7d2e2cb4d4c0f3f3a9a1a0c27c2f3f4c7f9b1b7d10"
_DIGEST = "9b1b7d105f0c4a1be2a94f5c7f7d3b7d2e2cb4d4c0f3f3a9a1a0c27c2f3f4c7f"
_AT = "2026-03-02T09:00:00Z"
_EMPTY = {"summary": "", "updatedAt": ""}

FACT: dict[str, Any] = _FACT
FACTS: dict[str, Any] = {"items": [_FACT], "seq": 2, "next": None}
FACT_CHANGE: dict[str, Any] = {"commit": 2, "fact": _FACT, "evicted": []}
HEAD: dict[str, Any] = {"seq": 2, "hash": _HASH}
RECORDED: dict[str, Any] = {"threads": 1, "turns": 2, "skipped": 0, "backlog": False, "superseded": 0, "cut": 0}
DOCUMENT: dict[str, Any] = {
    "version": "1.0",
    "lastUpdated": _AT,
    "user": {"workContext": _EMPTY, "personalContext": _EMPTY, "topOfMind": _EMPTY},
    "history": {"recentMonths": _EMPTY, "earlierContext": _EMPTY, "longTermBackground": _EMPTY},
    "facts": [_STORED_FACT],
}
CONTEXT: dict[str, Any] = {
    "text": "<memory>\nFacts:\n- [preference | 0.95] Ada is allergic to peanuts\n</memory>",
    "tokens": 24,
    "counter": "tiktoken:o200k_base",
    "standing": "<memory>\nFacts:\n- [preference | 0.95] Ada is allergic to peanuts\n</memory>",
    "found": "",
    "facts": ["fact_2_0"],
    "turns": [],
    "sections": [],
    "summaries": 0,
    "left_out": 0,
    "sections_left_out": 0,
    "summaries_left_out": 0,
    "max_tokens": 2000,
    "seq": 2,
    "digest": _DIGEST,
    "of_user": False,
}
FOUND: dict[str, Any] = {
    "hits": [{**_FACT, "score": 1.0}],
    "within": "facts",
    "total": 1,
    "model": None,
    "embedded": 0,
    "trouble": None,
}
CALLER: dict[str, Any] = {
    "name": "token:laptop",
    "right": "write",
    "users": ["ada"],
    "user": "ada",
    "version": "0.1.0",
}
COMMIT: dict[str, Any] = {"seq": 2, "at": _AT, "hash": _HASH, "cause": _CAUSE, "summary": "+1 fact", "events": []}
LOG: dict[str, Any] = {
    "items": [COMMIT],
    "next": None,
}
REFUSALS: dict[str, Any] = {
    "items": [
        {
            "index": 2,
            "kind": "newFact",
            "content": "Ada may like tea",
            "confidence": 0.5,
            "rule": "threshold",
            "detail": "confidence 0.5 is under the threshold of 0.7",
            "fact": None,
            "needs": {"key": "fact_confidence_threshold", "value": 0.5},
            "unless": None,
        }
    ]
}
WHY: dict[str, Any] = {
    "id": "fact_2_0",
    "fact": _FACT,
    "live": False,
    "cited": True,
    "added": {"seq": 2, "at": _AT, "cause": _CAUSE},
    "evidence": [{"turn": "m1", "thread": "monday", "role": "user", "content": "I am allergic to peanuts.", "at": _AT}],
    "history": [{"seq": 2, "at": _AT, "type": "FactAdded", "cause": "extraction", "detail": "added"}],
    "removed": {"seq": 3, "at": _AT, "reason": "model"},
}
WHY_SAID: dict[str, Any] = {
    "turn": "m2",
    "thread": "monday",
    "role": "assistant",
    "content": "Then no satay for you.",
    "at": _AT,
    "noted": True,
    "seq": 2,
    "digest": _DIGEST,
    "holds": True,
    "of_user": False,
    "facts": [
        {
            "id": "fact_2_0",
            "live": True,
            "content": "Ada is allergic to peanuts",
            "category": "preference",
            "confidence": 0.95,
        }
    ],
    "turns": [],
}
MEMORY: dict[str, Any] = {
    "seq": 2,
    "at": _AT,
    "cause": _CAUSE,
    "summary": "+1 fact",
    "sections": [
        {"section": name, "summary": "", "updated_at": ""}
        for name in (
            "user.workContext",
            "user.personalContext",
            "user.topOfMind",
            "history.recentMonths",
            "history.earlierContext",
            "history.longTermBackground",
        )
    ],
    "facts": {"total": 1, "offset": 0, "items": [_FACT]},
    "categories": {"preference": 1},
    "tags": {},
    "count": 1,
    "changed": {"added": ["fact_2_0"], "removed": [], "revised": [], "sections": []},
}
TIMELINE: dict[str, Any] = {
    "commits": 2,
    "first": {"seq": 1, "at": _AT},
    "last": {"seq": 2, "at": "2026-03-02T09:05:00Z"},
    "since": _AT,
    "until": "2026-03-02T09:05:00Z",
    "kinds": {"extraction": 1, "genesis": 1},
    "buckets": [
        {"at": _AT, "seq": 1, "commits": 1, "kinds": {"genesis": 1}},
        {"at": "2026-03-02T09:04:58.500000Z", "seq": 2, "commits": 1, "kinds": {"extraction": 1}},
    ],
}
USAGE: dict[str, Any] = {
    "days": [{"day": "2026-03-02", "model": "gpt-5-mini", "updates": 3, "tokens_in": 2840, "tokens_out": 310}]
}
