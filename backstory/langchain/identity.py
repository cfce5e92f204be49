"""Who an agent works for: user, agent and thread, out of what a run was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal
from uuid import UUID

import msgspec

from backstory.ledger.core.errors import ScopeError
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import Scope

__all__ = ["Identity", "MemoryScope", "Who"]

MemoryScope = Literal["user", "global"]

_AUTHENTICATED = "langgraph_auth_user_id"
"""Where a LangGraph server puts the user it has authenticated."""


class Who(msgspec.Struct, frozen=True):
    """Whose memory a run uses, and its conversation; `thread` is None where the run was given none."""

    scope: Scope
    thread: str | None = None


class Identity:
    """Finds out who it is, the same way for every hook and tool.

    User and thread are looked for in the run's context, then in its config, and `user_id` is for runs that say nothing.
    An agent is what it is constructed as; without `agent_name` the run is asked for that, too.
    """

    def __init__(self, scope: MemoryScope, user_id: str | None, agent_name: str | None) -> None:
        self._scope = scope
        self._user_id = _text("user_id", user_id)
        self._agent_name = _text("agent_name", agent_name)
        if scope == "user" and self._user_id is not None:
            Scope.of(self._user_id)
        Scope.of(None, self._agent_name)

    def of(self, context: object, configurable: Mapping[str, object]) -> Who:
        """Return who it is. `context` is the run's runtime context, `configurable` that part of its config.

        Raises:
            ScopeError: no user id where one is needed, or a name that cannot be one.
        """
        agent = self._agent_name or _first("agent_name", context, configurable)
        thread = _first("thread_id", context, configurable)
        named = None if thread is None else bounded_name(thread)
        if self._scope == "global":
            return Who(Scope.of(None, agent), named)
        user = (
            _first("user_id", context, configurable)
            or _text(_AUTHENTICATED, configurable.get(_AUTHENTICATED))
            or self._user_id
        )
        if user is None:
            raise ScopeError(
                "this run has no user id, so nobody knows whose memory to use: give one in the context "
                '(agent.invoke(…, context={"user_id": …})) or in the config ({"configurable": {"user_id": …}}); '
                'if all users are to share one memory, say BackstoryMiddleware(scope="global")'
            )
        return Who(Scope.of(user, agent), named)


def _first(name: str, context: object, configurable: Mapping[str, object]) -> str | None:
    """The first that says something."""
    return next(filter(None, (_text(name, value) for value in _stated(name, context, configurable))), None)


def _stated(name: str, context: object, configurable: Mapping[str, object]) -> Iterator[object]:
    yield context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    yield configurable.get(name)


def _text(name: str, value: object) -> str | None:
    """An id as a text; numbers and UUIDs are ids, too, and an empty text is none."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise ScopeError(f"{name} is {type(value).__name__}; it is a text, a whole number or a UUID")
