"""The FastAPI example: each user's own memory, behind authentication, and nothing that blocks the event loop."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from doubles.curls import curls
from fastapi import FastAPI

from backstory import MemoryHandle
from backstory.ledger.core.errors import LockTimeoutError

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The example is a script and no package, so it is loaded by its path."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLES / "fastapi_app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fastapi_app"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(EXAMPLES))
        sys.modules.pop("fastapi_app", None)


class Visitor:
    """A client of the app with the token of a user."""

    def __init__(self, app: FastAPI, user: str) -> None:
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://app",
            headers={"Authorization": f"Bearer token-of-{user}"},
        )

    async def say(self, thread: str, words: str) -> str:
        answer = await self._client.post(f"/threads/{thread}/messages", json={"content": words})
        return answer.raise_for_status().json()["content"]

    async def memory(self) -> list[dict[str, object]]:
        return (await self._client.get("/memory")).raise_for_status().json()

    async def delete(self, fact: object) -> int:
        return (await self._client.delete(f"/memory/{fact}")).status_code


def served(app: FastAPI, visit) -> None:
    """Run a visit of the app between its begin and its end."""

    async def both() -> None:
        async with app.router.lifespan_context(app):
            await visit(app)

    asyncio.run(both())


def test_the_page_shows_what_the_app_answers(example, tmp_path):
    shown = curls(EXAMPLES.parent / "docs/how-to/fastapi.md")

    async def visit(app: FastAPI) -> None:
        client = Visitor(app, "ada")._client
        for curl in shown:
            said = await client.request(curl.method, curl.path, json=curl.body)
            assert said.text == curl.answer
            assert await app.state.backstory.aflush()

    served(example.create_app(tmp_path), visit)
    assert len(shown) == 3


def test_each_user_is_answered_from_their_own_memory(example, tmp_path):
    async def visit(app: FastAPI) -> None:
        ada, bob = Visitor(app, "ada"), Visitor(app, "bob")
        await asyncio.gather(ada.say("monday", "I live in Bergen."), bob.say("monday", "I play the cello."))
        assert await app.state.backstory.aflush()
        assert await ada.say("tuesday", "Where do I live?") == "I remember this: User lives in Bergen."
        assert await bob.say("tuesday", "Where do I live?") == "You have not told me yet."
        (known,) = await ada.memory()
        assert (known["content"], known["words"]) == ("User lives in Bergen", ["I live in Bergen."])
        assert await ada.delete("fact_9_9") == 404
        assert await bob.delete(known["id"]) == 204  # his own fact has the same id
        assert await ada.memory() == [known]
        assert await ada.delete(known["id"]) == 204
        assert await ada.memory() == []
        assert await ada.say("wednesday", "Where do I live?") == "You have not told me yet."

    served(example.create_app(tmp_path), visit)


def test_memory_outlives_the_app(example, tmp_path):
    async def first(app: FastAPI) -> None:
        await Visitor(app, "ada").say("monday", "I live in Bergen.")

    async def second(app: FastAPI) -> None:
        assert [fact["content"] for fact in await Visitor(app, "ada").memory()] == ["User lives in Bergen"]

    served(example.create_app(tmp_path), first)
    served(example.create_app(tmp_path), second)


def test_the_model_gets_what_was_said_before_in_the_conversation(example, tmp_path):
    prompts: list[list[dict[str, str]]] = []

    def model(messages: list[dict[str, str]]) -> str:
        if "<current_memory>" in messages[-1]["content"]:
            return '{"newFacts": []}'
        prompts.append(messages)
        return "Fine."

    async def visit(app: FastAPI) -> None:
        for words in ("one", "two"):
            await Visitor(app, "ada").say("monday", words)

    served(example.create_app(tmp_path, model), visit)
    assert [message["content"] for message in prompts[1][1:]] == ["one", "Fine.", "two"]


def test_a_request_without_a_valid_token_gets_nothing(example, tmp_path):
    async def visit(app: FastAPI) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
            assert (await client.get("/memory")).status_code in (401, 403)
            refused = await client.get("/memory", headers={"Authorization": "Bearer ada"})
            assert refused.status_code == 401
        assert app.state.backstory.owners() == ()

    served(example.create_app(tmp_path), visit)


def test_a_memory_that_is_locked_is_a_503_that_says_what_to_do(example, tmp_path, monkeypatch):
    def locked(*_: object, **__: object) -> None:
        raise LockTimeoutError("another process writes: try again")

    async def visit(app: FastAPI) -> None:
        monkeypatch.setattr(MemoryHandle, "record", locked)
        with pytest.raises(httpx.HTTPStatusError) as refused:
            await Visitor(app, "ada").say("monday", "I live in Bergen.")
        assert refused.value.response.status_code == 503
        assert refused.value.response.json() == {"detail": "another process writes: try again"}

    served(example.create_app(tmp_path), visit)


def test_no_method_of_memory_runs_on_the_event_loop(example, tmp_path, monkeypatch):
    threads: dict[str, set[str]] = {}

    def noted(name: str):
        method = getattr(MemoryHandle, name)

        def called(*args: object, **names: object):
            threads.setdefault(name, set()).add(threading.current_thread().name)
            return method(*args, **names)

        return called

    for name in ("context", "record", "facts", "why", "forget"):
        monkeypatch.setattr(MemoryHandle, name, noted(name))

    async def visit(app: FastAPI) -> None:
        ada = Visitor(app, "ada")
        await ada.say("monday", "I live in Bergen.")
        assert await app.state.backstory.aflush()
        (known,) = await ada.memory()
        await ada.delete(known["id"])

    served(example.create_app(tmp_path), visit)
    assert set(threads) == {"context", "record", "facts", "why", "forget"}
    assert threading.main_thread().name not in set.union(*threads.values())
