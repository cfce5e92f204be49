r"""A chat service on FastAPI with a memory: one home for the whole app, and a memory for each user.

    pip install fastapi uvicorn
    uvicorn --app-dir examples fastapi_app:app

    curl -s localhost:8000/threads/monday/messages -H 'Authorization: Bearer token-of-ada' \
         -H 'Content-Type: application/json' -d '{"content": "I live in Bergen."}'
    curl -s localhost:8000/memory -H 'Authorization: Bearer token-of-ada'    # 30 seconds later

A stand-in plays the model, so it needs no key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

import standin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from backstory import Backstory, BackstoryError, MemoryHandle, NotFoundError, UnavailableError

INSTRUCTIONS = "You are a helpful assistant. Answer in one sentence, from what you remember about the user."
TOKENS = {"token-of-ada": "ada", "token-of-bob": "bob"}
"""Stands for the authentication of your app."""

Model = Callable[[list[dict[str, str]]], str]
"""Answers chat messages of `role` and `content`; a client of a real model fits, too."""


class Words(BaseModel):
    """What a user says."""

    content: str


class Answer(BaseModel):
    """What the agent says, and the facts that it was given."""

    content: str
    facts: list[str]


class Remembered(BaseModel):
    """A fact, and the words it was learned from."""

    id: str
    content: str
    words: list[str]


def current_user(credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    """Return the user of a request. Never take a user id from a path or a body: it decides whose memory is read."""
    user = TOKENS.get(credentials.credentials)
    if user is None:
        raise HTTPException(401, "unknown token")
    return user


def memory_of(request: Request, user: Annotated[str, Depends(current_user)]) -> MemoryHandle:
    """Return the memory of the user of a request; FastAPI runs a plain function in a thread."""
    bs: Backstory = request.app.state.backstory
    return bs.memory(user_id=user)


Memory = Annotated[MemoryHandle, Depends(memory_of)]


def create_app(home: Path | str | None = None, model: Model = standin.answer) -> FastAPI:
    """Return the app; `home` is the folder of its memories, and `model` answers and learns."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.backstory = await asyncio.to_thread(Backstory.open, home, model=model)
        try:
            yield
        finally:
            # What is pending is extracted within `shutdown_flush_timeout_seconds`; the rest stays on disk.
            await app.state.backstory.aclose()

    app = FastAPI(title="A chat that remembers", lifespan=lifespan)

    @app.post("/threads/{thread}/messages")
    async def say(thread: str, words: Words, memory: Memory) -> Answer:
        """Answer what a user says in a conversation."""
        question = {"role": "user", "content": words.content}
        earlier = [{"role": turn.role, "content": turn.content} for turn in await memory.turns.of(thread).aget(20)]
        known = await memory.acontext([*earlier, question], thread=thread)
        prompt = [{"role": "system", "content": f"{INSTRUCTIONS}\n\n{known.text}"}, *earlier, question]
        answer = await asyncio.to_thread(model, prompt)
        # Only what is new is sent, so `append` says that all of it is.
        await memory.arecord(thread, [question, {"role": "assistant", "content": answer}], mode="append")
        return Answer(content=answer, facts=list(known.facts))

    @app.get("/memory")
    async def remembered(memory: Memory) -> list[Remembered]:
        """Show users what is known about them, and why."""
        found = []
        for fact in await memory.afacts():
            why = await memory.awhy(fact.id)
            words = [turn.content for turn in why.evidence]
            found.append(Remembered(id=fact.id, content=fact.content, words=words))
        return found

    @app.delete("/memory/{fact_id}", status_code=204)
    async def forget(fact_id: str, memory: Memory) -> None:
        """Erase a fact and the words it was learned from, for good."""
        await memory.aforget(fact_id, with_evidence=True)

    @app.exception_handler(BackstoryError)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        status = 404 if isinstance(error, NotFoundError) else 503 if isinstance(error, UnavailableError) else 400
        return JSONResponse({"detail": str(error)}, status)

    return app


app = create_app()
