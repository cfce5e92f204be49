"""Long-term memory for LLM agents, kept as an event-sourced ledger.

    from backstory import Backstory

    with Backstory.open("~/.backstory") as bs:
        memory = bs.memory(user_id="ada")
        memory.record("thread-1", [{"role": "user", "content": "I live in Oslo."}, …])

Importing this package costs next to nothing: what is behind the names is loaded when they are used. A name like
`deerflow:LedgerMemoryStorage` is what a module of it holds, for hosts that part a dotted path at its last dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.handle import MemoryHandle as MemoryHandle
    from backstory.home import Backstory as Backstory
    from backstory.ledger.extraction.recorded import RecordedReply as RecordedReply
    from backstory.ledger.learning.observing import Observer as Observer

__all__ = ["Backstory", "MemoryHandle", "Observer", "RecordedReply", "__version__"]

__version__ = "0.1.0"

_PLACES = {
    "Backstory": "backstory.home",
    "MemoryHandle": "backstory.handle",
    "Observer": "backstory.ledger.learning.observing",
    "RecordedReply": "backstory.ledger.extraction.recorded",
}


def __getattr__(name: str) -> object:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    module, _, attribute = name.partition(":")
    if attribute:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{module}"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
