"""Identity of a run: its user, agent and thread, from its context and config; whose memories may be used."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.ledger.core.errors import ScopeError, UsageError
from backstory.ledger.core.sanitize import bounded_name
from backstory.ledger.core.scope import MemoryScope, Scope, name_text

_AUTHENTICATED = "langgraph_auth_user_id"
"""The key under which a LangGraph server puts the authenticated user."""
_NAMED_BY = (
    'give one in the context (agent.invoke(…, context={"user_id": …})) or in the config '
    '({"configurable": {"user_id": …}})'
)


def present_config() -> Mapping[str, object]:
    """Return the config of the run of LangGraph that this is called in; empty outside of one."""
    try:
        from langgraph.config import get_config

        return dict(get_config())
    except (ImportError, RuntimeError):
        return {}


def check_scope(scope: object, *, strict: bool) -> None:
    """Check whose memories an integration may use.

    Args:
        scope: What its host has asked for.
        strict: Whether the configuration requires a user everywhere (`strict_user_scope`).

    Raises:
        UsageError: It is no `MemoryScope`.
        ScopeError: The configuration forbids a shared memory.
    """
    if scope not in ("user", "global"):
        raise UsageError(f"scope must be user or global, got {scope!r}")
    if scope == "global" and strict:
        raise ScopeError('strict_user_scope is on and forbids a shared memory: leave out scope="global"')


class RunIdentity(msgspec.Struct, frozen=True):
    """The scope and the thread of a run; `thread` is None if the run has none."""

    scope: Scope
    thread: str | None = None


class Identity:
    """Finds the scope and the thread of a run.

    The user and the thread come from the context of the run, then from its config.

    Args:
        scope: `global` for one memory of all users.
        user_id: The user of runs that name none.
        agent_name: The agent. Default: the one that the run names.
        named_by: How a run of this framework names its user, for the error of one that names none.
    """

    def __init__(
        self, scope: MemoryScope, user_id: str | None, agent_name: str | None, *, named_by: str = _NAMED_BY
    ) -> None:
        self._scope = scope
        self._named_by = named_by
        self._user_id = id_text("user_id", user_id)
        self._agent_name = id_text("agent_name", agent_name)
        Scope.of(self._user_id if scope == "user" else None, self._agent_name)

    def of(self, context: object, configurable: Mapping[str, object]) -> RunIdentity:
        """Return the scope and the thread of a run.

        Args:
            context: The runtime context of the run.
            configurable: The part `configurable` of its config.

        Raises:
            ScopeError: The run has no user id, or a name is invalid.
        """
        agent = self._agent_name or _first("agent_name", context, configurable)
        thread = _first("thread_id", context, configurable)
        named = None if thread is None else bounded_name(thread)
        if self._scope == "global":
            return RunIdentity(Scope.of(None, agent), named)
        user = (
            _first("user_id", context, configurable)
            or id_text(_AUTHENTICATED, configurable.get(_AUTHENTICATED))
            or self._user_id
        )
        if user is None:
            raise ScopeError(
                f'this run has no user id: {self._named_by}; for one memory of all users use scope="global"'
            )
        return RunIdentity(Scope.of(user, agent), named)


def _first(name: str, context: object, configurable: Mapping[str, object]) -> str | None:
    stated = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    return id_text(name, stated) or id_text(name, configurable.get(name))


def id_text(name: str, value: object) -> str | None:
    """Return an id as a string; None for an empty one.

    Raises:
        ScopeError: It is no string, whole number or UUID.
    """
    return name_text(name, value) or None
