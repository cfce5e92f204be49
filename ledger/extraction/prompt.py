"""Extraction prompt: the templates, filled with memory and the turns to learn from, within a token limit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import Turn
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Category, Policy
from backstory.ledger.extraction.dates import over_days, said_at, when
from backstory.ledger.extraction.excerpt import FEWEST_MERGED, cut_line, excerpt, indented, line_size, on_one_line
from backstory.ledger.extraction.items import reply_schema
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.extraction.signals import SIGNALS
from backstory.ledger.extraction.templates import fill, load_templates
from backstory.ledger.messages import abridge
from backstory.ledger.rules.screening import INSIDE, NEVER, OUTSIDE
from backstory.ledger.text.tokens import estimate_tokens

MAX_TOKENS = 24_000
"""The default limit of a prompt, in tokens."""

_LEAST = 600
"""The fewest tokens that memory and conversation together need."""
_SMALL_VALUES = 60
"""Tokens of the other values filled in: two dates and a few numbers."""

_CATEGORIES = """# Categories of this memory
Use these names, too, and one of them rather than another where it fits:"""
_INSTRUCTIONS = f"""# Instructions of the operator
The operator of this memory says what to remember. These instructions come before what is said above:
<instructions>
{{}}
</instructions>
Give each new fact, each merged fact and each rewritten section its "topic": "{INSIDE}" if they want such a thing \
remembered, "{OUTSIDE}" if they do not, "{NEVER}" if they say that such a thing is never to be kept. Label honestly; \
what is not "{INSIDE}" is left out, and that is right."""


class Question(msgspec.Struct, frozen=True):
    """A prompt and what the decision on its answer needs to know.

    Attributes:
        prompt: the prompt.
        shown: the ids of the facts it shows, or None where it shows every fact.
        stale: the ids of the facts it puts up for review.
    """

    prompt: Prompt
    shown: tuple[str, ...] | None
    stale: tuple[str, ...]


def _head(turn: Turn, *, dated: bool) -> str:
    # The date stands before the name, so that no name passes for one.
    date = f", {said_at(turn)}" if dated else ""
    name = f" ({on_one_line(turn.name)})" if turn.name else ""
    return f"[{turn.n}] {turn.role}{date}{name}: "


def _line(turn: Turn, *, dated: bool) -> str:
    return _head(turn, dated=dated) + indented(abridge(turn.content))


def first_portion(turns: Sequence[Turn], room: int, size_of: Callable[[Turn], int] | None = None) -> Sequence[Turn]:
    """Return as many turns, from the first on, as fit into `room` tokens.

    The portion ends after an answer where it can: a user's words go with the assistant's answer to them, unless both
    together are too big. At least one turn is returned, even where it alone is too big.
    """
    # No line takes less than a token, so a portion has no more turns than these.
    dated = size_of is None and over_days(turns[: max(1, room)])
    stop = used = 0
    for first, last in _exchanges(turns):
        sizes = [size_of(turn) if size_of else line_size(_line(turn, dated=dated)) for turn in turns[first:last]]
        if stop and used + sum(sizes) > room:
            break
        for size in sizes:
            if stop and used + size > room:
                return turns[:stop]
            stop += 1
            used += size
    return turns[:stop]


def _exchanges(turns: Sequence[Turn]) -> Iterator[tuple[int, int]]:
    """Yield where each exchange begins and ends: a user's words in a row, and the answers to them."""
    start = 0
    for index in range(1, len(turns)):
        if turns[index].role == "user" and turns[index - 1].role != "user":
            yield start, index
            start = index
    if turns:
        yield start, len(turns)


def conversation(turns: Sequence[Turn], room: int) -> list[str]:
    """Return the lines that show turns in a prompt; a single turn that is too long is cut.

    Turns of several days have their dates.

    Raises:
        ValueError: The turns do not fit into `room` tokens; pass the `first_portion` of them.
    """
    dated = over_days(turns)
    lines = [_line(turn, dated=dated) for turn in turns]
    if sum(map(line_size, lines)) <= room:
        return lines
    if len(turns) > 1:
        raise ValueError(f"{len(turns)} turns do not fit into {room} tokens: ask about fewer at once")
    return [cut_line(turn.content, room, _head(turn, dated=dated)) for turn in turns]


def _operators_part(policy: Policy) -> str:
    """Return the text that follows the system message; empty where the policy has neither."""
    return "".join(f"\n{part}\n" for part in _parts(policy))


def _parts(policy: Policy) -> Iterator[str]:
    if policy.categories:
        yield "\n".join((_CATEGORIES, *map(_category_line, policy.categories)))
    if policy.instructions.strip():
        yield _INSTRUCTIONS.format(policy.instructions.strip())


def _category_line(category: Category) -> str:
    about = " ".join(category.description.split())
    return f"- {category.name}: {about}" if about else f"- {category.name}"


def digest_with(digest: str, part: str) -> str:
    """Return the digest of a prompt's templates together with the operator's part; the same without one."""
    return hashlib.sha256(f"{digest}\n{part}".encode()).hexdigest() if part else digest


class PromptBuilder:
    """A prompt without its conversation; `room` is what is left for the conversation, in tokens.

    Memory takes at most half of what the templates leave.

    Args:
        memory: the memory to show.
        thread: the name of the thread.
        at: the moment of asking, which decides what facts are up for review.
        folder: templates that override the packaged ones.
        agent: the agent, for which the folder may hold templates of its own.
        max_tokens: the limit of the prompt, as `estimate_tokens` counts.

    Raises:
        ConfigError: As `load_templates`; or the templates leave too little of `max_tokens`.
    """

    def __init__(
        self,
        memory: Memory,
        thread: str,
        *,
        at: str,
        folder: Path | None = None,
        agent: str | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self._templates = load_templates(folder, agent)
        self._policy = memory.policy
        self._thread = on_one_line(thread)
        self._operators = _operators_part(memory.policy)
        fixed = self._templates.size + line_size(self._thread) + estimate_tokens(self._operators) + _SMALL_VALUES
        if max_tokens - fixed < _LEAST:
            raise ConfigError(
                f"the prompt templates alone come to {fixed} tokens and prompt_max_tokens is {max_tokens}: set it to "
                f"{fixed + _LEAST} or more, or shorten the templates in prompts_dir"
            )
        self._shown = excerpt(
            memory,
            at,
            (max_tokens - fixed) // 2,
            review=self._templates.asks_for("staleness"),
            merging=self._templates.asks_for("consolidation"),
        )
        self.room = max_tokens - fixed - self._shown.size

    def first_of(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return as many turns, from the first on, as this prompt has room for."""
        return first_portion(turns, self.room)

    def question(self, turns: Sequence[Turn], signals: Collection[str] = ()) -> Question:
        """Return the question about turns; `signals` are the names of the signals found in them.

        Raises:
            ValueError: There is no room for all of these turns; pass the `first_of` them.
        """
        texts, shown = self._templates, self._shown
        hints = [texts[f"hints/{name}.md"].strip() for name in SIGNALS if name in signals]
        values = {
            "memory": "\n".join(shown.lines),
            "thread": self._thread,
            "when": when(turns),
            "conversation": "\n".join(conversation(turns, self.room)),
            "hints": self._part("hints.md", "signals", hints),
            "staleness": self._part(
                "staleness.md", "facts", shown.review, most=self._policy.staleness_max_removals_per_cycle
            ),
            "consolidation": self._part(
                "consolidation.md",
                "facts",
                shown.merging,
                fewest=FEWEST_MERGED,
                sources=self._policy.consolidation_max_sources,
                most=self._policy.consolidation_max_groups_per_cycle,
            ),
        }
        system, user = fill(texts["system.md"], values) + self._operators, fill(texts["update.md"], values)
        everything = shown.shown if texts.asks_for("memory") else ()
        topics = bool(self._policy.instructions.strip())
        schema = reply_schema(review=bool(shown.review), merging=bool(shown.merging), topics=topics)
        digest = digest_with(texts.digest, self._operators)
        return Question(Prompt(system, user, digest, schema), everything, shown.stale)

    def _part(self, template: str, slot: str, lines: Sequence[str], **values: int) -> str:
        """Return an optional part with its lines; empty where there is none of them."""
        texts = {slot: "\n".join(lines), **{name: str(value) for name, value in values.items()}}
        return f"{fill(self._templates[template], texts).strip()}\n\n" if lines else ""
