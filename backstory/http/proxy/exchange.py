"""Exchange: the memory of one request, which is read before it is forwarded and records what is said.

Its methods block; call them in a worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from backstory import checks
from backstory.home import Backstory
from backstory.http.proxy.answers.answer import Answer
from backstory.http.proxy.asked import Asked
from backstory.http.proxy.thread_names import ThreadNames
from backstory.ledger.core.errors import InputError
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import Kept, Message
from backstory.ledger.threads.continuing import begin_of_question
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.projections.context import Context


class Memories:
    """Memories of a home, as exchanges use them."""

    def __init__(self, home: Backstory, names: ThreadNames) -> None:
        self.home = home
        self.names = names
        self.fail_safe = FailSafeMemory(home)
        self.by_tools = home.config.settings.mode == "tool"


class Exchange:
    """The memory of one request.

    Args:
        memories: The memories of the home.
        scope: Whose memory it is.
        asked: The request.
        thread: The thread that the client names.
        again: Whether the client says that it tries the request again.
        records: Whether the caller may record.
    """

    def __init__(
        self, memories: Memories, scope: Scope, asked: Asked, *, thread: str | None, again: bool, records: bool
    ) -> None:
        self.scope = scope
        self.thread: str | None = None
        self.records = records and not memories.by_tools
        self._memories = memories
        self._asked = asked
        self._named = thread
        self._again = again
        self._given: dict[str, object] = {}

    @cached_property
    def _said(self) -> Sequence[Kept]:
        return checks.kept_of(self._asked.messages)

    def read(self) -> Context | None:
        """Find the thread, and return the context block; None where memory cannot be read."""
        try:
            block = self._memories.fail_safe.guarded(self.scope, "inject", self._block, None)
            self._have_thread()
        except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
            self._memories.home.faults.note(self.scope, "inject", error)
            return None
        return block

    def given(self, block: Context) -> None:
        """Note that the model gets a block, for the turn of its answer."""
        self._given = block.note()

    def _block(self) -> Context:
        memories = self._memories
        memory = memories.home.memory_of(self.scope)

        def find() -> Sequence[str]:
            if self._asked.follows is not None:
                return memory.find_threads(turn_id=self._asked.follows)
            return memory.find_threads(self._asked.messages)

        self.thread = memories.names.take(
            self.scope, self._asked, self._said, named=self._named, again=self._again, find=find
        )
        spoken = [message for message in self._asked.messages if message.role in ("user", "assistant")]
        return memory.context(spoken, thread=self.thread, facts=not memories.by_tools)

    def _have_thread(self) -> str:
        """Return the thread; where the recorded turns could not be read, it is found without them."""
        if self.thread is None:
            self.thread = self._memories.names.take(
                self.scope, self._asked, self._said, named=self._named, again=self._again
            )
        return self.thread

    def record_question(self) -> None:
        """Record what was said up to now."""
        if self._asked.skipped:
            detail = "a message of a request to the proxy has no role or content that can be read; it is not recorded"
            self._memories.home.faults.count(self.scope, "record", InputError.__name__, detail)
        self._record(self._asked.messages)

    def record_answer(self, answer: Answer, *, interrupted: bool) -> None:
        """Record an answer, with a mark where it was interrupted, or cut since it was too long."""
        metadata = {name: True for name, is_so in (("interrupted", interrupted), ("cut", answer.cut)) if is_so}
        said = Message("assistant", answer.text, metadata={**metadata, **self._given})
        if not answer.text:
            return
        if self._is_known_by_id(answer):
            self._record([msgspec.structs.replace(said, id=answer.id)])
        else:
            self._record([*self._asked.messages, said])

    def note_answer(self, answer: Answer) -> None:
        """Note how far the thread has come, for the next request, which may come before the answer is recorded."""
        if self.thread is None:
            return
        said = checks.kept_of([Message("assistant", answer.text)])
        ids = [key for key in (answer.id, *answer.calls) if key is not None]
        self._memories.names.answered(self.scope, self.thread, [*self._said, *said], ids)

    def leave(self) -> None:
        """End the exchange: the thread may be continued."""
        if self.thread is not None:
            self._memories.names.leave(self.scope, self.thread)

    def _is_known_by_id(self, answer: Answer) -> bool:
        """Whether the answer is recorded with its id, by which a later request names it instead of sending it."""
        return self._asked.protocol == "responses" and answer.id is not None and not begin_of_question(self._said)

    def _record(self, messages: Sequence[Message]) -> None:
        # Clients send the whole conversation, and try again: what the end of the thread shares with it was sent before.
        try:
            self._memories.fail_safe.record(self.scope, self._have_thread(), messages, sent_before=True)
        except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
            self._memories.home.faults.note(self.scope, "record", error)
