"""A client of DeerFlow's gateway, whose memory routes are ours: small apps around one home, one per caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fakes import FakeClock, open_home
from fastapi import FastAPI, Request, Response
from starlette.testclient import TestClient

from backstory.home import Backstory
from backstory.http.access.callers import LOCAL, Caller
from backstory.http.deerflow import router

EMPTY_SECTION = {"summary": "", "updatedAt": ""}
SECTIONS = {
    "user": ("workContext", "personalContext", "topOfMind"),
    "history": ("recentMonths", "earlierContext", "longTermBackground"),
}
ADA = {"X-Backstory-User": "ada"}
MEMORY = "/api/memory"
FACTS = "/api/memory/facts"


def document(*facts: dict[str, object], **sections: str) -> dict[str, object]:
    """A whole document with these facts, and texts for these sections."""
    groups = {
        group: {name: {**EMPTY_SECTION, "summary": sections.get(name, "")} for name in names}
        for group, names in SECTIONS.items()
    }
    return {"version": "1.0", "lastUpdated": "2026-03-26T12:00:00Z", **groups, "facts": list(facts)}


def fact(fact_id: str, content: str, **more: object) -> dict[str, object]:
    stated = {"id": fact_id, "content": content, "category": "preference", "confidence": 0.9}
    return {**stated, "createdAt": "2026-03-20T00:00:00.000000Z", "source": "thread-1", **more}


def contents(response: object) -> list[str]:
    return [one["content"] for one in response.json()["facts"]]  # type: ignore[attr-defined]


class Gateway:
    """A home and its routes."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.clock = FakeClock()
        self.path = path
        self.home: Backstory = open_home(path, clock=self.clock, **settings)

    def client(self, caller: Caller = LOCAL, user: str | None = "ada") -> TestClient:
        """A client whose requests are this caller's, and name this user."""
        app = FastAPI()

        @app.middleware("http")
        async def who(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
            request.state.caller = caller
            return await call_next(request)

        app.state.home = self.home
        app.router.routes.extend(router.routes)
        return TestClient(app, headers={} if user is None else {"X-Backstory-User": user})
