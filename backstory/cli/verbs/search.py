"""Verbs for search: search, and embed, which computes the vectors for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import moment
from backstory.cli.pages.page import Column, Page
from backstory.cli.session import Session, progress_of_total
from backstory.cli.verbs.facts import TagFilter
from backstory.ledger.core.errors import ModelError, UnavailableError

if TYPE_CHECKING:
    from backstory.ledger.core.scope import Scope
    from backstory.projections.search.results import Explanation, Found, Hit
    from backstory.projections.search.vectors.background_embedding import Embedded

_MOST_WORDS = 8


class _Within(StrEnum):
    FACTS = "facts"
    TURNS = "turns"


def search(
    session: Session,
    *,
    query: Annotated[str, typer.Argument(help="Words or a question.")],
    top: Annotated[
        int | None,
        typer.Option("--top", "-n", min=1, metavar="K", help="Maximum number of results. Default: `search_top_k`."),
    ] = None,
    category: Annotated[
        str | None,
        typer.Option(help="Only facts of this category, such as preference, correction or one of your own."),
    ] = None,
    within: Annotated[_Within, typer.Option("--in", help="What to search.")] = _Within.FACTS,
    thread: Annotated[str | None, typer.Option(help="Only results from this conversation.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only results from this time or later.")] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only results from before this time, or up to the end of this day."),
    ] = None,
    valid_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only facts that were true then, also those that have ended.")
    ] = None,
    past: Annotated[bool, typer.Option("--past", help="Also facts that have ended.")] = False,
    tags: TagFilter = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each result got its rank.")] = False,
) -> None:
    """Search facts or turns by words and by meaning. Exit 1 if nothing is found.

    The column `by` shows `meaning` for results that share no word with the query. They are as near to it as
    `search_min_similarity` demands: the packaged model has a bound of its own, with another model the nearest always
    appear. A query needs at least one letter or digit.

    Example: backstory search "where does she live" --in turns --since 2026-03-01
    """
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
            valid_at=valid_at,
            include_past=past,
            tags=tags,
        )
    session.answer(tuple(found), lambda page, _: _hits(page, found))
    _note_coverage(session, found)
    if not found:
        raise typer.Exit(1)


def _note_coverage(session: Session, found: Found) -> None:
    # Why a model could not be asked is in the log, which is on standard error here.
    if found.trouble is None and found.missing:
        session.note(f"by meaning: {found.embedded:,} of {found.total:,} {found.within}; run `backstory embed`")


def _hits(page: Page, found: Found) -> None:
    if not found:
        page.line(("Nothing was found.", "dim"))
        return
    if any(hit.why is not None for hit in found):
        for hit in found:
            page.line((f"{hit.score:.3f}  ", "dim"), *_named(hit))
            page.quote(hit.content, indent=2)
            if hit.why is not None:
                for line in _reasons(hit.why, of_turn=hit.thread is not None):
                    page.line((line, "dim"), indent=4)
        return
    content = Column("fact" if found.within == "facts" else "turn", folds=True)
    ranked, by = [Column("score", "dim", right=True)], any(hit.by_meaning for hit in found)
    if by:
        ranked.append(Column("by", "dim"))
    if found.within == "facts":
        page.table(
            (*ranked, Column("id", "cyan"), Column("category", "green"), content),
            ((*_ranked(hit, by=by), hit.shown_id, hit.category or "", hit.content) for hit in found),
        )
    else:
        page.table(
            (*ranked, Column("time", "dim", spare=72), Column("thread", "cyan"), Column("who", "green"), content),
            ((*_ranked(hit, by=by), *_said(hit), hit.content) for hit in found),
        )


def _ranked(hit: Hit, *, by: bool) -> tuple[str, ...]:
    score = f"{hit.score:.3f}"
    return (score, "meaning" if hit.by_meaning else "words") if by else (score,)


def _said(hit: Hit) -> tuple[str, str, str]:
    return moment(hit.at or ""), hit.thread or "", hit.name or hit.role or ""


def _named(hit: Hit) -> tuple[tuple[str, str], ...]:
    if hit.thread is None:
        return ((hit.shown_id, "cyan"), (f"  {hit.category or ''}", "green"))
    at, thread, who = _said(hit)
    return ((hit.id, "cyan"), (f"  {thread}", "cyan"), (f"  {who}", "green"), (f"  {at}", "dim"))


def _reasons(why: Explanation, *, of_turn: bool) -> list[str]:
    lines = []
    if why.words_rank is not None:
        strongest = sorted(why.words, key=lambda part: -part.score)
        parts = [f"{part.word} {part.score:.2f} ({part.where})" for part in strongest[:_MOST_WORDS]]
        more = f", and {len(strongest) - _MOST_WORDS} more" if len(strongest) > _MOST_WORDS else ""
        lines.append(f"{why.words_rank}. by words, {why.words_score or 0:.2f}: {', '.join(parts)}{more}")
    if why.meaning_rank is not None:
        lines.append(f"{why.meaning_rank}. by meaning, similarity {why.similarity or 0:.3f}")
    if why.cited_rank is not None:
        how = "meaning of the facts that cite it, similarity" if of_turn else "words of the turns that it cites,"
        lines.append(f"{why.cited_rank}. by the {how} {why.cited_score or 0:.{3 if of_turn else 2}f}")
    return lines


def embed(
    session: Session,
    *,
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after this time.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Include every user and agent of the home.")] = False,
) -> None:
    """Compute the missing embeddings of facts and turns, for search by meaning.

    Example: backstory embed --all
    """
    with session.opened() as bs, _model_required():
        if not every:
            memory = session.named(bs)
            with _embedding(session) as step:
                result = memory.embed(timeout=timeout, progress=step)
            session.answer(result, _embedded)
            _note_rest(session, timeout, result.embedded, result.total)
            return
        results = []
        ends = None if timeout is None else time.monotonic() + timeout
        for owner in bs.owners():
            with _embedding(session, owner) as step:
                memory = bs.memory_of(owner)
                left = None if ends is None else ends - time.monotonic()
                left = 0.0 if left is not None and left < 0 else left
                results.append((owner, memory.embed(timeout=left, progress=step)))
        session.answer_each(results, _embedded_table)
        embedded, total = sum(result.embedded for _, result in results), sum(result.total for _, result in results)
        _note_rest(session, timeout, embedded, total)


@contextmanager
def _embedding(session: Session, owner: Scope | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show the progress in a memory; on an interrupt it is said."""
    of = "" if owner is None else f" of {owner}"
    embedded = "embedding has not begun; run `backstory embed` again"

    def report(done: int, total: int) -> None:
        nonlocal embedded
        embedded = f"{done:,} of {total:,} facts and turns{of} are embedded; run `backstory embed` again for the rest"
        show(done, total)

    with session.when_interrupted(lambda: embedded), progress_of_total(f"embedding{of}") as show:
        yield report


@contextmanager
def _model_required() -> Iterator[None]:
    """Turn a model error into a failure (exit 3): a missing model is not a negative answer (exit 1)."""
    try:
        yield
    except ModelError as error:
        raise UnavailableError(str(error)) from error


def _note_rest(session: Session, timeout: float | None, embedded: int, total: int) -> None:
    if timeout is not None and embedded < total:
        session.note(f"stopped after {timeout:g} s with {embedded:,} of {total:,} embedded; run it again")


def _embedded(page: Page, result: Embedded) -> None:
    page.line(
        f"{result.model} has embedded {result.embedded:,} of {result.total:,} facts and turns, {result.new:,} now"
    )


def _embedded_table(page: Page, results: Sequence[tuple[Scope, Embedded]]) -> None:
    from backstory.cli.pages.tables import OWNER, owner

    columns = (*OWNER, *(Column(name, right=True) for name in ("embedded", "of", "now")))
    page.table(columns, ((*owner(s), f"{r.embedded:,}", f"{r.total:,}", f"{r.new:,}") for s, r in results))
