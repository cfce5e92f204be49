"""Every route of a server about memories, with a request that works where there is the fact `fact_2_0`."""

from __future__ import annotations

from typing import NamedTuple

from backstory.http.access.callers import Right

MESSAGES = [
    {"id": "m1", "role": "user", "content": "I moved to Bergen."},
    {"id": "m2", "role": "assistant", "content": "Good."},
]
DOCUMENT = {"facts": [{"id": "f1", "content": "User lives in Bergen", "category": "context", "confidence": 0.9}]}


class Route(NamedTuple):
    """A request, the right it needs, and whether it makes a commit of its caller."""

    method: str
    path: str
    right: Right
    body: object = None
    query: str = ""
    commits: bool = False

    @property
    def template(self) -> tuple[str, str]:
        """The operation of the OpenAPI document."""
        path = self.path.replace("fact_2_0", "{fact_id}").replace("user.workContext", "{section}")
        path = path.replace("/commits/2", "/commits/{seq}")
        return self.method, path

    @property
    def of_deerflow(self) -> bool:
        return self.path.startswith("/api/memory")


def _reads(*paths: str) -> list[Route]:
    return [Route("GET", path.partition("?")[0], Right.READ, query=path.partition("?")[2]) for path in paths]


READS = [
    *_reads(
        "/v1/document",
        "/v1/memory",
        "/v1/facts",
        "/v1/facts/fact_2_0",
        "/v1/facts/fact_2_0/why",
        "/v1/sections/user.workContext/why",
        "/v1/why-not?text=Oslo",
        "/v1/why-said?turn=m2&thread=t1",
        "/v1/diff?a=0&b=1",
        "/v1/verify",
        "/v1/log",
        "/v1/commits/2",
        "/v1/commits/2/refusals",
        "/v1/graph",
        "/v1/messages-graph",
        "/v1/timeline",
        "/v1/usage",
        "/v1/threads",
        "/v1/turns?thread=t1",
        "/v1/search?query=Oslo",
        "/v1/context?for=Oslo",
        "/v1/head",
        "/v1/status",
        "/v1/parked",
        "/v1/policy",
        "/v1/policy/keys",
        "/v1/events",
        "/api/memory",
        "/api/memory/export",
        "/api/memory/status",
    ),
    Route("POST", "/v1/what-if", Right.READ, {"policy": {"max_facts": 10}}),
    Route("POST", "/v1/context", Right.READ, {"messages": "Oslo"}),
    Route("POST", "/api/memory/reload", Right.READ),
]
WRITES = [
    Route("POST", "/v1/record", Right.WRITE, {"thread": "t2", "messages": MESSAGES}),
    Route(
        "POST",
        "/v1/extract",
        Right.WRITE,
        {"replies": [{"thread_id": "t3", "reply": {"newFacts": [{"content": "User runs", "confidence": 0.9}]}}]},
    ),
    Route("POST", "/v1/flush", Right.WRITE, {"timeout": 0}),
    Route("POST", "/v1/retry", Right.WRITE, {}),
    Route("POST", "/v1/discard", Right.WRITE, {"thread": "t1"}),
    Route("POST", "/v1/facts", Right.WRITE, {"content": "User swims"}, commits=True),
    Route("PATCH", "/v1/facts/fact_2_0", Right.WRITE, {"content": "User lives in Bergen"}, commits=True),
    Route("DELETE", "/v1/facts/fact_2_0", Right.WRITE, commits=True),
    Route("POST", "/v1/revert", Right.WRITE, {"seq": "HEAD"}, commits=True),
    Route("POST", "/v1/rollback", Right.WRITE, {"to": 1}, commits=True),
    Route("POST", "/v1/clear", Right.WRITE, {}, commits=True),
    Route("POST", "/v1/import", Right.WRITE, {"document": DOCUMENT}, commits=True),
    Route("PATCH", "/v1/policy", Right.WRITE, {"max_facts": 50}, commits=True),
    Route("DELETE", "/api/memory", Right.WRITE, commits=True),
    Route("POST", "/api/memory/import", Right.WRITE, DOCUMENT, commits=True),
    Route("POST", "/api/memory/facts", Right.WRITE, {"content": "User swims"}, commits=True),
    Route("PATCH", "/api/memory/facts/fact_2_0", Right.WRITE, {"content": "User lives in Bergen"}, commits=True),
    Route("DELETE", "/api/memory/facts/fact_2_0", Right.WRITE, commits=True),
]
ERASURES = [
    Route("POST", "/v1/forget", Right.ERASE, {"fact_id": "fact_2_0"}, commits=True),
    Route("POST", "/v1/forget-user", Right.ERASE, {}),
]
ROUTES = [*READS, *WRITES, *ERASURES]
WHOLE_HOME = {
    ("GET", path) for path in ("/v1/scopes", "/v1/caller", "/healthz", "/readyz", "/metrics", "/api/memory/config")
}
"""Routes that are about no single memory."""
