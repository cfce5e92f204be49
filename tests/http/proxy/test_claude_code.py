"""Claude Code through the proxy: a session in the shape of its requests, and what it asks for itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from served import FACT, Served
from upstreams import block_events, document, events, message, message_events, message_stream

MARK = {"type": "ephemeral"}
SESSION = "0b2c7f5e-0d3b-4a51-9a6e-7a1d8b0c9e11"
IDS = {
    "a text": f"user_{'5f' * 32}_account_9e8f0a1b-1c2d-4e3f-8a9b-0c1d2e3f4a5b_session_{SESSION}",
    "a text without an account": f"user_{'5f' * 32}_account__session_{SESSION}",
    "JSON": json.dumps({"device_id": "5f" * 32, "account_uuid": "", "session_id": SESSION}),
}
HEADERS = {
    "authorization": "Bearer sk-ant-oat01-example",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,oauth-2025-04-20,interleaved-thinking-2025-05-14",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.300 (external, cli)",
    "x-stainless-retry-count": "0",
    "X-Backstory-User": "ada",
}
IDENTITY = "You are Claude Code, Anthropic's official CLI for Claude."
SYSTEM = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.300.c12; cc_entrypoint=cli;"},
    {"type": "text", "text": IDENTITY, "cache_control": MARK},
    {"type": "text", "text": "You are an interactive agent. # Environment …", "cache_control": MARK},
]
TOOLS = [{"name": name, "description": "…", "input_schema": {"type": "object"}} for name in ("Bash", "Read", "Task")]
REMINDER = "<system-reminder>\nContents of CLAUDE.md: I always use tabs.\n</system-reminder>\n"
TODOS = "<system-reminder>\nThe todo list is empty.\n</system-reminder>"
QUESTION = "Where do I live? Look into my notes."
THOUGHT = {"type": "thinking", "thinking": "The notes say it.", "signature": "c2ln"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def agent(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def call(n: int = 1) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {"file_path": "/notes.md"}}


def result(n: int = 1) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "     1→Ada, Bergen"}


def request(messages: Sequence[dict[str, Any]], session: str = IDS["a text"], **fields: object) -> dict[str, Any]:
    """A request of the main conversation: the last block of the last message is marked."""
    *before, last = json.loads(json.dumps(list(messages)))
    last["content"][-1]["cache_control"] = MARK
    return {
        "model": "claude-opus-4-8",
        "messages": [*before, last],
        "system": SYSTEM,
        "tools": TOOLS,
        "metadata": {"user_id": session},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
        **fields,
    }


def send(claude: Served, body: dict[str, Any], **headers: str) -> httpx.Response:
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    return claude.post("/v1/messages?beta=true", json=body, headers={**HEADERS, **spelled})


@pytest.mark.parametrize("session", IDS.values(), ids=IDS.keys())
def test_a_session_is_a_thread_of_the_words_and_the_final_answers(claude, upstream, session):
    messages = [user(text(REMINDER), text(QUESTION))]
    thought = block_events(0, "thinking", "The notes ", "say it.")
    called = block_events(2, "tool_use", '{"file_path":', ' "/notes.md"}', id="toolu_1", name="Read")
    upstream.then(
        events(*message_events(thought, block_events(1, "text", "I look."), called, reason="tool_use")),
        events(*message_events(thought, block_events(1, "text", "You live in ", "Bergen."))),
        message_stream("Since May."),
    )
    first = send(claude, request(messages, session))
    assert (first.headers["x-backstory-memory"], first.headers["x-backstory-thread"]) == ("used", SESSION)
    assert first.headers["x-backstory-skipped"] == "system-reminder"
    messages += [agent(THOUGHT, text("I look."), call()), user(result(), text(TODOS))]
    send(claude, request(messages, session))
    messages += [agent(THOUGHT, text("You live in Bergen.")), user(text("Since when?"))]
    send(claude, request(messages, session))
    assert claude.turns() == {SESSION: [QUESTION, "You live in Bergen.", "Since when?", "Since May."]}
    # All but the block is as it was sent.
    for got, count in zip(upstream.requests, (1, 3, 5), strict=True):
        sent = request(messages[:count], session)
        assert {**got.body, "system": SYSTEM} == sent
        assert [one for one in got.body["system"] if one in SYSTEM] == SYSTEM
        assert FACT in got.body["system"][2]["text"]
        assert got.body["system"][3] == SYSTEM[2]
        assert got.path == "/v1/messages?beta=true"


def test_the_session_of_the_header_is_the_thread(claude):
    body = request([user(text(QUESTION))], "", stream=False)
    assert send(claude, body, x_claude_code_session_id="s-1").headers["x-backstory-thread"] == "s-1"
    # The client's own name for the thread goes before it.
    assert (
        send(claude, body, x_claude_code_session_id="s-1", X_Backstory_Thread="t").headers["x-backstory-thread"] == "t"
    )


def test_two_sessions_that_begin_alike_are_two_threads(claude, upstream):
    upstream.then(message("Done."))
    for session in ("s-1", "s-2"):
        send(claude, request([user(text("Mend the bug"))], f"user_1_account__session_{session}", stream=False))
    assert claude.turns() == {"s-1": ["Mend the bug", "Done."], "s-2": ["Mend the bug", "Done."]}


def test_a_conversation_that_was_compacted_goes_on_in_its_thread(claude, upstream):
    upstream.then(message("Done."), message("<summary>…</summary>"), message("Mended."))
    messages = [user(text(REMINDER), text("Build the house"))]
    send(claude, request(messages, stream=False))
    messages.append(agent(text("Done.")))
    summarise = "Your task is to create a detailed summary of the conversation so far, paying close attention to"
    asked = send(claude, request([*messages, user(text(summarise))], stream=False))
    assert asked.headers["x-backstory-memory"] == "title"
    summary = "This session is being continued from a previous conversation that ran out of context.\nThe user built …"
    goes_on = [user(text(REMINDER), text(summary), text("Now the roof"))]
    answer = send(claude, request(goes_on, stream=False))
    assert answer.headers["x-backstory-skipped"] == "system-reminder, compaction-summary"
    assert claude.turns() == {SESSION: ["Build the house", "Done.", "Now the roof", "Mended."]}


def test_a_command_of_the_user_is_scaffolding(claude):
    command = (
        "<command-message>clear</command-message>\n<command-name>/clear</command-name>\n<command-args></command-args>"
    )
    caveat = "<local-command-caveat>Caveat: …</local-command-caveat>"
    output = "<local-command-stdout></local-command-stdout>"
    shell = "<bash-input>ls</bash-input>"
    blocks = (text(caveat), text(command), text(output), text(shell), text("[Request interrupted by user]"))
    send(claude, request([user(*blocks, text(QUESTION))], stream=False))
    assert claude.turns() == {SESSION: [QUESTION, "You live in Bergen."]}


# What it asks for itself.


def haiku(system: str, said: str, **fields: object) -> dict[str, Any]:
    """A side request to a small model."""
    identity = [text(IDENTITY), text(system)]
    body = {"model": "claude-haiku-4-5", "system": identity, "tools": [], "max_tokens": 32_000, "stream": True}
    return {**body, "messages": [user(text(said))], "metadata": {"user_id": IDS["JSON"]}, **fields}


TITLE = "Generate a concise, sentence-case title (3-7 words) that captures the main topic or goal of this session."
TOPIC = "Analyze if this message indicates a new conversation topic. If it does, …"
COMMAND = "Your task is to process Bash commands that an AI coding agent wants to run."
EXPLORE = "You are a file search specialist for Claude Code, …"
SUGGEST = text("[SUGGESTION MODE: Suggest what the user might naturally type next into Claude Code.]\n…")
SUMMARY = text("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n…")
INNER = request([user(text("Find the notes"))])

Side = tuple[dict[str, Any], dict[str, str], str]
SIDE: dict[str, Side] = {
    "a title": (haiku(TITLE, f"<session>\n{QUESTION}\n</session>"), {}, "title"),
    "a topic": (haiku(TOPIC, QUESTION), {}, "title"),
    "a command": (haiku(COMMAND, "<policy_spec>…"), {}, "title"),
    "a suggestion": (request([user(text(QUESTION)), agent(text("In Bergen.")), user(SUGGEST)]), {}, "title"),
    "a summary": (request([user(text(QUESTION)), agent(call()), user(result(), SUMMARY)]), {}, "title"),
    "an agent of an earlier version": (haiku(EXPLORE, "Find the notes"), {}, "title"),
    "the quota": (haiku("…", "quota", max_tokens=1), {}, "side"),
    "an agent": (INNER, {"x-claude-code-agent-id": "a-1"}, "side"),
    "subagent": (INNER, {"x-claude-code-request-class": "subagent"}, "side"),
    "workflow": (INNER, {"x-claude-code-request-class": "workflow"}, "side"),
    "compaction": (INNER, {"x-claude-code-request-class": "compaction"}, "side"),
    "auxiliary": (INNER, {"x-claude-code-request-class": "auxiliary"}, "side"),
}


@pytest.mark.parametrize("name", SIDE)
def test_what_it_asks_for_itself_passes_as_it_came_and_is_not_recorded(claude, upstream, name):
    body, headers, outcome = SIDE[name]
    raw = json.dumps(body, indent=1).encode()
    answer = claude.post("/v1/messages?beta=true", content=raw, headers={**HEADERS, **headers})
    assert (answer.status_code, answer.headers["x-backstory-memory"]) == (200, outcome)
    assert upstream.last.raw == raw
    assert claude.turns() == {}


def test_the_main_conversation_may_say_what_it_is(claude):
    answer = send(claude, request([user(text(QUESTION))]), x_claude_code_request_class="main")
    assert answer.headers["x-backstory-memory"] == "used"


def test_side_requests_between_leave_the_conversation_alone(claude, upstream):
    upstream.then(message("You live in Bergen."))
    claude.client.head(claude.url + "/")
    messages = [user(text(REMINDER), text(QUESTION))]
    for name in ("the quota", "a title", "a topic"):
        send(claude, SIDE[name][0])
    counted = {name: value for name, value in request(messages).items() if name not in ("max_tokens", "stream")}
    upstream.then(document({"input_tokens": 7}))
    claude.post("/v1/messages/count_tokens?beta=true", json=counted, headers=HEADERS)
    assert upstream.last.body == counted
    upstream.then(message("You live in Bergen."))
    send(claude, request(messages, stream=False))
    assert claude.turns() == {SESSION: [QUESTION, "You live in Bergen."]}


def test_a_request_that_is_tried_again_is_recorded_once(claude, upstream):
    upstream.then(document({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529))
    body = request([user(text(REMINDER), text(QUESTION))])
    send(claude, body)
    upstream.then(message_stream("In Bergen."))
    send(claude, body, x_stainless_retry_count="1")
    assert claude.turns() == {SESSION: [QUESTION, "In Bergen."]}
