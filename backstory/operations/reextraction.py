"""Asking a model again over what was said: what would memory be with another model, or another prompt?"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import ConfigError, NoModelError, NotFoundError, UsageError
from backstory.ledger.extraction.model import Model
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.writer import Writer, read_commits
from backstory.operations.scope_base import Progress, ScopeBase
from backstory.projections.history.history import diff
from backstory.projections.what_if.call_budget import BudgetedModel
from backstory.projections.what_if.reextract import RecordedLedger, RecordedTurns, Rerun, ask_again
from backstory.projections.what_if.what_if import WhatIfRun
from backstory.results import Reextracted

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike
    from backstory.ledger.extraction.recorded import RecordedReply

__all__ = ["Reextraction"]

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


class Reextraction(ScopeBase):
    """The part of a handle that asks again, and writes nothing."""

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
        """Ask a model again over the recorded words, and compare: today against what memory would be.

        Each recorded update, of one thread with `thread`, is asked again on the memory that the new answers have led to
        so far, also where it failed; everything else is decided again, as for `what_if`. What is pending is not asked
        about. What was erased cannot be: there the recorded answer stands, and `notes` says where. Nothing is written.

        `model` is what `Backstory.open` takes, else the home's own; `prompts` a folder of templates in the place of
        those configured. With `replies`, recorded answers take the model's place: a thread's next update gets its next
        reply, and where there is none left the recorded answer stands. After `max_calls` calls, failed ones included,
        or before a call that would exceed `max_tokens` tokens, it stops: both memories are compared as of the commit
        before the one to be asked about next.

        Raises:
            NoModelError: there is no model and no replies.
            NotFoundError: there is no such thread.
            UsageError: a cap below nothing, or a model and replies together.
            ConfigError: the folder of templates is not there, or one of them cannot be read.
        """
        for name, cap in (("max_calls", max_calls), ("max_tokens", max_tokens)):
            if cap is not None and cap < 0:
                raise UsageError(f"{name} is {cap}; it is 0 or more")
        if model is not None and replies is not None:
            raise UsageError("a model and recorded replies were given: leave one of them out")
        writer = self._reading()
        _must_know(writer, thread)
        updater = self._asking(prompts)
        logs = self._logs(writer)
        turns = RecordedTurns(logs.turns, lambda: read_commits(writer.store, writer.transcript_stream))
        ledger = RecordedLedger(WhatIfRun(writer.store, writer.ledger, writer.memory().seq), turns, writer)
        if replies is not None:
            answers = _Replies(replies)
            found = ask_again(ledger, updater, answers, thread=thread, progress=progress)
            return _result(found, unused=answers.unused(thread))
        with self._asked(model) as chosen:
            meter = BudgetedModel(chosen, max_calls=max_calls, max_tokens=max_tokens)
            found = ask_again(ledger, updater, lambda _: meter, thread=thread, progress=progress)
        cost = {"calls": meter.calls, "tokens_in": meter.tokens_in, "tokens_out": meter.tokens_out}
        now = msgspec.structs.replace(found.now, **cost)
        # An update that was given up half-way, for want of money, has left no failure behind.
        last_error = found.last_error or ("" if found.complete or now.updates else meter.last_error)
        return _result(msgspec.structs.replace(found, now=now, last_error=last_error))

    def _asking(self, prompts: str | Path | None) -> Updater:
        if prompts is not None and not Path(prompts).is_dir():
            raise ConfigError(f"the folder of prompt templates {prompts} is not there: name one that is")
        return self._services.asking(None if prompts is None else Path(prompts))

    @contextmanager
    def _asked(self, given: ModelLike | None) -> Iterator[Model]:
        """Choose the model to ask; what was opened for it is closed again."""
        chosen = self._services.model if given is None else self._services.models(given)
        if chosen is None:
            raise NoModelError(
                "no model is configured: set OPENAI_API_KEY (or OPENAI_BASE_URL for a server of your own) and, if you "
                "like, model_name; or give recorded replies"
            )
        try:
            yield chosen
        finally:
            close = getattr(chosen, "close", None)
            if isinstance(given, str) and callable(close):
                close()


def _must_know(writer: Writer, thread: str | None) -> None:
    with writer.reader.state() as state:
        if thread is not None and thread not in state.transcript.threads:
            raise NotFoundError(f"there is no thread {thread} in the memory of {writer.scope}: see `threads`")


def _result(found: Rerun, *, unused: int = 0) -> Reextracted:
    told = diff(found.recorded, found.would_be)
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
        told.added,
        told.removed,
        told.revised,
        told.sections,
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
