"""At the door: whatever comes in can be written, and what was fine is not touched."""

from __future__ import annotations

import enum
import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.sanitize import MAX_NAME, bounded_name, clip, safe_json, safe_text

any_text = st.text(st.characters(), max_size=40)
surrogates = st.text(st.characters(categories=["Cs"]) | st.sampled_from("a😀é"), max_size=8)


def test_an_id_is_bounded_without_making_two_alike_and_a_short_one_is_left_alone() -> None:
    for short in ("", "a/b", "é" * MAX_NAME):
        assert bounded_name(short) == short
    one, two = bounded_name("x" * MAX_NAME + "1"), bounded_name("x" * MAX_NAME + "2")
    assert len(one) == len(two) == MAX_NAME
    assert one != two
    digest = hashlib.sha256(b"x" * MAX_NAME + b"1").hexdigest()
    assert one == "x" * (MAX_NAME - 65) + "…" + digest
    assert bounded_name("a\ud800") == "a\ufffd"


@given(any_text | surrogates)
def test_safe_text_can_be_written_and_good_text_is_left_alone(text: str) -> None:
    safe = safe_text(text)
    safe.encode()
    assert safe_text(safe) == safe
    good = not any("\ud800" <= character <= "\udfff" for character in text)
    assert (safe == text) == good
    assert [c for c in safe if c != "\ufffd" and c <= "\uffff"] == [
        c for c in text if c != "\ufffd" and c <= "\uffff" and not "\ud800" <= c <= "\udfff"
    ]


def test_halves_that_belong_together_are_joined() -> None:
    assert safe_text("\ud83d\ude00") == "😀"
    assert safe_text("\ude00\ud83d") == "\ufffd\ufffd"
    assert safe_text("a\ud83db") == "a\ufffdb"


class Word(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Colour(str, enum.Enum):  # noqa: UP042 as hosts of older Pythons write it
    RED = "red"


class Half(float):
    __slots__ = ()


class Third(int):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "plain"),
    [(Word("a"), "a"), (Colour.RED, "red"), (Half(0.5), 0.5), (Third(3), 3), (Third(2**70), "0x400000000000000000")],
)
def test_values_of_derived_types_become_plain(value: object, plain: object) -> None:
    found = safe_json({"x": [value]})
    assert found == {"x": [plain]}
    assert isinstance(found, dict)
    assert isinstance(found["x"], list)
    assert type(found["x"][0]) is type(plain)
    assert msgspec.json.encode(found) == orjson.dumps(found)
    if isinstance(value, str):
        assert type(safe_text(value)) is str
        assert type(clip(value, 10)) is str


@given(any_text, st.integers(30, 60))
def test_clip_keeps_to_its_limit_and_tells_how_much_is_gone(text: str, limit: int) -> None:
    long = text * 3
    clipped = clip(long, limit)
    assert len(clipped) <= limit
    if len(safe_text(long)) <= limit:
        assert clipped == safe_text(long)
    else:
        kept, _, mark = clipped.rpartition("… [")
        assert safe_text(long).startswith(kept)
        assert mark == f"{len(safe_text(long)) - len(kept)} characters cut]"


@pytest.mark.parametrize("size", [99, 100, 101, 109, 110, 111, 999, 1000, 1024, 99_999])
def test_clip_counts_right_at_every_size(size: int) -> None:
    clipped = clip("x" * size, 100)
    assert len(clipped) <= 100
    kept = clipped.count("x")
    assert clipped == "x" * size if size <= 100 else clipped.endswith(f"… [{size - kept} characters cut]")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | any_text
    | surrogates
    | st.binary(max_size=3)
    | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(any_text | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(values)
def test_safe_json_can_be_written_by_anybody_and_read_again(value: object) -> None:
    safe = safe_json(value)
    text = orjson.dumps(safe)
    assert orjson.loads(text) == safe
    assert msgspec.json.decode(msgspec.json.encode(safe)) == safe
    assert json.loads(json.dumps(safe, allow_nan=False)) == safe
    assert safe_json(safe) == safe


def test_safe_json_ends_somewhere() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert b"nested too deep" in orjson.dumps(safe_json(loop))
    assert len(str(safe_json({"k" * 2000: "v" * 9000}))) < 2 * MAX_NAME + 8 * MAX_NAME
    assert safe_json([float("nan"), float("-inf"), 2**63, -(2**63)]) == ["nan", "-inf", "0x8000000000000000", -(2**63)]


def test_sets_are_listed_in_one_order() -> None:
    assert safe_json({"b", "a", "c"}) == ["a", "b", "c"]
    assert safe_json(frozenset({2, 1})) == [1, 2]


# Time.


moments = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))])
).filter(lambda moment: 2 <= moment.year <= 9998)


@given(moments, moments)
def test_spelled_moments_sort_as_moments_do(one: datetime, other: datetime) -> None:
    assert (spell_moment(one) < spell_moment(other)) == (one < other)
    assert len(spell_moment(one)) == len("2026-03-12T10:30:00.123456Z")
    assert parse_moment(spell_moment(one)) == one


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("2026-03-12T10:30:00Z", "2026-03-12T10:30:00.000000Z"),
        (" 2026-03-12T10:30:00.5+02:00 ", "2026-03-12T08:30:00.500000Z"),
        ("2026-03-12 10:30", "2026-03-12T10:30:00.000000Z"),
        ("2026-03-12", "2026-03-12T00:00:00.000000Z"),
    ],
)
def test_moments_are_read_as_people_write_them(text: str, spelled: str) -> None:
    moment = parse_moment(text)
    assert moment is not None
    assert spell_moment(moment) == spelled


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "\ud800"]
)
def test_what_is_no_moment(text: str) -> None:
    assert parse_moment(text) is None


def test_the_systems_clock_knows_its_zone() -> None:
    assert SystemClock().now().tzinfo is UTC
