"""Summarizer: chooses the turns or summaries to summarise next, asks a model, and commits the answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from backstory.ledger.core.commands import Summarize
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ModelError, NotFoundError
from backstory.ledger.core.events import Section, Turn, TurnRange, UpdateFailed
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.ledger.core.summaries import SummaryKey, live_summaries
from backstory.ledger.extraction.models.model import Answer, Model, Prompt
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.model_caller import ModelRequest, reason_of
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.writer import Writer
from backstory.ledger.text.tokens import estimate_tokens
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Thread

_log = logging.getLogger(__name__)


_TOGETHER = 10
"""The number of summaries of one level that become one summary of the next."""


class SummaryLimits(msgspec.Struct, frozen=True):
    """Limits of summaries.

    Attributes:
        min_turns: this many turns make a group to summarise; 0 turns summaries off.
        min_tokens: turns with this many tokens make a group, too.
        max_chars: the most characters of a summary.
    """

    min_turns: int = 10
    min_tokens: int = 4_000
    max_chars: int = 1_200


class SummaryGroup(msgspec.Struct, frozen=True):
    """The sources of one summary: turns, or summaries by the names of their sections, in the order of the turns."""

    level: int
    turns: TurnRange
    sources: tuple[Turn, ...] = ()
    parts: dict[str, Section] = {}


def next_group(
    memory: Memory, coverage: Coverage, thread: Thread, limits: SummaryLimits, *, anyway: bool = False
) -> SummaryGroup | None:
    """Return the group to summarise next, or None where no group is large enough.

    Summaries come before turns, so that no level has many more than ten. Turns are summarised once, even where their
    summary was reverted, cleared or erased. After a failure there is no group until the turns after the failed ones
    make up another; with `anyway`, for a person's request, the failed group is returned again.
    """
    if not limits.min_turns:
        return None
    failed = coverage.not_summarized(thread)
    if failed and not anyway and _enough(thread.standing(failed + 1), limits) is None:
        return None
    live = live_summaries(memory, thread.name)
    for level in sorted({summed.level for summed, _ in live}):
        done = coverage.summarized(thread, level + 1)
        alike = [summed for summed, _ in live if summed.level == level and summed.turns.first > done]
        if len(alike) >= _TOGETHER:
            return _merging(level + 1, TurnRange(alike[0].turns.first, alike[_TOGETHER - 1].turns.last), live)
    turns = thread.standing(coverage.summarized(thread, 1) + 1)
    count = _enough(turns, limits)
    if count is None:
        return None
    return SummaryGroup(1, TurnRange(turns[0].n, turns[count - 1].n), tuple(turns[:count]))


def _merging(level: int, turns: TurnRange, live: Sequence[tuple[SummaryKey, Section]]) -> SummaryGroup:
    # The new summary also covers those of lower levels between them, which a revert has brought back.
    within = {
        summed.section: section
        for summed, section in live
        if turns.first <= summed.turns.first and summed.turns.last <= turns.last
    }
    return SummaryGroup(level, turns, parts=within)


def _enough(turns: Sequence[Turn], limits: SummaryLimits) -> int | None:
    """Return how many turns, from the first on, make up a group, or None where they are too few."""
    tokens = 0
    for count, turn in enumerate(turns, 1):
        tokens += estimate_tokens(turn.content)
        if count >= limits.min_turns or tokens >= limits.min_tokens:
            return count
    return None


class SummaryOutcome(msgspec.Struct, frozen=True):
    """The commit of one summary; `failed` where the commit records why there is none."""

    commit: Commit
    failed: bool


class _SummaryRequest(ModelRequest, kw_only=True):
    """A prepared request for one summary; `command` is without the summary's text."""

    command: Summarize

    def is_overtaken(self, *kinds: str) -> bool:
        """Whether the memory was overtaken, or a turn that it shows was erased."""
        with self.writer.state(durable=False) as state:
            known = state.transcript.threads.get(self.command.thread) or Thread(self.command.thread)
            erased = any(n > len(known.turns) or known.turns[n - 1] is None for n in self.command.shown)
        return erased or super().is_overtaken(*kinds)


class Summarizer:
    """Summarises threads; safe for threads, but the caller must hold the lease of the thread.

    Args:
        updater: its calls and those for summaries keep their gap, and their prompts have the same limit.
        limits: when to summarise, and how long a summary may be.
    """

    def __init__(self, updater: Updater, limits: SummaryLimits) -> None:
        self._updater = updater
        self._model_caller = updater.model_caller
        self._limits = limits

    def has_work(self, writer: Writer, only: str | None = None) -> list[str]:
        """Return the threads with something to summarise on request: of the whole scope, or `only` the one given.

        It examines every thread, so it takes time in a large scope.
        """
        if not self._limits.min_turns:
            return []
        with writer.state() as state:
            threads = state.transcript.threads
            return [
                name
                for name in (threads if only is None else (only,))
                if (thread := threads.get(name)) is not None
                and next_group(state.memory, state.coverage, thread, self._limits, anyway=True) is not None
            ]

    def run(
        self, writer: Writer, thread: str, model: Model, *, anyway: bool = False, backdate: bool = False
    ) -> tuple[SummaryOutcome, ...]:
        """Summarise every group of a thread that is large enough; stop at the first failure.

        A failure is committed and changes nothing. Recorded replies are never asked for a summary.

        Args:
            writer: the scope.
            thread: the name of the thread.
            model: the model to ask.
            anyway: ask again for a group that failed; otherwise it waits for another group of turns.
            backdate: date each commit by the last turn it summarises.

        Raises:
            StoreError, LockTimeoutError, CorruptLogError: As the store; a later run asks again for what has no commit.
            ConfigError: A prompt template cannot be read, or the templates leave no room.
        """
        done: list[SummaryOutcome] = []
        if not self._limits.min_turns or isinstance(model, RecordedReply):
            return ()
        while not self._model_caller.stopped:
            task = self._task(writer, thread, model, anyway=anyway, backdate=backdate)
            commit = None if task is None else self._settle(task, model)
            if commit is None:
                break
            done.append(SummaryOutcome(commit, any(isinstance(event, UpdateFailed) for event in commit.events)))
            if done[-1].failed:
                break
        return tuple(done)

    def _task(
        self, writer: Writer, thread: str, model: Model, *, anyway: bool, backdate: bool
    ) -> _SummaryRequest | None:
        with writer.state() as state:
            memory, pin, log = state.memory, state.transcript.head, state.log
            known = state.transcript.threads.get(thread) or Thread(thread)
            group = next_group(memory, state.coverage, known, self._limits, anyway=anyway)
        if group is None:
            return None
        group, prompt = self._prompt(thread, group, memory.policy.instructions)
        moments = [turn.at for turn in group.sources]
        moments += [moment for section in group.parts.values() for moment in (section.since, section.until)]
        command = Summarize(
            at="",
            thread=thread,
            level=group.level,
            turns=group.turns,
            basis=memory.seq,
            since=min(moments),
            until=max(moments),
            shown=tuple(turn.n for turn in group.sources),
            sources=group.parts,
        )
        cause = Cause(
            kind="summary",
            thread=thread,
            transcript=pin,
            model=clip(str(model.name), MAX_NAME),
            level=group.level,
            summarized=group.turns,
        )
        at = parse_moment(command.until) if backdate else None
        return _SummaryRequest(
            writer=writer,
            turns=group.turns,
            prompt=prompt,
            cause=cause,
            basis=memory.seq,
            log=log,
            at=at,
            command=command,
        )

    def _prompt(self, thread: str, group: SummaryGroup, instructions: str) -> tuple[SummaryGroup, Prompt]:
        """Return the prompt and the part of the group that fits into it; the rest is left for the next group."""
        from backstory.ledger.extraction.summary_prompt import SummaryPromptBuilder

        builder = SummaryPromptBuilder(
            thread,
            chars=self._limits.max_chars,
            folder=self._updater.prompts,
            max_tokens=self._updater.prompt_max_tokens,
            instructions=instructions,
        )
        if group.parts:
            return group, builder.of_summaries(list(group.parts.values()))
        sources = tuple(builder.first_of(group.sources))
        turns = msgspec.structs.replace(group.turns, last=sources[-1].n)
        return msgspec.structs.replace(group, turns=turns, sources=sources), builder.of_turns(sources)

    def _settle(self, task: _SummaryRequest, model: Model) -> Commit | None:
        """Ask the model and commit the outcome; None where the program is shutting down, or the memory was removed."""
        from backstory.ledger.extraction.summary_prompt import read_summary

        answer: Answer | None = None
        text, failed, detail = "", None, ""
        try:
            answer = self._model_caller.call(model, task)
            if answer is None:
                failed, detail = "basis", "what it was to be made from has changed"
            else:
                text = read_summary(answer.text, self._limits.max_chars)
        except ModelError as error:
            failed, detail = reason_of(error), str(error)
        if self._model_caller.stopped:
            return None
        command = msgspec.structs.replace(
            task.command, text=text, failed=failed, detail=clip(detail, 2_000), attempts=max(1, task.attempts)
        )
        try:
            return task.commit(command, answer)
        except NotFoundError as error:
            _log.warning("%s", error)
            return None
