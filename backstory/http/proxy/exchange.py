"""Exchange: the memory of one request, which is read before it is forwarded and records what is said.

Its methods block; call them in a worker thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import msgspec

from backstory import checks
from backstory.home import Backstory
from backstory.http.proxy.answers import UpstreamAnswer
from backstory.http.proxy.headers import History, Wishes
from backstory.http.proxy.protocol import Asked
from backstory.http.proxy.thread_names import Find, Taken, ThreadNames
from backstory.ledger.core.errors import InputError
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import Kept, Message
from backstory.ledger.text.scaffolding import load_scaffolding
from backstory.ledger.threads.delivery.told import HINT, SKIPPED, ThreadPlace, Told, begin_of_question, unseen
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.projections.context import Context


class Memories:
    """Memories of a home, as exchanges use them."""

    def __init__(self, home: Backstory, names: ThreadNames) -> None:
        settings = home.config.settings
        self.home = home
        self.names = names
        self.fail_safe = FailSafeMemory(home)
        self.scaffolding = load_scaffolding(settings.patterns)
        self.by_tools = settings.mode == "tool"
        self.history: History = settings.proxy_history


class Exchange:
    """The memory of one request.

    Args:
        memories: The memories of the home.
        scope: Whose memory it is.
        asked: The request.
        wishes: What the client says beside it.
        hint: The client's own name of the conversation.
        records: Whether the caller may record, and wants to.

    Attributes:
        thread: The thread, once it is known.
        facts: The ids of the facts that went in.
        lists_facts: Whether the client wants these ids.
        unseen: How many messages of the conversation are neither recorded nor will be.
    """

    def __init__(
        self, memories: Memories, scope: Scope, asked: Asked, wishes: Wishes, *, hint: str | None, records: bool
    ) -> None:
        self.scope = scope
        self.thread: str | None = None
        self.facts: tuple[str, ...] = ()
        self.lists_facts = wishes.facts
        self.unseen = 0
        self.records = records and not memories.by_tools
        self._memories = memories
        self._asked = asked
        self._wishes = wishes
        self._hint = hint
        self._history = wishes.history or memories.history
        self._given: dict[str, object] = {}

    @property
    def cuts(self) -> Counter[str]:
        """The scaffolding that is not recorded: characters by the name of the wrapper."""
        sizes: Counter[str] = Counter()
        for cut in self._asked.cuts:
            sizes[cut.wrapper] += cut.size
        return sizes

    @cached_property
    def _said(self) -> Sequence[Kept]:
        """The conversation up to the question, which notes the hint and the scaffolding around it."""
        kept = checks.kept_of(self._asked.messages)
        noted = {HINT: self._hint, SKIPPED: dict(self.cuts)}
        metadata = {name: value for name, value in noted.items() if value}
        last = next((n for n in range(len(kept) - 1, -1, -1) if kept[n].role == "user"), None)
        if metadata and last is not None:
            kept[last] = msgspec.structs.replace(kept[last], metadata={**kept[last].metadata, **metadata})
        return kept

    @property
    def _is_nothing_but_scaffolding(self) -> bool:
        asked = self._asked
        return bool(asked.cuts) and not asked.goes_on and not any(message.role == "user" for message in self._said)

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

        def find(names: Sequence[str]) -> Sequence[tuple[str, ThreadPlace | None]]:
            if self._asked.follows is not None:
                return [(name, None) for name in memory.find_threads(turn_id=self._asked.follows)]
            return memory.intake.places(self._said, first=names)

        taken = self._take(find)
        if self._history == "newest" and taken.place is None and self._said:
            known = memory.intake.places(self._said, only=taken.name)
            taken = Taken(taken.name, known[0][1] if known else None)
        self.unseen = 0 if self._history == "all" and taken.place is None else unseen(self._said, taken.place)
        spoken = [message for message in self._asked.messages if message.role in ("user", "assistant")]
        context = memory.context(spoken, thread=self.thread, facts=not memories.by_tools)
        self.facts = context.facts
        return context

    def _take(self, find: Find | None = None) -> Taken:
        wishes = self._wishes
        taken = self._memories.names.take(
            self.scope, self._asked, self._said, named=wishes.thread, again=wishes.again, find=find
        )
        self.thread = taken.name
        return taken

    def _have_thread(self) -> str:
        """Return the thread; where the recorded turns could not be read, it is found without them."""
        return self.thread if self.thread is not None else self._take().name

    def record_question(self) -> None:
        """Record what was said up to now."""
        if self._asked.skipped:
            detail = "a message of a request to the proxy has no role or content that can be read; it is not recorded"
            self._memories.home.faults.count(self.scope, "record", InputError.__name__, detail)
        self._record(self._said)

    def record_answer(self, answer: UpstreamAnswer, *, interrupted: bool) -> None:
        """Record an answer, with a mark where it was interrupted, or cut since it was too long."""
        metadata = {name: True for name, is_so in (("interrupted", interrupted), ("cut", answer.cut)) if is_so}
        text = self._asked.begun + answer.text if answer.text else ""
        said = Message("assistant", text, metadata={**metadata, **self._given})
        if self._is_known_by_id(answer):
            said = msgspec.structs.replace(said, id=answer.id)
        # Together with what it answers, since the filter may leave it out for that.
        kept = checks.kept_of([*self._asked.messages, said])
        if text and len(kept) > len(self._said):
            self._record([*self._said, kept[-1]], answered=True)

    def note_answer(self, answer: UpstreamAnswer) -> None:
        """Note how far the thread has come, for the next request, which may come before the answer is recorded."""
        if self.thread is not None:
            ids = [key for key in (answer.id, *answer.calls) if key is not None]
            self._memories.names.answered(self.scope, self.thread, self._said, ids)

    def leave(self) -> None:
        """End the exchange: the thread may be continued."""
        if self.thread is not None:
            self._memories.names.leave(self.scope, self.thread)

    def _is_known_by_id(self, answer: UpstreamAnswer) -> bool:
        """Whether the answer is recorded with its id, by which a later request names it instead of sending it."""
        return self._asked.names_answers and answer.id is not None and not begin_of_question(self._said)

    def _record(self, kept: Sequence[Kept], *, answered: bool = False) -> None:
        if self._is_nothing_but_scaffolding:
            return
        mode = Told(answered=answered, adopts=self._history == "all")
        try:
            self._memories.fail_safe.record_told(self.scope, self._have_thread(), kept, mode)
        except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
            self._memories.home.faults.note(self.scope, "record", error)
