"""Services of one scope: what the operations on a memory work with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from backstory import checks
from backstory.ledger.core.commands import Command
from backstory.ledger.core.commit import EMPTY, Cause, Commit, Head
from backstory.ledger.core.errors import NoModelError, NotFoundError, UsageError, WrongExpectedVersionError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.kinds import CauseKind
from backstory.ledger.core.memory import Memory, birth, held
from backstory.ledger.core.moments import ends, spell_moment
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.sharing import is_delivered, receive_all, try_to_deliver
from backstory.ledger.log.commits import read_durable_commits
from backstory.ledger.log.writer import Writer
from backstory.open_files import translate_verbs
from backstory.projections.context.joined import USERS, Joined, join
from backstory.projections.history.moment import Moment
from backstory.projections.history.times import At, TimeReader, When
from backstory.projections.index.index import ScopeIndex
from backstory.scope_state import ScopeState
from backstory.services.home_services import HomeServices
from backstory.services.named import COMPLETE_ID

if TYPE_CHECKING:
    from backstory.config.settings import AgentReads

_Answer = TypeVar("_Answer")

_POLL_SECONDS = 0.05

NO_MODEL = (
    "no model can be asked without a key or an address: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own"
)

NO_MODEL_HERE = f"{NO_MODEL}; or pass a client or a function as `model` to Backstory.open"
"""The same for a host that opens the home itself."""

Progress = Callable[[int], None]
"""A callback that gets the number of finished steps of a long operation."""


class HeadsSeen(msgspec.Struct, frozen=True):
    """The heads that a read depended on when it began.

    Attributes:
        heads: The heads; see `MemoryHandle.heads`.
        streams: The stream of each.
        scopes: The scopes that the streams belong to.
        tells: Returns the head of a stream at once; None where the engine cannot, or where heads are not all.
        hidden: How many facts of the logs are hidden, because their time is over.
        until: The moment at which the next fact goes, as commits spell it; None: never.
        now: Returns the time.
    """

    heads: tuple[Head, ...]
    streams: tuple[str, ...]
    scopes: tuple[Scope, ...]
    tells: Callable[[str], Head | None] | None
    hidden: int
    until: str | None
    now: Callable[[], datetime]

    def stand(self) -> bool:
        """Whether these are certainly still the heads: it waits for nothing, so it may be called on an event loop."""
        tells = self.tells
        if self.until is not None and self.until <= spell_moment(self.now()):
            return False
        return tells is not None and all(
            tells(stream) == head for stream, head in zip(self.streams, self.heads, strict=True)
        )


class ScopeServices(msgspec.Struct, frozen=True):
    """One scope's writer, the home it belongs to, and who acts on it."""

    own: Writer
    """The scope's own writer; `writer` checks first that the home is open."""
    home: HomeServices
    user: Writer | None
    """For an agent: the writer of its user's memory."""
    reads: AgentReads
    """What an agent reads of its user's facts."""
    agents: Callable[[], Sequence[Writer]]
    """Returns the writers of all of the user's agents."""
    actor: str
    conversation: str | None = None
    """The thread in which single facts are changed, if there is one."""
    by_model: bool = False
    """Whether single facts are changed by a model's tool, and not by a person."""
    expected: str | None = None
    """The hash of the head that the caller has seen: a change on another head is refused."""
    key: str | None = None
    """The key under which the caller asks for one change, so that it is made once."""

    @property
    def scope(self) -> Scope:
        """The scope."""
        return self.own.scope

    @property
    def shares(self) -> bool:
        """Whether the home has `shared_summaries`."""
        return self.home.settings.shared_summaries

    @property
    def users(self) -> Writer | None:
        """For an agent in a home with `shared_summaries`: the writer of the user, whose sections the agent shows."""
        return self.user if self.shares else None

    @property
    def state(self) -> ScopeState:
        """What this process holds of the scope."""
        return self.home.states(self.scope)

    @property
    def writer(self) -> Writer:
        """The scope's writer.

        Raises:
            UsageError: The home is closed.
        """
        self.home.states.must_be_open()
        return self.own

    @property
    def requester(self) -> str | None:
        """Who asks for an update by name; None where it is the one that opened the home."""
        return None if self.actor == self.home.actor else self.actor

    def reading(self) -> Writer:
        """Return the writer to read from: with `fallback` an agent without a memory of its own reads its user's."""
        if self.reads == "fallback" and self.user is not None and self.writer.memory().seq == 0:
            return self.user
        return self.writer

    def beside(self) -> Writer | None:
        """Return the writer of the user's memory where the agent reads both; None otherwise."""
        return self.user if self.reads == "both" else None

    def commits(self, writer: Writer) -> Iterator[Commit]:
        """Yield all durable commits, oldest first, for operations that have to walk them."""
        return read_durable_commits(writer.store, writer.ledger)

    def logs(self, writer: Writer) -> ScopeIndex:
        """Return the index of a scope's logs, which answers without walking them."""
        return self.home.states(writer.scope).index

    def times(self, writer: Writer | None = None) -> TimeReader:
        """Return the reader of times and commits of the ledger that is read from."""
        return TimeReader(self.own.clock.now, self.logs(writer or self.reading()))

    def span_of_truth(self, valid_at: When | None, *, include_past: bool) -> tuple[str, str] | None:
        """Return the span of time in which facts have to have been true; None for the facts that are live.

        Raises:
            UsageError: It is no time.
        """
        if valid_at is not None:
            return self.times().valid_span("valid_at", valid_at)
        return ("", "~") if include_past else None

    def memory(self, at: At | None = None, *, whole_days: bool = True, name: str = "at") -> Memory:
        """Return memory now, or as it was at a commit or a time; an agent that shares shows its user's sections."""
        writer = self.reading()
        if at is None:
            receive_all(self.users or self.own)
            return writer.memory() if self.users is None else self._with_users_sections(writer, self.users)
        moment = self.times(writer).cut(name, at, whole_days=whole_days)
        then = self.logs(writer).memory_at(moment)
        then = then.standing_at(then.at if isinstance(moment, int) else moment)
        if self.users is None:
            return then
        users = self.logs(self.users)
        return then.with_sections_of(users.memory_at(then.at if isinstance(moment, int) else moment))

    def joined(self, at: At | None = None) -> Joined | None:
        """Return memory joined with that of the user, now or at a moment; None where nothing is joined.

        At a commit's number the user's memory is the one at the commit's time.
        """
        beside = self.beside()
        if beside is None:
            return None
        own = self.memory(at)
        if at is None:
            return self.state.blocks.joined(own, beside.memory())
        moment = self.times().cut("at", at)
        at_time = own.at if isinstance(moment, int) else moment
        return join(own, self.logs(beside).memory_at(at_time).standing_at(at_time))

    def true_in(self, writer: Writer, moment: Moment | None, first: str, behind: str) -> tuple[Fact, ...]:
        """Return the facts that were true in a span of time, as one ledger knew it at a moment; oldest first.

        Live facts are among them and ended ones, but no expired ones; see `ScopeIndex.ended` for the arguments.
        """
        logs = self.logs(writer)
        memory = writer.reader.standing()[0] if moment is None else logs.memory_at(moment)
        now = spell_moment(writer.clock.now()) if moment is None else memory.at if isinstance(moment, int) else moment
        found = [fact for fact in memory.facts.values() if held(fact, first, behind)]
        found += logs.ended(moment, first, behind)
        return tuple(sorted((f for f in found if f.expires_at is None or ends(f.expires_at) > now), key=birth))

    def head_at(self, writer: Writer, seq: int) -> Head:
        """Return the head that a scope's ledger had after a commit; 0 is the empty ledger."""
        newest = writer.reader.standing()[1]
        if newest.seq == seq:
            return newest
        return self.logs(writer).commit(seq).head if seq else EMPTY

    @contextlib.contextmanager
    def naming_the_owner(self, fact_id: str) -> Iterator[None]:
        """Say whose a fact is where this memory has none of this id, and the user's memory does.

        Raises:
            NotFoundError: As the block does, or it is the user's.
        """
        try:
            yield
        except NotFoundError as error:
            beside = self.beside()
            if beside is None or fact_id.removeprefix(USERS) not in beside.memory().facts:
                raise
            raise NotFoundError(
                f"{fact_id} is a fact of {beside.scope}, which {self.scope} only reads: look at it, or change it, in "
                f"the memory of {beside.scope}"
            ) from error

    def _with_users_sections(self, agent: Writer, users: Writer) -> Memory:
        own, theirs = agent.memory(), users.memory()
        if not is_delivered(own, theirs, agent.scope.agent or ""):
            try_to_deliver(agent)
            own, theirs = agent.memory(), users.memory()
        return own.with_sections_of(theirs)

    def heads(self, *, turns: bool) -> HeadsSeen:
        """Return the heads that a read depends on: of the ledger read, of any other, and of the transcript."""
        read = [(self.own, *self.writer.served())]
        other = self.users or self.beside()
        if other is not None:
            read.append((other, *other.served()))
        elif self.reads == "fallback" and self.user is not None and read[0][2].seq == 0:
            read.insert(0, (self.user, *self.user.served()))
        heads, streams = [head for *_, head in read], [writer.ledger for writer, *_ in read]
        store = self.own.store
        if turns:
            heads.append(store.durable_head(self.own.transcript_stream))
            streams.append(self.own.transcript_stream)
        # Where agents share sections a read delivers what is under way, which no head shows.
        tells = None if self.shares else store.capabilities().head_at_once
        return HeadsSeen(
            tuple(heads),
            tuple(streams),
            tuple(writer.scope for writer, *_ in read),
            tells,
            sum(served.hidden for _, served, _ in read),
            min((served.until for _, served, _ in read if served.until is not None), default=None),
            self.own.clock.now,
        )

    def fact_id(self, writer: Writer, fact_id: str, *, whole: bool = False) -> str:
        """Return the id of a fact, live or gone, by its id or, unless it must be `whole`, a unique beginning of it.

        Raises:
            NotFoundError: There is and was no such fact. A complete id never counts as a beginning.
            UsageError: Several ids begin so.
        """
        exactly = whole or COMPLETE_ID.fullmatch(checks.text("fact_id", fact_id)) is not None
        try:
            found = self.logs(writer).find_fact(fact_id)
        except UsageError:
            if not exactly:
                raise
            found = ""
        if exactly and found != fact_id:
            raise NotFoundError(
                f"there is and was no fact {fact_id}: give its id in full, as `fact list` and `log` show it"
            )
        return found

    def commit(self, command: Command, cause: Cause) -> Commit:
        """Commit a command in this scope's ledger, on the head that the caller expects.

        Raises:
            WrongExpectedVersionError: The caller expects another head; nothing is written.
        """
        return self.writer.commit(command, cause, expected=self.expected)

    def with_policy_in_force(self) -> ScopeServices:
        """Put the configured policy in force; return services that expect the head after it.

        Raises:
            WrongExpectedVersionError: The ledger has another head than the caller expects.
        """
        return msgspec.structs.replace(self, expected=self.writer.put_policy_in_force(self.expected))

    def must_stand(self) -> None:
        """Refuse to begin if the ledger has another head than the caller expects.

        Raises:
            WrongExpectedVersionError: It has another head.
        """
        if self.expected is not None:
            writer = self.writer
            writer.memory(durable=False)
            writer.must_stand(self.expected)

    def on_newest(self, change: Callable[[Head], _Answer]) -> _Answer:
        """Make a change on the newest head, again if another writer moved it; the caller's own expectation is kept."""
        while True:
            with self.writer.state() as state:
                head = state.head
            try:
                return change(head)
            except WrongExpectedVersionError:
                if self.expected is not None:
                    raise

    def cause(self, kind: CauseKind, **fields: object) -> Cause:
        """Return the cause of a commit by this actor."""
        thread = self.conversation if kind == "manual" else None
        return msgspec.structs.replace(Cause(kind=kind, actor=self.actor, thread=thread), **fields)

    @contextlib.contextmanager
    def claimed(self, thread: str) -> Iterator[None]:
        """Keep background workers and other processes off a thread; wait for one that works on it already."""
        producer, writer = self.home.producer, self.writer
        with contextlib.nullcontext() if producer is None else producer.claim(writer, thread):
            while True:
                with writer.store.lease(writer.ledger, thread) as mine:
                    if mine:
                        yield
                        return
                writer.clock.sleep(_POLL_SECONDS)


class Operations:
    """Operations on one memory: a part of its handle, or what the handle hands out."""

    def __init__(self, services: ScopeServices) -> None:
        self._services = services

    def __init_subclass__(cls) -> None:
        translate_verbs(cls)


def some_model(model: Model | None) -> Model:
    """Return a model that is there.

    Raises:
        NoModelError: It is None.
    """
    if model is None:
        raise NoModelError(f"{NO_MODEL}; or give recorded replies")
    return model
