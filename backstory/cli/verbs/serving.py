"""Verbs that serve memories: serve over HTTP, its tokens, workers, and mcp for assistants."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.page import Page
from backstory.cli.session import Session
from backstory.ledger.core.errors import ConfigError, UnavailableError, UsageError

if TYPE_CHECKING:
    from backstory import Backstory
    from backstory.http.access.tokens import TokenFile
    from backstory.mcp.client_config import ClientConfig
    from backstory.worker import Worker

_COPIES_SECONDS = 5.0
"""How often a worker asks what has changed in its copies."""

_EXTRA = "needs the extra [server]: pip install 'backstory[server]'"


def serve(
    session: Session,
    *,
    host: Annotated[str, typer.Option(metavar="NAME", help="Name or address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 for any free one.")] = 8765,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Answer for this Host header, such as the name of a proxy. May be repeated."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Let pages of this origin send requests. May be repeated."),
    ] = None,
) -> None:
    """Serve memories over HTTP: a page at /, REST under /v1, DeerFlow's routes, proxies of model servers, MCP.

    Documentation of the routes is at /docs.

    Requests name their user; --user is the user of those that name none. On another address than this machine's it
    needs tokens: see `token add`.

    Example: backstory serve --port 8765
    """
    session.check_home()
    try:
        from backstory.http.app import ServerOptions
        from backstory.http.server import listen
        from backstory.http.server import serve as run
    except ModuleNotFoundError as error:
        raise ConfigError(f"the server {_EXTRA} ({error.name} is missing)") from error

    scope = session.scope
    if scope.agent is not None:
        raise UsageError("a server serves all agents: requests name theirs, so leave --agent out")
    listener = listen(host, port)
    options = ServerOptions(
        local=listener.local, user=scope.user, hosts=tuple(allow_host or ()), origins=tuple(allow_origin or ())
    )

    def ready(url: str) -> None:
        session.answer(
            {"url": url}, lambda page, _: page.line(f"page: {url}  (REST: {url}/v1, documentation: {url}/docs)")
        )
        sys.stdout.flush()

    run(listener, session.opening(), options, on_ready=ready)


def worker(
    session: Session,
    *,
    scopes: Annotated[
        str,
        typer.Option(metavar="WHICH", help="Users whose ids begin so ('acme-*'), or one of some shards (2/8)."),
    ] = "*",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="N", help="Answer /healthz, /readyz and /metrics on this port."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --port: name or address to listen on (127.0.0.1).")
    ] = None,
) -> None:
    """Learn in the background from what other processes record, until it is ended.

    Run as many as there is work, on any machine that reaches the engine: none learns from a turn twice. On SIGTERM or
    Ctrl-C it ends the updates under way, for at most shutdown_flush_timeout_seconds; the rest stays pending.

    With --port it can be probed and scraped, without a token: the three routes tell nothing of a memory. That needs the
    extra server.

    Example: backstory worker --scopes 2/8
    """
    from backstory.copies import LocalCopies
    from backstory.worker import Selection, Worker

    if host is not None and port is None:
        raise UsageError("--host needs --port: give the port to answer on, or leave --host out")
    opening = session.opening()
    selection = Selection.of(scopes)
    probed = None if port is None else _Probed(host or "127.0.0.1", port)
    with opening() if probed is None else opening(listeners=probed.listeners, callbacks=probed.callbacks) as bs:
        bs.must_learn()
        _must_take_changes(bs)
        working = Worker(bs, selection)
        # A worker's copies are not read: they follow so that erased content does not stay in them.
        copies = LocalCopies(bs, poll_seconds=_COPIES_SECONDS)
        with (
            _stopped_by_signals(working),
            copies.following(),
            nullcontext() if probed is None else probed.answering(working, bs),
        ):
            told = {"store": str(bs.store), "scopes": scopes}
            session.answer(told if probed is None else {**told, "url": probed.url}, _shown)
            sys.stdout.flush()
            working.run()
        session.note("ending the updates under way")


def _must_take_changes(home: Backstory) -> None:
    """Refuse a home that has moved; an engine that cannot be reached may come back.

    Raises:
        SealedError: It has moved, so nothing can be learned in it any more.
    """
    seal = None
    with suppress(UnavailableError):
        seal = home.store.seal()
    if seal is not None:
        raise seal.refusal(str(home.store))


def _shown(page: Page, told: dict[str, str]) -> None:
    page.line(f"learning from {told['store']}; Ctrl-C or SIGTERM ends it")
    if "url" in told:
        page.line(f"probes: {told['url']}/healthz and /readyz, metrics: {told['url']}/metrics")


class _Probed:
    """The port of a worker, bound before its home is opened.

    Raises:
        ConfigError: The extra [server] is missing.
        UsageError, StoreError: The port cannot be used.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            from backstory.http.metrics import WorkerMetrics
            from backstory.http.server import listen
        except ModuleNotFoundError as error:
            raise ConfigError(f"--port {_EXTRA} ({error.name} is missing)") from error
        self._listener = listen(host, port)
        self._metrics = WorkerMetrics()
        self.url = self._listener.url
        self.listeners = (self._metrics.on_commit,)
        self.callbacks = (self._metrics,)

    def answering(self, working: Worker, home: Backstory) -> AbstractContextManager[None]:
        """Answer probes for the length of a block."""
        from backstory.http.routes.worker import worker_app
        from backstory.http.server import answering

        return answering(self._listener, worker_app(working, home, self._metrics))


@contextmanager
def _stopped_by_signals(working: Worker) -> Iterator[None]:
    """Have SIGTERM and Ctrl-C stop a worker; the second one ends the process."""
    known = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, known[signal.Signals(number)])
        working.stop()

    for number in known:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, before in known.items():
            signal.signal(number, before)


def mcp(
    session: Session,
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
    try:
        from backstory.mcp.server import serve_stdio
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
    if url is not None:
        return http_config(client, url, session.scope.user, session.scope.agent)
    return stdio_config(client, [*stated_command(session), "mcp"])


def stated_command(session: Session) -> list[str]:
    """Return the command that runs this program from any folder, as a client does, with the global options."""
    session.check_home()
    scope = session.scope
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
    # Where the installer has put it, beside the interpreter; not resolved, since an environment's python is a link.
    script = Path(sys.executable).with_name("backstory")
    return [*([str(script)] if script.is_file() else [sys.executable, "-m", "backstory.cli"]), *stated]


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())


def _pasted(page: Page, config: ClientConfig) -> None:
    # As it is: a line that is broken for the width of a terminal cannot be pasted.
    del page
    sys.stdout.write(config.text)


def add(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(help="A name for the token; commits record it.")],
    for_user: Annotated[
        list[str] | None, typer.Option("--for", metavar="USER", help="A user it covers. May be repeated.")
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Cover all users, and the memory that all users share.")
    ] = False,
    right: Annotated[
        str, typer.Option(metavar="RIGHT", help="What it allows: read, write (and read), or erase (and both).")
    ] = "write",
) -> None:
    """Make a token for the server and print it. It is shown once: only a hash of it is kept.

    Example: backstory token add laptop --for ada --right write
    """
    if bool(for_user) == all_users:
        raise UsageError("say whose memories the token covers: --for USER, or --all-users")
    made = _file(session).add(name, right, None if all_users else for_user)
    session.answer(made, lambda page, token: page.line(token.token))
    session.note(f"{name} may {right} {_covered(made.users)}; the token is not shown again")


def list_(session: Session) -> None:
    """List the tokens of the server, without their secrets.

    Example: backstory token list
    """
    tokens = _file(session).tokens()
    answer = [
        {"id": token.id, "name": token.name, "right": token.right, "users": token.users, "created": token.created}
        for token in tokens
    ]

    def show(page: Page, _: object) -> None:
        for token in tokens:
            page.line(f"{token.id}  {token.name}  {token.right}  {_covered(token.users)}  {token.created[:10]}")

    session.answer(answer, show)


def revoke(session: Session, name: Annotated[str, typer.Argument(help="The name or the id of a token.")]) -> None:
    """Revoke a token. A running server refuses it from then on.

    Example: backstory token revoke laptop
    """
    gone = _file(session).revoke(name)
    session.answer({"id": gone.id, "name": gone.name}, lambda page, _: page.line(f"revoked {gone.name} ({gone.id})"))


def _covered(users: tuple[str, ...] | None) -> str:
    return "for all users" if users is None else f"for {', '.join(users)}"


def _file(session: Session) -> TokenFile:
    from backstory.config.loading import base_folder
    from backstory.http.access.tokens import FILE, TokenFile

    return TokenFile(base_folder(session.home, session.loaded().settings) / FILE)
