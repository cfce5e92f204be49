"""The verb that asks a model again and writes nothing: reextract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import Session, indexing, progress, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.home import Backstory
    from backstory.projections.what_if.reextract import UpdateCounts
    from backstory.results import Reextracted

__all__ = ["reextract"]


def reextract(
    ctx: typer.Context,
    *,
    model: Annotated[str | None, typer.Option(metavar="M", help="A model's name; else the one configured.")] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="DIR", help="A folder of templates in the place of those configured.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Ask about this conversation only.")] = None,
    replies: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Recorded answers instead of a model: JSONL of thread_id and reply."),
    ] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, metavar="N", help="Stop after so many calls.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Stop before so many tokens are exceeded.")
    ] = None,
) -> None:
    """Ask a model again over all that was said, and compare memory, cost and refusals; writes nothing.

    Example: backstory reextract --model gpt-5-mini --max-calls 50
    """
    from backstory.cli.inputs import replies_in
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    answers = replies_in(replies)
    if model is not None and answers is not None:
        raise UsageError("--model and --replies were given: leave one of them out")
    with _opened(session, model, prompts) as bs:
        memory = bs.memory(session.user, session.agent)
        with progress("asking again, commits", memory.head().seq, worth=1) as step:
            result = memory.reextract(
                thread=thread, replies=answers, max_calls=max_calls, max_tokens=max_tokens, progress=step
            )
    session.answer(result, _comparison)
    if result.again.failed or (result.again.updates == 0 and not result.complete):
        raise typer.Exit(1)


@contextmanager
def _opened(session: Session, model: str | None, prompts: str | None) -> Iterator[Backstory]:
    """Open the home as it is configured, but for the model and the templates."""
    from backstory import Backstory
    from backstory.ledger.core.errors import UsageError

    if session.home == "":
        raise UsageError("--home is empty: name a folder, or leave the option out")
    with indexing() as told:
        opened = Backstory.open(
            session.home,
            config=session.config,
            model=model,
            background=False,
            progress=told,
            event_store=session.store,
            prompts_dir=prompts,
        )
        with opened as bs:
            yield bs


def _comparison(page: Page, found: Reextracted) -> None:
    """Show how memory would differ, and what both cost, side by side."""
    from backstory.cli.pages.labels import counted
    from backstory.cli.pages.page import Column
    from backstory.cli.pages.stories import diff_lines
    from backstory.projections.history.history import Diff

    if found.again.updates > found.again.failed or not found.recorded.updates:
        diff_lines(page, Diff(found.added, found.removed, found.revised, found.sections))
    else:
        page.line(("No update came through", "bold red"), ": there is nothing to compare.")
    columns = (Column(""), Column("recorded", right=True), Column("again", right=True))
    page.table(columns, _rows(found.recorded, found.again))
    for note in found.notes:
        page.line((note, "dim"))
    if not found.complete:
        page.line(("Not all was asked", "bold yellow"), f": the cap was reached; both are as of commit {found.until}.")
    page.line(f"There would be {counted(found.facts, 'fact')}. Nothing was written.")


def _rows(recorded: UpdateCounts, again: UpdateCounts) -> Iterator[tuple[str, str, str]]:
    names = ("calls", "tokens_in", "tokens_out", "updates", "failed", "accepted")
    for name in names:
        yield name.replace("_", " "), f"{getattr(recorded, name):,}", f"{getattr(again, name):,}"
    for rule in sorted({*recorded.refused, *again.refused}):
        yield f"refused: {rule}", f"{recorded.refused.get(rule, 0):,}", f"{again.refused.get(rule, 0):,}"
    for reason in sorted({*recorded.failures, *again.failures}):
        yield f"failed: {reason}", f"{recorded.failures.get(reason, 0):,}", f"{again.failures.get(reason, 0):,}"
    yield "facts", f"{recorded.facts:,}", f"{again.facts:,}"
