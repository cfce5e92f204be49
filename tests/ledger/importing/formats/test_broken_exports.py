"""Exports of any tool with any value in any place: what can be read is read, and the rest is refused with a reason."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exports import MCP_MEMORY, chatgpt, claude, claude_code, codex, everything, lines, mem0, open_webui, write
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.errors import InputError
from backstory.ledger.importing.document import listed_fact
from backstory.ledger.importing.formats.conversation import ImportedConversation
from backstory.ledger.importing.formats.tally import Tally

EXPORTS: dict[str, list[Any]] = {
    "chatgpt": [chatgpt()],
    "claude": [claude()],
    "open-webui": [open_webui()],
    "claude-code": claude_code(),
    "codex": codex(),
    "mem0": [mem0()],
    "mcp-memory": MCP_MEMORY,
    "facts": [{"content": "Rows", "tags": ["a"], "validFrom": "2024", "source": {"type": "conversation"}}],
}
ODD = st.sampled_from(
    [
        *["null", "true", "0", "-1", "1e300", "NaN", "9" * 30, '""', '"x"', '"\\ud800"', '"\\u0000"'],
        *["[]", "[[]]", "{}", '{"": {}}', '{"type": "text"}', '["b"]', "[null, 5]"],
    ]
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place within a value: what holds it, and its key."""
    for key in range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ():
        yield value, key
        yield from places(value[key])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.mark.parametrize("name", EXPORTS)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused(folder: Path, name: str, data: st.DataObject) -> None:
    export = copy.deepcopy(EXPORTS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(list(places(export))))
        holder[key] = json.loads(data.draw(ODD))
    path = write(folder, lines(*export) if data.draw(st.booleans()) else json.dumps(export))
    tally = Tally()
    try:
        found = everything(path, tally, name)
    except InputError:
        return
    for index, item in enumerate(found):
        if isinstance(item, ImportedConversation):
            assert item.kept
            assert 1 <= len(item.thread) <= 512
            assert all(turn.role in ("user", "assistant") and turn.content.strip() for turn in item.kept)
        else:
            listed_fact(index, item)
