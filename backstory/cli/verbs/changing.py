"""Verbs that change or export a whole memory: revert, rollback, policy, clear, import, export."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import counted, whose
from backstory.cli.pages.page import Page, clean, write_json, write_raw
from backstory.cli.session import Session, progress_of_total
from backstory.ledger.core.errors import UsageError

if TYPE_CHECKING:
    from backstory.projections.document.document import Document
    from backstory.results import PolicyResult

_NOTES = 20
"""How many notes on an import are printed."""
_LONG_KIB = 4 * 1024
"""To import less than this takes about a second and needs no progress bar."""

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes without writing them.")]


def revert(
    session: Session,
    *,
    seq: Annotated[
        str | None,
        typer.Argument(metavar="SEQ|HEAD", help="The commit to undo; HEAD is the last one, HEAD~1 the one before."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="SEQ|HEAD", help="The commit, as an option.")] = None,
    dry_run: _DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Undo it even if later commits conflict.")] = False,
    with_agents: Annotated[
        bool, typer.Option("--with-agents", help="Of a clear with all agents, undo the agents', too.")
    ] = False,
) -> None:
    """Undo one commit and restore what it replaced. Exit 1 if later commits conflict.

    Example: backstory revert HEAD --dry-run
    """
    from backstory.cli.pages.history import undo_lines

    target = _target(seq, to, "the commit to undo: its number, or HEAD for the last one")
    with session.memory() as memory:
        result = memory.revert(target, dry_run=dry_run, force=force, with_agents=with_agents)
    session.answer(result, lambda page, undone: undo_lines(page, undone, dry_run=dry_run))
    if not force and any(undo.conflicts for undo in (result, *(one.undo for one in result.agents if one.undo))):
        raise typer.Exit(1)


def rollback(
    session: Session,
    *,
    moment: Annotated[
        str | None, typer.Argument(metavar="SEQ|TIME", help="The commit to go back to, or a time that is no day.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="SEQ|TIME", help="The same, as an option.")] = None,
    dry_run: _DryRun = False,
) -> None:
    """Restore memory as it was at a commit or a time. The rollback is a commit and can be reverted.

    Example: backstory rollback 12
    """
    from backstory.cli.pages.history import undo_lines

    target = _target(moment, to, "the commit or the time to go back to")
    with session.memory() as memory:
        result = memory.rollback(target, dry_run=dry_run)
    session.answer(result, lambda page, undone: undo_lines(page, undone, dry_run=dry_run))


def _target(argument: str | None, option: str | None, wanted: str) -> str:
    """Return the target of an undo, which is an argument or the option --to."""
    if argument is not None and option not in (None, argument):
        raise UsageError(f"the target is given twice, as {argument} and as --to {option}: leave one of them out")
    target = option if argument is None else argument
    if target is None:
        raise UsageError(f"no target is given: name {wanted}")
    return target


def policy(
    session: Session,
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a rule. May be repeated.")
    ] = None,
) -> None:
    """Show the rules in force, or change them.

    Values have the ranges of the configuration. To try a value outside of them, see `what-if`.

    Example: backstory policy --set max_facts=50
    """
    from backstory.cli.inputs import check_policy_range, policy_changes
    from backstory.cli.pages.tables import policy_table

    changes = policy_changes(settings or ())
    with session.opened() as bs:
        check_policy_range(changes, bs.config.settings.max_facts_limit)
        memory = session.named(bs, creates=bool(changes))
        result = memory.set_policy(**changes) if changes else memory.policy()

    def show(page: Page, result: PolicyResult) -> None:
        if changes and result.commit is None:
            page.line("nothing was changed: these rules are in force already")
        policy_table(page, result)

    session.answer(result, show)


def clear(
    session: Session,
    *,
    all_agents: Annotated[
        bool, typer.Option("--all-agents", help="Clear the user's memory and the memory of each of the user's agents.")
    ] = False,
) -> None:
    """Clear a memory. Its history stays, so `revert` can restore it.

    Example: backstory --user ada clear --all-agents
    """
    from backstory.users.owners import agents_of

    if all_agents and session.agent is not None:
        raise UsageError("--all-agents and --agent exclude each other: leave one of them out")
    with session.opened() as bs:
        others = agents_of(bs.store, session.user) if all_agents else ()
        memory = session.named(bs)
        document = memory.clear(all_agents=all_agents)
        entry = memory.log(limit=1)[0]

    def show(page: Page, _: Document) -> None:
        owner = whose(session.user, session.agent)
        agents = f" that of {counted(len(others), 'agent')}"
        if entry.events:
            also = f", and so is{agents}" if others else ""
            page.line(f"{owner} is empty now{also}; `backstory revert {entry.seq}` restores it")
        else:
            also = f",{agents} is empty now" if others else ""
            page.line(f"{owner} was empty already{also}; no facts will be extracted from the turns so far")

    session.answer(document, show)


def import_(
    session: Session,
    *,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A memory.json, an export of another tool (also as a zip file or a folder), sessions, a list "
            "of facts or a DeerFlow folder; - reads standard input.",
        ),
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the facts that are there.")] = False,
    format_name: Annotated[
        str | None, typer.Option("--as", metavar="FORMAT", help="Read PATH as this format, without looking for it.")
    ] = None,
    of_user: Annotated[
        str | None, typer.Option("--of", metavar="NAME", help="Take the part of one user that the file names.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come, and write nothing.")] = False,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Tag the new turns and facts. May be given several times."),
    ] = None,
) -> None:
    """Import a memory, or an export of another tool, whose format is recognised by its content.

    Conversations are recorded (`extract --clock turns` learns from them), facts are imported. From a DeerFlow home it
    imports the part of --user and --agent. The folder may also be that user's or agent's own.

    Example: backstory --user ada import conversations.json --dry-run
    """
    from backstory.cli.inputs import file_given
    from backstory.cli.pages.answers import import_lines

    with (
        file_given(path) as given,
        session.memory(creates=True) as memory,
        session.when_interrupted(lambda: "what came in stays; run it again, and it is skipped"),
        progress_of_total("importing, KiB", least=_LONG_KIB, unit=1024) as step,
    ):
        imported = memory.import_file(
            given,
            format_name=format_name,
            of_user=of_user,
            replace=replace,
            dry_run=dry_run,
            tags=tags or (),
            progress=step,
        )
        entry = memory.log(limit=1)[0] if imported.commit else None
    session.answer(imported, lambda page, found: import_lines(page, found, entry, dry_run=dry_run))
    for note in imported.notes[:_NOTES]:
        session.note(note)
    if len(imported.notes) > _NOTES:
        session.note(f"and {len(imported.notes) - _NOTES} more; `backstory --json log --limit 1` lists them all")


def export(
    session: Session,
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a MEMORY.md for people: sections, and facts by category.")
    ] = False,
    all_about: Annotated[
        str | None,
        typer.Option("--all-about", metavar="USER", help="Write all that is kept about USER as a zip file."),
    ] = None,
) -> None:
    """Print memory as a memory.json, or for people to read and compare; or write all about a user as a zip file.

    Example: backstory export --markdown > MEMORY.md
    """
    from backstory.projections.document.markdown import markdown_of

    if all_about is not None:
        _export_user(session, all_about, alone=not markdown and not session.as_json)
        return
    if markdown and session.as_json:
        raise UsageError("--markdown and --json exclude each other: leave one of them out")
    with session.memory() as memory:
        if markdown:
            write_raw(clean(markdown_of(memory.document())))
        else:
            session.answer(memory.document(), lambda _, document: write_json(document, indented=True))


def _export_user(session: Session, user: str, *, alone: bool) -> None:
    if not alone:
        raise UsageError("--all-about writes a zip file: leave --markdown and --json out")
    if sys.stdout.isatty():
        raise UsageError("--all-about writes a zip file: send it to one, such as `> all.zip`")
    with session.opened() as bs:
        found = bs.export_user(user, sys.stdout.buffer)
    session.note(f"wrote {counted(len(found.memories), 'memory', 'memories')} of user {found.user}")
