"""A log whose chain was computed anew passes a plain verify, and is found by a head that was kept elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import exchange, open_home
from places import LEDGER, TRANSCRIPT, USER, forge, lines_of, take_away_what_is_derived
from small_home import answer

from backstory.home import Backstory
from backstory.ledger.core.commit import EMPTY
from backstory.ledger.core.errors import InputError, UsageError
from backstory.projections.integrity.verify import Verification
from backstory.results import SignedHead
from backstory.witness.signing import new_key, open_note

KEYS = new_key("example.com/ada")


class Kept:
    """A memory of five commits and two deliveries, its witness file, and a note over its head."""

    def __init__(self, folder: Path) -> None:
        self.home, self.witness = folder / "home", folder / "heads.jsonl"
        self.note: SignedHead
        with self.open() as bs:
            memory = bs.memory(USER)
            memory.record("t1", exchange("I live in Oslo"))
            memory.extract([answer("t1", "lives in Oslo")])
            for text in ("likes tea", "has a cat"):
                memory.add_fact(text)
                memory.flush()
            # What is said after the last commit is named by no commit.
            memory.record("t2", exchange("I owe nothing"))
            memory.flush()
            memory.add_fact("runs")
            self.note = memory.sign_head(KEYS.private)

    def open(self, *, witnessed: bool = True) -> Backstory:
        return open_home(self.home, witness=str(self.witness) if witnessed else None)

    def verify(self, *, witnessed: bool = True, note: str | None = None, key: str | None = None) -> Verification:
        with self.open(witnessed=witnessed) as bs:
            return bs.memory(USER).verify(note=note, key=key)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def kinds(found: Verification) -> list[tuple[str, str]]:
    return [(problem.kind, problem.stream) for problem in found.problems]


def test_a_log_that_nobody_touched_has_all_that_was_witnessed(kept: Kept) -> None:
    assert len(lines_of(kept.witness)) >= 4
    found = kept.verify(note=kept.note.note, key=KEYS.public)
    assert (found.ok, found.problems, found.notes) == (True, (), ())


@pytest.mark.parametrize(
    ("stream", "old", "new"), [(LEDGER, b"has a cat", b"has a dog"), (TRANSCRIPT, b"nothing", b"a lot  ")]
)
def test_a_forged_log_passes_alone_and_is_found_by_the_witness_file(
    kept: Kept, stream: str, old: bytes, new: bytes
) -> None:
    forge(kept.home, stream, old, new)
    assert kept.verify(witnessed=False) == Verification(ok=True, commits=5, turns=4, problems=())
    found = kept.verify()
    assert not found.ok
    assert set(kinds(found)) == {("head_not_found", stream)}
    told = found.problems[0].message
    assert str(kept.witness) in told
    assert "line " in told
    assert "rewritten" in told


def test_what_was_witnessed_before_the_forged_commit_is_not_told(kept: Kept) -> None:
    forge(kept.home, LEDGER, b"has a cat", b"has a dog")
    told = [problem.message for problem in kept.verify().problems]
    assert told
    assert not [text for text in told if text.startswith(("commit 1 ", "commit 2 ", "commit 3 "))]


@pytest.mark.parametrize(
    ("stream", "old", "new"), [(LEDGER, b"has a cat", b"has a dog"), (TRANSCRIPT, b"nothing", b"a lot  ")]
)
def test_a_forged_log_is_found_by_a_signed_note(kept: Kept, stream: str, old: bytes, new: bytes) -> None:
    forge(kept.home, stream, old, new)
    found = kept.verify(witnessed=False, note=kept.note.note, key=KEYS.public)
    assert kinds(found) == [("head_not_found", stream)]
    assert "the signed note" in found.problems[0].message


@pytest.mark.parametrize("stream", [LEDGER, TRANSCRIPT])
def test_a_log_that_was_cut_back_is_found_by_both(kept: Kept, stream: str) -> None:
    file = kept.home / f"{stream}.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    take_away_what_is_derived(kept.home)
    assert kept.verify(witnessed=False).ok
    by_witness, by_note = kept.verify(), kept.verify(witnessed=False, note=kept.note.note, key=KEYS.public)
    for found in (by_witness, by_note):
        assert set(kinds(found)) == {("head_not_found", stream)}
        assert "its end was cut off" in found.problems[-1].message


def test_a_log_that_is_gone_is_found(kept: Kept) -> None:
    (kept.home / f"{LEDGER}.jsonl").unlink()
    (kept.home / f"{TRANSCRIPT}.jsonl").unlink()
    take_away_what_is_derived(kept.home)
    assert kept.verify(witnessed=False).ok
    assert {kind for kind, _ in kinds(kept.verify())} == {"head_not_found"}


def test_an_erasure_leaves_every_head_where_it_was(kept: Kept) -> None:
    with kept.open() as bs:
        bs.memory(USER).forget(matching="cat")
        bs.memory(USER).forget(thread_id="t2")
    assert b"has a cat" not in (kept.home / f"{LEDGER}.jsonl").read_bytes()
    assert kept.verify(note=kept.note.note, key=KEYS.public).ok


def test_another_scope_of_the_home_has_nothing_to_do_with_it(kept: Kept) -> None:
    forge(kept.home, LEDGER, b"has a cat", b"has a dog")
    with kept.open() as bs:
        bs.memory("bob").add_fact("skis")
        bs.memory("bob").flush()
        assert bs.memory("bob").verify().ok
        assert not bs.memory(USER).verify().ok


# The witness file itself.


def test_a_witness_file_that_was_lost_is_told(kept: Kept) -> None:
    kept.witness.unlink()
    found = kept.verify()
    assert kinds(found) == [("witness_unreadable", "witness")]
    assert "it was lost" in found.problems[0].message


def test_a_witness_file_that_was_exchanged_is_told(kept: Kept) -> None:
    first = kept.witness.read_bytes().splitlines(keepends=True)[0]
    kept.witness.write_bytes(first)
    found = kept.verify()
    assert kinds(found) == [("witness_unreadable", "witness")]
    assert "lines were lost" in found.problems[0].message


def test_a_witness_file_that_cannot_be_read_is_told(kept: Kept) -> None:
    kept.witness.unlink()
    kept.witness.mkdir()
    found = kept.verify()
    assert kinds(found) == [("witness_unreadable", "witness")]
    assert "cannot be read" in found.problems[0].message


def test_a_witness_file_that_was_never_written_is_noted(tmp_path: Path) -> None:
    with open_home(tmp_path / "home", witness=str(tmp_path / "heads.jsonl")) as bs:
        found = bs.memory(USER).verify()
    assert (found.ok, found.problems) == (True, ())
    assert "does not exist: nothing was witnessed yet" in found.notes[0]


@pytest.mark.parametrize("torn", [b'{"v":1,"user":"ad', b'{"v":1,"us'])
def test_a_line_that_was_cut_short_is_noted_wherever_it_stands(kept: Kept, torn: bytes) -> None:
    number = len(lines_of(kept.witness)) + 1
    with kept.witness.open("ab") as file:
        file.write(torn)
    found = kept.verify()
    assert found.ok
    assert f"line {number} " in found.notes[0]
    with kept.open() as bs:
        bs.memory(USER).add_fact("skis")
    found = kept.verify()
    assert found.ok
    assert f"line {number} " in found.notes[0]
    assert len(kept.witness.read_bytes().splitlines()) == number + 1


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"v":1,"user":"ada","agent":null,"stream":"s","seq":-1,"hash":"00","transcript":null,"at":""}',
        b'{"v":2,"user":"ada","agent":null,"stream":"s","seq":0,"hash":"' + b"0" * 64 + b'","transcript":null,"at":""}',
    ],
)
def test_a_line_that_is_none_is_told_by_its_number(kept: Kept, line: bytes) -> None:
    lines = kept.witness.read_bytes().splitlines()
    kept.witness.write_bytes(b"\n".join([lines[0], line, b"", *lines[1:]]) + b"\n")
    found = kept.verify()
    assert kinds(found) == [("witness_unreadable", "witness")]
    assert "line 2 " in found.problems[0].message


def test_very_many_heads_that_are_not_there_are_told_in_part(kept: Kept) -> None:
    line = json.loads(kept.witness.read_bytes().splitlines()[-1])
    with kept.witness.open("a") as file:
        for seq in range(1_000, 1_150):
            file.write(json.dumps({**line, "seq": seq, "transcript": None}) + "\n")
    found = kept.verify()
    assert len(found.problems) == 100
    assert "50 more" in found.problems[-1].message


@pytest.mark.parametrize("witness", ["command:true", "http://127.0.0.1:1/secret-path"])
def test_of_a_witness_that_cannot_be_read_that_is_noted(tmp_path: Path, witness: str) -> None:
    with open_home(tmp_path, witness=witness) as bs:
        found = bs.memory(USER).verify()
    assert found.ok
    assert "cannot read" in found.notes[0]
    assert "secret-path" not in found.notes[0]


# Notes.


def test_a_note_says_the_heads_of_both_streams(kept: Kept) -> None:
    text = open_note(kept.note.note, KEYS.public)
    assert text is not None
    lines = text.splitlines()
    assert lines[:2] == ["backstory/users/ada", "5"]
    assert lines[3].startswith("transcript 2 ")
    with kept.open(witnessed=False) as bs:
        memory = bs.memory(USER)
        assert (memory.head().seq, memory.head().hash) == (kept.note.seq, kept.note.hash)


def test_a_note_of_another_key_or_with_another_text_is_a_bad_signature(kept: Kept) -> None:
    other = new_key("example.com/ada").public
    for note, key in ((kept.note.note, other), (kept.note.note.replace("\n5\n", "\n4\n"), KEYS.public)):
        found = kept.verify(note=note, key=key)
        assert kinds(found) == [("bad_signature", "note")]
        assert not found.ok


def test_a_note_about_another_memory_is_wrong_use(kept: Kept) -> None:
    with kept.open() as bs, pytest.raises(InputError, match="backstory/users/ada"):
        bs.memory("bob").verify(note=kept.note.note, key=KEYS.public)
    with kept.open() as bs, pytest.raises(UsageError, match="give both"):
        bs.memory(USER).verify(note=kept.note.note)


def test_a_memory_that_is_empty_can_be_signed_and_leaves_no_trace(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as bs:
        signed = bs.memory(USER).sign_head(KEYS.private)
        assert (signed.seq, signed.hash) == (EMPTY.seq, EMPTY.hash)
        assert not (tmp_path / "home").exists()
        bs.memory(USER).add_fact("skis")
        assert bs.memory(USER).verify(note=signed.note, key=KEYS.public).ok
