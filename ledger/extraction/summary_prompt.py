"""What a model is asked for a summary of a thread, and how its answer is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from backstory.ledger.core.errors import ConfigError, ReplyError
from backstory.ledger.core.events import Section, Turn
from backstory.ledger.core.sanitize import Json, safe_text
from backstory.ledger.extraction.excerpt import line_size, on_one_line, squeezed
from backstory.ledger.extraction.model import Prompt
from backstory.ledger.extraction.prompt import MAX_TOKENS, conversation, first_portion, when
from backstory.ledger.extraction.reply import first_object, reply_text
from backstory.ledger.extraction.templates import fill, load_summary_templates
from backstory.ledger.text.tokens import estimate_tokens

__all__ = ["SummaryFrame", "cut_at_sentence", "read_summary"]

_LEAST = 600
"""Tokens under which a conversation has no room worth the name."""
_SMALL_THINGS = 30
"""Tokens of what else is filled in: two dates, a number."""
_KNOWN = ("summary",)
_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
}


class SummaryFrame:
    """A question for a summary with everything in it but what is to be summed up; `room` is what it leaves for that.

    Raises:
        ConfigError: as `load_summary_templates`; or the templates leave too little of `max_tokens`.
    """

    def __init__(self, thread: str, *, chars: int, folder: Path | None = None, max_tokens: int = MAX_TOKENS) -> None:
        self._templates = load_summary_templates(folder)
        self._values = {"thread": on_one_line(thread), "chars": str(chars)}
        # The thread and the number may stand in both parts of a question.
        fixed = self._templates.size + 2 * (line_size(self._values["thread"]) + _SMALL_THINGS)
        self.room = max_tokens - fixed
        if self.room < _LEAST:
            raise ConfigError(
                f"the prompt templates of summaries alone come to {fixed} tokens and prompt_max_tokens is "
                f"{max_tokens}: set it to {fixed + _LEAST} or more, or shorten the templates in prompts_dir"
            )

    def first_of(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return as many of the turns, from the first on, as this prompt has room for."""
        return first_portion(turns, self.room)

    def of_turns(self, turns: Sequence[Turn]) -> Prompt:
        """Ask for a summary of turns.

        Raises:
            ValueError: there are more turns than there is room for: ask about `first_of` them first.
        """
        return self._asked("summary.md", [turn.at for turn in turns], conversation=conversation(turns, self.room))

    def of_summaries(self, summaries: Sequence[Section]) -> Prompt:
        """Ask for a summary of summaries, in order; where all of them together are too long, the longest are cut."""
        moments = [moment for section in summaries for moment in (section.since, section.until)]
        return self._asked("summary_merging.md", moments, summaries=self._notes(summaries))

    def _asked(self, name: str, moments: Sequence[str], **parts: Sequence[str]) -> Prompt:
        values = {**self._values, "when": when(moments), **{slot: "\n".join(lines) for slot, lines in parts.items()}}
        system, user = fill(self._templates["summary_system.md"], values), fill(self._templates[name], values)
        return Prompt(system, user, self._templates.digest, _SCHEMA)

    def _notes(self, summaries: Sequence[Section]) -> list[str]:
        left, lines = self.room, dict[int, str]()
        heads = [f"- {when((section.since, section.until))}: " for section in summaries]
        sizes = [estimate_tokens(section.summary) for section in summaries]
        for done, index in enumerate(sorted(range(len(summaries)), key=sizes.__getitem__)):
            lines[index] = squeezed(summaries[index].summary, left // (len(summaries) - done), heads[index])
            left -= line_size(lines[index])
        return [lines[index] for index in range(len(summaries))]


def read_summary(text: str, chars: int) -> str:
    """Read a summary out of an answer; one that is too long is cut after a sentence.

    Raises:
        ReplyError: there is none, or it says nothing.
    """
    said = first_object(reply_text(text), _KNOWN)["summary"]
    if not isinstance(said, str):
        raise ReplyError(f"the reply's summary is no text, but a {type(said).__name__}")
    # Strict JSON has escapes for what no text can hold.
    summary = cut_at_sentence(safe_text(said).strip(), chars)
    if not any(map(str.isalnum, summary)):
        raise ReplyError("the reply's summary says nothing")
    return summary


_SENTENCE_END = re.compile(r"[.!?…]+[\"')\]»”’]*(?=\s|$)|[。!?。]+[」』”’)]*|\n")
_LEAST_KEPT = 3
"""A cut after a sentence keeps at least one part in so many of the room: what is left would say too little."""


def cut_at_sentence(text: str, chars: int) -> str:
    """Keep a text within so many characters: whole, or up to the end of a sentence, else of a word, with a mark."""
    if len(text) <= chars:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, chars + 1) if found.end() <= chars]
    if ends and ends[-1] * _LEAST_KEPT >= chars:
        return text[: ends[-1]].rstrip()
    if chars < _LEAST_KEPT:
        return text[:chars]
    head = text[: chars - 1]
    word = head.rfind(" ")
    return f"{head[:word].rstrip() if word * _LEAST_KEPT >= chars else head}…"
