"""Whose memory a handle is of: names of any kind, and a memory without a user only where it is asked for."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import exchange, open_home

from backstory.deerflow.hosting import scope_named
from backstory.home import Backstory
from backstory.integrations.identity import Identity
from backstory.ledger.core.errors import ConfigError, ScopeError
from backstory.ledger.core.scope import Scope
from backstory.ledger.messages import read_message
from backstory.outbox.fail_safe import FailSafeMemory

UUID = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")


class Role(enum.StrEnum):
    ada = "ada"


class Number(enum.IntEnum):
    five = 5


@pytest.fixture
def bs(tmp_path: Path):
    with open_home(tmp_path) as home:
        yield home


# Without a user.


@pytest.mark.parametrize("agent", [None, "coder"])
def test_a_memory_without_a_user_has_to_be_asked_for(bs: Backstory, agent: str | None) -> None:
    with pytest.raises(ScopeError, match=r'memory\(scope="global"\)'):
        bs.memory(agent_name=agent)
    with pytest.raises(ScopeError, match="no user id"):
        bs.memory(agent_name=agent, scope="user")
    assert bs.memory(agent_name=agent, scope="global").scope == Scope(None, agent)


def test_a_user_and_the_memory_of_all_users_exclude_each_other(bs: Backstory) -> None:
    with pytest.raises(ScopeError, match="exclude each other"):
        bs.memory("ada", scope="global")
    assert bs.memory("ada", scope="user").scope == Scope("ada")
    with pytest.raises(ScopeError, match="user or global"):
        bs.memory("ada", scope="all")  # type: ignore[arg-type]


def test_configuration_may_allow_the_global_memory_for_all_calls(tmp_path: Path) -> None:
    with open_home(tmp_path, strict_user_scope=False) as bs:
        assert bs.memory().scope == Scope()
        assert bs.memory(None, "coder").scope == Scope(None, "coder")
        with pytest.raises(ScopeError, match="no user id"):
            bs.memory(scope="user")


def test_configuration_may_forbid_it(tmp_path: Path) -> None:
    with open_home(tmp_path, strict_user_scope=True) as bs:
        for refused in (bs.memory, lambda: bs.memory(scope="global"), lambda: bs.memory_of(Scope())):
            with pytest.raises(ScopeError, match="strict_user_scope"):
                refused()


def test_each_scope_of_a_home_can_be_opened_as_it_is_listed(bs: Backstory) -> None:
    bs.memory(scope="global").add_fact("Rains")
    bs.memory("ada", "coder").add_fact("Likes tea")
    listed = [*bs.scopes(), *bs.owners()]
    assert [bs.memory_of(one).facts()[0].content for one in listed] == ["Rains", "Likes tea"] * 2


def test_names_of_the_environment_are_for_the_command_line_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTORY_USER", "ada")
    monkeypatch.setenv("BACKSTORY_AGENT", "coder")
    with Backstory.open(tmp_path, background=False) as bs, pytest.raises(ScopeError, match="no user id"):
        bs.memory()
    with pytest.raises(ConfigError, match="user"):
        Backstory.open(tmp_path, user="ada")


# Names of any kind.


def in_line(user: object) -> str | None:
    return read_message({"role": "user", "content": "hi", "user_id": user}).user_id


DOORS: dict[str, Callable[[object], str | None]] = {
    "scope": lambda user: Scope.of(user).user,  # type: ignore[arg-type]
    "middleware": lambda user: Identity("user", None, None).of({"user_id": user}, {}).scope.user,
    "middleware, config": lambda user: Identity("user", None, None).of(None, {"user_id": user}).scope.user,
    "middleware, argument": lambda user: Identity("user", user, None).of(None, {}).scope.user,  # type: ignore[arg-type]
    "deerflow": lambda user: scope_named(user, None).user,  # type: ignore[arg-type]
    "agent in deerflow": lambda agent: scope_named(None, agent).agent,  # type: ignore[arg-type]
    "agent": lambda agent: Scope.of(None, agent).agent,  # type: ignore[arg-type]
    "line": in_line,
    "agent in a line": lambda name: read_message({"role": "user", "content": "hi", "agent_name": name}).agent_name,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "text"), [(5, "5"), (0, "0"), (UUID, str(UUID)), (Role.ada, "ada"), (Number.five, "5"), ("ada", "ada")]
)
def test_a_number_and_a_uuid_count_as_their_text_at_every_door(door: str, name: object, text: str) -> None:
    found = DOORS[door](name)
    assert found == text
    assert type(found) is str


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", [True, 2.5, b"ada", ["ada"], pytest.param(10**5000, id="long")])
def test_any_other_value_is_refused_in_words_at_every_door(door: str, name: object) -> None:
    with pytest.raises(Exception, match=r"must be a (string|text)|a number of more than 4,300 digits|whole number"):
        DOORS[door](name)


@pytest.mark.parametrize("name", [True, 2.5, b"ada"])
def test_a_handle_of_such_a_name_is_refused(bs: Backstory, name: object) -> None:
    with pytest.raises(ScopeError, match="user id must be a string, a whole number or a UUID"):
        bs.memory(name)  # type: ignore[arg-type]
    with pytest.raises(ScopeError, match="agent name must be a string, a whole number or a UUID"):
        bs.memory("ada", name)  # type: ignore[arg-type]


def test_five_and_its_text_are_one_memory(bs: Backstory) -> None:
    bs.memory(5).add_fact("Likes tea")
    assert [fact.content for fact in bs.memory("5").facts()] == ["Likes tea"]
    assert [scope.user for scope in bs.scopes()] == ["5"]


def test_a_fail_safe_memory_reads_names_as_a_handle_does(bs: Backstory) -> None:
    safe = FailSafeMemory(bs)
    safe.record(Scope(5), "t", exchange("tea"))  # type: ignore[arg-type]
    assert bs.memory("5").threads()[0].turns == 2
    assert safe.guarded(Scope(5), "search", lambda: 1 / 0, otherwise=0.0) == 0.0  # type: ignore[arg-type]
    assert [fault.doing for fault in bs.faults.of(Scope("5"))] == ["search"]
    for refused in (
        lambda: safe.record(Scope(2.5), "t", exchange("tea")),  # type: ignore[arg-type]
        lambda: safe.guarded(Scope(2.5), "search", lambda: 1, otherwise=0),  # type: ignore[arg-type]
    ):
        with pytest.raises(ScopeError, match="user id must be a string"):
            refused()


def test_an_empty_name_is_refused(bs: Backstory) -> None:
    with pytest.raises(ScopeError, match="empty"):
        bs.memory("")
    with pytest.raises(ScopeError, match="agent name"):
        bs.memory("ada", "")
