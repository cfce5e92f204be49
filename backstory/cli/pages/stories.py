"""Pages of what happened: the log, why and why not, differences, undoing, verification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backstory.cli.pages.answers import VerifiedIn
from backstory.cli.pages.labels import author, cause_in_words, counted, moment
from backstory.cli.pages.page import Column, Page
from backstory.cli.pages.tables import fact_lines
from backstory.ledger.core.events import Event, Fact, FactAdded, FactRemoved, FactRevised, PolicyChanged, SummaryUpdated
from backstory.ledger.core.policy import POLICY_KEYS
from backstory.ledger.rules.undo import Note
from backstory.projections.history.audit import HistoryItem, Refusal, Why
from backstory.projections.history.history import (
    Diff,
    LogEntry,
    Revision,
    SectionChange,
    policy_in_words,
    revision_in_words,
)
from backstory.projections.history.preview import UndoResult
from backstory.projections.integrity.verify import Problem, Verification
from backstory.results import WhatIf

__all__ = [
    "diff_lines",
    "log_row",
    "log_table",
    "refusal_table",
    "undo_lines",
    "verification_lines",
    "verification_table",
    "what_if_lines",
    "why_story",
]

_LOG = (
    Column("seq", "cyan", right=True),
    Column("time", "dim", spare=72),
    Column("kind", "green"),
    Column("thread", folds=True),
    Column("by", "dim", folds=True, spare=100),
    Column("what", folds=True),
)


def log_table(page: Page, entries: Sequence[LogEntry]) -> None:
    """Show commits."""
    if not entries:
        page.line(("No commits to show.", "dim"))
    page.table(_LOG, map(log_row, entries))


def log_row(entry: LogEntry) -> Sequence[str]:
    """Spell a commit: its number, time, kind, thread, author, and what it did."""
    cause = entry.cause
    return (
        str(entry.seq),
        moment(entry.at),
        cause_in_words(cause),
        cause.thread or "",
        author(cause),
        entry.summary,
    )


def why_story(page: Page, told: Why) -> None:
    """Tell where a fact comes from: who added it, the words behind it, and what became of it."""
    if told.fact is None:
        page.line((told.id, "cyan"), ": what it said was erased; that it was there, and when, is still known.")
    else:
        fact_lines(page, told.fact)
    page.line()
    cause = told.added.cause
    page.line(
        ("Came in ", "bold"),
        f"with commit {told.added.seq}, {moment(told.added.at)}: {cause_in_words(cause)}",
        f" of thread {cause.thread}" if cause.thread else "",
        f", by {author(cause)}" if author(cause) else "",
        ".",
    )
    sources = told.fact.consolidated_from if told.fact is not None else ()
    if sources:
        page.line(("Merged from ", "bold"), ", ".join(sources), ".")
    if told.evidence:
        page.line((_heading(cited=told.cited, merged=bool(sources)), "bold"), ":")
    for words in told.evidence:
        name = f" ({words.name})" if words.name else ""
        page.line((f"{words.role}{name}, {moment(words.at)}, turn {words.turn} of {words.thread}:", "dim"), indent=2)
        page.quote(words.content, indent=2)
    later = told.history[1:]
    if later:
        page.line(("Since then", "bold"), ":")
        columns = (Column("seq", "cyan", right=True), Column("time", "dim"), Column("what"), Column("", folds=True))
        page.table(columns, map(_history_row, later), indent=2)
    gone = told.removed
    if gone is not None and gone.reason == "erased":
        page.line((f"Erased with commit {gone.seq}", "bold red"), f" by {gone.actor}." if gone.actor else ".")
    elif gone is not None and gone.reason == "consolidated":
        page.line(
            (f"Merged into {gone.detail} with commit {gone.seq}", "bold red"),
            f"; `backstory revert {gone.seq}` would undo that.",
        )
    elif gone is not None:
        by = f", by {gone.actor}" if gone.actor else ""
        page.line(
            (f"Gone since commit {gone.seq}", "bold red"), f"{by}; `backstory revert {gone.seq}` would undo that."
        )
    else:
        page.line(("It is in memory now.", "bold green"))


def _heading(*, cited: bool, merged: bool) -> str:
    if merged:
        # The updates that the sources came from read these, the one that merged them did not.
        return "The words behind those" if cited else "The words behind those; where none were cited, all that was read"
    return "From these words" if cited else "No words were cited; that update read these"


_HAPPENED = {
    "FactAdded": "came back",
    "FactRemoved": "removed",
    "FactRevised": "revised",
    "CandidateRejected": "stayed",
    "Redacted": "erased",
}
_SAYS_HOW = ("merged into ", "removed after review")
"""How a removal begins to be told that says itself what happened."""


def _history_row(item: HistoryItem) -> Sequence[str]:
    happened, told = _HAPPENED.get(item.type, item.type), item.detail
    if item.type == "FactRemoved" and told.startswith(_SAYS_HOW):
        happened, _, told = told.partition(": ")
    detail = f"{item.cause}: {told}" if told and item.type != "FactAdded" and told != item.cause else item.cause
    return (str(item.seq), moment(item.at), happened, detail)


def refusal_table(page: Page, refusals: Sequence[Refusal], remembered: Sequence[Fact] = ()) -> None:
    """Show what is like a text and is not in memory, and why not; `remembered` are the facts that do say it."""
    for fact in remembered:
        page.line(("This is remembered", "bold green"), f": {fact.content}", (f"  {fact.id}", "dim"))
    if not refusals and not remembered:
        page.line(("Nothing like it was ever refused or removed.", "dim"))
    columns = (
        Column("seq", "cyan", right=True),
        Column("rule", "yellow"),
        Column("content", folds=True),
        Column("detail", "dim", folds=True),
    )
    page.table(columns, ((str(r.seq), r.rule, r.content, r.detail) for r in refusals))


# Differences.


def _fact_line(page: Page, sign: str, style: str, fact: Fact) -> None:
    page.line((f"{sign} {fact.content}", style), (f"  {fact.id}, {fact.category}, {fact.confidence:.2f}", "dim"))


def _revision_line(page: Page, before: Fact, after: Fact) -> None:
    told = revision_in_words(before, after)
    if before.content == after.content:
        told = f"{after.content}: {told}"
    page.line((f"~ {told}", "yellow"), (f"  {after.id}", "dim"))


def _section_lines(page: Page, section: str, before: str, after: str) -> None:
    page.line(f"~ {section}:" if before and after else f"{'+' if after else '-'} {section}:")
    if before:
        page.line((f"- {before}", "red"), indent=2)
    if after:
        page.line((f"+ {after}", "green"), indent=2)


def _changes(
    page: Page,
    added: Iterable[Fact],
    removed: Iterable[Fact],
    revised: Iterable[object],
    sections: Iterable[object],
) -> None:
    for fact in removed:
        _fact_line(page, "-", "red", fact)
    for fact in added:
        _fact_line(page, "+", "green", fact)
    for revision in revised:
        if isinstance(revision, Revision):
            _revision_line(page, revision.before, revision.after)
    for change in sections:
        if isinstance(change, SectionChange):
            _section_lines(page, change.section, change.before, change.after)


def diff_lines(page: Page, found: Diff) -> None:
    """Show a difference: - what went, + what came, ~ what changed."""
    if found.empty:
        page.line(("No difference.", "dim"))
    _changes(page, found.added, found.removed, found.revised, found.sections)


def what_if_lines(page: Page, found: WhatIf) -> None:
    """Show how memory would differ, and how large it would be."""
    if not (found.added or found.removed or found.revised or found.sections):
        page.line(("Memory would be the same.", "dim"))
    _changes(page, found.added, found.removed, found.revised, found.sections)
    page.line(f"There would be {counted(found.facts, 'fact')}. Nothing was written.")


def undo_lines(page: Page, result: UndoResult, *, dry_run: bool) -> None:
    """Show what an undo did, or would do, and what stood in its way."""
    for event in result.events:
        _event_line(page, event)
    for note in result.superseded:
        page.line((f"left alone: {_noted(note)}", "dim"))
    for note in result.conflicts:
        page.line((f"conflict: {_noted(note)}", "red"))
    if result.commit is not None:
        page.line(("Done", "bold green"), f", as commit {result.commit}; reverting that would undo the undo.")
    elif dry_run:
        page.line(("Nothing was written: this was a dry run.", "bold"))
    else:
        page.line(("Nothing was written", "bold red"), ": --force does it where it conflicts, too.")


def _event_line(page: Page, event: Event) -> None:
    match event:
        case FactAdded(fact=fact):
            _fact_line(page, "+", "green", fact)
        case FactRemoved(fact=fact):
            _fact_line(page, "-", "red", fact)
        case FactRevised(before=before, after=after):
            _revision_line(page, before, after)
        case SummaryUpdated(section=section, before=before_text, after=after_text):
            _section_lines(page, section, before_text.summary, after_text.summary)
        case PolicyChanged():
            page.line((f"~ policy: {policy_in_words(event, len(POLICY_KEYS))}", "yellow"))
        case _:
            page.line(type(event).__name__)


def _noted(note: Note) -> str:
    return f"{note.fact or note.section or note.kind} {note.detail}"


# Verification.

_PROBLEMS = (
    Column("kind", "red"),
    Column("stream"),
    Column("line", right=True),
    Column("byte", right=True),
    Column("finding", folds=True),
)


def _problem_rows(problems: Iterable[Problem]) -> Iterable[Sequence[str]]:
    return ((p.kind, p.stream, str(p.line), str(p.byte), p.message) for p in problems)


def verification_lines(page: Page, result: Verification) -> None:
    """Show what was checked and what was found."""
    checked = f"{counted(result.commits, 'commit')} and {counted(result.turns, 'turn')}"
    if result.ok:
        page.line(("ok", "bold green"), f": {checked}; both chains hold, and memory.json is what the ledger says")
    else:
        page.line(("NOT ok", "bold red"), f": {counted(len(result.problems), 'finding')} in {checked}")
    page.table(_PROBLEMS, _problem_rows(result.problems))
    _notes(page, result.notes)


def _notes(page: Page, notes: Iterable[str]) -> None:
    for note in notes:
        page.line((f"note: {note}", "dim"))


def verification_table(page: Page, results: Sequence[VerifiedIn]) -> None:
    """Show what was found in every scope."""
    columns = (
        Column("ok"),
        Column("commits", right=True),
        Column("turns", right=True),
        Column("user"),
        Column("agent"),
    )
    page.table(
        columns,
        (("ok" if r.ok else "NOT ok", str(r.commits), str(r.turns), r.user or "-", r.agent or "-") for r in results),
    )
    page.table(_PROBLEMS, (row for r in results for row in _problem_rows(r.problems)))
    # Of a witness that cannot be read each scope says the same.
    _notes(page, dict.fromkeys(note for r in results for note in r.notes))
