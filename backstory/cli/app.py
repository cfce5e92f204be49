"""The table of contents: the options that stand before the verb, and every verb."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from backstory.cli.pages.page import aside, show_traceback
from backstory.cli.root_group import Root
from backstory.cli.session import Session
from backstory.cli.verbs import changing, conversations, facts, forgetting, home, reextraction
from backstory.cli.verbs import context as injecting
from backstory.cli.verbs import graph as picture
from backstory.cli.verbs import history as asking
from backstory.cli.verbs import maintenance as mending
from backstory.cli.verbs import proofs as proving
from backstory.cli.verbs import search as searching

__all__ = ["app"]

app = typer.Typer(
    cls=Root,
    name="backstory",
    help="Long-term memory for LLM agents, kept as a ledger: replay it, ask why, undo.",
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)

_VERBS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Take in": {
        "record": conversations.record,
        "extract": conversations.extract,
        "retry": conversations.retry,
        "discard": conversations.discard,
    },
    "TurnQuery": {
        "status": conversations.status,
        "show": asking.show,
        "log": asking.log,
        "threads": conversations.threads,
        "turns": conversations.turns,
        "graph": picture.graph,
        "head": proving.head,
    },
    "Ask": {
        "search": searching.search,
        "context": injecting.context,
        "why": asking.why,
        "why-not": asking.why_not,
        "diff": asking.diff,
        "what-if": asking.what_if,
        "reextract": reextraction.reextract,
        "verify": proving.verify,
    },
    "Put right": {
        "revert": changing.revert,
        "rollback": changing.rollback,
        "clear": changing.clear,
        "forget": forgetting.forget,
        "import": changing.import_,
        "export": changing.export,
        "repair": mending.repair,
    },
    "Set up": {
        "policy": changing.policy,
        "config": home.config,
        "scopes": home.scopes,
        "embed": searching.embed,
        "doctor": mending.doctor,
        "keygen": proving.keygen,
        "demo": home.demo,
    },
}
_FACT_VERBS: Mapping[str, Callable[..., None]] = {
    "list": facts.list_,
    "get": facts.get,
    "add": facts.add,
    "edit": facts.edit,
    "remove": facts.remove,
}

for _panel, _verbs in _VERBS.items():
    for _name, _verb in _verbs.items():
        app.command(_name, rich_help_panel=_panel)(_verb)
_fact = typer.Typer(help="Enter, change and remove facts by hand; no model changes them afterwards.")
for _name, _verb in _FACT_VERBS.items():
    _fact.command(_name)(_verb)
app.add_typer(_fact, name="fact", rich_help_panel="Put right")


def _version(wanted: bool) -> None:
    if wanted:
        from backstory import __version__

        typer.echo(f"backstory {__version__}")
        raise typer.Exit


@app.callback()
def begin(
    ctx: typer.Context,
    *,
    home: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where memories are kept: else $BACKSTORY_HOME, else ~/.backstory."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Whose memory; without a user and an agent the global one.")] = None,
    agent: Annotated[str | None, typer.Option(help="Which agent's: letters, digits and hyphens.")] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="A YAML file with a section `memory:`.")] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="The engine that keeps the log, as jsonl:.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result alone, as one JSON value.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Say more, and show where an error comes from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Keep the options that stand before the verb."""
    del version
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8" if as_json else None, errors="replace")
    ctx.obj = Session(home, user, agent, config, store, as_json, debug)
    _listen(ctx, debug=debug)
    if ctx.invoked_subcommand is None:
        if as_json:
            ctx.fail("No verb was given")
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def _listen(ctx: typer.Context, *, debug: bool) -> None:
    """Have what the ledger and its readers log said on standard error, a line each."""
    root = logging.getLogger()
    if any(isinstance(handler, _OneLine) for handler in root.handlers):
        return  # the demo runs verbs inside a verb
    handler = _OneLine(debug=debug)
    loggers = [logging.getLogger("backstory")]
    before = [logger.level for logger in loggers]
    root.addHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.DEBUG if debug else logging.WARNING)

    def restore() -> None:
        root.removeHandler(handler)
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

    ctx.call_on_close(restore)


class _OneLine(logging.Handler):
    """A record is a line; where an error comes from is shown with --debug only."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        told = f"{record.getMessage()}: {error}" if error is not None else record.getMessage()
        aside(f"{record.levelname.lower()}: {told}")
        if error is not None and self._debug:
            show_traceback(error)
