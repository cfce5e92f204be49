"""A wrong value in the configuration stops the start of DeerFlow's gateway, which survives any other error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from types import ModuleType

import pytest
from deerflow.agents.memory.manager import get_memory_manager
from hosts import ChatModel, contents

from backstory.deerflow.errors import GatewayStart
from backstory.ledger.core.errors import ConfigError


@pytest.fixture
def gateway(monkeypatch):
    """A process in which DeerFlow's gateway is loaded and has not started yet."""
    monkeypatch.setitem(sys.modules, "app.gateway.app", ModuleType("app.gateway.app"))
    monkeypatch.setattr(GatewayStart, "_over", False)


async def lifespan(served):
    """Start as the gateway does: it makes the manager in a thread, and goes on after any Exception."""
    for _ in range(2):
        with contextlib.suppress(Exception):
            await asyncio.to_thread(get_memory_manager)
    served.append(True)


def configured(host, **config):
    """Leave a configuration for the host's factory, without making a manager."""
    with contextlib.suppress(ConfigError):
        host.manager(ChatModel(), **config)


@pytest.mark.parametrize(
    "config",
    [
        {"max_facts": 5},
        {"model": {"temperature": "hot"}},
        {"storage_class": "no.Store"},
        {"prompts_dir": "/no/such/folder"},
        {"patterns_dir": "/no/such/folder"},
        {"model": {"provider": "nobody", "model": "m"}},
    ],
)
def test_a_wrong_value_stops_the_start_of_the_gateway(host, gateway, caplog, monkeypatch, config):
    with monkeypatch.context() as elsewhere:
        elsewhere.delitem(sys.modules, "app.gateway.app")
        configured(host, **config)

    def fails(name, **how):
        raise ValueError("no such provider\nthese are there: …")

    monkeypatch.setattr("langchain.chat_models.init_chat_model", fails)
    served = []
    with pytest.raises(SystemExit, match=r"DeerFlow does not start, .*is wrong: ") as stopped:
        asyncio.run(lifespan(served))
    assert served == []
    assert "\n" not in str(stopped.value)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL] == [str(stopped.value)]


def test_no_conversation_stops_the_gateway(host, gateway):
    host.manager(ChatModel()).close()
    with pytest.raises(ConfigError, match="from 10"):
        host.manager(ChatModel(), max_facts=5)


def test_another_program_gets_the_error_itself(host):
    with pytest.raises(ConfigError, match="from 10"):
        host.manager(ChatModel(), max_facts=5)


def test_an_unknown_key_stops_nothing(host, gateway):
    manager = host.manager(ChatModel(), max_fact=5)
    manager.create_fact("Likes tea", user_id="ada")
    assert contents(manager) == ["Likes tea"]
