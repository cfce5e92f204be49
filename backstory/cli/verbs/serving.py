"""Verb that serves memory to assistants: mcp."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import Session, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.mcp.client_config import ClientConfig


def mcp(
    ctx: typer.Context,
    *,
    print_config: Annotated[
        str | None,
        typer.Option(metavar="CLIENT", help="Print what to paste into claude, cursor, vscode or codex, and exit."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --print-config: connect to this address of a server instead."),
    ] = None,
) -> None:
    """Serve one memory to an assistant over MCP, on standard input and output. Needs the extra mcp.

    The assistant starts it, so it is seldom typed. It serves the memory of --user and --agent until its input ends.

    Example: backstory --user ada mcp --print-config claude
    """
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if print_config is not None:
        config = _config(session, print_config, url)
        session.answer(config, _pasted)
        if not session.as_json:
            session.note(f"paste it into {config.file}")
            session.note(config.note)
        return
    if url is not None:
        raise UsageError("--url goes with --print-config: `backstory mcp` itself talks over standard input and output")
    _serve(session)


def _serve(session: Session) -> None:
    from backstory.ledger.core.errors import ConfigError

    try:
        from backstory.mcp.stdio import serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise ConfigError("the MCP server is not installed: run pip install 'backstory[mcp]'") from None
    # Nothing but the protocol may stand on standard output, so an error is said on standard error alone.
    session.answered = True
    if sys.stdin.isatty():
        session.note("an assistant starts this command and talks to it: see `backstory mcp --print-config claude`")
    with session.opened() as bs:
        session.note_missing(bs, session.scope, creates=True)
        serve_stdio(bs, session.scope)


def _config(session: Session, name: str, url: str | None) -> ClientConfig:
    from backstory.mcp.client_config import client_named, http_config, stdio_config

    client = client_named(name)
    scope = session.scope
    if url is not None:
        return http_config(client, url, scope.user, scope.agent)
    session.check_home()
    # A client passes little of the environment on to what it starts.
    home = session.home or os.environ.get("BACKSTORY_HOME") or None
    options = {
        "--home": _absolute(home),
        "--user": scope.user,
        "--agent": scope.agent,
        "--config": _absolute(session.config),
        "--store": session.store,
    }
    stated = [word for option, value in options.items() if value is not None for word in (option, value)]
    return stdio_config(client, [*_command(), *stated, "mcp"])


def _command() -> list[str]:
    """Return the command that runs this program from any folder, as a client does."""
    # Where the installer has put it, beside the interpreter; not resolved, since an environment's python is a link.
    script = Path(sys.executable).with_name("backstory")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "backstory.cli"]


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())


def _pasted(page: Page, config: ClientConfig) -> None:
    # As it is: a line that is broken for the width of a terminal cannot be pasted.
    del page
    sys.stdout.write(config.text)
