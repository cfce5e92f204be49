"""Global options after the verb: each verb takes them as well, and its help does not repeat them."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

from typer.core import TyperCommand, TyperGroup

from backstory.cli.session import Session, prepare_streams

_GLOBAL = ("home", "user", "agent", "config", "store", "as_json", "debug", "utc")
"""The global options, by the names of their fields in a session."""
_EPILOG = "Global options may stand after the verb as well: see backstory --help"


class Verb(TyperCommand):
    """A verb of the command line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = _EPILOG

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the verb's own parameters and the hidden global options."""
        return _with_late_options(super().get_params(ctx), ctx)


class VerbGroup(TyperGroup):
    """A group of verbs below a word, such as `fact`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's own parameters and the hidden global options."""
        return _with_late_options(super().get_params(ctx), ctx)


def _with_late_options(own: list[Any], ctx: Any) -> list[Any]:
    return [*with_plain_flags(own), *_late_options(ctx.find_root().command)]


def with_plain_flags(params: list[Any]) -> list[Any]:
    """Have the help show no type for a flag, which takes no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


@lru_cache(maxsize=1)
def _late_options(root: Any) -> tuple[Any, ...]:
    """Copy the global options for the verbs. One parse needs the same objects throughout."""
    return tuple(_late(option) for option in root.params if option.name in _GLOBAL)


def _late(option: Any) -> Any:
    late = copy.copy(option)
    late.hidden, late.expose_value, late.callback = True, False, _take
    # The environment speaks for the option before the verb, and once is enough.
    late.envvar, late.default = None, False if option.is_flag else None
    return late


def _take(ctx: Any, option: Any, value: str | bool | None) -> None:
    """Put an option that stands after the verb into the session."""
    session = ctx.find_root().obj
    if not _typed(ctx, option.name):
        return
    if not isinstance(session, Session):
        # While the shell completes a word there is no session, and completion reads the options of the root.
        ctx.find_root().params[option.name] = value
        return
    name = option.name
    # The name of an agent is kept as it was given; the session asks the home's host for the one in use.
    field = "agent_given" if name == "agent" else name
    before = getattr(session, field)
    if before != value and _typed_before(ctx.parent, name):
        ctx.fail(f"{option.opts[0]} is given twice, as {before!r} and as {value!r}: leave one of them out")
    setattr(session, field, value)
    if name in ("user", "agent"):
        setattr(session, f"{name}_from", "argument")
    prepare_streams(ctx.find_root(), session)


def _typed_before(ctx: Any, name: str) -> bool:
    return ctx is not None and (_typed(ctx, name) or _typed_before(ctx.parent, name))


def _typed(ctx: Any, name: str) -> bool:
    """Whether an option was typed, and is no default or value of the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
