"""Verbs about the home: scopes, config, copy, doctor, migrate, repair, demo."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import in_seconds
from backstory.cli.pages.page import Column, Page
from backstory.cli.session import Session, progress

if TYPE_CHECKING:
    from backstory.projections.integrity.remedies import Check

_LONG_COPY = 2000
"""Copying fewer commits takes less than a second and needs no progress bar."""


def scopes(
    session: Session,
    *,
    long: Annotated[
        bool, typer.Option("--long", help="Also what is pending and parked, and which are full, as `status --all`.")
    ] = False,
) -> None:
    """List every user and agent that has a memory in this home.

    Example: backstory scopes --long
    """
    from backstory.cli.pages.tables import scope_table, status_table

    with session.opened() as bs:
        if long:
            session.answer([bs.memory_of(owner).status() for owner in bs.owners()], status_table)
        else:
            session.answer(bs.scopes(), scope_table)


def config(session: Session) -> None:
    """Show every setting and the source of its value: default, file, environment or argument.

    Secrets are not shown. For the rules that `policy --set` changed, see `policy`.

    Example: backstory --config backstory.yaml config
    """
    from backstory.cli.pages.answers import ConfigValue
    from backstory.cli.pages.tables import config_table
    from backstory.config.secrets import masked
    from backstory.witness.destinations import COMMAND, destination_of

    with session.opened() as bs:
        stated = bs.config.settings.model_dump()
        origin = bs.config.origin
        values = {key: ConfigValue(masked(value), origin[key]) for key, value in stated.items()}
        values["user"] = ConfigValue(session.user, session.user_from)
        values["agent"] = ConfigValue(session.agent, session.agent_from)
        witness = stated["witness"]
        if isinstance(witness, str) and witness.startswith(COMMAND):
            # Any argument of a command may be a secret.
            values["witness"] = ConfigValue(f"{destination_of(witness).name} …", origin["witness"])
        session.answer(values, lambda page, shown: config_table(page, shown, str(bs.home)))


def copy(
    session: Session,
    *,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The home folder, or the URL of the engine, to copy.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder or URL of the new home, which is empty.")],
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give up an incomplete copy, so that SRC takes changes again.")
    ] = False,
) -> None:
    """Move a home to another folder or engine, while it is in use.

    Every commit keeps its bytes and its hash. In the end SRC takes no changes any more: there is one home to write to.
    Run the same command again after an interruption.

    Example: backstory copy ~/.backstory postgresql://db.example.com/memory
    """
    from backstory.cli.pages.answers import cancelled_lines, copied_lines
    from backstory.cli.session import progress_of_total
    from backstory.lifecycle.copying import cancel as give_up
    from backstory.lifecycle.copying import copy_home

    session.check_home()
    if cancel:
        session.answer(give_up(source, target, home=session.home, config=session.config), cancelled_lines)
        return
    session.interrupted = "interrupted: run the same command again to go on, or with --cancel to give up"
    with progress_of_total("copying commits", least=_LONG_COPY) as step:
        done = copy_home(source, target, home=session.home, config=session.config, progress=step)
    session.answer(done, copied_lines)


def doctor(
    session: Session,
    model: Annotated[bool, typer.Option("--model", help="Ask the model one short question, too.")] = False,
) -> None:
    """Check the set-up and show how to fix each problem. Exit 1 if there is one.

    Without --user and --agent it checks the whole home, up to 64 MiB of logs. A model is asked only with --model.

    Example: backstory --user ada doctor
    """
    from backstory.lifecycle.maintenance import doctor as examine

    session.check_home()
    named = session.user is not None or session.agent is not None
    scope = session.scope if named else None
    checks = examine(session.home, config=session.config, store=session.store, scope=scope, ask=model)
    _answer_checks(session, checks)


def migrate(session: Session) -> None:
    """Make the tables in a database, or bring them up to this version. Memory stays as it is.

    Example: backstory --store postgresql://owner@db/backstory migrate
    """
    from backstory.config.store_factory import migrate_store

    session.answer(migrate_store(session.loaded()), _migrations)


def _migrations(page: Page, names: Sequence[str]) -> None:
    for name in names:
        page.line(f"run: {name}")
    if not names:
        page.line("nothing to do: the tables are those of this version")


def repair(
    session: Session,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the repairs without making them.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Repair every user and agent of the home.")] = False,
) -> None:
    """Repair damaged files. Damaged parts are moved aside, never deleted. Exit 1 if damage remains.

    Example: backstory --user ada repair --dry-run
    """
    from backstory.lifecycle.maintenance import repair_scope

    with session.opened() as bs:
        scopes = bs.owners() if every else (session.scope,)
        checks: list[Check] = []
        with progress("repairing", len(scopes)) as step:
            for number, scope in enumerate(scopes, 1):
                checks += repair_scope(bs, scope, dry_run=dry_run)
                step(number)
    _answer_checks(session, checks)


def _answer_checks(session: Session, checks: Sequence[Check]) -> None:
    """Print checks, and exit with 1 if one is not ok."""
    columns = (Column("ok"), Column("check", "cyan"), Column("what", folds=True))
    rows = (("ok" if check.ok else "NOT ok", check.check, in_seconds(check.hint)) for check in checks)
    session.answer(checks, lambda page, _: page.table(columns, rows))
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def demo(
    ctx: typer.Context,
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the configured model instead of playing recorded replies.")
    ] = False,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DIR", help="Play in this new folder and keep it.")
    ] = None,
    before_undo: Annotated[
        bool, typer.Option("--before-undo", help="With --keep: stop while the wrong fact is in memory.")
    ] = False,
) -> None:
    """Play a demo: an agent learns a fact, loses it, explains why, and gets it back.

    Example: backstory demo --keep story
    """
    from backstory.cli.demo import play

    session: Session = ctx.obj
    command = ctx.find_root().command
    with contextlib.redirect_stdout(sys.stderr if session.as_json else sys.stdout):
        summary = play(command.main, config=session.config, live=live, keep=keep, before_undo=before_undo)
    if session.as_json:
        session.answer(summary, lambda *_: None)
    if not summary.ok:
        raise typer.Exit(summary.exit)
