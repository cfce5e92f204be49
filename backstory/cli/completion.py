"""Completion in the shell: the users and agents of a home, and the facts of a memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import typer

from backstory.cli.session import Session

if TYPE_CHECKING:
    from backstory.home import Backstory

__all__ = ["agents", "facts", "users"]

T = TypeVar("T")

_MOST = 200


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the users of the home whose ids begin so."""
    known = _asked(ctx, lambda home, _: {one.user for one in home.scopes() if one.user is not None})
    return sorted(name for name in known if name.startswith(incomplete))[:_MOST]


def agents(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the agents of the home whose names begin so; with --user those of this user."""

    def named(home: Backstory, session: Session) -> set[str]:
        return {one.agent for one in home.scopes() if one.agent is not None and session.user in (None, one.user)}

    return sorted(name for name in _asked(ctx, named) if name.startswith(incomplete))[:_MOST]


def facts(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the ids of the facts in memory that begin so, each with its text."""
    known = _asked(ctx, lambda home, session: home.memory_of(session.scope).facts())
    return [(fact.id, fact.content) for fact in known if fact.id.startswith(incomplete)][:_MOST]


def _asked(ctx: typer.Context, look: Callable[[Backstory, Session], Iterable[T]]) -> tuple[T, ...]:
    """Look into the home that the words before name. An error completes nothing: the verb itself will show it."""
    given = ctx.find_root().params
    session = Session(given.get("home"), given.get("user"), given.get("agent"), given.get("config"), given.get("store"))
    with contextlib.suppress(Exception), session.opened() as home:
        return tuple(look(home, session))
    return ()
