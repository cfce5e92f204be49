"""DeerFlow's memory from a checkout, which DEERFLOW names: it is on no package index.

Only its memory is imported. Its model is a stand-in that proposes each fact that the conversation states.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.stand_ins import USER, Opened, stated

_WAIT_SECONDS = 120.0
MOST_FACTS = 100
"""As many as it holds by default."""


def checkout() -> Path:
    """Return where the checkout lies."""
    return Path(os.environ["DEERFLOW"]).expanduser().resolve()


class _Model:
    """A chat model as its updater calls one."""

    def invoke(self, prompt: list[Any], config: object = None) -> Any:
        from langchain_core.messages import AIMessage

        del config
        asked = str(prompt[-1].content).rpartition("<conversation")[2]
        kind = {"category": "preference", "confidence": 0.9}
        labels = {"scope": "user", "durability": "durable", "authority": "descriptive"}
        facts = [{"content": content, **kind, **labels} for content in stated(asked)]
        return AIMessage(json.dumps({"user": {}, "history": {}, "newFacts": facts, "factsToRemove": []}))


@contextmanager
def deerflow(folder: Path) -> Iterator[Opened]:
    packages = checkout() / "backend" / "packages"
    sys.path[:0] = [str(packages / "harness"), str(packages / "extension-api")]
    logging.disable(logging.WARNING)
    from deerflow.agents.memory.backends.deermem import DeerMem
    from langchain_core.messages import AIMessage, HumanMessage

    memory = DeerMem(
        # Its token counts would need the network; the estimate by characters is one of its settings.
        backend_config={
            "storage_path": str(folder / "deerflow"),
            "token_counting": "char",
            "host_llm": _Model(),
        }
    )

    def record(number: int, text: str) -> None:
        memory.add(f"thread-{number}", [HumanMessage(text), AIMessage("Noted.")], user_id=USER)

    def learn() -> None:
        assert memory.shutdown_flush(_WAIT_SECONDS)

    yield Opened(
        lambda text: memory.create_fact(text, user_id=USER),
        lambda query: [fact["content"] for fact in memory.search(query, 5, user_id=USER)],
        lambda: {fact["content"] for fact in memory.get_memory(user_id=USER)["facts"]},
        record,
        learn,
        lambda _: memory.get_context(USER),
    )
    memory.close()
