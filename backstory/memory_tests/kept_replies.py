"""Kept replies: answers of a model, kept by thread and by the digest of what was asked.

A file of JSONL, one reply a line: `{thread_id, reply, prompt?, model?, run?, tokens_in?, tokens_out?}`, as
`extract --replies` reads it, too. `prompt` is the digest of the templates and of the words asked about. Memory is no
part of it: so a reply still fits under another policy, and no longer after a change of prompts or words. A line without
`prompt` answers whatever is asked next of its thread.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from backstory.ledger.core.errors import InputError, ModelError, StoreError
from backstory.ledger.disk.files import read_given
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, usage_of
from backstory.ledger.extraction.models.recorded import RECORDED, RecordedReply, read_replies
from backstory.ledger.learning.model_caller import ask_once
from backstory.memory_tests.steps import Step

_MOST_NAMED = 5


def prompt_key(templates: str, step: Step) -> str:
    """Return the digest by which a reply is kept, from the digest of the templates and the step asked about."""
    return hashlib.sha256(f"{templates}\n{step.digest}".encode()).hexdigest()


class KeptReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file."""

    thread_id: str
    reply: str | msgspec.Raw
    prompt: str | None = None
    model: str | None = None
    run: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None


class KeptReplies(Model):
    """A model that gives kept replies; those that are missing come from another model, and are kept.

    Args:
        path: The file; None where no replies are kept, and the model answers everything.
        model: The model to ask for what is missing; None if that is an error.
        named: The model whose replies fit; None for those of every model.
    """

    def __init__(self, path: Path | None, model: Model | None, *, named: str | None) -> None:
        self._path = path
        self._model = model
        self._named = named
        self._rows = [] if path is None else _read(path, may_be_missing=model is not None)
        self._left: list[RecordedReply] = []
        self._step = Step("", ())
        self._run = 1
        self._missing: dict[str, str] = {}
        self.asked = 0
        """How many replies the model gave."""
        self.templates: set[str] = set()
        """The digests of the templates that were asked with."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._named or (RECORDED if self._model is None else self._model.name)

    def begin(self, run: int) -> None:
        """Begin a run, from 1."""
        self._run = run
        self._left = [row for row in self._rows if row.run == run or (row.prompt is None and row.run == 1)]

    def turn_to(self, step: Step) -> None:
        """Begin with the next update."""
        self._step = step

    def ask(self, prompt: Prompt) -> Answer:
        """Return the kept reply, else that of the model; `must_be_complete` says which replies are missing.

        Raises:
            ModelUnavailableError, ModelRejectedError: As the model.
        """
        self.templates.add(prompt.digest)
        key = prompt_key(prompt.digest, self._step)
        row = self._next(key)
        if row is not None:
            self._left.remove(row)
            return Answer(row.text, row.model or self.name, row.usage)
        if self._model is None:
            why = "not recorded for this prompt" if self._knows_thread() else "not recorded"
            self._missing[key] = f"{self._step.thread} ({why})"
            # The run goes on, to name all that is missing, and ends with an error.
            return Answer('{"newFacts": []}', self.name)
        try:
            answer = ask_once(self._model, prompt)
        except ModelError as error:
            self._missing[key] = f"{self._step.thread} ({self._model.name} failed: {error})"
            raise
        self._missing.pop(key, None)
        self.asked += 1
        self._keep(key, answer)
        return answer

    def _next(self, key: str) -> RecordedReply | None:
        thread, named = self._step.thread, self._named
        for row in self._left:
            if row.thread == thread and row.prompt in (None, key) and (named is None or row.model in (None, named)):
                return row
        return None

    def _knows_thread(self) -> bool:
        return any(row.thread == self._step.thread for row in self._rows)

    def _keep(self, key: str, answer: Answer) -> None:
        thread, usage, path = self._step.thread, usage_of(answer), self._path
        self._rows.append(RecordedReply(thread, answer.text, key, self.name, self._run, usage))
        if path is None:
            return
        row = KeptReply(thread, answer.text, key, self.name, self._run, usage.input, usage.output)
        try:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}; check the disk") from error

    def must_be_complete(self) -> None:
        """Refuse to go on without a reply.

        Raises:
            InputError: A reply was missing.
        """
        if not self._missing:
            return
        named = ", ".join(list(self._missing.values())[:_MOST_NAMED])
        more = f" and {len(self._missing) - _MOST_NAMED} more" if len(self._missing) > _MOST_NAMED else ""
        where = "name a file of kept replies under `replies`" if self._path is None else f"none in {self._path}"
        model = f" (model {self._named})" if self._named else ""
        count = len(self._missing)
        raise InputError(
            f"{count} {'reply is' if count == 1 else 'replies are'} missing{model}: {named}{more}; {where}. "
            "--record asks a model for what is missing, and keeps it"
        )

    @property
    def unused(self) -> Sequence[str]:
        """The threads of the replies to any prompt that were not used, each with their number."""
        counts = Counter(row.thread for row in self._left if row.prompt is None)
        return [f"{thread} ({count})" for thread, count in sorted(counts.items())]


def _read(path: Path, *, may_be_missing: bool) -> list[RecordedReply]:
    if may_be_missing and not path.exists():
        return []
    data = read_given(path, "--record makes it with a model")
    try:
        return read_replies(data.split(b"\n"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
