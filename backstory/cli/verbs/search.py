"""Verbs that find: search, and embed, which prepares it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import Session, counting, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.answers import EmbeddedIn
    from backstory.cli.pages.page import Page
    from backstory.projections.search.results import Explanation, Found, Hit
    from backstory.projections.search.services import Embedded

__all__ = ["embed", "search"]

_MOST_WORDS = 8


class _Within(StrEnum):
    """What can be searched."""

    FACTS = "facts"
    TURNS = "turns"


def search(
    ctx: typer.Context,
    *,
    query: Annotated[str, typer.Argument(help="What to look for, in words or as a question.")],
    top: Annotated[int | None, typer.Option(min=1, metavar="K", help="At most so many; else `search_top_k`.")] = None,
    category: Annotated[
        str | None,
        typer.Option(help="Only facts of this one: preference, knowledge, context, behavior, goal or correction."),
    ] = None,
    within: Annotated[_Within, typer.Option("--in", help="What to search.")] = _Within.FACTS,
    thread: Annotated[str | None, typer.Option(help="Only what comes from this conversation.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only what is from then or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only what is from before then.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each stands where it stands.")] = False,
) -> None:
    """Find facts, or what was said, by words and by meaning; exit 1 where nothing is found.

    With an embedding model the nearest by meaning always come, however far they are: `meaning` in the column `by` marks
    what no word brought in, and `search_min_similarity` bounds it. A query without a letter or digit finds nothing.

    Example: backstory search "where does she live" --in turns --since 2026-03-01
    """
    session = session_of(ctx)
    with session.memory() as memory:
        found = memory.search(
            query,
            top_k=top,
            category=category,
            within="turns" if within is _Within.TURNS else "facts",
            thread=thread,
            since=since,
            until=until,
            explain=explain,
        )
    session.answer(tuple(found), lambda page, _: _hits(page, found))
    _say_how_far(session, found)
    if not found:
        raise typer.Exit(1)


def _say_how_far(session: Session, found: Found) -> None:
    # What kept a model from being asked is in the log, which is on standard error here.
    if found.trouble is None and found.model is not None and found.embedded < found.total:
        session.note(f"by meaning: {found.embedded:,} of {found.total:,} {found.within}; run `backstory embed`")


def _hits(page: Page, found: Found) -> None:
    from backstory.cli.pages.page import Column

    if not found:
        page.line(("Nothing like that was found.", "dim"))
        return
    if any(hit.why is not None for hit in found):
        for hit in found:
            page.line((f"{hit.score:.3f}  ", "dim"), *_named(hit))
            page.quote(hit.content, indent=2)
            if hit.why is not None:
                for line in _reasons(hit.why):
                    page.line((line, "dim"), indent=4)
        return
    told = Column("fact" if found.within == "facts" else "turn", folds=True)
    ranked, by = [Column("score", "dim", right=True)], any(hit.by_meaning for hit in found)
    if by:
        ranked.append(Column("by", "dim"))
    if found.within == "facts":
        page.table(
            (*ranked, Column("id", "cyan"), Column("category", "green"), told),
            ((*_ranked(hit, by=by), hit.id, hit.category or "", hit.content) for hit in found),
        )
    else:
        page.table(
            (*ranked, Column("time", "dim", spare=72), Column("thread", "cyan"), Column("who", "green"), told),
            ((*_ranked(hit, by=by), *_said(hit), hit.content) for hit in found),
        )


def _ranked(hit: Hit, *, by: bool) -> tuple[str, ...]:
    score = f"{hit.score:.3f}"
    return (score, "meaning" if hit.by_meaning else "words") if by else (score,)


def _said(hit: Hit) -> tuple[str, str, str]:
    from backstory.cli.pages.labels import moment

    return moment(hit.at or ""), hit.thread or "", hit.name or hit.role or ""


def _named(hit: Hit) -> tuple[tuple[str, str], ...]:
    if hit.thread is None:
        return ((hit.id, "cyan"), (f"  {hit.category or ''}", "green"))
    at, thread, who = _said(hit)
    return ((hit.id, "cyan"), (f"  {thread}", "cyan"), (f"  {who}", "green"), (f"  {at}", "dim"))


def _reasons(why: Explanation) -> list[str]:
    lines = []
    if why.words_rank is not None:
        strongest = sorted(why.words, key=lambda part: -part.score)
        parts = [f"{part.word} {part.score:.2f} ({part.where})" for part in strongest[:_MOST_WORDS]]
        more = f", and {len(strongest) - _MOST_WORDS} more" if len(strongest) > _MOST_WORDS else ""
        lines.append(f"{why.words_rank}. by words, {why.words_score or 0:.2f}: {', '.join(parts)}{more}")
    if why.meaning_rank is not None:
        lines.append(f"{why.meaning_rank}. by meaning, similarity {why.similarity or 0:.3f}")
    return lines


def embed(
    ctx: typer.Context,
    *,
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after so long.")] = None,
    every: Annotated[bool, typer.Option("--all", help="For every user and agent of the home.")] = False,
) -> None:
    """Have the embedding model read what it has not read yet, so that search finds it by meaning.

    Example: backstory embed --all
    """
    from backstory.cli.pages.answers import EmbeddedIn

    session = session_of(ctx)
    with session.opened() as bs, _asking():
        if not every:
            memory = bs.memory(session.user, session.agent)
            with counting("embedding") as step:
                result = memory.embed(timeout=timeout, progress=step)
            session.answer(result, _embedded)
            _say_what_is_left(session, timeout, result.embedded, result.total)
            return
        results = []
        ends = None if timeout is None else time.monotonic() + timeout
        for owner in bs.owners():
            with counting(f"embedding {owner}") as step:
                memory = bs.memory(owner.user, owner.agent)
                left = None if ends is None else ends - time.monotonic()
                left = 0.0 if left is not None and left < 0 else left
                results.append(EmbeddedIn.of(owner, memory.embed(timeout=left, progress=step)))
        session.answer(results, _embedded_table)
        _say_what_is_left(
            session, timeout, sum(result.embedded for result in results), sum(result.total for result in results)
        )


@contextmanager
def _asking() -> Iterator[None]:
    """Nothing was asked that has a no for an answer: without a model that reads, this cannot be done."""
    from backstory.ledger.core.errors import ModelError, UnavailableError

    try:
        yield
    except ModelError as error:
        raise UnavailableError(str(error)) from error


def _say_what_is_left(session: Session, timeout: float | None, embedded: int, total: int) -> None:
    if timeout is not None and embedded < total:
        session.note(f"stopped after {timeout:g} s with {embedded:,} of {total:,} read; run it again")


def _embedded(page: Page, result: Embedded) -> None:
    page.line(f"{result.model} has read {result.embedded:,} of {result.total:,} facts and turns, {result.new:,} now")


def _embedded_table(page: Page, results: list[EmbeddedIn]) -> None:
    from backstory.cli.pages.page import Column

    numbers = (Column(name, right=True) for name in ("embedded", "of", "now"))
    columns = (Column("user", "cyan"), Column("agent", "cyan"), *numbers)
    rows = ((r.user or "-", r.agent or "-", f"{r.embedded:,}", f"{r.total:,}", f"{r.new:,}") for r in results)
    page.table(columns, rows)
