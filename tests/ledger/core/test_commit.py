"""The commit line: what is sealed is read again, and what is not to the byte what was sealed is believed by nobody."""

from __future__ import annotations

import json
import re
from types import MappingProxyType

import msgspec
import orjson
import pytest
from doubles.event_strategies import causes, drafts, events, heads, names_of
from fakes import CountingSalts
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core import commit as commit_module
from backstory.ledger.core.commit import (
    EMPTY,
    FORMAT,
    UNREADABLE,
    Cause,
    Commit,
    Draft,
    Head,
    decode,
    follows,
    head_of,
    inspect,
    prev_of,
    seal,
    unseal,
)
from backstory.ledger.core.errors import CorruptLogError, StoreError
from backstory.ledger.core.events import (
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    PolicyChanged,
    Turn,
    TurnRange,
    TurnRecorded,
    TurnSuperseded,
    UpdateProposed,
)
from backstory.ledger.core.policy import EVIDENCE, Policy
from backstory.ledger.log.writer import random_salt
from backstory.testing.lines import AT, by_hand, chain, chain_hash, digest, erase, sealed, slots, turn

FACT = Fact(id="fact_2_0", content="喜欢 Rust “!”\\", category="goal", confidence=0.9, created_at=AT, source="t", seq=2)


def learned(after: Head = EMPTY) -> bytes:
    """A line with a cause that says much and three events."""
    cause = Cause(
        kind="extraction", thread="t-1", turns=TurnRange(1, 4), transcript=Head(3, "ab" * 32), model="m", tokens_in=10
    )
    return sealed(
        UpdateProposed(1, "cd" * 32, 99), FactAdded(FACT, "newFacts/0"), TurnSuperseded(3), after=after, cause=cause
    )


def read(line: bytes, after: Head = EMPTY) -> Commit:
    return unseal(line, after, stream="ledger", byte=0)


# What is sealed is read again.


@given(drafts, heads)
def test_what_is_sealed_is_read_again(draft: Draft, after: Head) -> None:
    line = seal(draft, after, CountingSalts())
    found = read(line, after)
    assert (found.at, found.cause, found.events) == (draft.at, draft.cause, draft.events)
    assert (found.seq, found.prev, found.head) == (after.seq + 1, after.hash, head_of(line))
    assert prev_of(line) == after.hash
    assert decode(line) == found
    assert b"\n" not in line


def test_the_strategy_reaches_every_event() -> None:
    covered = names_of(msgspec.inspect.type_info(Event))
    assert {kind.__name__ for kind in covered} >= {"FactAdded", "TurnRecorded", "Erased", "Redacted", "UpdateFailed"}
    assert len(covered) == 17


@given(drafts, heads)
def test_the_bytes_are_those_of_the_page(draft: Draft, after: Head) -> None:
    salts = CountingSalts()
    contents = [msgspec.json.encode(draft.cause), *map(msgspec.json.encode, draft.events)]
    keys = [salts() for _ in contents]
    marks = any(getattr(event, "marked_after", None) is not None for event in draft.events)
    times = any(
        getattr(fact, name, None) is not None
        for event in draft.events
        if isinstance(event, FactAdded | FactRemoved | FactRevised)
        for fact in (getattr(event, part, None) for part in ("fact", "before", "after"))
        for name in ("valid_from", "valid_until", "expires_at")
    ) or any(isinstance(event, FactRemoved) and event.reason in ("ended", "expired") for event in draft.events)
    tags = any(
        getattr(part, "tags", ()) or getattr(part, "attributes", None)
        for event in draft.events
        if isinstance(event, FactAdded | FactRemoved | FactRevised | TurnRecorded)
        for part in (getattr(event, name, None) for name in ("fact", "before", "after", "turn"))
    )
    version = 4 if tags else 3 if times else 2 if marks else 1
    by_the_page = by_hand(contents, v=version, after=after, at=draft.at, salts=keys)
    assert seal(draft, after, CountingSalts()) == by_the_page


def test_the_first_line_follows_sixty_four_zeros() -> None:
    assert Head(0, "0" * 64) == EMPTY
    assert json.loads(learned())["prev"] == "0" * 64


def test_each_slot_has_a_salt_of_its_own() -> None:
    salts = [random_salt() for _ in range(100)]
    assert len(set(salts)) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", salt) for salt in salts)
    line = seal(Draft(AT, Cause(kind="record"), (turn("a"), turn("a"))), EMPTY, random_salt)
    used = json.loads(line)["salts"]
    assert len(set(used)) == len(used) == 3


def test_alike_contents_have_unlike_digests() -> None:
    first, second = erase(erase(sealed(turn("a"), turn("a")), 0), 1), sealed(turn("a"), turn("a"))
    stubs = [event.digest for event in read(first).events if isinstance(event, Erased)]
    assert len(set(stubs)) == 2
    assert head_of(first) == head_of(second)


@pytest.mark.parametrize("salt", ["", "ab", "0" * 31, "0" * 33])
def test_a_salt_of_another_length_is_refused(salt: str) -> None:
    with pytest.raises(ValueError, match="32 hex digits"):
        seal(Draft(AT, Cause(kind="record"), ()), EMPTY, lambda: salt)


# What cannot be read again is not written.


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(FactAdded(msgspec.structs.replace(FACT, confidence=float("nan"))), id="nan"),
        pytest.param(FactAdded(msgspec.structs.replace(FACT, confidence=float("inf"))), id="infinity"),
        pytest.param(FactAdded(msgspec.structs.replace(FACT, content="\ud800")), id="surrogate"),
        pytest.param(turn(object()), id="object"),  # type: ignore[arg-type]
        pytest.param(FactAdded(msgspec.structs.replace(FACT, seq="seven")), id="type"),
    ],
)
def test_a_value_that_could_not_be_read_again_is_never_sealed(event: Event) -> None:
    with pytest.raises(StoreError, match="commit 1 cannot be written") as told:
        sealed(event)
    assert "\n" not in str(told.value)


# What is not what was sealed.


def refused(line: bytes, after: Head = EMPTY) -> CorruptLogError:
    with pytest.raises(CorruptLogError) as told:
        read(line, after)
    return told.value


@pytest.mark.slow
def test_no_byte_of_a_line_can_be_exchanged_for_any_other() -> None:
    line = sealed(turn("hi"))
    for place in range(len(line)):
        for byte in range(256):
            if byte != line[place]:
                tampered = line[:place] + bytes([byte]) + line[place + 1 :]
                with pytest.raises(CorruptLogError):
                    read(tampered)


@pytest.mark.parametrize(
    "line", [learned(), erase(learned(), 1), erase(learned(), -1)], ids=["whole", "event", "cause"]
)
def test_no_bit_of_a_line_can_be_flipped(line: bytes) -> None:
    read(line)
    for place in range(len(line)):
        for bit in range(8):
            tampered = bytearray(line)
            tampered[place] ^= 1 << bit
            with pytest.raises(CorruptLogError):
                read(bytes(tampered))


@pytest.mark.parametrize("line", [learned(), erase(learned(), 1)], ids=["whole", "erased"])
@pytest.mark.parametrize("byte", [b" ", b"\t", b"\r", b"0", b",", b'"'])
def test_no_byte_can_be_put_in(line: bytes, byte: bytes) -> None:
    for place in range(len(line) + 1):
        with pytest.raises(CorruptLogError):
            read(line[:place] + byte + line[place:])


def test_no_byte_can_be_taken_out() -> None:
    line = learned()
    for place in range(len(line)):
        with pytest.raises(CorruptLogError):
            read(line[:place] + line[place + 1 :])


@given(drafts, st.randoms(use_true_random=False))
def test_no_random_damage_to_any_line_is_believed(draft: Draft, chance: object) -> None:
    line = bytearray(seal(draft, EMPTY, CountingSalts()))
    place = chance.randrange(len(line))  # type: ignore[attr-defined]
    line[place] ^= chance.randrange(1, 256)  # type: ignore[attr-defined]
    with pytest.raises(CorruptLogError):
        read(bytes(line))


@given(st.integers(0, 10_000), st.binary(max_size=3), st.integers(0, 3), st.integers(0, 4))
def test_unseal_refuses_what_inspect_and_follows_refuse_and_says_the_same(
    place: int, damage: bytes, cut: int, after: int
) -> None:
    whole = erase(chain(4)[2], 0) if place % 2 else chain(4)[2]
    place %= len(whole)
    line = whole[:place] + damage + whole[place + cut :]
    heads = [EMPTY, *map(head_of, chain(4))]
    try:
        problem = follows(inspect(line), heads[after])
        if problem is None:
            decode(line)
    except UNREADABLE:
        problem = ("altered", "cannot be read")
    if problem is None:
        assert read(line, heads[after]).head == head_of(line)
    else:
        told = refused(line, heads[after])
        assert (told.kind, problem[1] in str(told)) == (problem[0], True)


def test_keys_in_another_order_or_twice_are_another_line() -> None:
    line = learned()
    envelope = json.loads(line)
    assert json.dumps(envelope, separators=(",", ":"), ensure_ascii=False).encode() == line
    turned = dict(reversed(envelope.items()))
    assert refused(json.dumps(turned, separators=(",", ":"), ensure_ascii=False).encode()).kind == "altered"
    assert refused(line[:-1] + b',"hash":"' + head_of(line).hash.encode() + b'"}').kind == "altered"
    assert refused(b'{"hash":"x",' + line[1:]).kind == "altered"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\0" * 50,
        b"\xff",
        b'{"v":1}',
        b'{"v":1,"seq":7,"at":"","cause":' + b"[" * 200_000,
        b"7",
        b'"' * 9,
    ],
    ids=["empty", "object", "null", "list", "nul", "no-utf8", "v", "deep", "number", "quotes"],
)
def test_bytes_that_are_no_commit_are_told_as_such(line: bytes) -> None:
    error = refused(line, Head(6, "ab" * 32))
    assert (error.kind, error.stream, error.line, error.byte) == ("altered", "ledger", 7, 0)
    with pytest.raises(UNREADABLE):
        inspect(line)
    assert "\n" not in str(error)


def test_an_error_names_line_and_byte() -> None:
    first, second, third = chain(3)
    with pytest.raises(CorruptLogError, match=r"users/a/ledger: line 3 at byte 999 .*`verify`") as told:
        unseal(third[:-2] + b'0"}', head_of(second), stream="users/a/ledger", byte=999)
    assert (told.value.line, told.value.byte, told.value.stream) == (3, 999, "users/a/ledger")
    assert head_of(first).seq == 1


def test_a_line_in_the_wrong_place_says_how() -> None:
    one, two, three, four = chain(4)
    assert refused(three, head_of(one)).kind == "missing"
    assert refused(two, head_of(two)).kind == "duplicate_seq"
    assert refused(one, head_of(three)).kind == "reordered"
    assert refused(four, Head(3, "ab" * 32)).kind == "broken_prev"


# Erasing: the hash stands on digests.


@pytest.mark.parametrize("index", [-1, 0, 1, 2])
def test_an_erased_slot_keeps_the_chain_and_says_nothing(index: int) -> None:
    line = learned()
    follower = sealed(turn("next"), after=head_of(line))
    contents, salts, _ = slots(line)
    gone = erase(line, index)
    assert contents[index + 1] not in gone
    assert str(salts[index + 1]).encode() not in gone
    assert head_of(gone) == head_of(line)
    assert inspect(gone).intact
    assert inspect(gone).erased == (index,)
    after = read(gone).head
    assert read(follower, after).prev == head_of(line).hash
    if index >= 0:
        assert isinstance(read(gone).events[index], Erased)
    else:
        assert read(gone).cause.kind == "erased"


def test_every_slot_may_go() -> None:
    gone = learned()
    for index in (0, 2, 1, -1):
        gone = erase(gone, index)
    assert inspect(gone).intact
    assert inspect(gone).erased == (-1, 0, 1, 2)
    assert FACT.content.encode() not in gone


def test_a_short_secret_cannot_be_guessed_from_what_is_left() -> None:
    line = erase(learned(), 1)
    contents, _, _ = slots(learned())
    stub = read(line).events[1]
    assert isinstance(stub, Erased)
    assert stub.digest != digest("", contents[2])


@pytest.mark.parametrize(
    "stub",
    [
        b'{"type":"Erased","digest":"%s"}' % (b"ab" * 32),
        b'{"type":"Erased","digest":""}',
        b'{"type":"Erased"}',
        b"{}",
        b"null",
        b'{"kind":"erased","digest":"DIGEST"}',
        b'{"type":"Erased","digest":"DIGEST","note":"nothing was here"}',
        b'{"type":"Erased","digest":"DIGEST","type":"TurnSuperseded","n":1}',
        b'{"type":"TurnSuperseded","n":1}',
        b'{"type":"Erased", "digest":"DIGEST"}',
    ],
)
def test_what_stands_for_an_erased_event_is_its_digest_and_nothing_else(stub: bytes) -> None:
    line = learned()
    contents, salts, _ = slots(line)
    right = digest(str(salts[2]), contents[2]).encode()
    refused(erase(line, 1, stub=stub.replace(b"DIGEST", right)))
    read(erase(line, 1, stub=b'{"type":"Erased","digest":"%s"}' % right))


@pytest.mark.parametrize("more", ['"thread":"t"', '"turns":{"first":1,"last":9}', '"kind":"clear"'])
def test_nothing_can_be_added_to_an_erased_cause(more: str) -> None:
    line = learned()
    contents, salts, _ = slots(line)
    told = digest(str(salts[0]), contents[0])
    refused(erase(line, -1, stub=f'{{"kind":"erased","digest":"{told}",{more}}}'.encode()))


def test_two_events_cannot_be_folded_into_one_stub() -> None:
    line = sealed(turn("a"), turn("b"))
    contents, salts, envelope = slots(line)
    digests = [digest(str(salt), content) for salt, content in zip(salts, contents, strict=True)]
    both = json.dumps("\n".join(digests[1:])).encode()
    forged = by_hand(
        [contents[0], b'{"type":"Erased","digest":' + both + b"}"], salts=[salts[0], None], digests=digests
    )
    assert head_of(forged).hash == envelope["hash"]
    refused(forged)


def test_the_parts_of_the_hashed_text_cannot_be_shifted() -> None:
    line = sealed(turn("a"), turn("b"))
    contents, salts, envelope = slots(line)
    digests = [digest(str(salt), content) for salt, content in zip(salts, contents, strict=True)]
    shifted = Head(0, digests[0])
    forged = by_hand(contents[1:], after=shifted, at=f"{AT}\n{EMPTY.hash}", salts=salts[1:], digests=digests[1:])
    assert head_of(forged).hash == envelope["hash"]
    assert not inspect(forged).intact


def test_a_salt_cannot_lend_bytes_to_its_content() -> None:
    line = sealed(turn("a"))
    contents, salts, _ = slots(line)
    number = b"7" + contents[1]
    salt = f"{0:032x}"
    whole = digest(salt, number)
    assert whole == digest(salt + "7", contents[1])
    honest = [digest(str(salts[0]), contents[0]), whole]
    refused(by_hand(contents, salts=[salts[0], salt + "7"], digests=honest))


@pytest.mark.parametrize(
    "salts", [[], [f"{1:032x}"], [f"{n:032x}" for n in range(1, 4)], [None, None], [f"{1:032x}", None]]
)
def test_salts_and_contents_pair_up(salts: list[str | None]) -> None:
    contents, _, _ = slots(sealed(turn("a")))
    digests = [digest(f"{n:032x}", content) for n, content in enumerate(contents, 1)]
    read(by_hand(contents, digests=digests))
    keys = json.dumps(salts, separators=(",", ":")).encode()
    line = by_hand(contents, digests=digests)
    now = json.dumps([f"{n:032x}" for n in (1, 2)], separators=(",", ":")).encode()
    refused(line.replace(now, keys))


def test_an_event_that_nobody_knows_is_not_passed_over() -> None:
    line = by_hand([b'{"kind":"record"}', b'{"type":"FactDreamt","n":1}'])
    assert inspect(line).intact
    assert "FactDreamt" in str(refused(line))


# Versions.


def old_line(after: Head = EMPTY, v: int = 0) -> bytes:
    """As an older version wrote it: a fact was a bare text, and spaces stood between things."""
    return by_hand([b'{"why": "record", "thread": "t"}', b'{"type": "Noted",  "text": "Ada runs"}'], v=v, after=after)


def upcast(contents: commit_module.Contents) -> commit_module.Contents:
    noted = [turn(str(event["text"])) for event in contents["events"]]
    cause = {"kind": contents["cause"]["why"], "thread": contents["cause"]["thread"]}
    return {"cause": cause, "events": [orjson.loads(msgspec.json.encode(event)) for event in noted]}


def test_an_older_line_is_read_as_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "_UPCASTS", MappingProxyType({0: upcast}))
    old = old_line()
    found = read(old)
    assert (found.cause, found.events) == (Cause(kind="record", thread="t"), (turn("Ada runs"),))
    assert decode(old) == found
    assert read(sealed(turn("new"), after=found.head), found.head).seq == 2


def test_an_older_lines_digest_is_over_its_own_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "_UPCASTS", MappingProxyType({0: upcast}))
    old = old_line()
    for place in range(len(old)):
        tampered = bytearray(old)
        tampered[place] ^= 1
        refused(bytes(tampered))
    refused(old.replace(b'"Noted",  "text"', b'"Noted", "text"'))
    gone = erase(old, 0)
    assert inspect(gone).intact
    assert head_of(gone) == head_of(old)


def test_several_upcasts_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(contents: commit_module.Contents) -> commit_module.Contents:
        return {"cause": {"why": "record", "thread": "t"}, "events": [{"type": "Noted", "text": "before Noted"}]}

    monkeypatch.setattr(commit_module, "_UPCASTS", MappingProxyType({-1: older, 0: upcast}))
    assert read(old_line(v=-1)).events == (turn("before Noted"),)


@pytest.mark.parametrize("v", [0, -1, -(10**18)])
def test_a_version_that_was_never_written_is_damage(v: int) -> None:
    assert "never written" in str(refused(old_line(v=v)))


@pytest.mark.parametrize("v", [FORMAT + 1, FORMAT + 40])
def test_a_newer_version_asks_for_a_newer_program(v: int) -> None:
    line = by_hand([b'{"kind":"record","mood":"blue"}', b'{"type":"FactDreamt","n":1}'], v=v)
    for reader in (read, decode):
        with pytest.raises(StoreError, match=f"format {v} .* newer backstory"):
            reader(line)
    assert inspect(line).intact


def test_only_a_policy_that_asks_for_a_users_words_needs_a_program_that_knows_that() -> None:
    versions = [json.loads(sealed(PolicyChanged(None, Policy(evidence=whose))))["v"] for whose in EVIDENCE]
    assert versions == [1, 4]


def test_only_a_line_with_tags_asks_for_the_version_that_knows_tags() -> None:
    tagged = msgspec.structs.replace(FACT, tags=("a",))
    said = turn("a")
    events: tuple[Event, ...] = (
        FactAdded(FACT),
        FactAdded(tagged),
        FactRevised(tagged, FACT, "edited"),
        FactRemoved(msgspec.structs.replace(FACT, attributes={"n": 1}), "hand"),
        said,
        TurnRecorded(msgspec.structs.replace(said.turn, tags=("a",))),
    )
    assert [json.loads(sealed(event))["v"] for event in events] == [1, 4, 4, 4, 1, 4]


def test_only_a_line_with_a_mark_asks_for_the_version_that_knows_marks() -> None:
    versions = [
        json.loads(sealed(event))["v"]
        for event in (FactRemoved(FACT, "hand"), FactRemoved(FACT, "hand", marked_after=0), turn("a"))
    ]
    assert versions == [1, 2, 1]


@given(events, causes)
def test_defaults_are_left_out_and_names_are_camel_case(event: Event, cause: Cause) -> None:
    for value in (event, cause):
        stated = orjson.loads(msgspec.json.encode(value))
        assert all("_" not in name for name in stated)
        assert None not in {v for k, v in stated.items() if k != "before" and not isinstance(v, list | dict)}
    assert "type" in orjson.loads(msgspec.json.encode(event))


def test_the_hash_of_a_line_worked_out_by_hand() -> None:
    turn_of_three = TurnRecorded(Turn(n=3, id="x", role="user", content="hé", at=AT))
    line = sealed(turn_of_three, cause=Cause(kind="record", thread="t"))
    cause, event = (
        b'{"kind":"record","thread":"t"}',
        '{"type":"TurnRecorded","turn":{"n":3,"id":"x","role":"user","content":"hé","at":"2026-03-01T12:00:00.000000Z"}}'.encode(),
    )
    digests = [digest(f"{1:032x}", cause), digest(f"{2:032x}", event)]
    assert head_of(line).hash == chain_hash(1, 1, AT, "0" * 64, digests)
    assert cause in line
    assert event in line
