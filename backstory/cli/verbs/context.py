"""Verb that prints the context block of an agent: context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of
from backstory.cli.verbs.facts import TagFilter

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.projections.context import Context


def context(
    ctx: typer.Context,
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
    session = session_of(ctx)
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
