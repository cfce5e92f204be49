"""Requests to JetStream: publications that expect a sequence, reads from the leader, and deletions that overwrite.

A publication is repeated with the same expectation, so that it cannot be stored twice. Every read but `page` is
answered by the leader of the stream.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.nats.connection import (
    ATTEMPT_SECONDS,
    MissingStreamError,
    NatsConnection,
    PassingError,
    UnheardError,
    translated,
)
from backstory.ledger.engines.nats.subjects import jetstream_of, seal_beside, through
from backstory.ledger.engines.port import Seal

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_T = TypeVar("_T")
_Response = TypeVar("_Response", bound="_Answer")

NOTE = "Backstory"
"""The header that says what a message is."""
NAME = "Backstory-Name"
"""The header with a stream's name, where its subject has only a digest."""

_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_AT_ONCE = 64
_OVERLAP = 1000
"""How many subjects of a page are asked for again with the next: those behind one that goes meanwhile move forward."""
_STALE = (10071, 10164)
_NO_MESSAGE = (10037, 10043, 10057)
_NO_STREAM = 10059
_LASTING = (10052, 10074)
"""Faults of a server that waiting does not mend: settings that cannot be, a server that is not part of a cluster."""
_TOO_MANY = 429
_SERVER_FAULT = 500


class Outgoing(msgspec.Struct, frozen=True):
    """A message to be stored: `expected` is the sequence of the last message on its subject, None for any."""

    subject: str
    data: bytes
    note: str
    expected: int | None = None
    ttl: int = 0
    only: bool = False
    """Whether it takes the place of all others on its subject."""
    name: str = ""
    expected_on: str = ""
    """The subject that `expected` is about, "" for its own."""

    def headers(self) -> dict[str, str]:
        """Return the headers."""
        headers = {NOTE: self.note}
        if self.expected is not None:
            headers[_EXPECTED] = str(self.expected)
        if self.expected_on:
            headers[f"{_EXPECTED}-Subject"] = self.expected_on
        if self.ttl:
            headers["Nats-TTL"] = f"{self.ttl}s"
        if self.only:
            headers["Nats-Rollup"] = "sub"
        if self.name:
            headers[NAME] = self.name
        return headers


class Stored(msgspec.Struct, frozen=True):
    """A message as it is stored."""

    seq: int
    data: bytes = b""
    hdrs: bytes = b""
    subject: str = ""
    time: str = ""

    def header(self, name: str) -> str:
        """Return a header; "" if it is not there."""
        begin = self.hdrs.find(f"\r\n{name}: ".encode())
        if begin < 0:
            return ""
        begin += len(name) + 4
        return self.hdrs[begin : self.hdrs.index(b"\r\n", begin)].decode()

    @property
    def note(self) -> str:
        """What the message is."""
        return self.header(NOTE)


class _Problem(msgspec.Struct):
    code: int
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct, kw_only=True):
    error: _Problem | None = None


class _Ack(_Answer):
    seq: int = 0


class _Got(_Answer):
    message: Stored | None = None


class _State(msgspec.Struct):
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class StreamConfig(msgspec.Struct):
    """The settings of a JetStream stream that matter here."""

    num_replicas: int = 1
    allow_atomic: bool = False
    allow_msg_ttl: bool = False
    allow_direct: bool = False
    allow_rollup_hdrs: bool = False
    deny_delete: bool = False
    max_age: int = 0
    max_msgs: int = -1
    max_bytes: int = -1
    max_msgs_per_subject: int = -1
    discard: str = "new"
    retention: str = "limits"
    storage: str = "file"
    metadata: dict[str, str] = {}
    no_ack: bool = False
    subject_delete_marker_ttl: int = 0
    mirror: dict[str, object] | None = None
    subjects: Sequence[str] = ()


class _Info(_Answer):
    state: _State | None = None
    config: StreamConfig | None = None
    total: int = 0


class _AllSettings(_Answer):
    config: dict[str, object] | None = None


class RefusedRequestError(StoreError):
    """JetStream refused a request; `number` is its own number of the error."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class JetStream(NatsConnection):
    """The requests of a store; safe for threads, which wait for the answers.

    `entrance` is where messages go in beneath an `arriving` seal, "" for the front door.
    """

    entrance = ""

    def publish(self, messages: Sequence[Outgoing]) -> int | None:
        """Store messages all at once, in one JetStream stream.

        Returns:
            The sequence of the last; None if an expectation does not hold (any more), also because of an earlier
            attempt of this call.

        Raises:
            UnknownOutcomeError: No answer came in time; they may be stored.
            StoreError: They cannot be stored.
        """
        return self.run(self._publish(messages))

    def last(self, name: str, subject: str) -> Stored | None:
        """Return the last message on a subject, from the leader; None if there is none."""
        return self.run(self._get(name, {"last_by_subj": subject}))

    def lasts(self, asked: Sequence[tuple[str, str]]) -> list[Stored | None]:
        """Return the last message on each subject of a JetStream stream, asked for at the same time."""
        return self.run(self._gather([self._get(name, {"last_by_subj": subject}) for name, subject in asked]))

    def next(self, name: str, subject: str, seq: int) -> Stored | None:
        """Return the first message on a subject from a sequence on, from the leader; None if there is none."""
        return self.run(self._get(name, {"seq": seq, "next_by_subj": subject}))

    def get(self, name: str, seq: int) -> Stored | None:
        """Return the message with a sequence, from the leader; None if there is none."""
        return self.run(self._get(name, {"seq": seq}))

    def page(self, name: str, subject: str, seq: int, count: int) -> list[Stored]:
        """Return messages on a subject from a sequence on, up to a number, from any replica, which may lag behind."""
        return self.run(self._page(name, subject, seq, count))

    def delete(self, name: str, seqs: Sequence[int], *, erase: bool = True) -> None:
        """Delete messages; with `erase` their bytes are overwritten. Those that are gone already do not matter."""
        self.run(self._gather([self._delete(name, seq, erase=erase) for seq in seqs]))

    def subjects(self, name: str, pattern: str) -> dict[str, int]:
        """Return the subjects that match a pattern, and how many messages each has."""
        return self.run(self._subjects(name, pattern))

    def last_seq(self, name: str) -> int:
        """Return the sequence of the last message in a JetStream stream."""
        return self.last_seqs([name])[0]

    def last_seqs(self, names: Sequence[str]) -> list[int]:
        """Return the sequence of the last message in each JetStream stream, asked for at the same time."""
        infos = self.run(self._gather([self._api(f"STREAM.INFO.{name}", {}, _Info) for name in names]))
        return [info.state.last_seq if info.state else 0 for info in infos]

    def configs(self, names: Sequence[str]) -> list[StreamConfig | None]:
        """Return the settings of JetStream streams, asked for at the same time; None for one that does not exist."""
        infos = [self._api(f"STREAM.INFO.{name}", {}, _Info, absent=(_NO_STREAM,)) for name in names]
        return [info.config for info in self.run(self._gather(infos))]

    def config(self, name: str) -> StreamConfig | None:
        """Return the settings of a JetStream stream; wait for one that another process is about to create.

        Raises:
            StoreError: It does not exist, also not after a while.
        """
        return self.run(self._api(f"STREAM.INFO.{name}", {}, _Info)).config

    def create(self, name: str, settings: Mapping[str, object]) -> None:
        """Create a JetStream stream.

        Raises:
            RefusedRequestError: JetStream refuses.
        """
        self.run(self._api(f"STREAM.CREATE.{name}", settings, _Info))

    def settings(self, name: str) -> dict[str, object] | None:
        """Return all settings of a JetStream stream; None if it does not exist."""
        return self.run(self._api(f"STREAM.INFO.{name}", {}, _AllSettings, absent=(_NO_STREAM,))).config

    def update(self, name: str, settings: Mapping[str, object]) -> None:
        """Change the settings of a JetStream stream.

        Raises:
            RefusedRequestError: JetStream refuses.
        """
        self.run(self._api(f"STREAM.UPDATE.{name}", settings, _Answer))

    def max_payload(self) -> int:
        """Return the size of the largest message that the servers accept."""
        client = self.client
        return (client if client is not None else self.run(self.connected())).max_payload

    def version(self) -> str:
        """Return the version of the server."""
        return str(self.run(self.connected()).connected_server_version)

    def watch(self, subject: str) -> Watch:
        """Wait for messages to a subject. Each is a hint: some may be missed."""
        return Watch(self, subject)

    # On the loop.

    async def _gather(self, works: Sequence[Coroutine[object, object, _T]]) -> list[_T]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(work: Coroutine[object, object, _T]) -> _T:
            async with gate:
                return await work

        return list(await asyncio.gather(*map(one, works)))

    async def _publish(self, messages: Sequence[Outgoing]) -> int | None:
        async def attempt(seconds: float) -> int | None:
            try:
                return await self._send(messages, seconds)
            except UnheardError:
                seal = await self.seal(seal_beside(messages[0].subject))
                if seal is not None:
                    raise seal.refusal(str(self.address)) from None
                raise

        return await self.repeated(attempt, writes=True)

    async def seal(self, subject: str) -> Seal | None:
        """Return the seal that a subject has."""
        message = await self._get(jetstream_of(subject), {"last_by_subj": subject})
        return None if message is None else msgspec.json.decode(message.data, type=Seal)

    def _way(self, subject: str) -> str:
        return through(subject, self.entrance) if self.entrance else subject

    async def _send(self, messages: Sequence[Outgoing], seconds: float) -> int | None:
        *others, last = messages
        headers = last.headers()
        if others:
            client, batch = await self.connected(), os.urandom(16).hex()
            for number, message in enumerate(others, 1):
                placed = message.headers() | {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                with translated():
                    await client.publish(self._way(message.subject), message.data, headers=placed)
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
        return _acknowledged((await self.ask(self._way(last.subject), last.data, seconds, headers)).data)

    async def _get(self, name: str, what: Mapping[str, object]) -> Stored | None:
        return (await self._api(f"STREAM.MSG.GET.{name}", what, _Got, absent=_NO_MESSAGE)).message

    async def _delete(self, name: str, seq: int, *, erase: bool) -> None:
        body = {"seq": seq, "no_erase": not erase}
        await self._api(f"STREAM.MSG.DELETE.{name}", body, _Answer, absent=_NO_MESSAGE)

    async def _subjects(self, name: str, pattern: str) -> dict[str, int]:
        found: dict[str, int] = {}
        offset = 0
        while True:
            body = {"subjects_filter": pattern, "offset": offset}
            info = await self._api(f"STREAM.INFO.{name}", body, _Info)
            page = (info.state.subjects if info.state else None) or {}
            if offset and found.keys().isdisjoint(page):
                # More subjects have gone meanwhile than the pages overlap: some may have been passed over.
                found, offset = {}, 0
                continue
            found |= page
            if offset + len(page) >= info.total:
                return found
            offset = max(offset + len(page) - _OVERLAP, offset + 1)

    async def _page(self, name: str, subject: str, seq: int, count: int) -> list[Stored]:
        client = await self.connected()
        inbox = client.new_inbox()
        found: list[Stored] = []
        body = {"seq": seq, "next_by_subj": subject, "batch": count, "max_bytes": client.max_payload}
        # A replica that does not answer is no reason to wait: the caller goes on with the leader.
        with suppress(PassingError), translated():
            subscription = await client.subscribe(inbox)
            try:
                await client.publish(f"$JS.API.DIRECT.GET.{name}", msgspec.json.encode(body), reply=inbox)
                while True:
                    message = await subscription.next_msg(timeout=ATTEMPT_SECONDS / 2)
                    headers = message.headers or {}
                    if "Nats-Sequence" not in headers:
                        break
                    kept = "".join(f"\r\n{name}: {headers.get(name, '')}" for name in (NOTE, NAME))
                    sequence, told = int(headers["Nats-Sequence"]), headers.get("Nats-Subject", "")
                    found.append(Stored(sequence, message.data, f"{kept}\r\n".encode(), told))
            finally:
                await subscription.unsubscribe()
        return found

    async def _api(
        self, call: str, body: Mapping[str, object], kind: type[_Response], *, absent: Collection[int] = ()
    ) -> _Response:
        """Ask JetStream; an error whose number is among `absent` only says that there is no such thing."""
        payload = msgspec.json.encode(body)

        async def attempt(seconds: float) -> _Response:
            reply = await self.ask(f"$JS.API.{call}", payload, seconds)
            answer = msgspec.json.decode(reply.data, type=kind)
            problem = answer.error
            if problem is None or problem.err_code in absent:
                return answer
            if problem.err_code == _NO_STREAM:
                # One that starts may not have read its own disk yet.
                raise MissingStreamError(call.rpartition(".")[2], unknown=False)
            raise _refused(problem)

        return await self.repeated(attempt)


class Watch:
    """A subscription for the length of a `with` block."""

    def __init__(self, connection: JetStream, subject: str) -> None:
        self._connection = connection
        self._subject = subject
        self._hint = threading.Event()
        self._subscription: Subscription | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._subscription = self._connection.run(self._subscribe())
        return self

    def wait(self, seconds: float) -> bool:
        """Wait for a message; return whether one may have come. A connection that is another is subscribed on anew."""
        if self._client is not self._connection.client:
            self._subscription = self._connection.run(self._subscribe())
            return True
        found = self._hint.wait(seconds)
        self._hint.clear()
        return found

    def __exit__(self, *_: object) -> None:
        if self._subscription is not None:
            # Without waiting: a follower that is dropped may be collected in any thread, also in that of the loop.
            self._connection.begin(_unsubscribed(self._subscription))

    async def _subscribe(self) -> Subscription:
        client = self._client = await self._connection.connected()

        async def hint(_: Msg) -> None:
            self._hint.set()

        return await client.subscribe(self._subject, cb=hint)


async def _unsubscribed(subscription: Subscription) -> None:
    with suppress(Exception):
        await subscription.unsubscribe()


def _acknowledged(data: bytes) -> int | None:
    """Return the sequence that an acknowledgement states; None if an expectation did not hold."""
    ack = msgspec.json.decode(data, type=_Ack)
    if ack.error is None:
        return ack.seq
    if ack.error.err_code in _STALE:
        return None
    raise _refused(ack.error)


def _refused(problem: _Problem) -> Exception:
    """Return the error for an answer that is one."""
    passes = problem.code >= _SERVER_FAULT or problem.code == _TOO_MANY
    if passes and problem.err_code not in _LASTING:
        return PassingError(f"{problem.description} ({problem.err_code})", unknown=False)
    return RefusedRequestError(f"JetStream refused: {problem.description} ({problem.err_code})", problem.err_code)
