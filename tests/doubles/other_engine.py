"""Another engine than files, for what must not depend on files: the JSONL engine behind the port, without offsets.

As `storage_class` it keeps its streams in `HOME/engine`, which may be a link: so two homes have one engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fakes import PATIENCE

from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Capabilities, EventStore, Record

CHANGES = ("append", "redact", "remove", "set_key", "restore_removed", "set_seal")

lines_read: list[str] = []
"""The stream of every line that any of these engines has returned, for tests that count."""


class OtherEngine:
    """It appends the lines of a batch one by one; `before` is called before each change, with the method's name."""

    def __init__(self, home: Path, before: Callable[[str], None] = lambda _: None) -> None:
        self.inner = JsonlStore((home / "engine").resolve(), lock_timeout=PATIENCE)
        self.before = before

    def __str__(self) -> str:
        return f"other:{self.inner.home.parent.name}"

    def capabilities(self) -> Capabilities:
        return Capabilities()

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        for seq, line in enumerate(lines, expected):
            self.before("append")
            self.inner.append(stream, [line], seq)

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        del byte
        for record in self.inner.read(stream, after):
            lines_read.append(stream)
            yield Record(record.line, 0)


def _passed_on(name: str) -> Callable[..., object]:
    def call(self: OtherEngine, *args: object, **more: object) -> object:
        if name in CHANGES:
            self.before(name)
        return getattr(self.inner, name)(*args, **more)

    return call


for _name, _value in vars(EventStore).items():
    if not _name.startswith("_") and callable(_value) and not hasattr(OtherEngine, _name):
        setattr(OtherEngine, _name, _passed_on(_name))
