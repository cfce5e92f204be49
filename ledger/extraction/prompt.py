"""What a model is asked (row D8): the packaged templates, filled with memory and the turns to learn from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

from ledger.errors import ConfigError
from ledger.events import DOCUMENT_SECTIONS, Turn
from ledger.extraction.model import Prompt
from ledger.extraction.reply import REPLY_SCHEMA
from ledger.memory import Memory
from ledger.messages import abridge

__all__ = ["build_prompt"]

_PACKAGED = Path(__file__).parent / "prompts"
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@lru_cache(maxsize=16)
def _templates(folder: Path) -> tuple[str, str, str]:
    """Read system and update template; a folder may override one and leave the other. Third: the sha256 of both."""
    texts = []
    for name in ("system.md", "update.md"):
        path = folder / name
        try:
            texts.append((path if path.exists() else _PACKAGED / name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the prompt template {path} cannot be read: {error}") from error
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return texts[0], texts[1], digest


def _fill(template: str, values: Mapping[str, str]) -> str:
    # One pass, so that a turn that says {{memory}} is not filled in itself.
    return _SLOT.sub(lambda slot: values.get(slot[1], slot[0]), template)


def _memory_text(memory: Memory) -> str:
    lines = [
        f"{name}: {escape(memory.section(name).summary, quote=False)}"
        for name in DOCUMENT_SECTIONS
        if memory.section(name).summary
    ]
    lines += [
        f"{fact.id} [{fact.category} | {fact.confidence:.2f}]{' (by hand)' if fact.by_hand else ''} "
        f"{escape(fact.content, quote=False)}"
        for fact in memory.in_order()
    ]
    return "\n".join(lines) or "(nothing yet)"


def _turn_text(turn: Turn) -> str:
    speaker = f"{turn.role} ({turn.name})" if turn.name else turn.role
    return f"[{turn.n}] {escape(speaker, quote=False)}: {escape(abridge(turn.content), quote=False)}"


def build_prompt(memory: Memory, thread: str, turns: Sequence[Turn], *, folder: Path | None = None) -> Prompt:
    """Ask what a conversation changes in memory; turns are numbered by their ordinal so that they can be cited.

    `folder` holds templates that override the packaged `system.md` and `update.md`.

    Raises:
        ConfigError: a template cannot be read.
    """
    system, update, digest = _templates(folder or _PACKAGED)
    user = _fill(
        update,
        {
            "memory": _memory_text(memory),
            "thread": escape(thread),
            "conversation": "\n".join(map(_turn_text, turns)),
        },
    )
    return Prompt(system, user, digest, REPLY_SCHEMA)
