"""Clients of the proxy: the requests that each sends for a conversation, made by hand in the shapes that it has.

docs/how-to/clients.md has the table of them. `tests/http/proxy/test_proxy_packages.py` runs the packages themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Talk = Sequence[tuple[str, str]]
"""Questions with their answers, as a client tells them."""
Item = dict[str, Any]


@dataclass(frozen=True)
class Asks:
    """A request of a client."""

    body: Item
    headers: dict[str, str] = field(default_factory=dict)
    path: str = "/chat/completions"


Client = Callable[[Talk, str], Asks]
"""Asks a question after a conversation."""


def _said(role: str, content: object) -> Item:
    return {"role": role, "content": content}


def _chat(talk: Talk, question: str, system: str | None = None) -> list[Item]:
    pairs = [item for asked, answer in talk for item in (_said("user", asked), _said("assistant", answer))]
    return [*([_said("system", system)] if system else []), *pairs, _said("user", question)]


def _parts(messages: Sequence[Item], kind: str = "text") -> list[Item]:
    return [{**one, "content": [{"type": kind, "text": one["content"]}]} for one in messages]


def openai_chat(talk: Talk, question: str) -> Asks:
    return Asks({"model": "m", "user": "ada", "messages": _chat(talk, question)})


def openai_responses(talk: Talk, question: str) -> Asks:
    before = {"previous_response_id": f"resp_{len(talk) - 1}"} if talk else {}
    return Asks({"model": "m", "user": "ada", "input": question, **before}, path="/responses")


def langchain(talk: Talk, question: str) -> Asks:
    messages = _chat(talk, question, "You are helpful.")
    for one in messages:
        if one["role"] == "user":
            one["name"] = "ada"
    return Asks({"model": "m", "stream": False, "user": "ada", "messages": messages})


def pydantic_ai(talk: Talk, question: str) -> Asks:
    """Its system prompt stands before each run; a call of the tool for the result follows the answer."""
    call = {"id": "call_1", "type": "function", "function": {"name": "final_result", "arguments": "{}"}}
    messages: list[Item] = [_said("system", "Be brief.")]
    for asked, answer in talk:
        messages += [_said("user", asked), {**_said("assistant", answer), "tool_calls": [call]}]
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": "Final result processed."})
    return Asks({"model": "m", "user": "ada", "messages": [*messages, _said("user", question)]})


def openai_agents(talk: Talk, question: str) -> Asks:
    items: list[Item] = []
    for n, (asked, answer) in enumerate(talk):
        content = [{"type": "output_text", "text": answer, "annotations": []}]
        items.append(_said("user", asked))
        items.append({"id": f"rs_{n}", "type": "reasoning", "summary": []})
        items.append(
            {"id": f"m_{n}", "type": "message", "role": "assistant", "status": "completed", "content": content}
        )
    body = {"model": "m", "instructions": "Be kind.", "input": [*items, _said("user", question)], "store": False}
    return Asks(body, {"X-Backstory-User": "ada"}, "/responses")


def smolagents(talk: Talk, question: str) -> Asks:
    """Calls and their results are texts; messages of one role in a row are one."""
    messages = [_said("system", "You are an expert assistant.")]
    observed = ""
    for asked, answer in talk:
        messages.append(_said("user", f"{observed}New task:\n{asked}"))
        messages.append(_said("assistant", f"Calling tools:\n[{{'id': 'call_1', 'answer': {answer!r}}}]"))
        observed = f"Observation:\n{answer}\n"
    messages.append(_said("user", f"{observed}New task:\n{question}"))
    return Asks({"model": "m", "user": "ada", "messages": _parts(messages)})


def litellm(talk: Talk, question: str) -> Asks:
    metadata = {"session_id": "s-1"}
    body = {"model": "m", "metadata": metadata, "messages": _chat(talk, question)}
    return Asks(body, {"X-Backstory-User": "ada"})


def aider(talk: Talk, question: str) -> Asks:
    """Files and examples stand as words of the user, with an answer that no model gave."""
    examples = [
        _said("user", "Change get_factorial() to use math.factorial"),
        _said("assistant", "To make this change we need to modify `mathweb/flask/app.py`"),
        _said(
            "user",
            "I switched to a new code base. Please don't consider the above files or try to edit them any longer.",
        ),
        _said("assistant", "Ok."),
    ]
    files = [
        _said("user", "Here are summaries of some files present in my git repository.\n\napp.py:\n│def main()"),
        _said("assistant", "Ok, I won't try and edit those files without asking first."),
    ]
    edited = [
        _said(
            "user", "I have *added these files to the chat* so you can go ahead and edit them.\n\napp.py\n```\nx\n```"
        ),
        _said("assistant", "Ok, any changes I propose will be to those files."),
    ]
    *before, newest = _chat(talk, question)
    messages = [_said("system", "Act as an expert."), *examples, *files, *before, *edited, newest]
    return Asks({"model": "m", "messages": messages}, {"X-Backstory-User": "ada"})


def codex(talk: Talk, question: str) -> Asks:
    def message(role: str, *texts: str) -> Item:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}

    context = (
        "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
        "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>",
    )
    items = [message("developer", "<permissions instructions>…"), message("user", *context)]
    for asked, answer in talk:
        items += [message("user", asked), {"type": "reasoning", "summary": [], "encrypted_content": "x"}]
        items.append(message("assistant", answer))
    items.append(message("user", question))
    body = {"model": "m", "instructions": "You are Codex.", "input": items, "prompt_cache_key": "t-1", "store": False}
    return Asks(body, {"session-id": "t-1", "thread-id": "t-1", "X-Backstory-User": "ada"}, "/responses")


def open_webui(talk: Talk, question: str) -> Asks:
    """Documents stand around the newest question alone."""
    context = "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n"
    asked = f'{context}<context>\n<source id="1">A page about boats</source>\n</context>\n\n{question}'
    headers = {"X-OpenWebUI-Chat-Id": "c-1", "X-Backstory-User": "ada"}
    return Asks({"model": "m", "stream": False, "messages": _chat(talk, asked)}, headers)


def cline(talk: Talk, question: str) -> Asks:
    """The state of the editor stands in parts of its own."""
    details = {"type": "text", "text": "<environment_details>\n# Visible Files\napp.py\n</environment_details>"}
    messages = [
        {**one, "content": [*one["content"], details]} if one["role"] == "user" else one
        for one in _parts(_chat(talk, question))
    ]
    return Asks({"model": "m", "messages": [_said("system", "You are Cline."), *messages]}, {"X-Backstory-User": "ada"})


def vercel_ai(talk: Talk, question: str) -> Asks:
    return Asks({"model": "m", "user": "ada", "messages": _parts(_chat(talk, question, "Be kind."))})


CLIENTS: dict[str, Client] = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "langchain-openai": langchain,
    "pydantic-ai": pydantic_ai,
    "openai-agents": openai_agents,
    "smolagents": smolagents,
    "litellm": litellm,
    "aider": aider,
    "codex": codex,
    "open-webui": open_webui,
    "cline": cline,
    "vercel-ai": vercel_ai,
}

STYLES: dict[str, Callable[[Talk], Talk]] = {
    "as it was said": lambda talk: talk,
    "stripped and shortened": lambda talk: [(asked.strip(), answer.strip()[:12]) for asked, answer in talk],
    "cut, with other answers": lambda talk: [(asked, f"As I said, {len(answer)}.") for asked, answer in talk[-2:]],
}
