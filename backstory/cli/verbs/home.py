"""Verbs about the home as a whole: scopes, config, demo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.answers import ConfigValue

__all__ = ["config", "demo", "scopes"]

_PASSWORD = re.compile(r"(?<=://)[^/\s]*@")
_SECRET_PARAMETER = re.compile(r"(?<=[?&])([^=&#\s]*(?:pass|pwd|secret|token|key)[^=&#\s]*)=[^&#\s]*", re.IGNORECASE)


def scopes(ctx: typer.Context) -> None:
    """List every user and agent that has a memory here."""
    from backstory.cli.pages.tables import scope_table

    session = session_of(ctx)
    with session.opened() as bs:
        session.answer(bs.scopes(), scope_table)


def config(ctx: typer.Context) -> None:
    """Show every setting, and where its value comes from: default, file, environment or argument.

    Secrets are not shown. For what `policy --set` put in force, see `policy`.

    Example: backstory --config backstory.yaml config
    """
    from backstory.cli.pages.answers import ConfigValue
    from backstory.cli.pages.tables import config_table
    from backstory.witness.destinations import COMMAND, destination_of

    session = session_of(ctx)
    with session.opened() as bs:
        stated = bs.config.settings.model_dump()
        origin = bs.config.origin
        values = {key: ConfigValue(_masked(value), origin[key]) for key, value in stated.items()}
        witness = stated["witness"]
        if isinstance(witness, str) and witness.startswith(COMMAND):
            # Any argument of a command may be a secret.
            values["witness"] = ConfigValue(f"{destination_of(witness).name} …", origin["witness"])
        session.answer(values, lambda page, told: config_table(page, _spelled(told), str(bs.home)))


def _spelled(values: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Spell values for people as a configuration file would."""
    from backstory.cli.pages.answers import ConfigValue

    return {key: ConfigValue(_yaml(told.value), told.origin) for key, told in values.items()}


def _yaml(value: object) -> object:
    match value:
        case bool():
            return str(value).lower()
        case tuple() | list():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items() if inner is not None)
        case float() if value.is_integer():
            return int(value)
    return value


def _masked(value: object) -> object:
    """Hide a key, and in an address the name and password and any parameter that is called like one."""
    if isinstance(value, dict):
        return {key: "…" if key == "api_key" and inner else _masked(inner) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    return _SECRET_PARAMETER.sub(r"\1=…", _PASSWORD.sub("…@", value))


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
    from backstory.cli.demo import play

    session = session_of(ctx)
    with session.beside():
        summary = play(config=session.config, live=live, keep=keep)
    if session.as_json:
        session.answer(summary, lambda *_: None)
    if not summary.ok:
        raise typer.Exit(summary.exit)
