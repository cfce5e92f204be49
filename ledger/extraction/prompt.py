"""What a model is asked (row D8): the packaged templates, filled with memory and the turns to learn from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
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


def _templates(folder: Path) -> tuple[str, str, str]:
    """Read system and update template; a folder may override one and leave the other. Third: the sha256 of both.

    They are read anew for each prompt: whoever edits a template of a running worker sees what it does.
    """
    if not folder.is_dir():
        raise ConfigError(f"the folder of prompt templates {folder} is not there; set prompts_dir to one that is")
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


def _shown(text: str) -> str:
    """Escape a text and set its further lines in, so that none of them passes for a line of the prompt's own."""
    return "\n  ".join(escape(text, quote=False).splitlines())


def _on_one_line(text: str) -> str:
    return escape(" ".join(text.split()))


def _memory_text(memory: Memory) -> str:
    lines = [
        f"{name}: {_shown(memory.section(name).summary)}" for name in DOCUMENT_SECTIONS if memory.section(name).summary
    ]
    lines += [
        f"{_on_one_line(fact.id)} [{fact.category} | {fact.confidence:.2f}]{' (by hand)' if fact.by_hand else ''} "
        f"{_shown(fact.content)}"
        for fact in memory.in_order()
    ]
    return "\n".join(lines) or "(nothing yet)"


def _turn_text(turn: Turn) -> str:
    speaker = f"{turn.role} ({_on_one_line(turn.name)})" if turn.name else turn.role
    return f"[{turn.n}] {speaker}: {_shown(abridge(turn.content))}"


def build_prompt(memory: Memory, thread: str, turns: Sequence[Turn], *, folder: Path | None = None) -> Prompt:
    """Ask what a conversation changes in memory; turns are numbered by their ordinal so that they can be cited.

    `folder` holds templates that override the packaged `system.md` and `update.md`.

    Raises:
        ConfigError: the folder is not there, or a template cannot be read.
    """
    system, update, digest = _templates(folder or _PACKAGED)
    user = _fill(
        update,
        {
            "memory": _memory_text(memory),
            "thread": _on_one_line(thread),
            "conversation": "\n".join(map(_turn_text, turns)),
        },
    )
    return Prompt(system, user, digest, REPLY_SCHEMA)
