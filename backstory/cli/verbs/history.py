"""Verbs that query memory and its history: show, log, why, why-not, why-said, diff, what-if."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from backstory.cli import completion
from backstory.cli.pages.labels import whose
from backstory.cli.pages.page import Page, write_json
from backstory.cli.session import Session, progress
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.kinds import LedgerCauseKind, words_of

if TYPE_CHECKING:
    from backstory.home import Backstory
    from backstory.ledger.core.scope import Scope
    from backstory.projections.document.document import Document
    from backstory.projections.history.views import LogEntry

_SCREEN_ROWS = 20


def show(
    session: Session,
    *,
    at: Annotated[
        str | None, typer.Option(metavar="SEQ|TIME", help="Show it as of this commit, or the end of this time.")
    ] = None,
    valid_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show the facts that were true then, as far as memory knows, or knew."),
    ] = None,
) -> None:
    """Show memory, now or at an earlier commit or time.

    With --valid-at it shows the facts that were true at a time, or at some time in a year, month or day. Facts that
    have ended since are among them. --at is what was known, --valid-at what was true.

    SEQ is a commit: its number, HEAD, HEAD~1, or the beginning of its hash. TIME is ISO 8601, a date, `yesterday` or
    `3d ago`, in UTC unless it has an offset.

    Example: backstory show --at "2026-03-12 10:30:00Z"
    """
    from backstory.cli.pages.tables import document_page, fact_table, full_line

    with session.memory() as memory:
        if valid_at is not None:
            session.answer(memory.facts(at, valid_at=valid_at), fact_table)
            return
        owner = whose(memory.scope.user, memory.scope.agent)

        def show_all(page: Page, document: Document) -> None:
            document_page(page, document, owner)
            if at is None:
                full_line(page, memory.status())

        session.answer(memory.document(at), show_all)


def log(
    session: Session,
    *,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, metavar="N", help="Maximum number of commits. Default: 20 on a terminal, else all."
        ),
    ] = None,
    fact: Annotated[str | None, typer.Option(metavar="ID", help="Only commits about this fact.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only commits from this conversation.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="SEQ|TIME", help="Only commits since this one, or this time.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new commits as they arrive, oldest first. With --json one per line.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only commits of this kind, such as extraction, manual or clear.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only commits of an actor or model whose name contains this.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Of every user and agent of the home.")] = False,
) -> None:
    """List commits, newest first: when and why memory changed, and who changed it.

    Example: backstory log --thread monday --since 2026-03-01
    """
    from backstory.cli.pages.history import log_of_all_table, log_table

    if kind is not None and kind not in _KINDS:
        raise UsageError(f"--kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    selects = kind is not None or by is not None
    if follow and (every or selects):
        raise UsageError("--follow prints all new commits of one memory: leave out --all, --kind and --by")
    if every and fact is not None:
        raise UsageError("--fact is about one memory, since ids repeat in others: leave out --all")
    found: list[tuple[Scope, LogEntry]] = []
    with session.opened() as bs:
        if follow:
            _follow(session, bs, limit=limit, fact=fact, thread=thread, since=since)
        for memory in map(bs.memory_of, bs.owners()) if every else (session.named(bs),):
            # Of all memories most do not have the thread.
            with suppress(NotFoundError) if every else nullcontext():
                entries = memory.log(limit=None if selects else limit, fact=fact, thread=thread, since=since)
                found += [(memory.scope, one) for one in entries if _is_of(one, kind, by)]
        if every:
            found.sort(key=lambda one: one[1].at, reverse=True)
        found = found[:limit]
        most = _SCREEN_ROWS if limit is None and not session.as_json and sys.stdout.isatty() else len(found)
        if every:
            session.answer_each(found[:most], log_of_all_table)
        else:
            session.answer([one for _, one in found[:most]], log_table)
    if len(found) > most:
        session.note(f"{len(found) - most} older commits are not shown: use --limit {len(found)} to see them")


_KINDS = words_of(LedgerCauseKind)


def _is_of(entry: LogEntry, kind: str | None, by: str | None) -> bool:
    """Whether a commit is of a kind, and of an author whose name contains a text."""
    cause = entry.cause
    named = f"{cause.actor or ''}\n{cause.model or ''}".casefold()
    return kind in (None, cause.kind) and (by is None or by.casefold() in named)


def _follow(
    session: Session, bs: Backstory, *, limit: int | None, fact: str | None, thread: str | None, since: str | None
) -> NoReturn:
    """Print new commits until interrupted; with `limit` or `since` first the matching old ones."""
    from backstory.cli.pages.history import log_row
    from backstory.ledger.core.commit import unseal
    from backstory.ledger.core.scope import LEDGER
    from backstory.projections.history.views import concerns, entry

    def show(one: LogEntry) -> None:
        if session.as_json:
            write_json(one, indented=False)
        else:
            session.page().line("  ".join(part for part in log_row(one) if part))
        sys.stdout.flush()

    memory = session.named(bs)
    stream = memory.scope.stream(LEDGER)
    wanted = None if fact is None else memory.fact_id(fact)
    head = memory.head()
    session.answered = True
    with session.when_interrupted(lambda: f"commit {head.seq} is the last one that was followed"):
        for one in reversed(memory.log(limit=limit, fact=wanted, thread=thread, since=since) if limit or since else ()):
            if one.seq <= head.seq:
                show(one)
        for record in bs.store.follow(stream, head.seq):
            commit = unseal(record.line, head, stream=stream, byte=record.byte)
            head = commit.head
            if (wanted is None or concerns(commit, wanted)) and thread in (None, commit.cause.thread):
                show(entry(commit))
    session.note(f"the memory of {memory.scope} was removed: nothing follows")
    raise typer.Exit


def why(
    session: Session,
    *,
    fact_id: Annotated[
        str,
        typer.Argument(
            metavar="FACT_ID",
            autocompletion=completion.facts,
            help="The id of a fact, or a unique prefix of it, or a section such as user.workContext.",
        ),
    ],
) -> None:
    """Show where a fact came from, including facts that were removed, or who wrote a section.

    Example: backstory why fact_2_0
    """
    from backstory.cli.pages.history import why_page, why_section_page
    from backstory.projections.history.section_audit import section_named

    with session.memory() as memory:
        if section_named(fact_id) is None:
            session.answer(memory.why(fact_id), why_page)
        else:
            session.answer(memory.why_section(fact_id), why_section_page)


def why_not(session: Session, text: Annotated[str, typer.Argument(help="The text of the expected fact.")]) -> None:
    """Show why a fact is not in memory, or that it is. Exit 1 if nothing like it was ever refused or removed.

    Example: backstory why-not "likes tea"
    """
    from backstory.cli.pages.history import refusal_table, remembered

    with session.memory() as memory:
        found = memory.why_not(text)
    session.answer(tuple(found), lambda page, _: refusal_table(page, found, text))
    if session.as_json:
        for label, fact in remembered(found, text):
            session.note(f"{label}: {fact.content} ({fact.id})")
    if not found:
        raise typer.Exit(1)


def why_said(
    session: Session,
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The id of the turn of an answer, as `turns` shows it.")],
    *,
    thread: Annotated[str | None, typer.Option(help="The conversation, where several have a turn of this id.")] = None,
) -> None:
    """Show what the agent had been given to read when it said something. Exit 1 if its turn does not note that.

    Example: backstory why-said m4 --thread monday
    """
    from backstory.cli.pages.history import why_said_page

    with session.memory() as memory:
        found = memory.why_said(turn, thread)
        session.answer(found, why_said_page)
    if not found.noted:
        raise typer.Exit(1)


def diff(
    session: Session,
    *,
    a: Annotated[str, typer.Argument(metavar="A", help="A commit, or a time that is no whole day.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A commit, or a time that is no whole day.")],
) -> None:
    """Compare memory at two commits or times. Facts that only B has are shown as added.

    Example: backstory diff 3 2026-03-12T10:30:00Z
    """
    from backstory.cli.pages.history import diff_lines

    with session.memory() as memory:
        session.answer(memory.diff(a, b), diff_lines)


def what_if(
    session: Session,
    *,
    max_facts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum number of facts in memory.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Confidence that a fact from a model needs, from 0 to 1.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any rule of the policy. May be repeated.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="SEQ", help="Ignore the commits after this one.")] = None,
) -> None:
    """Replay the whole history under other rules, and compare the results. Writes nothing.

    A rule may be outside of the ranges of the configuration, such as a memory of five facts.

    Example: backstory what-if --max-facts 20 --threshold 0.9
    """
    from backstory.cli.inputs import policy_changes
    from backstory.cli.pages.history import what_if_lines

    changes = policy_changes(settings or ())
    if max_facts is not None:
        changes["max_facts"] = max_facts
    if threshold is not None:
        changes["fact_confidence_threshold"] = threshold
    with session.memory() as memory:
        with progress("replaying", memory.head().seq if until is None else memory.seq_of(until), least=500) as step:
            result = memory.what_if(until=until, progress=step, **changes)
        session.answer(result, what_if_lines)
