"""Made-up exports in the shapes of the tools that write them."""

from __future__ import annotations

import json
from pathlib import Path

from backstory.ledger.importing.formats.conversation import ImportedConversation
from backstory.ledger.importing.formats.recognising import recognise
from backstory.ledger.importing.formats.tally import Tally


def chatgpt(thread: str = "c1", **more: object) -> dict[str, object]:
    """Two questions with two answers each, of which one stands; a picture, a tool, and a hidden message."""
    nodes = {
        "root": node(None),
        "sys": node("root", "system", "", hidden=True),
        "q": node("sys", "user", "I moved to Oslo.", at=1_700_000_000.5),
        "a-old": node("q", "assistant", "Nice!", at=1_700_000_001),
        "a-call": node("q", "assistant", "search(…)", recipient="web", at=1_700_000_002),
        "a-tool": node("a-call", "tool", "results", at=1_700_000_003),
        "a": node("a-tool", "assistant", "Congratulations \ue200cite\ue202turn0\ue201on the move!", at=None),
        "p": node("a", "user", "Look", picture=True, at=1_700_000_009),
        "b": node("p", "assistant", "A fjord.", at=1_700_000_010),
        "b-old": node("p", "assistant", "A lake.", at=1_700_000_011),
    }
    return {"conversation_id": thread, "create_time": 1_700_000_000, "mapping": nodes, "current_node": "b", **more}


def node(
    parent: str | None,
    role: str = "",
    text: str = "",
    *,
    at: float | None = None,
    hidden: bool = False,
    picture: bool = False,
    recipient: str = "all",
) -> dict[str, object]:
    parts: list[object] = [text]
    if picture:
        parts.insert(0, {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f", "width": 1})
    message = {
        "id": f"m-{text[:9]}",
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "content": {"content_type": "multimodal_text" if picture else "text", "parts": parts},
        "recipient": recipient,
        "metadata": {"is_visually_hidden_from_conversation": True} if hidden else {},
    }
    return {"parent": parent, "children": [], "message": message if role else None}


def claude(thread: str = "k1", **more: object) -> dict[str, object]:
    def said(uuid: str, sender: str, parent: str, *blocks: dict[str, object], **extra: object) -> dict[str, object]:
        return {
            "uuid": uuid,
            "sender": sender,
            "text": "",
            "content": list(blocks),
            "created_at": "2025-03-05T10:00:00.123456+01:00",
            "parent_message_uuid": parent,
            "attachments": [],
            "files": [],
            **extra,
        }

    def text(words: str) -> dict[str, object]:
        return {"type": "text", "text": words, "citations": []}

    call = {"type": "tool_use", "name": "artifacts", "input": {}}
    return {
        "uuid": thread,
        "name": "Tea",
        "account": {"uuid": "account-1"},
        "created_at": "2025-03-05T09:00:00Z",
        "updated_at": "2025-03-05T11:00:00Z",
        "chat_messages": [
            said("h1", "human", "0000", text("I drink green tea."), files=[{"file_name": "a.png"}]),
            said("h2", "human", "0000", text("I drink black tea.")),
            said(
                "a2", "assistant", "h2", text("Let me write that down."), call, {"type": "tool_result"}, text("Done.")
            ),
        ],
        **more,
    }


def open_webui(thread: str = "w1", user: str = "u1", **more: object) -> dict[str, object]:
    at = 1_700_000_000
    thought = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> hm\n</details>\n'
    messages = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "I ride a bike.", "timestamp": at},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "Old.", "timestamp": at + 1},
        "3": {
            "id": "3",
            "parentId": "1",
            "role": "assistant",
            "content": thought + "Safe!",
            "timestamp": 1_700_000_002,
        },
    }
    chat = {"title": "Bike", "history": {"messages": messages, "currentId": "3"}, "messages": [], "timestamp": 1}
    return {"id": thread, "user_id": user, "title": "Bike", "chat": chat, "archived": False, **more}


def claude_code() -> list[dict[str, object]]:
    def line(kind: str, uuid: str, content: object, **more: object) -> dict[str, object]:
        message = {"role": kind, "content": content}
        at = f"2026-01-02T03:04:0{uuid}.000Z"
        return {"type": kind, "uuid": f"l{uuid}", "sessionId": "s1", "timestamp": at, "message": message, **more}

    cleared = "<command-name>/clear</command-name><command-message></command-message><command-args></command-args>"
    reminder = "<system-reminder>Be brief.</system-reminder>\n"
    return [
        {"type": "summary", "summary": "Tests", "leafUuid": "l5"},
        line(
            "user",
            "1",
            cleared,
        ),
        line("user", "2", reminder + "Use pnpm here."),
        line("assistant", "3", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}]),
        line("assistant", "4", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]),
        line("user", "5", [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}], toolUseResult={}),
        line("assistant", "6", [{"type": "text", "text": "It is pnpm now."}]),
        line("user", "7", "an inner prompt", isSidechain=True),
        line("user", "8", [{"type": "text", "text": "[Request interrupted by user]"}]),
        line("user", "9", "This session is being continued…", isCompactSummary=True),
    ]


def codex() -> list[dict[str, object]]:
    def line(kind: str, second: int, **payload: object) -> dict[str, object]:
        return {"timestamp": f"2026-01-02T03:04:0{second}.000Z", "type": kind, "payload": payload}

    context = "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"
    return [
        line("session_meta", 0, id="x1", timestamp="2026-01-02T03:04:00.000Z", cwd="/x", cli_version="1"),
        line("response_item", 1, type="message", role="user", content=[{"type": "input_text", "text": context}]),
        line("event_msg", 2, type="user_message", message="Use ruff.", images=["data:…"]),
        line("event_msg", 3, type="agent_message", message="I look."),
        line("response_item", 4, type="function_call", name="shell", arguments="{}"),
        line("event_msg", 5, type="agent_message", message="Still at it.", phase="commentary"),
        line("event_msg", 6, type="agent_message", message="It is ruff now."),
        line("event_msg", 7, type="token_count", info=None),
    ]


def codex_items() -> list[dict[str, object]]:
    """A session of Codex since its history comes in pages: items that are complete, and no events for messages."""
    rows = [row for row in codex() if row["type"] != "event_msg"]
    rows[0]["payload"] |= {"source": "cli", "thread_source": "user", "history_mode": "paginated"}

    def done(second: int, kind: str, *content: dict[str, object], **more: object) -> dict[str, object]:
        payload = {"type": "item_completed", "item": {"type": kind, "id": "msg_1", "content": [*content], **more}}
        return {"timestamp": f"2026-01-02T03:04:0{second}.000Z", "type": "event_msg", "payload": payload}

    picture = {"type": "image", "image_url": "data:…"}
    return [
        *rows[:2],
        done(2, "UserMessage", {"type": "text", "text": "Use ruff.", "text_elements": []}, picture),
        done(3, "AgentMessage", {"type": "Text", "text": "I look."}),
        *rows[2:],
        done(5, "AgentMessage", {"type": "Text", "text": "Still at it."}, phase="commentary"),
        done(5, "CommandExecution", command=["ruff"], status="completed"),
        done(6, "AgentMessage", {"type": "Text", "text": "It is ruff now."}, phase="final_answer"),
    ]


def mem0(**more: object) -> dict[str, object]:
    return {
        "id": "m0",
        "memory": "Likes tea",
        "user_id": "ada",
        "hash": "0f",
        "categories": None,
        "metadata": None,
        "created_at": "2025-07-20T01:30:36.275141-07:00",
        "updated_at": None,
        "expiration_date": None,
        **more,
    }


CLAUDE_MEMORY = {
    "conversations_memory": "**Work context**\n\nAda plays the cello in Bergen.\n\n**Personal context**\n\n- Likes tea",
    "project_memories": {"p1": "Uses ruff."},
    "account_uuid": "account-1",
}

MCP_MEMORY = [
    {"type": "entity", "name": "Ada_Lovelace", "entityType": "person", "observations": ["Likes tea", "Plays chess"]},
    {"type": "relation", "from": "Ada_Lovelace", "to": "Oslo", "relationType": "lives in"},
]


def lines(*items: object) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def write(folder: Path, content: object, name: str = "export.json") -> Path:
    """Write a text, bytes, or anything else as JSON."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def everything(
    path: Path, tally: Tally | None = None, stated: str | None = None
) -> list[ImportedConversation | dict[str, object]]:
    return list(recognise(path, stated).read(Tally() if tally is None else tally, lambda _: None))


def said(path: Path, tally: Tally | None = None) -> list[tuple[str, str, str, str | None]]:
    """The turns of a file: thread, role, words and time."""
    found = [item for item in everything(path, tally) if isinstance(item, ImportedConversation)]
    return [(item.thread, turn.role, turn.content, turn.at) for item in found for turn in item.kept]
