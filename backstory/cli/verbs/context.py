"""The verb that shows what an agent would be given to read: context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.projections.context import Context

__all__ = ["context"]


def context(
    ctx: typer.Context,
    *,
    about: Annotated[
        str | None, typer.Option("--for", metavar="TEXT", help="What the talk is about: facts like it come first.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="At most so many tokens; else as configured (max_injection_tokens).")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Tell what was said before in this conversation, too.")] = None,
) -> None:
    """Print the block that is put before an agent's model; --json says which facts it used.

    Example: backstory context --for "which editor do I use?" --max-tokens 500
    """
    session = session_of(ctx)
    with session.opened() as bs:
        # A command has time: it counts with the real vocabulary, where one is at hand.
        bs.warm()
        memory = bs.memory(session.user, session.agent)
        found = memory.context(about, max_tokens, thread=thread)
        if thread is not None and not (found.summaries or found.summaries_left_out):
            # A host may ask for a block before there is a first turn; whoever types a name that is not there erred.
            memory.summaries(thread)
        settings = bs.config.settings
    session.answer(found, _lines)
    if not (settings.enabled and settings.injection_enabled):
        session.note("nothing is put before a model here: `enabled` or `injection_enabled` is off; see `config`")
    elif left := _left_out(found):
        session.note(f"found no room in {found.max_tokens} tokens: {left}")


def _left_out(found: Context) -> str:
    from backstory.cli.pages.labels import counted

    left = (
        (found.left_out, "fact", ""),
        (found.sections_left_out, "section", ""),
        (found.summaries_left_out, "summary", "summaries"),
    )
    return ", ".join(counted(*one) for one in left if one[0])


def _lines(page: Page, found: Context) -> None:
    for line in found.text.split("\n") if found.text else ():
        page.line(line)
