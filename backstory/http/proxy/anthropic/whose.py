"""Whose request it is: the user and the session in `metadata.user_id`, and what Claude Code says in headers.

Anthropic means `metadata.user_id` for the user of an application. Coding agents put the name of their session there:
Claude Code a text such as `user_…_account_…_session_…`, and later a JSON object with a `session_id`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_SESSION = re.compile(r"_session_([0-9A-Za-z-]+)", re.ASCII)
_SAYS_SESSION = re.compile(r"(?<![^\W_])session(?![^\W_])", re.IGNORECASE)
"""The word, and not a part of a name such as obsession: that user would be taken for the server's own."""
_CLASSES = frozenset({"auxiliary", "compaction", "subagent", "workflow"})
"""Values of `x-claude-code-request-class` but `main`."""


class _Names(msgspec.Struct):
    session_id: object = None


def user_in(user_id: str | None) -> str | None:
    """Return the user that a `metadata.user_id` names; None where it names a session: it says so, or is JSON."""
    if user_id is None or user_id.lstrip().startswith("{") or _SAYS_SESSION.search(user_id):
        return None
    return user_id


def session_in(user_id: str | None, header: Callable[[str], str]) -> str | None:
    """Return the session that a request belongs to; None where the client has none.

    Args:
        user_id: The `metadata.user_id` of the request.
        header: Returns the value of a header of the request.
    """
    stated = header("x-claude-code-session-id")
    if stated or user_id is None:
        return stated or None
    found = _SESSION.search(user_id)
    return _in_json(user_id) if found is None else found[1]


def _in_json(user_id: str) -> str | None:
    try:
        session = msgspec.json.decode(user_id, type=_Names).session_id
    except (ValueError, RecursionError):
        return None
    return session if isinstance(session, str) and session else None


def is_of_harness(header: Callable[[str], str]) -> bool:
    """Whether Claude Code asks for itself: for a sub-agent, or for something about the conversation."""
    return bool(header("x-claude-code-agent-id")) or header("x-claude-code-request-class") in _CLASSES
