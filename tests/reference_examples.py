"""Recorder of the examples in the OpenAPI document: what a server answers about the first conversation of the demo."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fakes import FakeClock, ScriptedModel, open_home
from starlette.testclient import TestClient

from backstory.http.access.tokens import FILE as TOKENS
from backstory.http.access.tokens import TokenFile
from backstory.http.app import create_app
from backstory.http.openapi import schemas
from backstory.ledger.extraction.models.model import Answer, Usage
from backstory.projections.context.given import Given

FILE = Path(schemas.__file__).with_name("examples.json")
_DEMO = Path(schemas.__file__).parents[2] / "cli/demo_data"
_CONFIG = ("max_facts", "fact_confidence_threshold", "debounce_seconds")
_SETTINGS = {"embedding_model": "none", "token_counting": "char"}
"""What any installation has."""
_QUESTION = "Do peanuts go into the dinner on Sunday?"


def recorded() -> dict[str, Any]:
    """Return an example of each type, by its name."""
    said = [json.loads(line) for line in (_DEMO / "monday.jsonl").read_text(encoding="utf-8").splitlines()]
    reply = json.loads((_DEMO / "monday.reply.jsonl").read_text(encoding="utf-8"))["reply"]
    reply["newFacts"] = [reply["newFacts"][0], reply["newFacts"][3]]
    model = ScriptedModel(Answer(json.dumps(reply), "gpt-5-mini", Usage(2840, 310)))
    clock = FakeClock(datetime(2026, 3, 2, 18, 4, tzinfo=UTC))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        made = TokenFile(home / TOKENS).add("laptop", "write", ["ada"])
        app = create_app(partial(open_home, home, model, clock=clock, **_SETTINGS), environ={})
        with TestClient(app, "http://127.0.0.1", headers={"Authorization": f"Bearer {made.token}"}) as client:

            def get(path: str, **query: object) -> Any:
                return client.get(path, params=query).raise_for_status().json()

            def post(path: str, body: object) -> Any:
                clock.advance(60)
                return client.post(path, json=body).raise_for_status().json()

            found = {"RecordResult": post("/v1/record", {"thread": "monday", "messages": said[:2]})}
            post("/v1/extract", {})
            block = get("/v1/context", **{"for": _QUESTION})
            given = Given(block["seq"], block["digest"], tuple(block["facts"]), ()).noted()
            asked = {"id": "s1", "role": "user", "content": _QUESTION}
            answer = {"id": "s2", "role": "assistant", "content": "No: you are allergic to them.", "metadata": given}
            post("/v1/record", {"thread": "sunday", "messages": [asked, answer]})
            status = get("/api/memory/status")
            config = status["config"]["backend_config"]
            status["config"]["backend_config"] = {key: config[key] for key in _CONFIG}
            found |= {
                "CallerShown": get("/v1/caller"),
                "CommitRefusals": get("/v1/commits/2/refusals"),
                "Context": block,
                "Document": get("/v1/document"),
                "Fact": get("/v1/facts/fact_2_0"),
                "FactPage": get("/v1/facts"),
                "Found": get("/v1/search", query="peanuts"),
                "Head": get("/v1/head"),
                "LogEntry": get("/v1/commits/2"),
                "LogPage": get("/v1/log", limit=1),
                "MemoryConfig": status["config"],
                "MemoryMoment": get("/v1/memory"),
                "MemoryStatus": status,
                "ModelUsage": get("/v1/usage"),
                "Timeline": get("/v1/timeline", buckets=2),
                "Why": get("/v1/facts/fact_2_0/why"),
                "WhySaid": get("/v1/why-said", turn="s2"),
            }
            found["FactChange"] = post("/v1/facts", {"content": "Ada lives in Oslo", "category": "knowledge"})
    return dict(sorted(found.items()))


def text() -> str:
    """Return the examples as their file holds them."""
    return json.dumps(recorded(), indent=1, ensure_ascii=False) + "\n"
