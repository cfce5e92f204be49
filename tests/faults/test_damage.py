"""Cut a log at every byte of its last three commits, and flip bytes one at a time, in the logs and in what is derived.

Promised: never a wrong memory believed. Whoever opens the home gets the memory of the last commit that is there whole,
or an error that names line and byte; `verify` has the right diagnosis; a torn tail stops nobody and is kept aside; a
tail cut off at a line's end is told by `--expect-head`, and by the ledger where it is the transcript's.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commandline import Cli
from fakes import FakeClock, exchange, open_home, reply
from faults.logs import verify_bytes
from sizes import PATIENT, bytes_below, chance, sized

from backstory.home import Backstory
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections.document.document import Document
from backstory.projections.integrity.verify import Verification
from backstory.testing.lines import offsets

USER = "ada"
LOGS = ("ledger", "transcript")


class Original:
    """An undamaged home, the memory at each of its commits, and copies of it to damage."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.last = Damaged(home)
        clock = FakeClock()
        with open_home(home, clock=clock) as backstory:
            memory = backstory.memory(USER)
            # A scope has an index in a file only where that is worth while.
            memory.record("long", [{"role": "user", "content": f"a long story {n} " * 2500} for n in range(2)])
            memory.extract([RecordedReply("long", reply("tells long stories"))])
            for number, topic in enumerate(["tea", "chess", "“Oslo” \\ 柏林", "rowing", "jazz"]):
                memory.record(f"t{number % 2}", exchange(topic, number))
                memory.extract([RecordedReply(f"t{number % 2}", reply(f"likes {topic}", f"has been told of {topic}"))])
                clock.advance(60)
            memory.edit_fact(memory.facts()[0].id, content="likes green tea")
            memory.add_fact("keeps a cat")
            self.documents = {seq: memory.document(seq) for seq in range(memory.head().seq + 1)}
            memory.flush()
        self.files = bytes_below(home)
        self.index = home / "users/ada/index.sqlite"

    def of(self, stream: str) -> bytes:
        return self.files[self.home / "users/ada" / f"{stream}.jsonl"]

    def copy(self, name: str, stream: str, data: bytes, *, derived: bool = False) -> Damaged:
        """A home whose one log holds these bytes: one of its own, of logs alone, or the original with what is derived.

        An index knows the very files that it was made from, so those are damaged in their places, and mended.
        """
        self.last.close()
        home = self.home if derived else self.folder / name
        if derived:
            for path in bytes_below(home).keys() - self.files.keys():
                path.unlink()
        else:
            shutil.rmtree(home, ignore_errors=True)
        place = home / "users/ada"
        place.mkdir(parents=True, exist_ok=True)
        for path, content in self.files.items():
            if path.suffix == ".jsonl" or derived:
                (place / path.name).write_bytes(content)
        (place / f"{stream}.jsonl").write_bytes(data)
        self.last = Damaged(home)
        return self.last


class Damaged:
    """A damaged home; each look at it is a new process's."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "users/ada"
        self._open: Backstory | None = None

    def memory(self) -> MemoryHandle:
        self.close()
        self._open = open_home(self.home)
        return self._open.memory(USER)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def verify(self, expect_head: str | None = None) -> Verification:
        return self.memory().verify(expect_head=expect_head)

    def kinds(self) -> list[tuple[str, str, int, int]]:
        return [(p.kind, p.stream.rpartition("/")[2], p.line, p.byte) for p in self.verify().problems]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    made = Original(tmp_path_factory.mktemp("original"), tmp_path_factory.mktemp("copies"))
    yield made
    made.last.close()


@pytest.fixture(autouse=True)
def _no_plug_is_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of syncs that prove nothing here."""
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda descriptor: None)


def last_three(data: bytes) -> tuple[list[bytes], list[int]]:
    lines = data.split(b"\n")[:-1]
    return lines, offsets(lines)


def places_to_cut(data: bytes) -> list[int]:
    """Every byte of the last three commits; in the short form all near a line's ends, and some between."""
    _, starts = last_three(data)
    every = range(starts[-4], len(data))
    edges = {
        at + step
        for at in starts[-4:]
        for step in range(-sized(1, 3), sized(2, 4))
        if starts[-4] <= at + step < len(data)
    }
    few = chance(3).sample(every, sized(4, len(every)))
    return sorted(edges | set(few))


@pytest.mark.slow
@PATIENT
@pytest.mark.parametrize("derived", [False, True], ids=["logs alone", "with what is derived"])
def test_cut_the_ledger_at_every_byte_of_its_last_three_commits(original: Original, *, derived: bool) -> None:
    data = original.of("ledger")
    lines, starts = last_three(data)
    pinned = verify_bytes(data)[1]
    for cut in places_to_cut(data):
        damaged = original.copy("cut", "ledger", data[:cut], derived=derived)
        whole = sum(start <= cut for start in starts) - 1
        torn = cut - starts[whole]
        told = damaged.kinds()
        assert damaged.memory().document() == original.documents[whole], cut
        wanted = [("torn_tail", "ledger", whole + 1, starts[whole])] if torn else []
        if derived:
            # What is derived shows a commit that is gone: it is not believed, and nobody throws it away in silence.
            assert [problem for problem in told if problem[1] == "ledger"] == wanted, cut
            assert {problem[0] for problem in told} - {"torn_tail"} <= {"document_differs", "index_differs"}, cut
            damaged.close()
            edited = (damaged.folder / "memory.json.edited-1").exists()
            assert edited or "document_differs" in {problem[0] for problem in told}, cut
        else:
            assert told == wanted, cut
            assert damaged.verify().ok
        assert "head_not_found" in {problem.kind for problem in damaged.verify(pinned).problems}
        check_goes_on(damaged, "ledger", data[:cut], whole, torn)
        assert damaged.memory().document().facts[:-1] == original.documents[whole].facts
    assert len(lines) == max(original.documents)


@pytest.mark.slow
@PATIENT
def test_cut_the_transcript_at_every_byte_of_its_last_three_commits(original: Original) -> None:
    """The ledger was made on turns that are gone: it says so, by line and byte, and its memory stays what it was."""
    data = original.of("transcript")
    lines, starts = last_three(data)
    for cut in places_to_cut(data):
        damaged = original.copy("cut", "transcript", data[:cut])
        whole = sum(start <= cut for start in starts) - 1
        torn = cut - starts[whole]
        assert damaged.memory().document() == original.documents[max(original.documents)]
        told = damaged.kinds()
        if torn:
            assert ("torn_tail", "transcript", whole + 1, starts[whole]) in told
        assert [kind for kind, *_ in told if kind != "torn_tail"] == ["missing"], cut
        assert {(stream, line) for _, stream, line, _ in told} == {("transcript", whole + 1)}
    assert len(lines) == 6


def check_goes_on(damaged: Damaged, stream: str, left: bytes, whole: int, torn: int) -> None:
    """The next write goes on from the last whole line, and what was torn is kept beside it."""
    path, aside = damaged.folder / f"{stream}.jsonl", damaged.folder / f"{stream}.torn-1"
    with open_home(damaged.home) as backstory:
        added = backstory.memory(USER).add_fact("after the cut")
    assert added.commit == whole + 1
    data = path.read_bytes()
    kept = left[: len(left) - torn]
    assert data.startswith(kept)
    assert verify_bytes(data)[0] == whole + 1
    assert aside.exists() is bool(torn)
    assert not torn or aside.read_bytes() == left[len(kept) :]
    with open_home(damaged.home) as backstory:
        memory = backstory.memory(USER)
        assert memory.verify().ok, memory.verify().problems
        assert memory.document().facts[-1].content == "after the cut"


def flips(data: bytes, seed: int) -> list[tuple[int, int]]:
    """Where to damage, and by which bits; in the long form each byte of the last line at least once."""
    luck = chance(seed)
    starts = offsets(data.split(b"\n")[:-1])
    places = [len(data) - 1, data.index(b"\n")]
    for _ in range(sized(10, 500)):
        line = luck.randrange(len(starts) - 1)  # a long line is not to draw all of them
        places.append(luck.randrange(starts[line], starts[line + 1]))
    if sized(0, 1):
        places += range(starts[-2], starts[-1])
    return [(place, luck.randrange(1, 256)) for place in places]


@pytest.mark.slow
@PATIENT
@pytest.mark.parametrize("stream", LOGS)
@pytest.mark.parametrize("derived", [False, True], ids=["logs alone", "with what is derived"])
def test_flip_a_byte_of_a_log(original: Original, stream: str, *, derived: bool) -> None:
    data = original.of(stream)
    newest = max(original.documents)
    for place, bits in flips(data, 41 if derived else 40):
        flipped = bytearray(data)
        flipped[place] ^= bits
        damaged = original.copy("flipped", stream, bytes(flipped), derived=derived)
        line = data.count(b"\n", 0, place) + 1
        start = data.rfind(b"\n", 0, place) + 1
        where = (place, bits)
        told = damaged.kinds()
        if place == len(data) - 1:
            # The last line break: nobody can tell this from a write that was cut short.
            assert ("torn_tail", stream, line, start) in told, where
        else:
            assert ("altered", stream, line, start) in told, where
            assert not damaged.verify().ok, where
        document, error = look(damaged)
        if error is not None:
            # A byte that has become a line break leaves two broken lines, and either may be met first.
            broken = [(line, start), *([(line + 1, place + 1)] if flipped[place] == ord("\n") else [])]
            assert error.kind == "altered", where
            assert (error.line, error.byte) in broken, where
            assert "verify" in str(error), where
        else:
            shown = newest - 1 if stream == "ledger" and place == len(data) - 1 else newest
            assert document == original.documents[shown], where
        # Where nothing vouches for what a reader has not read, it reads all of it.
        assert derived or stream == "transcript" or (error is None) == (place == len(data) - 1), where
        check_nothing_is_written(damaged, stream, bytes(flipped), torn=place == len(data) - 1)


def look(damaged: Damaged) -> tuple[Document | None, CorruptLogError | None]:
    """What a reader sees, or what stops it."""
    try:
        return damaged.memory().document(), None
    except CorruptLogError as error:
        return None, error


def check_nothing_is_written(damaged: Damaged, stream: str, data: bytes, *, torn: bool) -> None:
    """A damaged log is left as it is until a person decides; only its last line, and only if torn, is moved.

    What lies in the middle a writer may not have to read, if its index has vouched for it; then it appends.
    """
    path = damaged.folder / f"{stream}.jsonl"
    memory = damaged.memory()
    try:
        memory.add_fact("after") if stream == "ledger" else memory.record("t9", exchange("after"))
    except CorruptLogError:
        assert path.read_bytes() == data
    else:
        kept = data[: data.rfind(b"\n") + 1] if torn else data
        assert path.read_bytes().startswith(kept)


@pytest.mark.slow
@PATIENT
def test_flip_a_byte_of_the_index(original: Original) -> None:
    """It can be thrown away, so it may be damaged in any way: what is read is right all the same, or it is rebuilt."""
    data = original.files[original.index]
    luck = chance(42)
    newest = max(original.documents)
    fact = original.documents[newest].facts[0]
    places = [(luck.randrange(len(data)), luck.randrange(1, 256)) for _ in range(sized(10, 500))]
    # Its first page says what it is and what it holds: damage there speaks in other errors than elsewhere.
    places += [(place, 0x80) for place in range(0, 100, sized(20, 1))]
    places += [(found.start() + 9, 0x80) for found in re.finditer(rb"CREATE TABLE ", data)]
    for place, bits in places:
        flipped = bytearray(data)
        flipped[place] ^= bits
        damaged = original.copy("flipped", "ledger", original.of("ledger"), derived=True)
        (damaged.folder / "index.sqlite").write_bytes(flipped)
        for path in damaged.folder.glob("index.sqlite-*"):
            path.unlink()
        told = damaged.kinds()
        assert {kind for kind, *_ in told} <= {"index_differs"}, (place, bits, told)
        with open_home(damaged.home) as backstory:
            memory = backstory.memory(USER)
            assert memory.document() == original.documents[newest], (place, bits)
            for seq in (1, newest // 2, newest):
                assert memory.document(seq) == original.documents[seq], (place, bits, seq)
            why = memory.why(fact.id)
            assert why.live, (place, bits)
            assert why.fact.content == fact.content, (place, bits)
            assert [entry.seq for entry in memory.log()] == list(range(newest, 0, -1)), (place, bits)
            memory.add_fact("after the damage")
        # What nobody has asked for may be damaged still; whoever asks has it built anew.
        assert {kind for kind, *_ in damaged.kinds()} <= {"index_differs"}, (place, bits)


@pytest.mark.slow
@pytest.mark.parametrize("left", ["nothing", "garbage", "an older one", "a folder"])
def test_the_index_is_gone_or_something_else(original: Original, tmp_path: Path, left: str) -> None:
    data = original.of("ledger")
    older = original.copy("older", "ledger", data[: offsets(data.split(b"\n"))[3]])
    older.memory().document()
    older.close()
    damaged = original.copy("index", "ledger", data, derived=True)
    index = damaged.folder / "index.sqlite"
    for path in damaged.folder.glob("index.sqlite*"):
        path.unlink()
    if left == "garbage":
        index.write_bytes(b"SQLite format 3\0" + bytes(4096))
    elif left == "a folder":
        index.mkdir()
    elif left == "an older one":
        shutil.copy(older.folder / "index.sqlite", index)
    newest = max(original.documents)
    try:
        for seq in (newest, newest // 2):
            assert damaged.memory().document(seq) == original.documents[seq]
        with open_home(damaged.home) as backstory:
            backstory.memory(USER).add_fact("after the damage")
        assert [fact.content for fact in damaged.memory().facts()][-1] == "after the damage"
        damaged.close()
    finally:
        if index.is_dir():
            index.rmdir()


def test_a_tail_cut_off_at_a_lines_end_is_told_by_the_head_that_was_pinned(original: Original) -> None:
    """Nothing in the ledger itself can tell that its last commits were ever there."""
    data = original.of("ledger")
    _, starts = last_three(data)
    for cut in starts[-4:-1]:
        damaged = original.copy("cut", "ledger", data[:cut])
        cli = Cli(damaged.home)
        assert cli.json("--user", USER, "verify")["ok"] is True
        told = cli.json("--user", USER, "verify", "--expect-head", verify_bytes(data)[1], code=1)
        assert [problem["kind"] for problem in told["problems"]] == ["head_not_found"]
        earlier = verify_bytes(data[:cut])[1]
        assert cli.json("--user", USER, "verify", "--expect-head", earlier)["ok"] is True


def test_a_damaged_log_stops_the_command_line_with_one_line_that_says_where(original: Original) -> None:
    data = original.of("ledger")
    _, starts = last_three(data)
    damaged = original.copy("flipped", "ledger", data.replace(b"keeps a cat", b"keeps a rat"))
    cli = Cli(damaged.home)
    told = cli.error("--user", USER, "fact", "add", "one more", code=3)
    assert f"at byte {starts[-2]}" in told
    assert "verify" in told
    found = cli.json("--user", USER, "verify", code=1)
    line = len(starts) - 1
    assert [(p["kind"], p["line"], p["byte"]) for p in found["problems"]] == [("altered", line, starts[-2])]
    assert verify_bytes(data)[0] == line
