"""The middleware puts memory into a call while writers are stuck: it waits for none of them."""

from __future__ import annotations

import asyncio

from scripted_agents import Scripted, agent, ask, config
from stuck import returned, stuck_writers


def test_the_block_is_injected_while_writers_are_stuck(bs, monkeypatch):
    bs.warm()
    memory = bs.memory("ada")
    memory.add_fact("Ada lives in Oslo")
    with memory._services.own.state():
        pass
    model = Scripted()
    reading = agent(bs, model, memory={"record": False})
    writes = [
        lambda: memory.add_fact("Ada has a dog"),
        lambda: memory.record("t", [{"role": "user", "content": "Hello."}]),
    ]
    with stuck_writers(bs, bs.home / "users/ada", writes, monkeypatch):
        returned(lambda: ask(reading, "Where do I live?"))
        messages = {"messages": [{"role": "user", "content": "And now?"}]}
        returned(lambda: asyncio.run(reading.ainvoke(messages, config())))
        assert [("Ada lives in Oslo" in system, "dog" in system) for system in model.systems] == [(True, False)] * 2
    ask(reading, "Have I a dog?")
    assert "Ada has a dog" in model.systems[-1]
    assert [fault.doing for fault in memory.status().faults] == []
