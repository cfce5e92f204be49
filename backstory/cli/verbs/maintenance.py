"""Verbs that keep a home in order: doctor, migrate, repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import progress, session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.projections.integrity.remedies import Check


def doctor(
    ctx: typer.Context,
    model: Annotated[bool, typer.Option("--model", help="Ask the model one short question, too.")] = False,
) -> None:
    """Check the set-up and show how to fix each problem. Exit 1 if there is one.

    Without --user and --agent it checks the whole home, up to 64 MiB of logs. A model is asked only with --model.

    Example: backstory --user ada doctor
    """
    from backstory.ledger.core.scope import Scope
    from backstory.lifecycle.maintenance import doctor as examine

    session = session_of(ctx)
    session.check_home()
    named = session.user is not None or session.agent is not None
    scope = Scope.of(session.user, session.agent) if named else None
    checks = examine(session.home, config=session.config, store=session.store, scope=scope, ask=model)
    session.answer(checks, _table)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def migrate(ctx: typer.Context) -> None:
    """Make the tables in a database, or bring them up to this version. Memory stays as it is.

    Example: backstory --store postgresql://owner@db/backstory migrate
    """
    from backstory.config.loading import load_settings
    from backstory.config.store_factory import migrate_store

    session = session_of(ctx)
    session.check_home()
    stated = {} if session.store is None else {"event_store": session.store}
    done = migrate_store(load_settings(session.config, stated, home=session.home, as_hosted=True))
    session.answer(done, _migrations)


def _migrations(page: Page, names: Sequence[str]) -> None:
    for name in names:
        page.line(f"run: {name}")
    if not names:
        page.line("nothing to do: the tables are those of this version")


def repair(
    ctx: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the repairs without making them.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Repair every user and agent of the home.")] = False,
) -> None:
    """Repair damaged files. Damaged parts are moved aside, never deleted. Exit 1 if damage remains.

    Example: backstory --user ada repair --dry-run
    """
    from backstory.ledger.core.scope import Scope
    from backstory.lifecycle.maintenance import repair_scope

    session = session_of(ctx)
    with session.opened() as bs:
        scopes = bs.owners() if every else (Scope.of(session.user, session.agent),)
        checks: list[Check] = []
        with progress("repairing", len(scopes)) as step:
            for number, scope in enumerate(scopes, 1):
                checks += repair_scope(bs, scope, dry_run=dry_run)
                step(number)
    session.answer(checks, _table)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _table(page: Page, checks: Sequence[Check]) -> None:
    from backstory.cli.pages.labels import in_seconds
    from backstory.cli.pages.page import Column

    columns = (Column("ok"), Column("check", "cyan"), Column("what", folds=True))
    page.table(columns, (("ok" if check.ok else "NOT ok", check.check, in_seconds(check.hint)) for check in checks))
