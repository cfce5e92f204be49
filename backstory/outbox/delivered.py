"""Delivered conversations: from where on a conversation is not the same as at its last delivery.

A host hands over the whole conversation after every run. To compare a message with the last delivery costs a fraction
of reading it and looking it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.changes import LogState

_CONVERSATIONS = 1_024
_KINDS = {"human", "ai", "system", "tool"}
"""The types of LangChain's whole messages."""
_RECORDED = ("human", "ai")


class Delivery(NamedTuple):
    """A digest of each message of a delivery, and the log that it was recorded in, as it was before; None: no log."""

    digests: list[int]
    log: LogState | None


_NEVER = Delivery([], None)


class Delivered:
    """A digest of each message of each conversation at its last delivery, for a bounded number of conversations.

    Safe for threads. A lost entry costs that the next delivery is read whole.
    """

    def __init__(self) -> None:
        self._last: Recent[tuple[Scope, str], Delivery] = Recent(_CONVERSATIONS)

    def start(self, scope: Scope, thread: str, messages: object, log: LogState | None = None) -> tuple[int, Delivery]:
        """Return the index from which messages have to be delivered, and what to `note` once they are recorded.

        It is the index of a plain question, since which messages are kept may depend on earlier ones of the same turn.
        All have to be where the log is not the one of the last delivery: a repair or a removal may have taken turns.
        """
        sent = messages if isinstance(messages, list) else []
        last = self._last.get((scope, thread), _NEVER)
        digests, known = list(_digests(sent)), last.digests if _goes_on(last.log, log) else []
        same = next((n for n, (now, then) in enumerate(zip(digests, known, strict=False)) if now != then), None)
        if same is None:
            same = min(len(digests), len(known))
        start = next((n for n in range(same - 1, 0, -1) if _is_plain_question(sent[n])), 0)
        return start, Delivery(digests, log)

    def note(self, scope: Scope, thread: str, delivery: Delivery) -> None:
        """Note that a conversation was recorded."""
        self._last.put((scope, thread), delivery)

    def forget(self) -> None:
        """Forget all deliveries, since turns that were recorded may be missing now."""
        self._last.clear()


def _goes_on(before: LogState | None, now: LogState | None) -> bool:
    """Whether a log still holds what it held before; without a log it does."""
    if before is None or now is None:
        return before is now
    return before.edition == now.edition and before.size <= now.size


def _digests(messages: Sequence[object]) -> Iterator[int]:
    """Yield a digest of all that recording reads of each message, up to the first message of another shape."""
    for message in messages:
        fields = _fields(message)
        if fields is None:
            return
        yield hash(fields)


def _fields(message: object) -> tuple[str | bool, ...] | None:
    """Return what recording reads of a LangChain message with an id and plain text; None for any other message."""
    if not hasattr(type(message), "__pydantic_fields__") or getattr(message, "__pydantic_extra__", None):
        return None
    held: Mapping[str, object] = vars(message)
    kind, key, content = held.get("type"), held.get("id"), held.get("content")
    if type(kind) is not str or kind not in _KINDS or type(key) is not str or not key or held.get("metadata"):
        return None
    if kind not in _RECORDED:
        return (kind,)
    if type(content) is not str:
        return None
    extra = held.get("additional_kwargs")
    calls = bool(held.get("tool_calls") or held.get("invalid_tool_calls"))
    return kind, key, content, str(held.get("name")), repr(extra) if extra else "", calls


def _is_plain_question(message: object) -> bool:
    """Whether a message is a person's words and nothing else, so that what is kept of later ones is independent."""
    held = vars(message)
    content = held.get("content")
    return (
        held.get("type") == "human"
        and not held.get("additional_kwargs")
        and isinstance(content, str)
        and "<" not in content
        and bool(content.strip())
    )
