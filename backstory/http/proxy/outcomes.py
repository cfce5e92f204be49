"""Outcomes of requests to the proxy: what memory did for a request, and what became of its answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal, TypeAlias

__all__ = ["AnswerOutcome", "MemoryOutcome", "NoteOutcome"]


class MemoryOutcome(StrEnum):
    """What memory did for a request; the response names it in `X-Backstory-Memory`."""

    USED = "used"
    """Memory was read, and is recorded where the caller may write."""
    OTHER_PATH = "other-path"
    """The path is not one of a conversation."""
    NO_USER = "no-user"
    """Neither the header nor the body names a user."""
    INVALID_NAME = "invalid-name"
    """The user or the agent cannot be a name."""
    UNREADABLE = "unreadable"
    """The body is no request of the protocol, or its JSON cannot be read."""
    TOO_LARGE = "too-large"
    """The body is larger than is read."""
    TITLE = "title"
    """The request asks for the title of a conversation, or for another thing about one. Nothing is recorded."""
    SIDE = "side"
    """A harness asks for itself: a sub-agent, a summary of the conversation, a probe. Nothing is recorded."""
    OFF = "off"
    """The client has switched memory off for this request."""
    DISABLED = "disabled"
    """Memory is switched off by `enabled`."""
    SLOW = "slow"
    """Memory was not read in time. What is said is recorded when it can be."""
    UNAVAILABLE = "unavailable"
    """Memory could not be read. What is said is recorded when it can be."""
    REFUSED = "refused"
    """The caller may not see this memory; nothing was forwarded."""


class AnswerOutcome(StrEnum):
    """What became of the answer to a request."""

    ANSWERED = "answered"
    UPSTREAM_ERROR = "upstream-error"
    """The upstream answered with a status of 400 or more, which was passed on."""
    UNREACHABLE = "unreachable"
    """The upstream could not be reached, or gave no answer: 502."""
    TIMEOUT = "timeout"
    """The upstream did not answer in time: 504."""
    BROKEN_OFF = "broken-off"
    """The upstream broke off in the middle of its answer."""
    HUNG_UP = "hung-up"
    """The client hung up before the end of the answer."""


NoteOutcome: TypeAlias = Callable[[Literal["memory", "answer"], str], None]
"""Gets each outcome when it is known: of which of the two, and its value."""
