"""Recognition of a file's format by its content; for another file, the nearest format and what it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.importing.document import is_document
from backstory.ledger.importing.formats import chatgpt, claude, claude_code, codex, facts, notes, open_webui
from backstory.ledger.importing.formats.conversation import ImportedConversation
from backstory.ledger.importing.formats.facts import FactDict
from backstory.ledger.importing.formats.files import BytesRead, File, files_at, json_values, text_lines
from backstory.ledger.importing.formats.tally import Tally

_LOOKED_AT = 50
_NAMED = 8
_MARKDOWN = re.compile(r"^(#{1,6}|[-*]) \S", re.MULTILINE)


class Format(NamedTuple):
    """A format: its keys decide whether an item has it, and which format is the nearest.

    Attributes:
        name: the name of `--as`.
        title: what it is, in words.
        keys: the keys that each item, or one of the first lines, needs; one of several sets.
        also: other keys that it often has.
    """

    name: str
    title: str
    keys: tuple[tuple[str, ...], ...] = ()
    also: tuple[str, ...] = ()

    def fits(self, item: object) -> bool:
        """Whether an item has this format."""
        return isinstance(item, Mapping) and any(all(item.get(key) is not None for key in some) for some in self.keys)

    def lacks(self, item: Mapping[str, object]) -> list[str]:
        """Return the keys that an item lacks."""
        return min(([key for key in some if item.get(key) is None] for some in self.keys), key=len, default=[])

    def shares(self, item: Mapping[str, object]) -> int:
        """Return how many of the keys an item has."""
        return sum(key in item for key in {*self.also, *(key for some in self.keys for key in some)})


_CHATS = (
    Format("chatgpt", "a ChatGPT export", (("mapping",),), ("current_node", "create_time", "conversation_id")),
    Format("claude", "a Claude export", (("chat_messages",),), ("uuid", "name", "account", "created_at", "updated_at")),
    Format("open-webui", "an export of Open WebUI's chats", (("chat",),), ("user_id", "title", "archived", "share_id")),
    Format("claude-code", "a session file of Claude Code", (("sessionId", "type", "message"),), ("uuid", "parentUuid")),
    Format("codex", "a session file of Codex", (("timestamp", "type", "payload"),)),
)
_LISTS = (
    Format(
        "mcp-memory",
        "the memory file of the MCP memory server",
        (("type", "name", "observations"), ("type", "from", "to", "relationType")),
        ("entityType",),
    ),
    Format("mem0", "an export of mem0", (("memory",),), ("hash", "categories", "user_id", "expiration_date")),
    Format(
        "claude-memory",
        "the memory in a Claude export",
        (("conversations_memory",), ("project_memories",)),
        ("account_uuid",),
    ),
    Format("facts", "a list of facts", (("content",),), ("category", "confidence", "createdAt", "text", "fact")),
)
_TEXTS = (
    Format("csv", "a table of facts (CSV)"),
    Format("markdown", "notes in Markdown"),
    Format("text", "a text with one fact a line"),
)
MEMORY = Format("memory", "a memory.json", (("facts",), ("user", "history")), ("version", "lastUpdated"))
FORMATS = (MEMORY, *_CHATS, *_LISTS, *_TEXTS)

_READERS: dict[str, Callable[..., Iterator[ImportedConversation | FactDict]]] = {
    "chatgpt": chatgpt.read,
    "claude": claude.read,
    "open-webui": open_webui.read,
    "claude-code": claude_code.read,
    "codex": codex.read,
    "mcp-memory": facts.read_mcp_memory,
    "mem0": facts.read_mem0,
    "claude-memory": notes.read_claude_memory,
    "facts": facts.read,
    "csv": facts.read_csv,
    "markdown": notes.read_markdown,
    "text": notes.read_text,
}


class Recognised(NamedTuple):
    """A file with its format."""

    format: Format
    files: list[File]

    @property
    def holds_chats(self) -> bool:
        """Whether it holds conversations, and not facts."""
        return self.format in _CHATS

    @property
    def size(self) -> int:
        """How many bytes are read."""
        return sum(file.size for file in self.files)

    def read(self, tally: Tally, step: BytesRead) -> Iterator[ImportedConversation | FactDict]:
        """Yield what it holds."""
        values = text_lines if self.format in _TEXTS else json_values
        for file in self.files:
            yield from _READERS[self.format.name](values(file, step), tally)


def recognise(path: Path, stated: str | None = None) -> Recognised:
    """Find out the format of a file.

    Args:
        path: the file, or a zip file or a folder with it.
        stated: the name of the format, if it is known.

    Raises:
        InputError: It has none of the formats; the message names the nearest.
    """
    files = files_at(path)
    if stated is not None:
        return Recognised(format_named(stated), files)
    # Among several, some may hold next to nothing.
    looked_at = max(files, key=lambda file: file.size)
    head = looked_at.head()
    if not head.strip():
        raise InputError(f"{looked_at.name} is empty")
    if head.lstrip()[:1] in b"[{":
        return Recognised(_of_items(looked_at), files)
    return Recognised(_of_text(looked_at, head.decode(errors="replace")), files)


def format_named(name: str) -> Format:
    """Return the format of a name.

    Raises:
        InputError: There is none.
    """
    found = next((one for one in FORMATS if one.name == name), None)
    if found is None:
        raise InputError(f"{name!r} is no format; those that can be imported: {', '.join(one.name for one in FORMATS)}")
    return found


def _of_items(file: File) -> Format:
    first = list(islice(json_values(file, lambda _: None), _LOOKED_AT))
    if len(first) == 1 and is_document(first[0]):
        return MEMORY
    if not any(map(_is_message, first)):
        for known in (*_CHATS, *_LISTS):
            if any(map(known.fits, first)):
                return known
    if any(isinstance(item, str) for item in first):
        return format_named("facts")
    raise InputError(unknown(first))


def _of_text(file: File, head: str) -> Format:
    named = Path(file.name).suffix.casefold()
    header = head.partition("\n")[0]
    columns = [name.casefold() for name in facts.columns_of(header)]
    if len(columns) > 1 and any(name in columns for name in facts.CONTENTS):
        return format_named("csv")
    if named in (".md", ".markdown") and _MARKDOWN.search(head):
        return format_named("markdown")
    if named == ".txt":
        return format_named("text")
    raise InputError(
        f"{file.name} is a text of no known format. If each line is a fact, say so with --as text; if it is Markdown, "
        f"with --as markdown; a CSV needs a first line that names its columns, one of them {', '.join(facts.CONTENTS)}"
    )


def _is_message(item: object) -> bool:
    return isinstance(item, Mapping) and "content" in item and ("role" in item or item.get("type") in ("human", "ai"))


def unknown(first: Sequence[object]) -> str:
    """Return why items have no known format: the nearest one, and what they lack."""
    broken = next((item.why for item in first if hasattr(item, "why")), None)
    item = next((item for item in first if isinstance(item, Mapping) and item), None)
    if item is None:
        return f"this is no memory document and no export of a known tool: {broken or 'it holds no object'}"
    keys = ", ".join(safe_text(str(key)[:40]) for key in islice(item, _NAMED))
    if _is_message(item):
        return f"this holds messages ({keys}) and no facts: `backstory record FILE --thread NAME` records them"
    nearest = max((*_CHATS, *_LISTS), key=lambda one: one.shares(item))
    if not nearest.shares(item):
        names = ", ".join(one.name for one in FORMATS)
        return f"this has no known format: an item has {keys}; known are {names}"
    lacks = " and ".join(nearest.lacks(item))
    if not lacks:
        return f"this is {nearest.title} ({nearest.name}): import_file or `backstory import FILE` reads it"
    near = f"nearest is {nearest.title} ({nearest.name})"
    return f"this has no known format: {near}, but {lacks} is missing or null; an item has {keys}"
