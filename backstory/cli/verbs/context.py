"""Verbs that give agents their memory: context, and the hooks of coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import counted
from backstory.cli.pages.page import Page
from backstory.cli.session import Session
from backstory.cli.verbs.facts import TagFilter
from backstory.ledger.core.errors import UsageError

if TYPE_CHECKING:
    from backstory.hooks.hosts import HookChange
    from backstory.projections.context import Context


def context(
    session: Session,
    *,
    about: Annotated[
        str | None, typer.Option("--for", metavar="TEXT", help="Topic of the conversation: relevant facts come first.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum size in tokens. Default: max_injection_tokens.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Include the summaries of this conversation.")] = None,
    tags: TagFilter = None,
) -> None:
    """Print the context block that the model of an agent gets. --json lists the facts in it.

    With --tag, facts without any tag or attribute stay in it: they are about the user in general.

    Example: backstory context --for "which editor do I use?" --max-tokens 500
    """
    with session.opened() as bs:
        # A command can wait for the vocabulary, so its token counts are exact where one is available.
        bs.warm()
        memory = session.named(bs)
        found = memory.context(about, max_tokens, thread=thread, tags=tags)
        if thread is not None and not (found.summaries or found.summaries_left_out):
            # A typed name of an unknown conversation is an error, which this raises.
            memory.summaries(thread)
        settings = bs.config.settings
    session.answer(found, _lines)
    if not (settings.enabled and settings.injection_enabled):
        session.note("agents get no context block: `enabled` or `injection_enabled` is off; see `config`")
    elif left := _left_out(found):
        session.note(f"did not fit into {found.max_tokens} tokens: {left}")


def _left_out(found: Context) -> str:
    left = (
        (found.left_out, "fact", ""),
        (found.sections_left_out, "section", ""),
        (found.summaries_left_out, "summary", "summaries"),
    )
    return ", ".join(counted(*one) for one in left if one[0])


def _lines(page: Page, found: Context) -> None:
    for line in found.text.split("\n") if found.text else ():
        page.line(line)


def claude_code(session: Session) -> None:
    """Answer a hook of Claude Code, whose JSON is on standard input. Exit 0 always; failures are in hooks.log.

    Example: backstory hook claude-code < call.json
    """
    _run(session, "claude-code")


def codex(session: Session) -> None:
    """Answer a hook of Codex, whose JSON is on standard input. Exit 0 always; failures are in hooks.log.

    Example: backstory hook codex < call.json
    """
    _run(session, "codex")


def _run(session: Session, name: str) -> None:
    from backstory.hooks.running import run

    agent = session.agent_given if session.agent_from == "argument" else None
    stated = {"home": session.home, "user": session.user, "agent": agent, "config": session.config}
    options = {**stated, "store": session.store}
    run(name, {f"--{option}": value for option, value in options.items() if value is not None})


def install(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="claude-code or codex.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Take the hooks out again.")] = False,
) -> None:
    """Add the hooks to the settings file of a coding agent: show the difference, and ask. Exit 1 if the answer is no.

    Example: backstory hook install claude-code
    """
    from backstory.cli.verbs.serving import stated_command
    from backstory.hooks.hosts import HOSTS, change

    if name not in HOSTS:
        raise UsageError(f"{name!r} is no coding agent that is known here: name one of {', '.join(HOSTS)}")
    command = None if uninstall else [*stated_command(session), "hook", name]
    planned = change(HOSTS[name], command, write=False)
    if planned.diff and not yes:
        typer.echo(planned.diff, err=True)
        session.confirm(f"Change {planned.file}?", "nothing was changed")
    session.answer(change(HOSTS[name], command, write=True), _changed)


def _changed(page: Page, done: HookChange) -> None:
    for line in done.diff.split("\n"):
        page.line(line)
    page.line(f"{done.file} is changed" if done.written else f"{done.file} needs no change")


def pause(session: Session) -> None:
    """Pause the hooks of a home: until `hook resume` they give nothing and record nothing.

    Example: backstory hook pause
    """
    mark = _mark(session)
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark.touch(mode=0o600)
    typer.echo("hooks are paused: `backstory hook resume` ends it")


def resume(session: Session) -> None:
    """End the pause of the hooks.

    Example: backstory hook resume
    """
    _mark(session).unlink(missing_ok=True)
    typer.echo("hooks are on")


def _mark(session: Session) -> Path:
    from backstory.hooks.hosts import home_folder
    from backstory.hooks.running import PAUSED

    session.check_home()
    return home_folder(session.home) / PAUSED
