"""Verb that extracts again with another model and compares the results: reextract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import progress, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.projections.what_if.reextract import UpdateCounts
    from backstory.results import Reextracted


def reextract(
    ctx: typer.Context,
    *,
    model: Annotated[str | None, typer.Option(metavar="M", help="Name of the model. Default: as configured.")] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of prompt templates. Default: as configured.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    replies: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Use recorded replies instead of a model: JSONL of thread_id and reply."),
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Maximum number of calls of the model.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, metavar="N", help="Maximum number of tokens.")] = None,
) -> None:
    """Extract again from all recorded turns, and compare memory, cost and refusals. Writes nothing.

    Example: backstory reextract --model gpt-5-mini --max-calls 50
    """
    from backstory.cli.inputs import read_recorded_replies
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    answers = read_recorded_replies(replies)
    if model is not None and answers is not None:
        raise UsageError("--model and --replies exclude each other: leave one of them out")
    left = "reextract writes nothing; --max-calls and --thread make it shorter"
    with session.when_interrupted(lambda: left), session.opened(model=model, prompts_dir=prompts) as bs:
        memory = session.named(bs)
        with progress("extracting again, commits", memory.head().seq, least=1) as step:
            result = memory.reextract(
                thread=thread, replies=answers, max_calls=max_calls, max_tokens=max_tokens, progress=step
            )
    session.answer(result, _comparison)
    if result.again.failed or (result.again.updates == 0 and not result.complete):
        raise typer.Exit(1)


def _comparison(page: Page, found: Reextracted) -> None:
    """Show the differences of memory, and the cost of both extractions side by side."""
    from backstory.cli.pages.history import diff_lines
    from backstory.cli.pages.labels import counted
    from backstory.cli.pages.page import Column

    if found.again.updates > found.again.failed or not found.recorded.updates:
        diff_lines(page, found)
    else:
        page.line(("No update succeeded", "bold red"), ": there is nothing to compare.")
    columns = (Column(""), Column("recorded", right=True), Column("again", right=True))
    page.table(columns, _rows(found.recorded, found.again))
    for note in found.notes:
        page.line((note, "dim"))
    if not found.complete:
        page.line(("Stopped at the limit", "bold yellow"), f": both columns are as of commit {found.until}.")
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
