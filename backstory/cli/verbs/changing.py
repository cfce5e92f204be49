"""Verbs that change memory by hand: revert, rollback, policy, clear, import, export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.page import Page
    from backstory.projections.document.document import Document
    from backstory.results import PolicyResult

__all__ = ["clear", "export", "import_", "policy", "revert", "rollback"]

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")]


def revert(
    ctx: typer.Context,
    *,
    seq: Annotated[str, typer.Argument(metavar="SEQ|HEAD", help="The commit to undo; HEAD is the last one.")],
    dry_run: _DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Also where later work conflicts.")] = False,
) -> None:
    """Undo one update: what it superseded lives again; exit 1 where later work conflicts.

    Example: backstory revert HEAD --dry-run
    """
    from backstory.cli.pages.stories import undo_lines

    session = session_of(ctx)
    with session.memory() as memory:
        result = memory.revert(seq, dry_run=dry_run, force=force)
    session.answer(result, lambda page, told: undo_lines(page, told, dry_run=dry_run))
    if result.conflicts and not force:
        raise typer.Exit(1)


def rollback(
    ctx: typer.Context,
    *,
    to: Annotated[str, typer.Option("--to", metavar="SEQ|TIME", help="The moment to go back to.")],
    dry_run: _DryRun = False,
) -> None:
    """Bring memory back to what it was; that is a commit too, and can be reverted.

    Example: backstory rollback --to 12
    """
    from backstory.cli.pages.stories import undo_lines

    session = session_of(ctx)
    with session.memory() as memory:
        result = memory.rollback(to, dry_run=dry_run)
    session.answer(result, lambda page, told: undo_lines(page, told, dry_run=dry_run))


def policy(
    ctx: typer.Context,
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Put another rule in force; may be repeated.")
    ] = None,
) -> None:
    """Show the rules in force, or change them; values are those that configuration takes.

    What is in force already is not written again. To try a rule beyond configuration's range, see `what-if`.

    Example: backstory policy --set max_facts=50
    """
    from backstory.cli.inputs import configurable, policy_changes
    from backstory.cli.pages.tables import policy_table

    session = session_of(ctx)
    changes = policy_changes(settings or ())
    with session.opened() as bs:
        configurable(changes, bs.config.settings.max_facts_limit)
        memory = bs.memory(session.user, session.agent)
        result = memory.set_policy(**changes) if changes else memory.policy()

    def told(page: Page, result: PolicyResult) -> None:
        if changes and result.commit is None:
            page.line("nothing was changed: these rules are in force already")
        policy_table(page, result)

    session.answer(result, told)


def clear(
    ctx: typer.Context,
    *,
    all_agents: Annotated[
        bool, typer.Option("--all-agents", help="The user's memory, and that of all the user's agents.")
    ] = False,
) -> None:
    """Empty a memory; its history stays, so that it can be brought back."""
    from backstory.cli.pages.labels import counted, whose
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if all_agents and session.agent is not None:
        raise UsageError("--all-agents is about all of a user's agents: leave out --agent")
    with session.opened() as bs:
        agents = [owner.agent for owner in bs.owners() if owner.user == session.user and owner.agent is not None]
        others = agents if all_agents else []
        memory = bs.memory(session.user, session.agent)
        document = memory.clear(all_agents=all_agents)
        entry = memory.log(limit=1)[0]

    def told(page: Page, _: Document) -> None:
        owner = whose(session.user, session.agent)
        agents = f" that of {counted(len(others), 'agent')}"
        if entry.events:
            beside = f", and so is{agents}" if others else ""
            page.line(f"{owner} is empty now{beside}; `backstory revert {entry.seq}` brings it back")
        else:
            beside = f",{agents} is empty now" if others else ""
            page.line(f"{owner} was empty already{beside}; what was said so far is not learned from again")

    session.answer(document, told)


def import_(
    ctx: typer.Context,
    *,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A memory.json, a JSON list of texts or facts, or a DeerFlow folder; - reads JSON that is piped in.",
        ),
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Instead of what is there.")] = False,
) -> None:
    """Take a memory in, beside what is remembered: a memory.json, a list of facts, or the folder of a DeerFlow home.

    Of a DeerFlow home it is the part of --user and --agent; the folder may also be the user's or the agent's own.

    Example: backstory --user ada import ~/.deer-flow
    """
    from backstory.cli.inputs import read_json
    from backstory.cli.pages.labels import counted

    session = session_of(ctx)
    given = read_json(path) if path == "-" else path
    with session.memory() as memory:
        document = memory.import_document(given, replace=replace)
        entry = memory.log(limit=1)[0]

    def told(page: Page, document: Document) -> None:
        page.line(f"commit {entry.seq}: {entry.summary}")
        page.line(f"{counted(len(document.facts), 'fact')} in memory now")

    session.answer(document, told)


def export(ctx: typer.Context) -> None:
    """Print the memory as a memory.json.

    Example: backstory export > memory.json
    """
    from backstory.cli.pages.page import write_json

    session = session_of(ctx)
    with session.memory() as memory:
        session.answer(memory.document(), lambda _, document: write_json(document, indented=True))
