"""Whose memory lies where: one folder a user, one to one, inside the home, whatever the id."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backstory.ledger.core.errors import ScopeError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60) | st.text(
    "aAbB_-./\\\0 %~é", min_size=1, max_size=8
)
long_ids = st.text("aAé", min_size=20, max_size=1000)
agents = st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True)


def folder(user: str) -> str:
    return Scope.of(user).folder.removeprefix("users/")


@given(ids | long_ids, ids | long_ids)
@example("a", "A")
@example("_", "_5f")
@example("é", "e\u0301")
@example("a" * 300, "A" * 300)
@example("x" * 121, "x" * 122)
@example("_" * 40, "_" * 41)
def test_different_users_have_different_folders_also_where_case_is_ignored(one: str, other: str) -> None:
    assert (folder(one).casefold() == folder(other).casefold()) == (one == other)


@given(ids)
def test_the_shortest_change_of_an_id_changes_the_folder(user: str) -> None:
    others = {user + "a", user.swapcase(), user + " ", " " + user, user + "\0", user.upper(), user.lower()} - {user}
    folders = {folder(other) for other in others}
    assert folder(user) not in folders
    assert len(folders) == len(others)


@given(ids | long_ids)
@example("..")
@example(".")
@example("/etc/passwd")
@example("a/../../b")
@example("\0")
@example("a\nb")
@example("👍🏽")
@example("我")
@example("x" * 1000)
@example("-rf")
@example("~")
@example("users")
@example("agents")
def test_no_user_leaves_the_home(user: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]{1,120}", folder(user))
    assert Scope.of(user).stream(LEDGER) == f"users/{folder(user)}/ledger"


@given(ids)
def test_a_plain_id_is_spelled_as_it_is(user: str) -> None:
    assert (folder(user) == user) == bool(re.fullmatch("[a-z0-9-]{1,120}", user))


def test_the_spelling() -> None:
    assert folder("Ada L.") == "_41da_20_4c_2e"
    assert folder("é") == "_c3_a9"
    assert folder("x" * 120) == "x" * 120
    assert re.fullmatch(r"x{40}__[0-9a-f]{64}", folder("x" * 121))


@given(ids | long_ids)
def test_a_folder_says_whose_it_is_unless_it_is_cut(user: str) -> None:
    for agent in (None, "Lead-1"):
        scope = Scope.of(user, agent)
        found = Scope.in_folder(scope.folder)
        assert found == (None if "__" in folder(user) else scope)


@given(st.text("users/agents_5fA.", max_size=30) | st.lists(ids, max_size=5).map("/".join))
def test_a_folder_that_is_no_scopes_is_nobodys(name: str) -> None:
    found = Scope.in_folder(name)
    assert found is None or found.folder == name


@pytest.mark.parametrize("user", ["", "x" * 1001, "\ud800", "a\udfff"])
def test_what_is_no_user_id(user: str) -> None:
    with pytest.raises(ScopeError) as told:
        Scope.of(user)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 300
    str(told.value).encode()


@given(agents)
def test_an_agents_name_is_its_folder(agent: str) -> None:
    assert Scope.of(agent=agent).folder == f"agents/{agent}"
    assert Scope.of("ada", agent).folder == f"users/ada/agents/{agent}"


@pytest.mark.parametrize(
    "agent", ["", "a" * 65, "a b", "a_b", "a.b", "..", "a/b", "a\n", "\na", "é", "a\0", "ａ", "a" * 500, "\ud800"]
)
def test_what_is_no_agents_name(agent: str) -> None:
    with pytest.raises(ScopeError, match="must be 1 to 64 letters, digits or hyphens") as told:
        Scope.of("ada", agent)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 300
    str(told.value).encode()


def test_the_places_are_the_agreed_ones() -> None:
    assert [Scope.of(user, agent).folder for user in (None, "u") for agent in (None, "A")] == [
        "",
        "agents/A",
        "users/u",
        "users/u/agents/A",
    ]
    assert Scope().stream(LEDGER) == "ledger"
    assert Scope().stream(TRANSCRIPT) == "transcript"


scopes = st.builds(Scope.of, st.none() | ids, st.none() | agents)


@given(scopes, scopes)
def test_no_two_scopes_share_a_place(one: Scope, other: Scope) -> None:
    assert (one.folder == other.folder) == (one == other)


def test_a_scope_says_whose_it_is() -> None:
    assert str(Scope()) == "global"
    assert str(Scope.of("ada", "lead")) == "user ada, agent lead"
