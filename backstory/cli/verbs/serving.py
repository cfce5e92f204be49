"""Verbs of the server: serve, and the tokens that it accepts."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import Session, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.http.access.tokens import NewToken, Token, TokenFile

_EXTRA = "the server needs the extra [server]: pip install 'backstory[server]'"


def serve(
    ctx: typer.Context,
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
    """Serve memories over HTTP: REST under /v1, DeerFlow's routes, the OpenAI proxy, MCP, documentation at /docs.

    On another address than this machine's it needs tokens: see `token add`.

    Example: backstory serve --port 8765
    """
    from backstory.ledger.core.errors import ConfigError

    session = session_of(ctx)
    session.check_home()
    try:
        from backstory.http.app import ServerOptions
        from backstory.http.server import listen
        from backstory.http.server import serve as run
    except ModuleNotFoundError as error:
        raise ConfigError(f"{_EXTRA} ({error.name} is missing)") from error

    from backstory import Backstory

    listener = listen(host, port)
    opening = partial(Backstory.open, session.home, config=session.config, as_hosted=True, event_store=session.store)
    options = ServerOptions(local=listener.local, hosts=tuple(allow_host or ()), origins=tuple(allow_origin or ()))

    def ready(url: str) -> None:
        session.answer({"url": url}, lambda page, _: page.line(f"serving on {url}  (documentation: {url}/docs)"))
        sys.stdout.flush()

    run(listener, opening, options, on_ready=ready)


def add(
    ctx: typer.Context,
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
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if bool(for_user) == all_users:
        raise UsageError("say whose memories the token covers: --for USER, or --all-users")
    made = _file(session).add(name, right, None if all_users else for_user)

    def show(page: Page, token: NewToken) -> None:
        page.line(token.token)

    session.answer(made, show)
    session.note(f"{name} may {right} {_covered(made.users)}; the token is not shown again")


def list_(ctx: typer.Context) -> None:
    """List the tokens of the server, without their secrets."""
    session = session_of(ctx)

    def show(page: Page, tokens: tuple[Token, ...]) -> None:
        for token in tokens:
            page.line(f"{token.id}  {token.name}  {token.right}  {_covered(token.users)}  {token.created[:10]}")

    tokens = tuple(
        {"id": token.id, "name": token.name, "right": token.right, "users": token.users, "created": token.created}
        for token in _file(session).tokens()
    )
    if session.as_json:
        session.answer(tokens, lambda *_: None)
    else:
        session.answer(_file(session).tokens(), show)


def revoke(ctx: typer.Context, name: Annotated[str, typer.Argument(help="The name or the id of a token.")]) -> None:
    """Revoke a token. A running server refuses it from then on.

    Example: backstory token revoke laptop
    """
    session = session_of(ctx)
    gone = _file(session).revoke(name)
    session.answer({"id": gone.id, "name": gone.name}, lambda page, _: page.line(f"revoked {gone.name} ({gone.id})"))


def _covered(users: tuple[str, ...] | None) -> str:
    return "for all users" if users is None else f"for {', '.join(users)}"


def _file(session: Session) -> TokenFile:
    from backstory.config.loading import base_folder, load_settings
    from backstory.http.access.tokens import FILE, TokenFile

    session.check_home()
    loaded = load_settings(session.config, {}, home=session.home, as_hosted=True)
    return TokenFile(base_folder(session.home, loaded.settings) / FILE)
