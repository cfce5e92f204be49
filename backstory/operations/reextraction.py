"""Reextraction: what memory would be if another model, or other prompts, had answered."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.aio import in_thread
from backstory.ledger.core.errors import ConfigError, UsageError
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.log.commits import read_commits
from backstory.projections.history.views import diff
from backstory.projections.what_if.call_budget import BudgetedModel
from backstory.projections.what_if.reextract import RecordedLedger, RecordedTurns, Rerun, ask_again
from backstory.projections.what_if.what_if import WhatIfRun
from backstory.results import Reextracted
from backstory.services.named import must_know
from backstory.services.services import Operations, Progress, ScopeServices, some_model

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike
    from backstory.ledger.extraction.models.recorded import RecordedReply

_MOST_NAMED = 10


class _Replies:
    """Recorded answers, which take a model's place: a thread's next update gets its next reply."""

    def __init__(self, replies: Sequence[RecordedReply]) -> None:
        self._of: defaultdict[str, deque[RecordedReply]] = defaultdict(deque)
        for reply in replies:
            self._of[reply.thread].append(reply)

    def __call__(self, thread: str) -> Model | None:
        left = self._of[thread]
        return left.popleft() if left else None

    def unused(self, thread: str | None) -> int:
        """Count the replies that are left, for all threads or for one."""
        return sum(len(left) for name, left in self._of.items() if thread in (None, name))


@contextmanager
def _asked(services: ScopeServices, given: ModelLike | None) -> Iterator[Model]:
    """Choose the model to ask; what was opened for it is closed again."""
    home = services.home
    chosen = some_model(home.model if given is None else home.model_from(given))
    try:
        yield chosen
    finally:
        close = getattr(chosen, "close", None)
        if isinstance(given, str) and callable(close):
            close()


def _result(found: Rerun, *, unused: int = 0) -> Reextracted:
    difference = diff(found.recorded, found.would_be)
    notes = []
    if found.erased:
        notes.append(f"words were erased, so the recorded answer stands: {_named(found.erased)}")
    if found.unanswered:
        notes.append(f"there was no reply, so the recorded answer stands: {_named(found.unanswered)}")
    if found.last_error:
        notes.append(f"the last call that failed said: {found.last_error}")
    if unused:
        notes.append(f"{unused} {'reply was' if unused == 1 else 'replies were'} not used: no update was left for them")
    return Reextracted(
        difference.added,
        difference.removed,
        difference.revised,
        difference.sections,
        len(found.would_be.facts),
        found.recorded.seq,
        found.complete,
        found.then,
        found.now,
        tuple(notes),
    )


def _named(seqs: Sequence[int]) -> str:
    more = len(seqs) - _MOST_NAMED
    named = ", ".join(map(str, seqs[:_MOST_NAMED]))
    return f"{'commit' if len(seqs) == 1 else 'commits'} {named}" + (f" and {more} more" if more > 0 else "")


class Reextracting(Operations):
    """What asks a model again; see `MemoryHandle`."""

    def reextract(
        self,
        model: ModelLike | None = None,
        prompts: str | Path | None = None,
        *,
        thread: str | None = None,
        replies: Sequence[RecordedReply] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> Reextracted:
        """Ask a model again over the recorded transcript, and compare. Nothing is written.

        Each recorded update is asked again on the memory that the new answers have led to so far, failed ones included;
        everything else is decided again, as for `what_if`. Pending turns are left out. Where the words are erased the
        recorded answer stands, and `notes` lists those commits.

        Args:
            model: What `Backstory.open` takes; the home's own unless given.
            prompts: A folder of templates in place of those configured.
            thread: Ask again about this conversation only.
            replies: Recorded answers that take the model's place: a thread's next update gets its next reply, and the
                recorded answer stands where none is left.
            max_calls: Stop after this number of calls, failed ones included.
            max_tokens: Stop before a call that would exceed this number of tokens.
            progress: Gets the number of commits that are done.

        Returns:
            Memory against what it would be, both as of the last commit reached, and what both cost.

        Raises:
            NoModelError: There is no model and there are no replies.
            NotFoundError: There is no such thread.
            UsageError: A cap is below 0, or a model and replies are both given.
            ConfigError: The folder of templates is missing, or one of them cannot be read.
        """
        services = self._services
        for name, cap in (("max_calls", max_calls), ("max_tokens", max_tokens)):
            if cap is not None and cap < 0:
                raise UsageError(f"{name} must be at least 0, got {cap}")
        if model is not None and replies is not None:
            raise UsageError("a model and recorded replies were given: leave one of them out")
        writer = services.reading()
        if thread is not None:
            must_know(writer, thread)
        if prompts is not None and not Path(prompts).is_dir():
            raise ConfigError(f"the folder of prompt templates {prompts} is not there: name one that is")
        updater = services.home.updater_with(None if prompts is None else Path(prompts))
        logs = services.logs(writer)
        turns = RecordedTurns(logs.turns, lambda: read_commits(writer.store, writer.transcript_stream))
        ledger = RecordedLedger(WhatIfRun(writer.store, writer.ledger, writer.memory().seq), turns, writer)
        if replies is not None:
            answers = _Replies(replies)
            found = ask_again(ledger, updater, answers, thread=thread, progress=progress)
            return _result(found, unused=answers.unused(thread))
        with _asked(services, model) as chosen:
            meter = BudgetedModel(chosen, max_calls=max_calls, max_tokens=max_tokens)
            found = ask_again(ledger, updater, lambda _: meter, thread=thread, progress=progress)
        cost = {"calls": meter.calls, "tokens_in": meter.tokens_in, "tokens_out": meter.tokens_out}
        now = msgspec.structs.replace(found.now, **cost)
        # An update that the budget cut short has left no failure behind.
        last_error = found.last_error or ("" if found.complete or now.updates else meter.last_error)
        return _result(msgspec.structs.replace(found, now=now, last_error=last_error))

    areextract = in_thread(reextract)
