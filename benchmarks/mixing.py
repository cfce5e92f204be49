"""Many clients that read and write through the server at once, and whether what was acknowledged is in the logs, once.

Two clients share each memory. A client records with a key, and sends a part of its requests again: after the answer, or
after it has closed the connection without waiting for one. What it is told to be recorded has to be there; what it
reads has to contain what it has changed before.
"""

from __future__ import annotations

import http.client
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec

from backstory import Backstory
from backstory.results import FactChange

__all__ = ["Mixed", "mixing"]

_REPEATED = 0.25
_ABANDONED = 0.05
_MOST_FACTS = 100
"""Of each client: the memory has room for all of them."""

_PER_THREAD = 12
_WORDS = ("tea", "Bergen", "night trains", "the release", "unit tests", "wool sweaters", "the ferry", "black coffee")


class Mixed(msgspec.Struct, frozen=True):
    """What came of it. `errors` counts answers of another status than expected, and reads without an own change."""

    requests: int
    repeated: int
    errors: int
    lost: int
    doubled: int
    p50: float
    p99: float
    longest: float
    notes: tuple[str, ...] = ()
    """What the first errors were."""


class _Fact(msgspec.Struct):
    id: str
    content: str


class _Shown(msgspec.Struct):
    facts: list[_Fact]


class _Client:
    """One client, in a thread of its own, with a connection that it keeps."""

    def __init__(self, number: int, port: int, user: str) -> None:
        self.user = user
        self.said: list[tuple[str, str]] = []
        """The thread and the text of each turn that was acknowledged."""
        self.facts: dict[str, str] = {}
        """The content of each fact that was acknowledged, by its id."""
        self.spans: list[float] = []
        self.repeated = 0
        self.notes: list[str] = []
        self._number = number
        self._port = port
        self._chance = random.Random(number)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._count = 0
        self._added = 0
        self._tag: str | None = None

    def run(self, until: float) -> None:
        ways: tuple[tuple[Callable[[], None], int], ...] = (
            *((self._record, 6), (self._add_fact, 1), (self._edit_fact, 1), (self._document, 3)),
            *((self._search, 2), (self._context, 2), (self._log, 1), (self._why, 1)),
        )
        steps, weights = zip(*ways, strict=True)
        try:
            while time.monotonic() < until:
                self._chance.choices(steps, weights)[0]()
        except Exception as error:  # noqa: BLE001 it is counted, and the others go on
            self.notes.append(f"{type(error).__name__}: {error}")
        finally:
            self._connection.close()

    def _ask(
        self, method: str, path: str, body: object = None, *, wanted: Iterable[int] = (200,), **headers: str
    ) -> tuple[int, bytes, str | None]:
        data = None if body is None else msgspec.json.encode(body)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            sent["content-type"] = "application/json"
        start = time.perf_counter()
        self._connection.request(method, self._target(path), data, sent)
        answer = self._connection.getresponse()
        found = answer.read()
        self.spans.append(time.perf_counter() - start)
        if answer.status not in wanted:
            self.notes.append(f"{method} {path}: {answer.status} {found[:200].decode(errors='replace')}")
        return answer.status, found, answer.headers["ETag"]

    def _target(self, path: str) -> str:
        return f"/v1/{path}{'&' if '?' in path else '?'}user={quote(self.user)}"

    def _once(self, method: str, path: str, body: object, wanted: int) -> bytes:
        """Send a change with a key, now and then several times; return the last answer."""
        self._count += 1
        key = f"client-{self._number}-{self._count}"
        if self._chance.random() < _ABANDONED:
            self._abandon(method, path, body, key)
        found = self._ask(method, path, body, wanted=(wanted,), idempotency_key=key)[1]
        while self._chance.random() < _REPEATED:
            self.repeated += 1
            found = self._ask(method, path, body, wanted=(wanted,), idempotency_key=key)[1]
        return found

    def _abandon(self, method: str, path: str, body: object, key: str) -> None:
        self.repeated += 1
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"content-type": "application/json", "idempotency-key": key}
        connection.request(method, self._target(path), msgspec.json.encode(body), headers)
        connection.close()

    def _text(self) -> str:
        return f"{self._chance.choice(_WORDS)} and {self._chance.choice(_WORDS)}, case {self._number}.{self._count}"

    # Writes.

    def _record(self) -> None:
        thread = f"talk-{self._number}-{self._count // _PER_THREAD}"
        texts = [f"What about {self._text()}?", f"I know {self._text()}."]
        roles = ("user", "assistant")
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        self._once("POST", "record", {"thread": thread, "messages": messages}, 200)
        self.said += [(thread, text) for text in texts]

    def _add_fact(self) -> None:
        if self._added >= _MOST_FACTS:
            return
        self._added += 1
        made = self._once("POST", "facts", {"content": f"User likes {self._text()}", "category": "preference"}, 201)
        self._note(made)

    def _edit_fact(self) -> None:
        if self.facts:
            fact_id = self._chance.choice([*self.facts])
            self._note(self._once("PATCH", f"facts/{fact_id}", {"content": f"User avoids {self._text()}"}, 200))

    def _note(self, made: bytes) -> None:
        fact = msgspec.json.decode(made, type=FactChange).fact
        if fact is not None:
            self.facts[fact.id] = fact.content

    # Reads.

    def _document(self) -> None:
        headers = {} if self._tag is None else {"if_none_match": self._tag}
        status, found, self._tag = self._ask("GET", "document", wanted=(200, 304), **headers)
        if status == 200:
            shown = {fact.id: fact.content for fact in msgspec.json.decode(found, type=_Shown).facts}
            if not self.facts.items() <= shown.items():
                self.notes.append("GET document: it is older than what this client has changed")

    def _search(self) -> None:
        self._ask("GET", f"search?{urlencode({'query': self._chance.choice(_WORDS), 'top_k': 5})}")

    def _context(self) -> None:
        self._ask("GET", f"context?{urlencode({'for': self._text(), 'max_tokens': 500})}")

    def _log(self) -> None:
        self._ask("GET", "log?limit=20")

    def _why(self) -> None:
        if self.facts:
            self._ask("GET", f"facts/{self._chance.choice([*self.facts])}/why")


def mixing(home: Path, port: int, *, clients: int, seconds: float) -> Mixed:
    """Let so many clients use a server for so long, then hold the logs of its home to what it has acknowledged.

    Args:
        home: The home that it serves.
        port: Its port.
        clients: How many.
        seconds: How long.
    """
    asking = [_Client(number, port, f"user-{number // 2}") for number in range(clients)]
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=client.run, args=(until,)) for client in asking]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lost, doubled, notes = _held_to(home, asking)
    notes += [note for client in asking for note in client.notes]
    spans = sorted(span for client in asking for span in client.spans)
    return Mixed(
        requests=len(spans),
        repeated=sum(client.repeated for client in asking),
        errors=len(notes),
        lost=lost,
        doubled=doubled,
        p50=statistics.median(spans),
        p99=spans[int(0.99 * len(spans))],
        longest=spans[-1],
        notes=tuple(notes[:10]),
    )


def _held_to(home: Path, clients: Iterable[_Client]) -> tuple[int, int, list[str]]:
    """Return how many turns and facts are missing, how many are there too often, and what else is wrong."""
    said: dict[str, Counter[tuple[str, str]]] = {}
    facts: dict[str, dict[str, str]] = {}
    for client in clients:
        said.setdefault(client.user, Counter()).update(client.said)
        facts.setdefault(client.user, {}).update(client.facts)
    lost = doubled = 0
    notes = []
    with Backstory.open(home, background=False) as bs:
        for user, turns in said.items():
            memory = bs.memory(user)
            there = Counter(
                (thread.thread, turn.content)
                for thread in memory.threads()
                for turn in memory.transcript(thread.thread)
            )
            lost += (turns - there).total()
            doubled += (there - turns).total()
            kept = {fact.id: fact.content for fact in memory.facts()}
            lost += sum(kept.get(fact_id) != content for fact_id, content in facts[user].items())
            doubled += len(kept.keys() - facts[user].keys())
            proof = memory.verify()
            if not proof.ok:
                notes.append(f"verify {user}: {proof.problems[:3]}")
    return lost, doubled, notes
