"""A small memory on disk, and ways to damage it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fakes import CountingSalts, FakeClock, open_home, reply

from backstory.ledger.core.commit import Cause, Draft, Head, head_of, seal
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.integrity.verify import Verification, verify
from backstory.testing.lines import AT, as_file, by_hand, slots

USER = "ada"
SCOPE = Scope(USER)
LEDGER = "users/ada/ledger"
TRANSCRIPT = "users/ada/transcript"


class Home:
    """A small memory on disk: four turns in two commits, six commits of what was learned, memory.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        home = open_home(path)
        memory = home.memory(USER)
        memory.record("t1", [{"role": "user", "content": "I live in Oslo.", "id": "m1"}, *said("Noted.", "m2")])
        memory.record("t2", [{"role": "user", "content": "I run.", "id": "m3"}, *said("So I see.", "m4")])
        memory.extract([answer("t1", "lives in Oslo"), answer("t2", "runs")])
        for text in ("likes tea", "likes 咖啡", "has a cat"):
            memory.add_fact(text)
        home.close()
        self.ledger = self.file(LEDGER).read_bytes().splitlines()
        self.transcript = self.file(TRANSCRIPT).read_bytes().splitlines()
        assert (len(self.ledger), len(self.transcript)) == (6, 2)

    def file(self, stream: str) -> Path:
        return self.path / f"{stream}.jsonl"

    @property
    def document(self) -> Path:
        return self.path / "users/ada/memory.json"

    def put(self, stream: str, lines: Iterable[bytes]) -> None:
        self.file(stream).write_bytes(as_file(lines))

    def verify(self, expect_head: str | None = None) -> Verification:
        store = JsonlStore(self.path)
        return verify(store, SCOPE, document=self.document, expect_head=expect_head, clock=FakeClock())

    def problems(self) -> list[tuple[str, str, int, int]]:
        found = self.verify()
        assert not found.ok
        assert all("\n" not in problem.message for problem in found.problems)
        return [(problem.kind, problem.stream, problem.line, problem.byte) for problem in found.problems]


def said(content: str, name: str) -> list[dict[str, object]]:
    return [{"role": "assistant", "content": content, "id": name}]


def answer(thread: str, *facts: str) -> RecordedReply:
    return RecordedReply(thread, reply(*facts))


def resealed(line: bytes, *, prev: str | None = None, replace: tuple[bytes, bytes] = (b"", b"")) -> bytes:
    """What a forger writes: a line that is right in itself."""
    contents, salts, envelope = slots(line)
    return by_hand(
        [content.replace(*replace) for content in contents],
        after=Head(int(str(envelope["seq"])) - 1, prev or str(envelope["prev"])),
        at=str(envelope["at"]),
        salts=salts,
    )


def redacted(home: Home, stream: str, seq: int, index: int) -> list[bytes]:
    """The ledger with a commit that explains an erasure."""
    events = (Redacted(stream, seq, index, "fact"),)
    line = seal(Draft(AT, Cause(kind="redaction"), events), head_of(home.ledger[-1]), CountingSalts())
    return [*home.ledger, line]
