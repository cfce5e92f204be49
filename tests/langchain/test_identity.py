"""Who a run belongs to: the context first, then the config; nobody by accident."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TypedDict

import pytest
from langchain_core.messages import HumanMessage
from pydantic import BaseModel
from scripted_agents import Scripted, agent, ask, config, run, said, threads

from backstory import Backstory
from backstory.integrations.identity import Identity
from backstory.langchain import BackstoryMiddleware
from backstory.ledger.core.errors import ScopeError, UsageError
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import Scope


@dataclass
class AsDataclass:
    user_id: str
    thread_id: str = "from context"


class AsModel(BaseModel):
    user_id: str
    thread_id: str = "from context"


class AsDict(TypedDict):
    user_id: str
    thread_id: str


@pytest.mark.parametrize(
    "context",
    [AsDataclass("ada"), AsModel(user_id="ada"), AsDict(user_id="ada", thread_id="from context")],
    ids=["dataclass", "pydantic", "dict"],
)
def test_a_context_of_any_kind_beats_the_config(bs, context):
    mine = agent(bs, context_schema=type(context))
    ask(mine, "hi", user="bob", thread="from config", context=context)
    assert threads(bs) == ["from context"]
    assert threads(bs, "bob") == []


def test_the_config_says_what_the_context_does_not(bs):
    mine = agent(bs)
    run(mine, [HumanMessage("hi")], context={"user_id": "", "agent_name": "writer"})
    assert said(bs, agent="writer") == ["user: hi", "assistant: echo: hi"]


def test_a_run_without_a_user_is_refused_before_the_model_is_asked(bs):
    model = Scripted()
    with pytest.raises(ScopeError, match="no user id"):
        ask(agent(bs, model), "hi", user=None)
    with pytest.raises(ScopeError, match='scope="global"'):
        ask(agent(bs, model, memory={"mode": "tool"}), "hi", user="")
    assert model.sent == []


def test_everybody_shares_one_memory_if_that_is_said(bs):
    mine = agent(bs, scope="global")
    ask(mine, "hi", user=None, thread="t1")
    ask(mine, "ho", user="bob", thread="t2")
    assert threads(bs, None) == ["t1", "t2"]
    assert threads(bs, "bob") == []


def test_an_agent_may_have_a_memory_that_everybody_shares(bs):
    ask(agent(bs, scope="global", memory={"agent_name": "writer"}), "hi", user="bob")
    assert said(bs, None, agent="writer") == ["user: hi", "assistant: echo: hi"]
    assert threads(bs, None) == []


def test_an_empty_name_of_the_constructor_is_none(bs):
    with pytest.raises(ScopeError, match="no user id"):
        ask(agent(bs, memory={"user_id": "", "agent_name": ""}), "hi", user=None)


def test_a_global_memory_is_refused_where_configuration_wants_a_user(tmp_path):
    with (
        Backstory.open(tmp_path, strict_user_scope=True) as bs,
        pytest.raises(ScopeError, match="strict_user_scope"),
    ):
        BackstoryMiddleware(bs, scope="global")


def test_a_user_of_the_constructor_is_for_runs_that_name_none(bs):
    mine = agent(bs, memory={"user_id": "ada"})
    ask(mine, "hi", user=None, thread="t1")
    ask(mine, "hi", user="bob", thread="t2")
    assert (threads(bs), threads(bs, "bob")) == (["t1"], ["t2"])


def test_an_agent_is_what_it_was_constructed_as(bs):
    ask(agent(bs, memory={"agent_name": "writer"}), "hi", context={"agent_name": "lead"})
    assert said(bs, agent="writer") == ["user: hi", "assistant: echo: hi"]


def test_the_user_a_server_has_authenticated_is_the_last_resort():
    identity = Identity("user", None, None)
    stated = {"langgraph_auth_user_id": "ada"}
    assert identity.of(None, stated).scope == Scope("ada")
    assert identity.of({"user_id": "bob"}, stated).scope == Scope("bob")
    assert Identity("user", "standard", None).of(None, stated).scope == Scope("ada")


def test_numbers_and_uuids_are_ids_by_their_text(bs):
    key = uuid.uuid4()
    ask(agent(bs), "hi", user=7, thread=key)
    assert threads(bs, "7") == [str(key)]


@pytest.mark.parametrize("wrong", [True, 1.5, ["ada"], b"ada"])
def test_what_is_no_id_is_refused(bs, wrong):
    with pytest.raises(ScopeError, match="user_id must be"):
        ask(agent(bs), "hi", user=wrong)


@pytest.mark.parametrize("name", ["no spaces please", "x" * 65])
def test_a_name_that_cannot_be_one_is_refused(bs, name):
    with pytest.raises(ScopeError, match="agent name"):
        BackstoryMiddleware(bs, agent_name=name)
    with pytest.raises(ScopeError, match="agent name"):
        ask(agent(bs), "hi", context={"agent_name": name})


def test_long_thread_names_stay_apart_and_short_ones_as_they_are():
    identity = Identity("user", "ada", None)

    def named(thread: str) -> str | None:
        return identity.of({"thread_id": thread}, {}).thread

    assert named("a/b") == "a/b"
    assert named("x" * 512) == "x" * 512
    one, two = named("x" * 513), named("x" * 514)
    assert one == bounded_name("x" * 513)
    assert one != two


def test_wrong_arguments_are_told_in_words(bs, tmp_path):
    for arguments, told in [
        ({"home": 3}, "home must be .* got int"),
        ({"home": bs, "model": "gpt"}, "open already"),
        ({"home": bs, "max_facts": 10}, "open already"),
        ({"home": bs, "scope": "everyone"}, "must be user or global"),
        ({"home": bs, "mode": "both"}, "must be middleware or tool"),
        ({"home": bs, "max_tokens": 0}, "at least 1, got 0"),
        ({"home": bs, "max_tokens": "many"}, "got 'many'"),
    ]:
        with pytest.raises(UsageError, match=told):
            BackstoryMiddleware(**arguments)


def test_a_config_without_a_thread_or_user_in_it_is_no_trouble(bs):
    mine = agent(bs, memory={"user_id": "ada"})
    assert mine.invoke({"messages": [HumanMessage("hi")]})["messages"][-1].text == "echo: hi"
    assert config(None, None) == {"configurable": {}}
