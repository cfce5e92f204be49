"""Memory of an agent's runs: what each call of the model gets, and what is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from backstory import checks
from backstory.home import Backstory
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.scope import Scope
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.projections.context import Context


class HostMemory(FailSafeMemory):
    """The memories of an open home, as the runs of an agent use them: no fault of memory reaches the agent.

    Args:
        home: The home.
        max_tokens: Maximum size of a context block; None for the configured one.

    Raises:
        UsageError: A value has the wrong type.
    """

    def __init__(self, home: Backstory, max_tokens: int | None = None) -> None:
        if not isinstance(home, Backstory):
            raise UsageError(f"home must be an open Backstory, got {type(home).__name__}")
        if max_tokens is not None:
            checks.whole("max_tokens", max_tokens, 1, "a whole number of tokens")
        super().__init__(home)
        self.home = home
        self._max_tokens = max_tokens
        # The first block needs it; by then it may be there.
        home.warm(timeout=0)

    def block(
        self,
        scope: Scope,
        spoken: Iterable[object],
        thread: str | None,
        *,
        facts: bool = True,
        tags: Sequence[str] = (),
    ) -> Context | None:
        """Return the context block, as `MemoryHandle.context`; None where memory cannot be read.

        Args:
            scope: The memory.
            spoken: The messages of the user and the agent. Others do not show the topic, and may be unreadable.
            thread: The thread, if it is known.
            facts: As for `MemoryHandle.context`.
            tags: As for `MemoryHandle.context`.
        """

        def read() -> Context | None:
            memory = self.home.memory_of(scope)
            return memory.context(spoken, self._max_tokens, thread=thread, facts=facts, tags=tags)

        return self.guarded(scope, "inject", read, None)

    def record_words(
        self, scope: Scope, thread: str, said: tuple[str, str], run_id: str, given: Mapping[str, object]
    ) -> None:
        """Record the question or the final answer of a run.

        Args:
            scope: The memory.
            thread: The thread.
            said: Who speaks, user or assistant, and the words; nothing is recorded of nothing.
            run_id: The id of the run. One that is run again has the same id, and is not recorded twice.
            given: What the model was given to read, as the turn of its answer notes it.
        """
        role, words = said
        if words:
            noted = {"metadata": dict(given)} if given and role == "assistant" else {}
            self.record(scope, thread, [{"role": role, "content": words, "id": f"{run_id}-{role}", **noted}])
