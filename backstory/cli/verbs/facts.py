"""Verbs below `fact`: list, get, add, edit and remove facts by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli import completion
from backstory.cli.pages.page import Page
from backstory.cli.session import Session
from backstory.ledger.core.errors import UsageError

if TYPE_CHECKING:
    from backstory.ledger.core.events import Attribute
    from backstory.results import FactChange

_Id = Annotated[
    str,
    typer.Argument(
        metavar="FACT_ID", autocompletion=completion.facts, help="The id of a fact, or a unique prefix of it."
    ),
]
_WholeId = Annotated[
    str, typer.Argument(metavar="FACT_ID", autocompletion=completion.facts, help="The full id of a fact.")
]
_From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Since when it is true: 2026, 2026-03, 2026-03-05.")
]
_Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when it is true, to its end.")]
_Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="Until when it is to be remembered, to its end.")
]
_Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A name to filter by; may be repeated.")]
_Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="NAME=VALUE", help="A value to filter by; may be repeated."),
]
TagFilter = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only what has this tag or attribute NAME=VALUE; may be repeated."),
]
_CATEGORIES = "preference, knowledge, context, behavior, goal, correction, or a name of your own"


def list_(
    session: Session,
    *,
    category: Annotated[str | None, typer.Option(help=f"Only facts of this category: {_CATEGORIES}.")] = None,
    tags: TagFilter = None,
) -> None:
    """List the facts in memory.

    Example: backstory fact list
    """
    from backstory.cli.pages.tables import fact_table
    from backstory.ledger.core.policy import same_category

    with session.memory() as memory:
        facts = [fact for fact in memory.facts(tags=tags) if category is None or same_category(category, fact.category)]
    session.answer(facts, fact_table)


def get(session: Session, fact_id: _Id) -> None:
    """Show one fact. `why` shows where it came from.

    Example: backstory fact get fact_2_0
    """
    from backstory.cli.pages.tables import fact_lines

    with session.memory() as memory:
        session.answer(memory.fact(fact_id), fact_lines)


def add(
    session: Session,
    *,
    text: Annotated[str, typer.Argument(help="The text of the fact.")],
    category: Annotated[str, typer.Option(help=f"{_CATEGORIES[0].upper()}{_CATEGORIES[1:]}.")] = "context",
    confidence: Annotated[float, typer.Option(help="Confidence from 0 to 1.")] = 0.9,
    valid_from: _From = None,
    valid_until: _Until = None,
    expires_at: _Expires = None,
    tags: _Tags = None,
    attributes: _Attributes = None,
) -> None:
    """Add a fact. Exit 1 if memory has it already.

    Example: backstory fact add "Allergic to peanuts" --category context
    """
    with session.memory(creates=True) as memory:
        change = memory.add_fact(
            text,
            category,
            confidence,
            valid_from=valid_from,
            valid_until=valid_until,
            expires_at=expires_at,
            tags=tags,
            attributes=_pairs(attributes),
        )
        session.answer(change, _changed)


def edit(
    session: Session,
    *,
    fact_id: _WholeId,
    text: Annotated[str | None, typer.Argument(help="The new text.")] = None,
    content: Annotated[str | None, typer.Option("--content", help="The new text, as an option.")] = None,
    category: Annotated[str | None, typer.Option(help=f"{_CATEGORIES[0].upper()}{_CATEGORIES[1:]}.")] = None,
    confidence: Annotated[float | None, typer.Option(help="Confidence from 0 to 1.")] = None,
    valid_from: _From = None,
    valid_until: _Until = None,
    expires_at: _Expires = None,
    tags: _Tags = None,
    attributes: _Attributes = None,
) -> None:
    """Change a fact. No model changes it afterwards. An empty time is unknown again.

    --tag and --attribute state all that it has from now on; one that is empty ("") takes all away.

    Example: backstory fact edit fact_2_0 "Lives in Bergen" --from 2026-03
    """
    if text is not None and content is not None:
        raise UsageError("the new text is given twice: leave out --content")
    with session.memory() as memory:
        change = memory.edit_fact(
            fact_id,
            text if content is None else content,
            category,
            confidence,
            valid_from=valid_from,
            valid_until=valid_until,
            expires_at=expires_at,
            tags=_all_of(tags),
            attributes=None if attributes is None else _pairs(_all_of(attributes)),
        )
        session.answer(change, _changed)


def remove(
    session: Session,
    *,
    fact_id: _WholeId,
    ended: Annotated[bool, typer.Option("--ended", help="It was not wrong: it was true until now.")] = False,
    valid_until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="It was, or is, true until then. Implies --ended.")
    ] = None,
) -> None:
    """Remove a fact. Its history stays, so `revert` can restore it.

    Example: backstory fact remove fact_2_0 --until 2026-03
    """
    ended = ended or valid_until is not None
    with session.memory() as memory:
        change = memory.remove_fact(fact_id, ended=ended, valid_until=valid_until)
        session.answer(change, _ended if ended else _removed)


def _all_of(given: list[str] | None) -> list[str] | None:
    """Return what an edit states; a single empty one is for none."""
    return [] if given == [""] else given


def _pairs(given: list[str] | None) -> dict[str, Attribute]:
    from backstory.ledger.text.tags import value_of

    pairs = [one.partition("=") for one in given or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"an attribute is NAME=VALUE, such as team=red, got {name!r}")
    return {name: value_of(value.strip()) for name, _, value in pairs}


def _changed(page: Page, change: FactChange) -> None:
    from backstory.cli.pages.tables import fact_lines

    page.line(f"commit {change.commit}:")
    fact_lines(page, change.fact)
    for fact in change.evicted:
        page.line(f"evicted to make room: {fact.content} ({fact.id}); `backstory revert {change.commit}` undoes both")


def _removed(page: Page, change: FactChange) -> None:
    page.line(f"commit {change.commit}: removed {change.fact.id}, {change.fact.content}")


def _ended(page: Page, change: FactChange) -> None:
    until = change.fact.valid_until or "now"
    page.line(f"commit {change.commit}: {change.fact.id} is true until {until}: {change.fact.content}")
