"""Setup of the NATS engine: creates the JetStream streams, seals them, and says what may lose acknowledged commits.

A JetStream stream accepts messages to the subjects that its settings name. A seal takes all of them away but those of
leases and of the seal itself, whose message says why. So a change by any process finds no subject to go to, however
long ago it was begun. An `arriving` seal adds an entrance with a random name, which only the store object that set it
knows; a subject transform of the stream leads from there to the subjects that are meant.

A client sees how many replicas a stream has. It does not see `sync_interval`, which only the servers' own configuration
states: so the URL names the servers' monitoring (`monitor=`), which shows it, or states it (`sync=always`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ConfigError, StoreError
from backstory.ledger.engines.nats.address import NatsAddress
from backstory.ledger.engines.nats.jetstream import JetStream, Outgoing, RefusedRequestError, StreamConfig
from backstory.ledger.engines.nats.subjects import ENTRANCE, LEASES, Subjects
from backstory.ledger.engines.port import Seal

_log = logging.getLogger(__name__)

_LEAST_REPLICAS = 3
_LEAST_VERSION = (2, 12)
_NAME_IN_USE = 10058
_NO_CLUSTER = 10074
_MONITOR_SECONDS = 5.0
_SHARDS = "backstory.shards"
"""In the metadata of each JetStream stream: how many there are."""

_warned: set[str] = set()


class _JetStreamSettings(msgspec.Struct):
    sync_always: bool = False


class _Monitored(msgspec.Struct):
    config: _JetStreamSettings | None = None


class Setup:
    """Prepares the JetStream streams of a prefix once; `warnings` is known then. Seals them."""

    def __init__(self, wire: JetStream, address: NatsAddress, subjects: Subjects) -> None:
        self._wire = wire
        self._address = address
        self._subjects = subjects
        self._lock = ForkLock()
        self._done = False
        self.warnings: Sequence[str] = ()

    def ensure(self) -> None:
        """Create what is missing, and log the warnings once.

        Raises:
            ConfigError: The servers or their streams cannot keep what the port promises.
            StoreError: They cannot be reached.
        """
        if not self._done:
            with self._lock:
                self._prepare()

    def _prepare(self) -> None:
        if self._done:
            return
        *found, beyond = self._wire.configs(
            [self._subjects.jetstream(shard) for shard in (*self._subjects.shards, self._address.shards)]
        )
        # With another number, names would be looked for elsewhere than they are.
        stated = str(self._address.shards)
        for there in filter(None, map(_shards, found)):
            if there != stated:
                raise ConfigError(
                    f"{self._address} has {there} shards, and event_store states {stated}: correct shards="
                )
        if beyond is not None:
            raise ConfigError(
                f"{self._address} has more shards than the {stated} that event_store states: correct shards="
            )
        configs = [self._stream(shard, config) for shard, config in zip(self._subjects.shards, found, strict=True)]
        self.warnings = tuple(self._warnings(configs))
        for warning in self.warnings:
            if warning not in _warned:
                _warned.add(warning)
                _log.warning("%s", warning)
        self._done = True

    def _stream(self, shard: int, config: StreamConfig | None) -> StreamConfig:
        """Check the settings of a shard's stream, which is created where there is none."""
        name = self._subjects.jetstream(shard)
        if config is None:
            self._must_be_recent()
            self._create(name, shard)
            # Where another process creates it at the same time, its name may be in use before it can be read.
            config = self._wire.config(name)
        if config is None or not (config.allow_atomic and config.allow_msg_ttl and config.allow_rollup_hdrs):
            raise ConfigError(
                f"the JetStream stream {name} lacks allow_atomic, allow_msg_ttl or allow_rollup_hdrs: set them, or "
                "choose another prefix in event_store"
            )
        wrong = list(_unfit(config))
        if wrong:
            raise ConfigError(
                f"the JetStream stream {name} has settings that lose or refuse what is acknowledged: set "
                f"{', '.join(wrong)}, or choose another prefix in event_store"
            )
        everything, seal = self._subjects.everything(shard), self._subjects.seal(shard)
        if everything not in config.subjects and seal not in config.subjects:
            raise ConfigError(
                f"the JetStream stream {name} does not accept {everything}: add it to its subjects, or choose another "
                "prefix in event_store"
            )
        return config

    def _create(self, name: str, shard: int) -> None:
        settings: dict[str, object] = {
            "name": name,
            "subjects": [self._subjects.everything(shard)],
            "retention": "limits",
            "discard": "new",
            "storage": "file",
            "num_replicas": self._address.replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_consumers": -1,
            "allow_direct": True,
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "metadata": {_SHARDS: str(self._address.shards)},
        }
        try:
            self._wire.create(name, settings)
        except RefusedRequestError as error:
            if error.number == _NAME_IN_USE:
                return
            if error.number == _NO_CLUSTER:
                raise ConfigError(
                    f"{self._address} has too few servers for {self._address.replicas} replicas ({error}): start them, "
                    "or add ?replicas=1 to event_store for a server that may lose what it acknowledged"
                ) from error
            raise

    def _must_be_recent(self) -> None:
        version = self._wire.version()
        if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _LEAST_VERSION:
            raise ConfigError(f"{self._address} runs nats-server {version}: it needs 2.12 or newer")

    def _warnings(self, configs: Sequence[StreamConfig]) -> list[str]:
        warnings = []
        replicas = min(config.num_replicas for config in configs)
        if replicas < _LEAST_REPLICAS:
            warnings.append(
                f"{self._address} keeps {replicas} of each commit, so acknowledged commits can vanish with a server: "
                f"run three servers, and `nats stream edit {self._address.prefix}-0 --replicas 3`"
            )
        if any(config.storage != "file" for config in configs):
            warnings.append(
                f"{self._address} keeps commits in memory only, so acknowledged ones vanish with the servers: "
                "`backstory copy` moves the home to another prefix, whose streams are kept in files"
            )
        how = 'set sync_interval: "always" in the block jetstream of each server\'s configuration'
        if self._address.monitor:
            for server in self._address.monitor:
                try:
                    if not _syncs_always(server):
                        warnings.append(
                            f"{server} does not sync each write, so acknowledged commits can vanish in a power cut: "
                            f"{how}"
                        )
                except OSError as error:
                    # One server may be lost, and what needs a majority goes on.
                    warnings.append(f"{server} could not be asked whether it syncs each write ({error}): start it")
        elif not self._address.sync:
            warnings.append(
                f"{self._address} may not sync each write, which a client cannot see; acknowledged commits can then "
                f"vanish in a power cut: {how}, and state ?sync=always or ?monitor=http://host:8222 in event_store"
            )
        return warnings

    # The seal.

    def seal(self) -> Seal | None:
        """Return the seal that is in force; see `EventStore.seal`."""
        self.ensure()
        return self._wire.run(self._wire.seal(self._subjects.seal(0)))

    def must_take_changes(self) -> None:
        """Refuse a change that needs no new message.

        Raises:
            SealedError: A seal is in force, and this store object has no entrance beneath it.
        """
        self.ensure()
        seal = None if self._wire.entrance else self.seal()
        if seal is not None:
            raise seal.refusal(str(self._address))

    def set_seal(self, seal: Seal | None) -> None:
        """Seal all streams, or take the seal off; see `EventStore.set_seal`."""
        self.ensure()
        entrance = os.urandom(16).hex() if seal is not None and seal.state == "arriving" else ""
        for shard in self._subjects.shards:
            self._limit(shard, entrance, sealed=seal is not None)
        self._wire.entrance = entrance
        for shard in self._subjects.shards:
            subject = self._subjects.seal(shard)
            if seal is None:
                while (there := self._wire.last(self._subjects.jetstream(shard), subject)) is not None:
                    self._wire.delete(self._subjects.jetstream(shard), [there.seq], erase=False)
            else:
                # The leader takes messages in order, so what was sent before is stored by the time this is.
                self._wire.publish([Outgoing(subject, msgspec.json.encode(seal), "seal", only=True)])

    def _limit(self, shard: int, entrance: str, *, sealed: bool) -> None:
        """Say which subjects a JetStream stream accepts."""
        name = self._subjects.jetstream(shard)
        settings = self._wire.settings(name)
        if settings is None:
            raise StoreError(f"the JetStream stream {name} has gone: restore it from a copy")
        settings.pop("subject_transform", None)
        accepted = [self._subjects.everything(shard)]
        if sealed:
            accepted = [self._subjects.seal(shard), self._subjects.within(LEASES, shard, ">")]
        if entrance:
            way = self._subjects.within(ENTRANCE, shard, f"{entrance}.>")
            accepted.append(way)
            settings["subject_transform"] = {"src": way, "dest": self._subjects.everything(shard)}
        self._wire.update(name, settings | {"subjects": accepted})


def _shards(config: StreamConfig | None) -> str | None:
    """Return how many shards there are by a stream's metadata; None where none of ours made it."""
    return None if config is None else config.metadata.get(_SHARDS)


def _unfit(config: StreamConfig) -> Iterator[str]:
    """Yield what to set so that a stream keeps what it acknowledges, and acknowledges what it keeps."""
    has_limit = config.max_msgs > 0 or config.max_bytes > 0
    settings = {
        # With another retention a message goes once it was delivered, or at once without a consumer.
        "retention to limits": config.retention != "limits",
        "max_age to 0": config.max_age > 0,
        "max_msgs_per_subject to -1": config.max_msgs_per_subject > 0,
        "discard to new": config.discard != "new" and has_limit,
        "deny_delete to false": config.deny_delete,
        "no_ack to false": config.no_ack,
        "subject_delete_marker_ttl to 0": config.subject_delete_marker_ttl,
        "mirror to none": config.mirror,
    }
    return (setting for setting, is_wrong in settings.items() if is_wrong)


def _syncs_always(server: str) -> bool:
    """Ask a server's monitoring whether it syncs each write.

    Raises:
        ConfigError: What answers is none.
        OSError: Nothing answers.
    """
    if not server.startswith(("http://", "https://")):
        raise ConfigError(f"monitor in event_store must be http:// or https:// addresses, got {server!r}")
    try:
        with urlopen(f"{server.rstrip('/')}/jsz?config=true", timeout=_MONITOR_SECONDS) as answer:  # noqa: S310
            found = msgspec.json.decode(answer.read(), type=_Monitored)
    except (HTTPError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{server} in event_store is no monitoring of nats-server ({error}): correct it") from error
    return found.config is not None and found.config.sync_always
