"""How tags and attributes are spelled and bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import Attribute, spelled
from backstory.ledger.text.tags import (
    MAX_TAG,
    MAX_TAGS,
    MAX_VALUE,
    read_attributes,
    read_filter,
    read_tags,
    readable_attributes,
    readable_tags,
    value_of,
)

BROKEN = ["", "  ", "a,b", "a=b", "a\nb", "x" * (MAX_TAG + 1), 3, None]


def test_tags_are_kept_as_given_without_blanks_and_each_once() -> None:
    assert read_tags([" Project A ", "project a", "Project A", "cafe\u0301"]) == ("Project A", "project a", "café")


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_tag_is_refused_with_what_a_tag_is(broken: object) -> None:
    with pytest.raises(UsageError, match=re.escape(f"a tag must be a name of 1 to {MAX_TAG} characters in one line")):
        read_tags([broken])
    assert readable_tags(["a", broken, "b"]) == ("a", "b")


def test_a_text_is_no_list_of_tags() -> None:
    for read in (read_tags, read_filter):
        with pytest.raises(UsageError, match=r"tags must be a list of names, such as \['project-a'\], got 'heron'"):
            read("heron")
    assert readable_tags("heron") == ()


def test_there_are_so_many_tags_at_most() -> None:
    many = [f"t{n}" for n in range(MAX_TAGS + 1)]
    assert read_tags([*many[1:], "t1"]) == tuple(many[1:])
    with pytest.raises(UsageError, match=f"there may be {MAX_TAGS} tags at most, got {MAX_TAGS + 1}: leave some out"):
        read_tags(many)
    assert readable_tags(many) == tuple(many[:MAX_TAGS])


def test_an_attribute_is_a_text_a_number_or_a_truth_value() -> None:
    given_ = {" team ": " red ", "rank": 2, "share": 0.5, "open": True}
    assert read_attributes(given_) == {"team": "red", "rank": 2, "share": 0.5, "open": True}


@pytest.mark.parametrize("broken", ["", "x" * (MAX_VALUE + 1), None, [1], {"a": 1}, float("nan"), 2**63, "a\nb"])
def test_any_other_value_is_refused(broken: object) -> None:
    with pytest.raises(UsageError, match="attribute team must be a text of 1 to 200 characters in one line, a number"):
        read_attributes({"team": broken})
    assert readable_attributes({"team": broken, "rank": 1}) == {"rank": 1}


def test_attributes_are_an_object_of_so_many_names() -> None:
    with pytest.raises(UsageError, match="attributes must be an object of names and values, got 'team=red'"):
        read_attributes("team=red")
    with pytest.raises(UsageError, match="there may be 20 attributes at most, got 21"):
        read_attributes({f"a{n}": n for n in range(MAX_TAGS + 1)})
    with pytest.raises(UsageError, match="an attribute must be a name"):
        read_attributes({"a=b": 1})
    assert readable_attributes("team=red") == {}
    assert len(readable_attributes({f"a{n}": n for n in range(MAX_TAGS + 1)})) == MAX_TAGS


def test_a_filter_names_tags_and_values_of_attributes() -> None:
    assert read_filter([" heron ", "team = red", "url=a=b"]) == ("heron", "team=red", "url=a=b")


@given(
    st.text(max_size=8)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
)
def test_the_value_that_a_text_spells_is_spelled_so(value: Attribute) -> None:
    assert spelled(value_of(spelled(value))) == spelled(value)


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("0.5", 0.5), ("true", True), ("007", "007"), ("inf", "inf")])
def test_a_number_is_one_only_where_it_is_spelled_the_same_again(text: str, value: Attribute) -> None:
    found = value_of(text)
    assert (found, type(found)) == (value, type(value))
