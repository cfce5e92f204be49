"""Typer app: the global options, the list of verbs, and their errors as one line on standard error and an exit code."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, wraps
from itertools import takewhile
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from backstory.cli import completion
from backstory.cli.global_options import Verb, VerbGroup, with_plain_flags
from backstory.cli.pages.page import one_line, show_traceback, write_json, write_message
from backstory.cli.session import Session, prepare_streams
from backstory.cli.verbs import (
    changing,
    context,
    conversations,
    facts,
    forgetting,
    graph,
    history,
    home,
    proofs,
    replaying,
    search,
    serving,
)
from backstory.ledger.core.errors import BackstoryError

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_FAILED = 3


class Root(TyperGroup):
    """The group of all verbs. The signature of a verb is read when it is asked for: all of them take 30 ms."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs | {"commands": dict.fromkeys((*_PANELS, *_GROUPS))})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb or a group of verbs; None for another word."""
        del ctx
        return _made(cmd_name) if cmd_name in self.commands else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, which lists the verbs by their first sentence and needs no signature."""
        listing = copy.copy(self)
        vars(listing)["get_command"] = lambda _, name: _listed(name)
        TyperGroup.format_help(listing, ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the global options."""
        return with_plain_flags(super().get_params(ctx))

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a verb and exit with its exit code."""
        kwargs |= {"standalone_mode": False, "prog_name": "backstory"}
        given = kwargs.get("args") or (args[0] if args else None)
        words = list(sys.argv[1:] if given is None else given)
        try:
            code = super().main(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 a user never sees a traceback without --debug
            code = _report(error, None, words)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> None:
        """Run a verb, and report its error while the global options are known."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                write_message(ctx.obj.interrupted if isinstance(ctx.obj, Session) else "interrupted")
            raise typer.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            _drop_stdout()
            raise typer.Exit(_BROKEN_PIPE) from None
        except Exception as error:
            if _is_wrong_use(error):
                raise
            raise typer.Exit(_report(error, ctx.obj, [])) from error


def _is_wrong_use(error: Exception) -> bool:
    """Whether the parser raised it. Its class depends on the version of typer."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _report(error: Exception, session: Session | None, words: list[str]) -> int:
    """Write an error as one line, and with --json as a JSON value; return the exit code."""
    code = _FAILED
    if _is_wrong_use(error):
        code, message = 2, _wrong_use(error)
    elif isinstance(error, BackstoryError):
        code, message = error.exit_code, str(error)
    elif isinstance(error, OSError):
        where = f"read or write {error.filename}" if error.filename else "write the answer"
        message = f"cannot {where}: {error.strerror or error}; check the disk and the file's mode"
        if not error.filename:
            _drop_stdout()
    else:
        message = f"unexpected {type(error).__name__}: {error}; this is a bug in backstory: --debug shows where"
    line = one_line(message)
    with contextlib.suppress(OSError):
        write_message(line)
        if session is not None and session.debug:
            show_traceback(error)
    as_json = (
        "--json" in takewhile(lambda word: word != "--", words)
        if session is None
        else session.as_json and not session.answered
    )
    if as_json:
        with contextlib.suppress(OSError):
            write_json({"error": {"kind": type(error).__name__, "message": line, "exit": code}})
            sys.stdout.flush()
    return code


def _wrong_use(error: Exception) -> str:
    message = str(error.format_message()).replace("Value error, ", "")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "backstory"
    return f"{message.rstrip('.')}; see `{path} --help`"


def _drop_stdout() -> None:
    """Redirect a broken standard output to nowhere, or the interpreter reports it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


app = typer.Typer(
    cls=Root,
    name="backstory",
    help="Long-term memory for LLM agents, kept as a ledger that can be replayed, queried and undone.",
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def help_(
    ctx: typer.Context,
    *,
    verb: Annotated[list[str] | None, typer.Argument(metavar="[VERB]...", help="Such as `log` or `fact add`.")] = None,
) -> None:
    """Show the help of a verb, or of the whole command line.

    Example: backstory help fact add
    """
    shown = ctx.find_root()
    for word in verb or ():
        if not isinstance(shown.command, TyperGroup):
            ctx.fail(f"{shown.info_name!r} has no verbs below it, such as {word!r}")
        name, command, _ = shown.command.resolve_command(shown, [word])
        if command is not None:
            shown = typer.Context(command, info_name=name, parent=shown)
    typer.echo(shown.get_help())


_VERBS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Record": {
        "record": conversations.record,
        "extract": conversations.extract,
        "retry": conversations.retry,
        "discard": conversations.discard,
    },
    "Inspect": {
        "status": conversations.status,
        "show": history.show,
        "log": history.log,
        "threads": conversations.threads,
        "turns": conversations.turns,
        "graph": graph.graph,
        "head": proofs.head,
    },
    "Query": {
        "search": search.search,
        "context": context.context,
        "why": history.why,
        "why-not": history.why_not,
        "why-said": history.why_said,
        "diff": history.diff,
        "what-if": history.what_if,
        "reextract": replaying.reextract,
        "test": replaying.run_tests,
        "verify": proofs.verify,
    },
    "Change": {
        "revert": changing.revert,
        "rollback": changing.rollback,
        "clear": changing.clear,
        "forget": forgetting.forget,
        "import": changing.import_,
        "export": changing.export,
        "repair": home.repair,
    },
    "Serve": {
        "serve": serving.serve,
        "worker": serving.worker,
        "mcp": serving.mcp,
    },
    "Set up": {
        "policy": changing.policy,
        "config": home.config,
        "scopes": home.scopes,
        "copy": home.copy,
        "embed": search.embed,
        "doctor": home.doctor,
        "migrate": home.migrate,
        "keygen": proofs.keygen,
        "demo": home.demo,
        "help": help_,
    },
}
_PANELS: Mapping[str, str] = {name: panel for panel, verbs in _VERBS.items() for name in verbs}


class _Group(NamedTuple):
    """Verbs below a word, such as `fact`."""

    panel: str
    help: str
    verbs: Mapping[str, Callable[..., None]]


_GROUPS: Mapping[str, _Group] = {
    "fact": _Group(
        "Change",
        "Add, change and remove facts by hand. No model changes them afterwards.",
        {"list": facts.list_, "get": facts.get, "add": facts.add, "edit": facts.edit, "remove": facts.remove},
    ),
    "token": _Group(
        "Serve",
        "Make, list and revoke the tokens that the server accepts.",
        {"add": serving.add, "list": serving.list_, "revoke": serving.revoke},
    ),
    "hook": _Group(
        "Serve",
        "Give a coding agent a memory by its hooks, and pause them.",
        {
            "claude-code": context.claude_code,
            "codex": context.codex,
            "install": context.install,
            "pause": context.pause,
            "resume": context.resume,
        },
    ),
}


def _as_typed(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb as typer takes it: with the context, which holds the session, in place of the session."""
    first, *options = inspect.signature(verb, eval_str=True).parameters.values()
    if first.annotation is not Session:
        return verb

    @wraps(verb)
    def run(ctx: typer.Context, **given: Any) -> None:
        verb(ctx.obj, **given)

    ctx = inspect.Parameter("ctx", first.kind, annotation=typer.Context)
    run.__dict__["__signature__"] = inspect.Signature([ctx, *options])
    return run


@cache
def _made(name: str) -> Any:
    """Make the command of a verb, or of a group of verbs."""
    if name in _PANELS:
        alone = typer.Typer(add_completion=False)
        alone.command(name, cls=Verb, rich_help_panel=_PANELS[name])(_as_typed(_VERBS[_PANELS[name]][name]))
        return get_command(alone)
    panel, help_text, verbs = _GROUPS[name]
    group = typer.Typer(name=name, cls=VerbGroup, help=help_text, add_completion=False)
    for verb, run in verbs.items():
        group.command(verb, cls=Verb)(_as_typed(run))
    made: Any = get_command(group)
    made.rich_help_panel = panel
    return made


def _listed(name: str) -> Any:
    """Make what the list of verbs shows of a verb, or of a group of verbs."""
    if name in _PANELS:
        text = inspect.getdoc(_VERBS[_PANELS[name]][name])
        return TyperCommand(name, help=text, rich_help_panel=_PANELS[name])
    return TyperGroup(name=name, help=_GROUPS[name].help, rich_help_panel=_GROUPS[name].panel)


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
        typer.Option(metavar="DIR", help="Home folder. Default: $BACKSTORY_HOME, else ~/.backstory."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            envvar="BACKSTORY_USER",
            autocompletion=completion.users,
            help="User whose memory to use. Without a user and an agent: the global memory.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            envvar="BACKSTORY_AGENT",
            autocompletion=completion.agents,
            help="Agent whose memory to use: letters, digits and hyphens.",
        ),
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="YAML file with a section `memory:`.")] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="Engine that keeps the log, such as jsonl:.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the result, as one JSON value.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log more, and show the traceback of an error.")] = False,
    utc: Annotated[
        bool, typer.Option("--utc", help="Show times in UTC, as output that is no terminal always does.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keep the global options for the verb."""
    del version
    user_from, agent_from = _origin(ctx, "user"), _origin(ctx, "agent")
    ctx.obj = Session(home, user, agent, config, store, as_json, debug, utc, user_from, agent_from)
    prepare_streams(ctx, ctx.obj)
    if ctx.invoked_subcommand is None:
        if as_json:
            ctx.fail("No verb was given")
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def _origin(ctx: typer.Context, option: str) -> str:
    """Return where the value of an option comes from, in the words of `config`."""
    source = ctx.get_parameter_source(option)
    return {"COMMANDLINE": "argument", "ENVIRONMENT": "environment"}.get(source.name if source else "", "default")
