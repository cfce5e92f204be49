"""Verbs about the home as a whole: scopes, config, demo."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from backstory.cli.session import session_of

__all__ = ["config", "demo", "scopes"]

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def scopes(ctx: typer.Context) -> None:
    """List every user and agent that has a memory here."""
    from backstory.cli.tables import scope_table

    session = session_of(ctx)
    with session.opened() as bs:
        session.answer(bs.scopes(), scope_table)


def config(ctx: typer.Context) -> None:
    """Show every setting, and where its value comes from: default, file, environment or argument."""
    from backstory.cli.answers import ConfigValue
    from backstory.cli.tables import config_table

    session = session_of(ctx)
    with session.opened() as bs:
        stated = bs.config.settings.model_dump()
        origin = bs.config.origin
        values = {key: ConfigValue(_masked(value), origin[key]) for key, value in stated.items()}
        session.answer(values, lambda page, told: config_table(page, told, str(bs.home)))


def _masked(value: object) -> object:
    """Hide a key and the name and password in an address."""
    if isinstance(value, dict):
        return {key: "…" if key == "api_key" and inner else _masked(inner) for key, inner in value.items()}
    return _PASSWORD.sub("…@", value) if isinstance(value, str) else value


def demo(
    ctx: typer.Context,
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the real model instead of playing recorded replies.")
    ] = False,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DIR", help="Play in this new folder, and leave it there.")
    ] = None,
) -> None:
    """Watch an agent learn, go wrong, explain itself and be put right.

    Example: backstory demo --keep story
    """
    from backstory.demo import play

    session = session_of(ctx)
    with session.beside():
        summary = play(config=session.config, live=live, keep=keep)
    if session.as_json:
        session.answer(summary, lambda *_: None)
    if not summary.ok:
        raise typer.Exit(summary.exit)
