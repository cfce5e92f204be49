"""Verify tells kinds of damage apart, names line and byte, goes on behind one to the next, and never says ok to any."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock, open_home
from small_home import LEDGER, SCOPE, TRANSCRIPT, USER, Home, answer, redacted, resealed, said

from backstory.ledger.core.commit import FORMAT, Cause, Draft, head_of, inspect, seal
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import PolicyChanged, Redacted, TurnRange
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Record
from backstory.ledger.log.writer import Writer
from backstory.projections.integrity.stream_check import StreamCheck
from backstory.projections.integrity.verify import Verification, verify
from backstory.testing.lines import AT, as_file, by_hand, chain, erase, offsets, sealed, turn


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("verify") / "home")


@pytest.fixture
def home(template: Home) -> Iterable[Home]:
    """The memory, whole again after each test."""
    kept = {path: path.read_bytes() for path in template.path.rglob("*") if path.is_file()}
    yield template
    for path in template.path.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)


STREAMS = pytest.mark.parametrize("stream", [LEDGER, TRANSCRIPT])


def lines_of(home: Home, stream: str) -> list[bytes]:
    return list(home.ledger if stream == LEDGER else home.transcript)


def test_what_was_written_is_ok(home: Home) -> None:
    assert home.verify() == Verification(ok=True, commits=6, turns=4, problems=())


def test_nothing_is_ok(tmp_path: Path) -> None:
    found = verify(JsonlStore(tmp_path), SCOPE, document=tmp_path / "memory.json")
    assert found == Verification(ok=True, commits=0, turns=0, problems=())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_document_is_no_problem(home: Home) -> None:
    home.document.unlink()
    assert home.verify().ok


# Each kind.


@STREAMS
@pytest.mark.parametrize("tail", [b'{"v":1,"se', b"\0" * 100])
def test_torn_tail(home: Home, stream: str, tail: bytes) -> None:
    lines = lines_of(home, stream)
    home.file(stream).write_bytes(as_file(lines) + tail)
    found = home.verify()
    assert found.ok
    told = [(problem.kind, problem.stream, problem.line, problem.byte) for problem in found.problems]
    assert told == [("torn_tail", stream, len(lines) + 1, len(as_file(lines)))]
    assert str(len(tail)) in found.problems[0].message
    assert (found.commits, found.turns) == (6, 4)


def test_torn_tail_of_the_document_all_the_same(home: Home) -> None:
    home.file(LEDGER).write_bytes(as_file(home.ledger) + b"x")
    home.document.write_bytes(b"{}")
    assert [kind for kind, *_ in home.problems()] == ["torn_tail", "document_differs"]


@STREAMS
@pytest.mark.parametrize("number", [1, 2, 6])
@pytest.mark.parametrize("damage", ["content", "seq", "hash", "prev", "salt", "shape"])
def test_altered(home: Home, stream: str, number: int, damage: str) -> None:
    number = min(number, len(lines_of(home, stream)))
    lines = lines_of(home, stream)
    line = lines[number - 1]
    before, after = {
        "content": (b'"kind":"', b'"kind":"x'),
        "seq": (b'{"v":1,"seq":%d,' % number, b'{"v":1,"seq":%d,' % (number + 2)),
        "hash": (b'","hash":"' + head_of(line).hash[:9].encode(), b'","hash":"' + b"0" * 9),
        "prev": (b'],"prev":"', b'],"prev":"f'),
        "salt": (b'],"salts":["0', b'],"salts":["1'),
        "shape": (b'{"v"', b'{"w"'),
    }[damage]
    lines[number - 1] = line.replace(before, after, 1)
    assert lines[number - 1] != line
    home.put(stream, lines)
    assert home.problems() == [("altered", stream, number, offsets(lines)[number - 1])]


@STREAMS
def test_altered_by_an_empty_line(home: Home, stream: str) -> None:
    lines = lines_of(home, stream)
    home.put(stream, [lines[0], b"", *lines[1:]])
    assert home.problems() == [("altered", stream, 2, len(lines[0]) + 1)]


def test_altered_where_two_lines_became_one(home: Home) -> None:
    home.file(LEDGER).write_bytes(as_file(home.ledger).replace(b"\n", b" ", 2).replace(b" ", b"\n", 1))
    kinds = [kind for kind, *_ in home.problems()]
    assert kinds[0] == "altered"
    assert set(kinds) <= {"altered", "missing"}


@pytest.mark.parametrize("gone", [1, 2, 5])
def test_missing(home: Home, gone: int) -> None:
    lines = home.ledger[: gone - 1] + home.ledger[gone:]
    home.put(LEDGER, lines)
    assert home.problems() == [("missing", LEDGER, gone, offsets(lines)[gone - 1])]
    found = home.verify()
    assert str(gone + 1) in found.problems[0].message


def test_missing_the_transcripts_first_line(home: Home) -> None:
    home.put(TRANSCRIPT, home.transcript[1:])
    assert home.problems() == [("missing", TRANSCRIPT, 1, 0)]


def test_missing_more_than_one(home: Home) -> None:
    lines = [home.ledger[0], home.ledger[3], home.ledger[5]]
    home.put(LEDGER, lines)
    starts = offsets(lines)
    assert home.problems() == [("missing", LEDGER, 2, starts[1]), ("missing", LEDGER, 3, starts[2])]


def test_missing_turns_that_were_learned_from(home: Home) -> None:
    home.put(TRANSCRIPT, home.transcript[:1])
    assert home.problems() == [("missing", TRANSCRIPT, 2, len(home.transcript[0]) + 1)]
    assert "commit 2 of the ledger" in home.verify().problems[0].message


@pytest.mark.parametrize("how", ["emptied", "deleted", "torn"])
def test_missing_the_whole_transcript(home: Home, how: str) -> None:
    if how == "deleted":
        home.file(TRANSCRIPT).unlink()
    else:
        home.file(TRANSCRIPT).write_bytes(b"" if how == "emptied" else b"torn")
    assert ("missing", TRANSCRIPT, 1, 0) in home.problems()


@STREAMS
def test_reordered(home: Home, stream: str) -> None:
    lines = lines_of(home, stream)
    lines[0], lines[1] = lines[1], lines[0]
    home.put(stream, lines)
    starts = offsets(lines)
    assert home.problems() == [("reordered", stream, 1, 0), ("reordered", stream, 2, starts[1])]


def test_reordered_over_a_distance(home: Home) -> None:
    one, two, three, four, five, six = home.ledger
    lines = [one, five, two, three, four, six]
    home.put(LEDGER, lines)
    starts = offsets(lines)
    assert home.problems() == [("reordered", LEDGER, n, starts[n - 1]) for n in (2, 3, 4, 5)]


def test_reordered_with_one_missing(home: Home) -> None:
    one, two, _, four, _, six = home.ledger
    lines = [one, four, two, six]
    home.put(LEDGER, lines)
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("missing", 2), ("reordered", 3), ("missing", 4)]


@STREAMS
@pytest.mark.parametrize("place", ["at once", "at the end"])
def test_duplicate_seq(home: Home, stream: str, place: str) -> None:
    lines = lines_of(home, stream)
    lines.insert(1 if place == "at once" else len(lines), lines[0])
    home.put(stream, lines)
    line = 2 if place == "at once" else len(lines)
    assert home.problems() == [("duplicate_seq", stream, line, offsets(lines)[line - 1])]
    assert home.verify().turns == 4


def test_duplicate_seq_of_two_that_did_not_see_each_other(home: Home) -> None:
    rival = sealed(PolicyChanged(None, Policy()), after=head_of(home.ledger[2]), cause=Cause(kind="policy"))
    lines = [*home.ledger[:4], rival, *home.ledger[4:]]
    home.put(LEDGER, lines)
    assert home.problems() == [("duplicate_seq", LEDGER, 5, offsets(lines)[4])]


@STREAMS
def test_broken_prev(home: Home, stream: str) -> None:
    lines = lines_of(home, stream)
    lines[-1] = resealed(lines[-1], prev="ab" * 32)
    assert inspect(lines[-1]).intact
    home.put(stream, lines)
    wanted = [("broken_prev", stream, len(lines), offsets(lines)[-2])]
    if stream == TRANSCRIPT:
        wanted.append(("altered", stream, len(lines), offsets(lines)[-2]))
    assert sorted(home.problems()) == sorted(wanted)


def test_broken_prev_behind_a_line_that_was_forged(home: Home) -> None:
    lines = list(home.ledger)
    lines[3] = resealed(lines[3], replace=(b"likes tea", b"likes gin"))
    home.put(LEDGER, lines)
    assert home.problems() == [("broken_prev", LEDGER, 5, offsets(lines)[4])]


def test_broken_prev_of_the_first_line(home: Home) -> None:
    lines = list(home.ledger)
    lines[0] = resealed(lines[0], prev="ab" * 32)
    home.put(LEDGER, lines)
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("broken_prev", 1), ("broken_prev", 2)]


def test_broken_prev_of_a_line_out_of_its_place(home: Home) -> None:
    one, two, three, four, *rest = home.ledger
    lines = [one, three, resealed(two, prev="ab" * 32), four, *rest]
    home.put(LEDGER, lines)
    assert ("broken_prev", LEDGER, 3) in [problem[:3] for problem in home.problems()]


def test_a_transcript_rewritten_from_its_beginning_is_not_the_one_the_ledger_knows(home: Home) -> None:
    """Every line is right in itself and follows the one before; only the ledger remembers another head."""
    first = resealed(home.transcript[0], replace=(b"Oslo", b"Rome"))
    second = resealed(home.transcript[1], prev=head_of(first).hash)
    home.put(TRANSCRIPT, [first, second])
    assert home.problems() == [("altered", TRANSCRIPT, 2, len(first) + 1)]


ERASABLE = pytest.mark.parametrize(
    ("stream", "seq", "index"), [(LEDGER, 4, 0), (LEDGER, 2, -1), (LEDGER, 2, 1), (TRANSCRIPT, 1, 1)]
)


@ERASABLE
def test_unexplained_redaction(home: Home, stream: str, seq: int, index: int) -> None:
    home.document.unlink()
    lines = lines_of(home, stream)
    lines[seq - 1] = erase(lines[seq - 1], index)
    home.put(stream, lines)
    finding = ("unexplained_redaction", stream, seq, offsets(lines)[seq - 1])
    assert home.problems() == [finding]
    for other in ((stream, seq, index + 1), (stream, seq + 1, index), ("users/bob/ledger", seq, index)):
        home.put(LEDGER, redacted(home, *other))
        home.put(stream, lines + redacted(home, *other)[-1:] if stream == LEDGER else lines)
        assert finding in home.problems()


@ERASABLE
def test_a_redaction_that_is_explained_is_ok(home: Home, stream: str, seq: int, index: int) -> None:
    home.document.unlink()
    home.put(LEDGER, redacted(home, stream, seq, index))
    lines = home.file(stream).read_bytes().splitlines()
    lines[seq - 1] = erase(lines[seq - 1], index)
    home.put(stream, lines)
    assert home.verify().ok, home.verify().problems


def test_unexplained_redaction_where_the_transcript_explains_itself(home: Home) -> None:
    """Only the ledger's word counts: whoever can rewrite the transcript could excuse himself there."""
    erased = erase(home.transcript[0], 1)
    excuse = sealed(Redacted(TRANSCRIPT, 1, 1, "turn"), after=head_of(home.transcript[1]))
    home.put(TRANSCRIPT, [erased, home.transcript[1], excuse])
    starts = offsets([erased, home.transcript[1]])
    assert home.problems() == [("unexplained_redaction", TRANSCRIPT, 1, 0), ("impossible", TRANSCRIPT, 3, starts[2])]


def test_unexplained_redaction_that_is_explained_before_the_content_was_there(home: Home) -> None:
    """A redaction that names its own commit, or a later one, can be no redaction."""
    forged = sealed(Redacted(LEDGER, 7, 1, "fact"), Redacted(LEDGER, 8, 0, "fact"), after=head_of(home.ledger[-1]))
    later = sealed(PolicyChanged(None, Policy()), after=head_of(forged), cause=Cause(kind="policy"))
    lines = [*home.ledger, erase(forged, 1), erase(later, 0)]
    home.put(LEDGER, lines)
    starts = offsets(lines)
    assert home.problems() == [("unexplained_redaction", LEDGER, n, starts[n - 1]) for n in (7, 8)]


@ERASABLE
def test_unexplained_redaction_is_also_one_that_came_to_nothing(home: Home, stream: str, seq: int, index: int) -> None:
    """An erasure that was interrupted: the ledger says that it happened, and the content still stands."""
    home.document.unlink()
    home.put(LEDGER, redacted(home, stream, seq, index))
    assert home.problems() == [("unexplained_redaction", stream, seq, offsets(lines_of(home, stream))[seq - 1])]
    message = home.verify().problems[0].message
    assert "interrupted" in message
    assert "opening the memory completes it" in message
    assert (f"event {index}" if index >= 0 else "the cause") in message


def test_an_interrupted_erasure_is_told_once_for_the_stream(home: Home) -> None:
    events = tuple(Redacted(LEDGER, seq, 0, "fact") for seq in (2, 4, 5, 6))
    redaction = seal(Draft(AT, Cause(kind="redaction"), events), head_of(home.ledger[-1]), CountingSalts())
    lines = [*home.ledger, redaction]
    lines[1] = erase(lines[1], 0)
    home.put(LEDGER, lines)
    home.document.unlink()
    assert home.problems() == [("unexplained_redaction", LEDGER, 4, offsets(lines)[3])]
    assert "and 2 more" in home.verify().problems[0].message


def test_a_redaction_that_names_no_event_at_all_hides_nothing(home: Home) -> None:
    home.document.unlink()
    home.put(LEDGER, redacted(home, LEDGER, 4, 99))
    assert home.verify().ok


def test_missing_commits_that_a_redaction_names(home: Home) -> None:
    home.document.unlink()
    home.put(LEDGER, redacted(home, TRANSCRIPT, 3, 0))
    assert home.problems() == [("missing", TRANSCRIPT, 3, len(as_file(home.transcript)))]


def test_unexplained_redaction_with_a_false_digest_is_altered(home: Home) -> None:
    lines = list(home.ledger)
    lines[3] = erase(lines[3], 0, stub=b'{"type":"Erased","digest":"%s"}' % (b"ab" * 32))
    home.put(LEDGER, lines)
    assert home.problems() == [("altered", LEDGER, 4, offsets(lines)[3])]


EDITS = {
    "a word": lambda data: data.replace(b"tea", b"gin"),
    "a space": lambda data: data + b" ",
    "the last byte": lambda data: data[:-1],
    "all": lambda data: b"",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_document_differs(home: Home, edit: Callable[[bytes], bytes]) -> None:
    data = home.document.read_bytes()
    edited = edit(data)
    home.document.write_bytes(edited)
    same = next((i for i, (a, b) in enumerate(zip(data, edited, strict=False)) if a != b), min(len(data), len(edited)))
    assert home.problems() == [("document_differs", "memory.json", 1 + data[:same].count(b"\n"), same)]
    assert "lags" not in home.verify().problems[0].message


def test_document_differs_while_it_lags_behind_and_says_so(home: Home) -> None:
    before = home.document.read_bytes()
    Writer(JsonlStore(home.path), SCOPE).memory()
    memory = open_home(home.path).memory(USER)
    memory.add_fact("plays Go")
    memory.flush()
    assert home.verify().ok
    home.document.write_bytes(before)
    assert [kind for kind, *_ in home.problems()] == ["document_differs"]
    assert "lags behind" in home.verify().problems[0].message


def test_document_differs_where_it_cannot_be_read(home: Home) -> None:
    data = home.document.read_bytes()
    home.document.unlink()
    home.document.mkdir()
    try:
        assert home.problems() == [("document_differs", "memory.json", 0, 0)]
    finally:
        home.document.rmdir()
        home.document.write_bytes(data)


def test_document_differs_no_more_once_whoever_committed_has_written_it(home: Home) -> None:
    older = home.document.read_bytes()
    with open_home(home.path) as bs:
        bs.memory(USER).add_fact("plays Go")
    newer = home.document.read_bytes()
    home.document.write_bytes(older)

    class Late(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            home.document.write_bytes(newer)

    clock = Late()
    assert verify(JsonlStore(home.path), SCOPE, document=home.document, clock=clock).ok
    assert 0.1 < sum(clock.slept) < 1


def test_document_differs_at_once_where_it_cannot_be_that_it_lags_behind(home: Home) -> None:
    home.document.write_bytes(b"{}")
    clock = FakeClock()
    assert not verify(JsonlStore(home.path), SCOPE, document=home.document, clock=clock).ok
    assert clock.slept == []


@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_document_differs_where_the_whole_ledger_is_gone(home: Home, how: str) -> None:
    home.file(LEDGER).unlink() if how == "deleted" else home.file(LEDGER).write_bytes(b"")
    assert [kind for kind, *_ in home.problems()] == ["document_differs"]
    (problem,) = verify(JsonlStore(home.path), SCOPE, document=home.document, clock=FakeClock()).problems
    assert "the ledger has no commits: restore the ledger from a copy, or `import` this file" in problem.message


def test_index_differs(home: Home) -> None:
    def found(*told: str) -> Verification:
        return verify(JsonlStore(home.path), SCOPE, document=home.document, index=lambda: told, clock=FakeClock())

    assert found().ok
    problems = found("fact fact_2_0 is not in it", "it stands on commit 9").problems
    assert [(p.kind, p.stream, p.line, p.byte) for p in problems] == [("index_differs", "index.sqlite", 0, 0)] * 2
    assert problems[1].message == "it stands on commit 9"


def test_an_index_is_not_judged_by_a_damaged_ledger(home: Home) -> None:
    home.put(LEDGER, home.ledger[1:])
    found = verify(JsonlStore(home.path), SCOPE, index=lambda: pytest.fail("it was asked"))
    assert [problem.kind for problem in found.problems] == ["missing"]


def test_a_document_is_not_judged_by_a_damaged_ledger(home: Home) -> None:
    home.put(LEDGER, [*home.ledger[:3], *home.ledger[4:]])
    assert [kind for kind, *_ in home.problems()] == ["missing"]


def test_head_not_found(home: Home) -> None:
    for line in home.ledger:
        assert home.verify(head_of(line).hash).ok
    found = home.verify("ab" * 32)
    assert not found.ok
    assert [(p.kind, p.stream, p.line, p.byte) for p in found.problems] == [("head_not_found", LEDGER, 0, 0)]
    assert not home.verify(head_of(home.transcript[-1]).hash).ok


def test_head_not_found_where_the_tail_was_cut_off(home: Home) -> None:
    home.document.unlink()
    home.put(LEDGER, home.ledger[:-1])
    assert home.verify().ok
    assert [p.kind for p in home.verify(head_of(home.ledger[-1]).hash).problems] == ["head_not_found"]


def test_head_not_found_where_the_line_that_states_it_was_altered(home: Home) -> None:
    pinned = head_of(home.ledger[-1]).hash
    home.put(LEDGER, [*home.ledger[:-1], home.ledger[-1].replace(b"cat", b"dog")])
    assert [p.kind for p in home.verify(pinned).problems] == ["altered", "head_not_found"]


# More than one.


def test_several_problems_at_once_in_both_streams(home: Home) -> None:
    one, two, three, four, five, six = home.ledger
    ledger = [one, two.replace(b"Oslo", b"Rome"), four, three, erase(five, 0), six, six]
    transcript = [home.transcript[0].replace(b"user", b"uzer"), home.transcript[1]]
    home.put(LEDGER, ledger)
    home.file(TRANSCRIPT).write_bytes(as_file(transcript) + b"torn")
    home.document.write_bytes(b"{}")
    starts = offsets(ledger)
    found = home.verify("ab" * 32)
    told = [(problem.kind, problem.stream, problem.line, problem.byte) for problem in found.problems]
    assert sorted(told) == sorted(
        [
            ("altered", LEDGER, 2, starts[1]),
            ("reordered", LEDGER, 3, starts[2]),
            ("reordered", LEDGER, 4, starts[3]),
            ("unexplained_redaction", LEDGER, 5, starts[4]),
            ("duplicate_seq", LEDGER, 7, starts[6]),
            ("altered", TRANSCRIPT, 1, 0),
            ("torn_tail", TRANSCRIPT, 3, len(as_file(transcript))),
            ("head_not_found", LEDGER, 0, 0),
        ]
    )
    assert (found.ok, found.commits) == (False, 7)


def test_one_finding_is_not_told_as_many(home: Home) -> None:
    """What one damaged line claims of itself puts no blame on its neighbours."""
    for number, claim in itertools.product(range(1, 7), (b'"seq":1,', b'"seq":99,', b'"seq":-4,')):
        lines = list(home.ledger)
        lines[number - 1] = lines[number - 1].replace(b'"seq":%d,' % number, claim)
        if lines == home.ledger:
            continue
        home.put(LEDGER, lines)
        assert home.problems() == [("altered", LEDGER, number, offsets(lines)[number - 1])]


def test_a_number_far_out_costs_no_time(home: Home) -> None:
    far = by_hand([b'{"kind":"policy"}'], seq=2**62, after=head_of(home.ledger[-1]))
    home.put(LEDGER, [*home.ledger, far])
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("missing", 7)]


def test_a_thousand_findings_of_a_kind_are_told_and_the_others_counted(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstory.projections.integrity.stream_check._MOST_REPORTED", 2)
    home.put(LEDGER, [*home.ledger[:1], b"a", b"b", b"c", b"d", b"e"])
    home.put(TRANSCRIPT, [b"a", b"b"])
    found = [problem for problem in home.verify().problems if problem.kind == "altered"]
    assert [(problem.stream, problem.line) for problem in found] == [
        *((LEDGER, line) for line in (2, 3, 4)),
        *((TRANSCRIPT, line) for line in (1, 2)),
    ]
    assert found[2].message.endswith("2 more of this kind not listed")


def test_a_line_costs_its_hash_and_no_more(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.path("t").write_bytes(as_file(chain(4_000)))
    check = StreamCheck(store, "t")
    tracemalloc.start()
    assert sum(1 for _ in check.commits()) == 4_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(check.hashes) == 4_000
    assert peak < 4_000 * 100  # it takes 150 kB; with a dict of texts it was 800


# What the transcript says of itself.


def turns_recorded(home: Home, first: int, last: int, *ordinals: int, thread: str = "t1") -> bytes:
    cause = Cause(kind="record", thread=thread, turns=TurnRange(first, last))
    return sealed(*(turn("said", n) for n in ordinals), after=head_of(home.transcript[-1]), cause=cause)


@pytest.mark.parametrize(
    ("first", "last", "ordinals", "kind"),
    [
        (3, 4, (3, 4), None),
        (4, 4, (4,), "missing"),
        (2, 2, (2,), "altered"),
        (1, 4, (1, 2, 3, 4), "altered"),
        (3, 4, (3, 5), "altered"),
        (3, 4, (4, 3), "altered"),
        (3, 5, (4, 5), "altered"),
        (3, 2, (), None),
        (3, 1, (3,), "altered"),
    ],
)
def test_turns_count_on_within_their_thread(
    home: Home, first: int, last: int, ordinals: tuple[int, ...], kind: str | None
) -> None:
    home.put(TRANSCRIPT, [*home.transcript, turns_recorded(home, first, last, *ordinals)])
    if kind is None:
        assert home.verify().ok, home.verify().problems
    else:
        assert home.problems() == [(kind, TRANSCRIPT, 3, len(as_file(home.transcript)))]


def test_turns_of_a_new_thread_begin_with_the_first(home: Home) -> None:
    home.put(TRANSCRIPT, [*home.transcript, turns_recorded(home, 3, 3, 3, thread="t9")])
    assert home.problems() == [("missing", TRANSCRIPT, 3, len(as_file(home.transcript)))]


def test_behind_damage_nobody_can_tell_which_turns_come_next(home: Home) -> None:
    third = turns_recorded(home, 3, 3, 3)
    cause = Cause(kind="record", thread="t1", turns=TurnRange(4, 4))
    fourth = sealed(turn("said", 4), after=head_of(third), cause=cause)
    for damaged, kind in (([fourth], "missing"), ([third[:-1], fourth], "altered")):
        home.put(TRANSCRIPT, [*home.transcript, *damaged])
        assert home.problems() == [(kind, TRANSCRIPT, 3, len(as_file(home.transcript)))]


def test_erased_turns_keep_their_ordinals(home: Home) -> None:
    home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
    more = turns_recorded(home, 3, 3, 3)
    home.put(TRANSCRIPT, [erase(home.transcript[0], 1), home.transcript[1], more])
    home.document.unlink()
    assert home.verify().ok, home.verify().problems


def test_where_a_cause_was_erased_nobody_can_tell_which_turns_come_next(home: Home) -> None:
    home.put(LEDGER, redacted(home, TRANSCRIPT, 2, -1))
    home.put(TRANSCRIPT, [home.transcript[0], erase(home.transcript[1], -1), turns_recorded(home, 7, 7, 7)])
    home.document.unlink()
    assert home.verify().ok, home.verify().problems


# Whose it is, and by whom it can be read.


def test_files_that_were_exchanged_are_told(home: Home) -> None:
    home.put(LEDGER, home.transcript)
    home.put(TRANSCRIPT, home.ledger)
    problems = [problem[:3] for problem in home.problems()]
    assert problems == [("altered", LEDGER, 1), ("altered", TRANSCRIPT, 1)]
    assert "a transcript, not a ledger" in home.verify().problems[0].message


@STREAMS
@pytest.mark.parametrize("seq", [0, -1, 2**63, 2**64])
def test_a_number_that_no_commit_can_have_is_damage(home: Home, stream: str, seq: int) -> None:
    lines = lines_of(home, stream)
    lines.append(by_hand([b'{"kind":"policy"}'], seq=seq, after=head_of(lines[-1])))
    home.put(stream, lines)
    assert home.problems() == [("altered", stream, len(lines), offsets(lines)[-2])]


@STREAMS
def test_a_log_laid_in_another_users_place_is_told(home: Home, tmp_path: Path, stream: str) -> None:
    place = tmp_path / "users/bob"
    place.mkdir(parents=True)
    (place / home.file(stream).name).write_bytes(home.file(stream).read_bytes())
    found = verify(JsonlStore(tmp_path), Scope("bob")).problems[0]
    assert (found.kind, found.line, found.byte) == ("altered", 1, 0)
    assert "user ada" in found.message
    assert "user bob" in found.message


def test_a_newer_format_is_not_called_damage(home: Home) -> None:
    newer = by_hand([b'{"kind":"policy"}', b'{"type":"FactDreamt"}'], v=FORMAT + 1, after=head_of(home.ledger[-1]))
    home.put(LEDGER, [*home.ledger, newer])
    with pytest.raises(StoreError, match="newer backstory"):
        home.verify()


def test_an_event_that_nobody_knows_is_told(home: Home) -> None:
    unknown = by_hand([b'{"kind":"policy"}', b'{"type":"FactDreamt"}'], after=head_of(home.ledger[-1]))
    home.put(LEDGER, [*home.ledger, unknown])
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("altered", 7)]


def test_brackets_without_end_are_damage_and_no_crash(home: Home) -> None:
    home.put(LEDGER, [*home.ledger[:3], b'{"v":1,"seq":4,"at":"","cause":' + b"[" * 200_000, *home.ledger[4:]])
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("altered", 4)]


# Beside others who write.


class Meanwhile(JsonlStore):
    """A store whose reader is overtaken: something happens when a reading of a stream has come to its end.

    The ledger is read twice: the first time only for what it says of its own earlier commits.
    """

    def __init__(self, home: Path, stream: str, happen: Callable[[], None], *, reading: int | None = None) -> None:
        super().__init__(home)
        self._stream = stream
        self._left = reading or (2 if stream == LEDGER else 1)
        self._happen: Callable[[], None] | None = happen

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        yield from super().read(stream, after, byte=byte)
        self._left -= stream == self._stream
        if self._left == 0 and self._happen is not None:
            happen, self._happen = self._happen, None
            happen()


@pytest.mark.parametrize(("stream", "reading"), [(LEDGER, 1), (LEDGER, 2), (TRANSCRIPT, 1)])
def test_what_is_written_meanwhile_is_no_problem(home: Home, stream: str, reading: int) -> None:
    def learn_more() -> None:
        memory = open_home(home.path).memory(USER)
        memory.record("t3", [{"role": "user", "content": "I play Go.", "id": "m9"}, *said("Well.", "m10")])
        memory.extract([answer("t3", "plays Go")])

    store = Meanwhile(home.path, stream, learn_more, reading=reading)
    found = verify(store, SCOPE, document=home.document)
    assert found.ok, found.problems
    assert home.verify().commits == 7


class Erasing(JsonlStore):
    """A store in which somebody erases: something happens while the one who asks for the lock waits for it."""

    happen: Callable[[], None] = staticmethod(lambda: None)

    def locked(self, stream: str, *, wait: bool = True) -> AbstractContextManager[None]:
        self.happen()
        return super().locked(stream, wait=wait)


@pytest.mark.parametrize("reading", [1, 2])
def test_an_erasure_meanwhile_is_no_problem(home: Home, reading: int) -> None:
    home.document.unlink()

    def erase_a_turn() -> None:
        home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
        home.put(TRANSCRIPT, [erase(home.transcript[0], 1), home.transcript[1]])

    found = verify(Meanwhile(home.path, LEDGER, erase_a_turn, reading=reading), SCOPE)
    assert found.ok, found.problems


@pytest.mark.parametrize("reading", [1, 2])
def test_a_fact_that_is_erased_meanwhile_is_no_problem(home: Home, reading: int) -> None:
    def forget() -> None:
        with open_home(home.path) as bs:
            bs.memory(USER).forget("fact_4_0")

    found = verify(Meanwhile(home.path, LEDGER, forget, reading=reading), SCOPE)
    assert found.ok, found.problems


def test_an_erasure_that_is_being_finished_is_no_problem(home: Home) -> None:
    home.document.unlink()
    home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
    store = Erasing(home.path)
    store.happen = lambda: home.put(TRANSCRIPT, [erase(home.transcript[0], 1), home.transcript[1]])
    found = verify(store, SCOPE)
    assert found.ok, found.problems


def test_an_erasure_that_is_done_needs_no_lock(home: Home) -> None:
    home.document.unlink()
    home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
    home.put(TRANSCRIPT, [erase(home.transcript[0], 1), home.transcript[1]])
    store = Erasing(home.path)
    store.happen = lambda: pytest.fail("it asked for the lock")
    assert verify(store, SCOPE).ok


def test_a_tail_that_is_torn_behind_what_was_read_is_not_told_at_another_line(home: Home) -> None:
    home.document.unlink()
    more = sealed(PolicyChanged(None, Policy()), after=head_of(home.ledger[-1]), cause=Cause(kind="policy"))
    grown = as_file([*home.ledger, more]) + b"torn"
    store = Meanwhile(home.path, LEDGER, lambda: home.file(LEDGER).write_bytes(grown) and None)
    assert verify(store, SCOPE) == Verification(ok=True, commits=6, turns=4, problems=())


def test_an_erasure_is_judged_where_the_lock_cannot_be_had(home: Home) -> None:
    home.document.unlink()
    home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
    with JsonlStore(home.path).locked(LEDGER):
        found = verify(JsonlStore(home.path, lock_timeout=0, clock=FakeClock()), SCOPE)
    assert [problem.kind for problem in found.problems] == ["unexplained_redaction"]


# Damage at random.


@pytest.mark.parametrize("stream", [LEDGER, TRANSCRIPT])
def test_no_flipped_byte_goes_unseen(home: Home, stream: str) -> None:
    chance = random.Random(20261121)  # noqa: S311 damage is no secret
    data = home.file(stream).read_bytes()
    places = [*chance.sample(range(len(data)), 200), len(data) - 1]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= chance.randrange(1, 256)
        home.file(stream).write_bytes(damaged)
        found = home.verify()
        if place == len(data) - 1:
            assert {problem.kind for problem in found.problems} >= {"torn_tail"}
            continue
        assert not found.ok, (place, damaged[place])
        line = data.count(b"\n", 0, place) + 1
        at = data.rfind(b"\n", 0, place) + 1
        assert ("altered", stream, line, at) in [(p.kind, p.stream, p.line, p.byte) for p in found.problems]


def test_damage_of_any_kind_crashes_nothing(home: Home) -> None:
    chance = random.Random(7)  # noqa: S311 damage is no secret
    both = {stream: home.file(stream).read_bytes() for stream in (LEDGER, TRANSCRIPT)}
    for _ in range(300):
        stream = chance.choice([LEDGER, TRANSCRIPT])
        data = both[stream]
        a, b = sorted(chance.sample(range(len(data)), 2))
        garbage = bytes(chance.randrange(256) for _ in range(chance.randrange(20)))
        lines = data.splitlines(keepends=True)
        chance.shuffle(lines)
        cut, grown, repeated = data[:a] + data[b:], data[:a] + garbage + data[a:], data[:b] + data[a:]
        damaged = chance.choice([cut, grown, repeated, b"".join(lines)])
        home.file(stream).write_bytes(damaged)
        whole = damaged[: damaged.rfind(b"\n") + 1]
        assert not home.verify().ok or data.startswith(whole)
        home.file(stream).write_bytes(data)


def test_a_torn_tail_alone_is_ok_wherever_it_is_torn(home: Home) -> None:
    home.document.unlink()
    start = offsets(home.ledger)[5]
    for cut in range(len(home.ledger[5]) + 1):
        home.file(LEDGER).write_bytes(as_file(home.ledger[:5]) + home.ledger[5][:cut])
        found = home.verify()
        assert found.ok
        told = [(problem.kind, problem.line, problem.byte) for problem in found.problems]
        assert told == ([("torn_tail", 6, start)] if cut else [])
