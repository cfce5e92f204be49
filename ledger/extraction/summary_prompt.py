"""Summary prompt: asks a model for the summary of a thread, and reads its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from backstory.ledger.core.errors import ConfigError, ReplyError
from backstory.ledger.core.events import Section, Turn
from backstory.ledger.core.sanitize import Json, safe_text
from backstory.ledger.extraction.dates import days, when
from backstory.ledger.extraction.excerpt import cut_line, line_size, on_one_line
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.extraction.prompt import MAX_TOKENS, conversation, digest_with, first_portion
from backstory.ledger.extraction.reply import first_object, reply_text
from backstory.ledger.extraction.templates import fill, load_summary_templates
from backstory.ledger.text.tokens import estimate_tokens

_LEAST = 600
"""The fewest tokens that the text to summarise needs."""
_SMALL_VALUES = 60
"""Tokens of the other values filled in: two dates and a number."""
_KNOWN = ("summary",)
_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
}


_INSTRUCTIONS = """
# Instructions of the operator
The operator of this memory says what to remember. These instructions come before what is said above:
<instructions>
{}
</instructions>
What they do not want remembered does not belong in the note. Of what they say is never to be kept, not a word does.
"""


class SummaryPromptBuilder:
    """A summary prompt without the text to summarise; `room` is what is left for that text, in tokens.

    The policy's `instructions` follow the system message.

    Raises:
        ConfigError: As `load_summary_templates`; or the templates leave too little of `max_tokens`.
    """

    def __init__(
        self,
        thread: str,
        *,
        chars: int,
        folder: Path | None = None,
        max_tokens: int = MAX_TOKENS,
        instructions: str = "",
    ) -> None:
        self._templates = load_summary_templates(folder)
        self._operators = _INSTRUCTIONS.format(instructions.strip()) if instructions.strip() else ""
        self._values = {"thread": on_one_line(thread), "chars": str(chars)}
        # The thread and the number may occur in both messages of a prompt.
        fixed = self._templates.size + 2 * (line_size(self._values["thread"]) + _SMALL_VALUES)
        fixed += estimate_tokens(self._operators)
        self.room = max_tokens - fixed
        if self.room < _LEAST:
            raise ConfigError(
                f"the prompt templates of summaries alone come to {fixed} tokens and prompt_max_tokens is "
                f"{max_tokens}: set it to {fixed + _LEAST} or more, or shorten the templates in prompts_dir"
            )

    def first_of(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return as many turns, from the first on, as this prompt has room for."""
        return first_portion(turns, self.room)

    def of_turns(self, turns: Sequence[Turn]) -> Prompt:
        """Return the prompt for a summary of turns.

        Raises:
            ValueError: There is no room for all of these turns; pass the `first_of` them.
        """
        return self._asked("summary.md", when(turns), conversation=conversation(turns, self.room))

    def of_summaries(self, summaries: Sequence[Section]) -> Prompt:
        """Return the prompt for a summary of summaries; where all together are too long, the longest are cut."""
        moments = [moment for section in summaries for moment in (section.since, section.until)]
        return self._asked("summary_merging.md", days(moments), summaries=self._notes(summaries))

    def _asked(self, name: str, dates: str, **parts: Sequence[str]) -> Prompt:
        values = {**self._values, "when": dates, **{slot: "\n".join(lines) for slot, lines in parts.items()}}
        system, user = fill(self._templates["summary_system.md"], values), fill(self._templates[name], values)
        digest = digest_with(self._templates.digest, self._operators)
        return Prompt(system + self._operators, user, digest, _SCHEMA)

    def _notes(self, summaries: Sequence[Section]) -> list[str]:
        left, lines = self.room, dict[int, str]()
        heads = [f"- {days((section.since, section.until))}: " for section in summaries]
        sizes = [estimate_tokens(section.summary) for section in summaries]
        for done, index in enumerate(sorted(range(len(summaries)), key=sizes.__getitem__)):
            lines[index] = cut_line(summaries[index].summary, left // (len(summaries) - done), heads[index])
            left -= line_size(lines[index])
        return [lines[index] for index in range(len(summaries))]


def read_summary(text: str, chars: int) -> str:
    """Read the summary in an answer and cut it to `chars` characters, after a sentence where possible.

    Raises:
        ReplyError: The answer has no summary, or an empty one.
    """
    value = first_object(reply_text(text), _KNOWN)["summary"]
    if not isinstance(value, str):
        raise ReplyError(f"the reply's summary is no text, but a {type(value).__name__}")
    # A JSON escape can still produce a lone surrogate.
    summary = cut_at_sentence(safe_text(value).strip(), chars)
    if not any(map(str.isalnum, summary)):
        raise ReplyError("the reply's summary says nothing")
    return summary


_SENTENCE_END = re.compile(r"[.!?…]+[\"')\]»”’]*(?=\s|$)|[。!?。]+[」』”’)]*|\n")
_LEAST_KEPT = 3
"""A cut keeps at least a third of the allowed length; a shorter remainder says too little."""


def cut_at_sentence(text: str, chars: int) -> str:
    """Cut a text to `chars` characters: after a sentence where possible, otherwise after a word, with an ellipsis."""
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
