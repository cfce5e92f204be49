"""Models of `llm` with a memory: `memory/NAME` asks the model NAME, with the context block, and records what was said.

`llm` loads this module at each start, so memory itself is loaded when such a model is first asked.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import llm
from llm.models import ModelWithAliases
from llm.parts import Message, StreamEvent, TextPart

if TYPE_CHECKING:
    from backstory.integrations.closing import Closing
    from backstory.integrations.host_memory import HostMemory
    from backstory.ledger.core.scope import Scope
    from backstory.projections.context import Context

PREFIX = "memory/"
_THEIRS = (
    *("can_stream", "attachment_types", "supports_schema", "supports_tools", "supports_conversation"),
    *("needs_key", "key", "key_env_var", "Options"),
)


@llm.hookimpl(trylast=True)
def register_models(register: Callable[..., None], model_aliases: Sequence[ModelWithAliases]) -> None:
    """Register each model that `llm` knows a second time, with a memory; also under its aliases."""
    for known in list(model_aliases):
        twin = AsyncModelWithMemory(known.async_model) if known.async_model else None
        register(ModelWithMemory(known.model), twin, aliases=[PREFIX + alias for alias in known.aliases])


class _Twin:
    """A model under another name, with all that `llm` asks of it."""

    def __init__(self, model: llm.Model | llm.KeyModel | llm.AsyncModel | llm.AsyncKeyModel) -> None:
        self.model_id = PREFIX + model.model_id
        self.model = model
        for name in filter(functools.partial(hasattr, model), _THEIRS):  # an earlier `llm` asks for fewer
            setattr(self, name, getattr(model, name))

    @property
    def supported_server_side_tools(self) -> tuple[type[llm.ServerSideTool], ...]:
        return getattr(self.model, "supported_server_side_tools", ())

    def __str__(self) -> str:
        return f"Backstory: {self.model_id}"


class ModelWithMemory(_Twin, llm.KeyModel):
    """A model with a memory."""

    model: llm.Model | llm.KeyModel

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
        key: str | None = None,
    ) -> Iterator[str | StreamEvent]:
        """Ask the model with what memory has, and record the question and the answer."""
        turn = _Turn(prompt, response, conversation)
        sent = turn.begin(self.model)
        if isinstance(self.model, llm.KeyModel):
            yield from self.model.execute(sent, stream, response, conversation, key)
        else:
            yield from self.model.execute(sent, stream, response, conversation)
        response.on_done(lambda done: turn.end(done.text(), final=not done.tool_calls()))


class AsyncModelWithMemory(_Twin, llm.AsyncKeyModel):
    """A model that is asked without waiting, with a memory."""

    model: llm.AsyncModel | llm.AsyncKeyModel

    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None,
        key: str | None = None,
    ) -> AsyncGenerator[str | StreamEvent, None]:
        """Ask the model with what memory has, and record the question and the answer."""
        from backstory.integrations.threads import run_in_thread

        async def end(done: llm.AsyncResponse) -> None:
            await run_in_thread(functools.partial(turn.end, final=not await done.tool_calls()), await done.text())

        turn = _Turn(prompt, response, conversation)
        sent = await run_in_thread(turn.begin, self.model)
        if isinstance(self.model, llm.AsyncKeyModel):
            chunks = self.model.execute(sent, stream, response, conversation, key)
        else:
            chunks = self.model.execute(sent, stream, response, conversation)
        async for chunk in chunks:
            yield chunk
        await response.on_done(end)


class _Turn:
    """One prompt and its answer: what the model gets, and what is recorded."""

    def __init__(
        self,
        prompt: llm.Prompt,
        response: llm.Response | llm.AsyncResponse,
        conversation: llm.Conversation | llm.AsyncConversation | None,
    ) -> None:
        self._prompt = prompt
        self._id = response.id
        self._thread = conversation.id if conversation else response.id
        self._given: dict[str, object] = {}

    def begin(self, model: object) -> llm.Prompt:
        """Record the question, and return the prompt with what memory has."""
        self._record("user", _words(self._prompt))
        memory = _memory()
        block = memory.fail_safe.block(memory.scope, _spoken(self._prompt.messages), self._thread)
        if block is None or not block.text:
            return self._prompt
        self._given = block.note()
        return _with_block(self._prompt, block, takes_system=getattr(model, "allows_system_prompt", True))

    def end(self, answer: str, *, final: bool) -> None:
        """Record an answer, unless it comes before a call of tools."""
        if final:
            self._record("assistant", answer)

    def _record(self, role: str, words: str) -> None:
        memory = _memory()
        memory.fail_safe.record_words(memory.scope, self._thread, (role, words), self._id, self._given)


@dataclasses.dataclass(frozen=True)
class _Memory:
    fail_safe: HostMemory
    scope: Scope
    closing: Closing


_opening = threading.Lock()


def _memory() -> _Memory:
    """Return the memory that the environment names, opened once in a process."""
    with _opening:
        return _opened()


@functools.cache
def _opened() -> _Memory:
    from backstory.home import Backstory
    from backstory.integrations.closing import Closing
    from backstory.integrations.host_memory import HostMemory
    from backstory.ledger.core.scope import Scope

    scope = Scope.of(os.environ.get("BACKSTORY_USER") or None, os.environ.get("BACKSTORY_AGENT") or None)
    # A command that has answered does not wait to learn from it.
    home = Backstory.open(background=False, as_hosted=True)
    return _Memory(HostMemory(home), scope, Closing(home))


def close() -> None:
    """Close the memory that the models of this process have opened, as the end of the process does."""
    with _opening:
        if _opened.cache_info().currsize:
            _opened().closing.now()
            _opened.cache_clear()


def _words(prompt: llm.Prompt) -> str:
    """Return what the person says in a prompt: without its fragments, which are files and pages."""
    whole: str = prompt.prompt
    fragments = "\n".join(prompt.fragments or ())
    return whole.removeprefix(fragments).lstrip("\n") if fragments else whole


def _spoken(messages: Sequence[Message]) -> Iterator[dict[str, str]]:
    for message in messages:
        words = "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
        if message.role in ("user", "assistant") and words:
            yield {"role": message.role, "content": words}


def _with_block(prompt: llm.Prompt, block: Context, *, takes_system: bool) -> llm.Prompt:
    """Return a prompt with what stands in its system prompt, and what was found before its newest question.

    Some models read `messages`, others `prompt` and `system`; both hold it.
    """
    from backstory.integrations.prompt_block import GAP, text_after_block, text_with_block

    standing, found = (block.standing, block.found) if takes_system else ("", block.text)
    messages = list(prompt.messages)
    asked = next((n for n in reversed(range(len(messages))) if messages[n].role == "user"), None)
    if found and asked is not None:
        messages[asked] = dataclasses.replace(
            messages[asked], parts=[TextPart(text=f"{found}{GAP}"), *messages[asked].parts]
        )
    if standing:
        before = messages.pop(0).parts if messages and messages[0].role == "system" else []
        said = TextPart(text=f"{GAP if before else ''}{standing}")
        messages.insert(0, Message(role="system", parts=[*before, said]))
    return llm.Prompt(
        text_after_block(prompt.prompt, found) if found and prompt.prompt else prompt.prompt,
        prompt.model,
        system=text_with_block(prompt.system or "", standing) or None,
        messages=messages,
        attachments=prompt.attachments,
        prompt_json=prompt.prompt_json,
        options=prompt.options,
        schema=prompt.schema,
        tools=prompt.tools,
        tool_results=prompt.tool_results,
        hide_reasoning=prompt.hide_reasoning,
    )
