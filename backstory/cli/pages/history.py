"""Pages about history: log, why, why-not, why-said, diff, what-if, revert and verify."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from backstory.cli.pages.labels import author, counted, in_seconds, moment
from backstory.cli.pages.page import Column, Page
from backstory.cli.pages.tables import fact_lines, owner
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    PolicyChanged,
    SharingEvent,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.policy import POLICY_KEYS
from backstory.ledger.core.scope import Scope
from backstory.ledger.rules.undo import Note
from backstory.operations.undoing import ClearedAgent, UndoResult
from backstory.projections.context.why_said import GivenFact, QuotedTurn, WhySaid
from backstory.projections.history.audit import Evidence, HistoryItem, Why
from backstory.projections.history.refusals import WhyNot
from backstory.projections.history.section_audit import SectionHistoryItem, WhySection
from backstory.projections.history.views import Diff, LogEntry, policy_in_words, revision_in_words
from backstory.projections.integrity.stream_check import Problem
from backstory.projections.integrity.verify import Verification
from backstory.results import Reextracted, WhatIf

_MOST_ALIKE = 3

_LOG = (
    Column("seq", "cyan", right=True),
    Column("time", "dim", spare=72),
    Column("kind", "green"),
    Column("thread", folds=True),
    Column("by", "dim", folds=True, spare=100),
    Column("what", folds=True),
)


def log_table(page: Page, entries: Sequence[LogEntry]) -> None:
    """Print commits."""
    page.table(_LOG, map(log_row, entries), none="No commits to show.")


def log_of_all_table(page: Page, entries: Sequence[tuple[Scope, LogEntry]]) -> None:
    """Print commits of several memories, each with its user and agent."""
    columns = (Column("user", "cyan", folds=True), Column("agent", "cyan"), *_LOG)
    page.table(columns, ((*owner(scope), *log_row(one)) for scope, one in entries), none="No commits to show.")


def log_row(entry: LogEntry) -> Sequence[str]:
    """Return the cells of a commit: number, time, kind, thread, author and summary."""
    cause = entry.cause
    return str(entry.seq), moment(entry.at), str(cause), cause.thread or "", author(cause), entry.summary


def why_page(page: Page, why: Why) -> None:
    """Print the origin of a fact: its commit, its evidence and its later history."""
    if why.fact is None:
        page.line((why.id, "cyan"), ": its content was erased. Its history without content is kept.")
    else:
        fact_lines(page, why.fact)
    page.line()
    cause = why.added.cause
    page.line(
        ("Added ", "bold"),
        f"with commit {why.added.seq}, {moment(why.added.at)}: {cause}",
        f" of thread {cause.thread}" if cause.thread else "",
        f", by {author(cause)}" if author(cause) else "",
        ".",
    )
    sources = why.fact.consolidated_from if why.fact is not None else ()
    if sources:
        page.line(("Merged from ", "bold"), ", ".join(sources), ".")
    if why.evidence:
        page.line((_heading(cited=why.cited, merged=bool(sources)), "bold"), ":")
    for words in why.evidence:
        name = f" ({words.name})" if words.name else ""
        _quoted(page, f"{words.role}{name}, {moment(words.at)}, turn {words.turn} of {words.thread}", words)
    _periods(page, why)
    later = why.history[1:]
    if later:
        page.line(("Since then", "bold"), ":")
        columns = (Column("seq", "cyan", right=True), Column("time", "dim"), Column("what"), Column("", folds=True))
        page.table(columns, map(_history_row, later), indent=2)
    gone = why.removed
    if gone is not None and gone.reason == "erased":
        page.line((f"Erased with commit {gone.seq}", "bold red"), f" by {gone.actor}." if gone.actor else ".")
    elif gone is not None and gone.reason == "ended":
        until = gone.valid_until or moment(gone.at)
        page.line(
            (f"Ended with commit {gone.seq}, true until {until}", "bold"),
            f"; `backstory revert {gone.seq}` undoes that.",
        )
    elif gone is not None and gone.reason == "consolidated":
        page.line(
            (f"Merged into {gone.detail} with commit {gone.seq}", "bold red"),
            f"; `backstory revert {gone.seq}` undoes that.",
        )
    elif gone is not None:
        by = f", by {gone.actor}" if gone.actor else ""
        page.line((f"Removed with commit {gone.seq}", "bold red"), f"{by}; `backstory revert {gone.seq}` undoes that.")
    elif why.lapsed is not None:
        page.line((f"Its time was over at {moment(why.lapsed)}", "bold"), "; no read shows it.")
    else:
        page.line(("It is in memory now.", "bold green"))


def why_said_page(page: Page, why: WhySaid) -> None:
    """Print an answer, and the facts that it had been given."""
    page.line((f"{why.role}, {moment(why.at)}, turn {why.turn} of {why.thread}:", "dim"))
    page.quote(why.content)
    if not why.noted:
        page.line("Its turn does not note what it was given.")
        return
    whose = " of the user" if why.of_user else ""
    page.line(("It was given ", "bold"), f"memory{whose} as of commit {why.seq}, {counted(len(why.facts), 'fact')}:")
    columns = (Column("id", "cyan"), Column("fact", folds=True), Column("", "dim"))
    page.table(columns, map(_given_row, why.facts), indent=2)
    if why.turns:
        page.line(("It was given what was said before", "bold"), ":")
    for turn in why.turns:
        about = f"turn {turn.turn} of {turn.thread}"
        said = about if turn.role is None else f"{turn.name or turn.role}, {moment(turn.at or '')}, {about}"
        _quoted(page, said, turn)
    if not why.holds:
        page.line(("The note does not match this ledger: it is another one's, or commits are missing.", "bold red"))


def _quoted(page: Page, said: str, turn: Evidence | QuotedTurn) -> None:
    """Print the words of a turn under a line that says whose they are."""
    page.line((said, "dim"), (", withdrawn since" if turn.withdrawn else "", "yellow"), (":", "dim"), indent=2)
    page.quote("erased" if turn.content is None else turn.content, indent=2)


def _given_row(fact: GivenFact) -> Sequence[str]:
    if fact.content is None:
        return fact.id, "erased", ""
    return fact.id, f"[{fact.category} | {fact.confidence:.2f}] {fact.content}", "" if fact.live else "gone since"


def why_section_page(page: Page, why: WhySection) -> None:
    """Print the origin of a section's text."""
    page.line((why.section, "cyan"), f": {why.text}" if why.text else ": empty")
    if why.written is not None:
        page.line(
            ("Written ", "bold"), f"with commit {why.written.seq}, {moment(why.written.at)}: {_writer(why.written)}."
        )
    if why.evidence:
        page.line(("The update read these turns", "bold"), ":")
    for words in why.evidence:
        _quoted(page, f"{words.role}, {moment(words.at)}, turn {words.turn} of {words.thread}", words)
    page.line(("History", "bold"), ":")
    columns = (Column("seq", "cyan", right=True), Column("time", "dim"), Column("who"), Column("", folds=True))
    rows = ((str(item.seq), moment(item.at), _writer(item), item.detail or "emptied") for item in why.history)
    page.table(columns, rows, indent=2)


def _writer(item: SectionHistoryItem) -> str:
    """Name the update that a change of a section belongs to."""
    parts = [item.cause if item.agent is None else f"commit {item.agent_seq} of agent {item.agent}"]
    parts += [f"thread {item.thread}"] if item.thread else []
    parts += [name for name in (item.model, item.actor) if name]
    return ", ".join(parts)


def _periods(page: Page, why: Why) -> None:
    if len(why.periods) > 1:
        page.line(("True in", "bold"), ":")
    for period in why.periods if len(why.periods) > 1 else ():
        span = f"from {period.valid_from or 'unknown'} until {period.valid_until or 'now'}"
        page.line(span, (f"  {period.id}", "cyan"), indent=2)


def _heading(*, cited: bool, merged: bool) -> str:
    if merged:
        # The model read these turns when it added the sources, not when it merged them.
        return "Evidence of those" if cited else "Evidence of those; all turns that the model read where it cited none"
    return "Evidence" if cited else "The model cited no evidence. It read these turns"


_EVENT_LABELS = {
    "FactAdded": "restored",
    "FactRemoved": "removed",
    "FactRevised": "revised",
    "CandidateRejected": "kept",
    "Redacted": "erased",
}
_OWN_LABELS = ("merged into ", "removed after review")
"""Beginnings of a detail that replace the label of a removal."""


def _history_row(item: HistoryItem) -> Sequence[str]:
    label, detail = _EVENT_LABELS.get(item.type, item.type), item.detail
    if item.type == "FactRemoved" and detail.startswith(_OWN_LABELS):
        label, _, detail = detail.partition(": ")
    more = f"{item.cause}: {detail}" if detail and item.type != "FactAdded" and detail != item.cause else item.cause
    # The words of an erasure name who asked for it.
    by = f", by {item.actor}" if item.actor and item.type != "Redacted" else ""
    return (str(item.seq), moment(item.at), label, more + by)


def refusal_table(page: Page, found: WhyNot, text: str) -> None:
    """Print the facts in memory that are like a text, then the refused and removed ones."""
    known = remembered(found, text)
    for label, fact in known:
        page.line((f"{label[:1].upper()}{label[1:]}", "bold green"), f": {fact.content}", (f"  {fact.id}", "dim"))
    if not found and not known:
        page.line(("No fact like it was ever refused or removed.", "dim"))
    columns = (
        Column("seq", "cyan", right=True),
        Column("rule", "yellow"),
        Column("content", folds=True),
        Column("detail", "dim", folds=True),
    )
    page.table(columns, ((str(r.seq), r.rule, r.content, in_seconds(r.detail)) for r in found))


def remembered(found: WhyNot, text: str) -> Sequence[tuple[str, Fact]]:
    """Label the facts in memory: the one that a text states, or else the few that are most like it."""
    key = dedup_key(text)
    same = [("this is in memory", fact) for fact in found.remembered if dedup_key(fact.content) == key]
    return same or [("like it in memory", fact) for fact in found.remembered[:_MOST_ALIKE]]


# Differences.


def _fact_line(page: Page, sign: str, style: str, fact: Fact, note: str = "") -> None:
    about = f"  {fact.id}, {fact.category}, {fact.confidence:.2f}{note}"
    page.line((f"{sign} {fact.content}", style), (about, "dim"))


def _revision_line(page: Page, before: Fact, after: Fact) -> None:
    change = revision_in_words(before, after)
    if before.content == after.content:
        change = f"{after.content}: {in_seconds(change)}"
    page.line((f"~ {change}", "yellow"), (f"  {after.id}", "dim"))


def _section_lines(page: Page, section: str, before: str, after: str) -> None:
    page.line(f"~ {section}:" if before and after else f"{'+' if after else '-'} {section}:")
    if before:
        page.line((f"- {before}", "red"), indent=2)
    if after:
        page.line((f"+ {after}", "green"), indent=2)


def diff_lines(page: Page, found: Diff | Reextracted | WhatIf, *, same: str = "No difference.") -> None:
    """Print a difference: - for removed, + for added, ~ for changed; `same` if there is none."""
    if not (found.added or found.removed or found.revised or found.sections):
        page.line((same, "dim"))
    ended = found.ended if isinstance(found, Diff) else {}
    for fact in found.removed:
        _fact_line(page, "-", "red", fact, f", ended: true until {ended[fact.id]}" if fact.id in ended else "")
    for fact in found.added:
        _fact_line(page, "+", "green", fact)
    for revision in found.revised:
        _revision_line(page, revision.before, revision.after)
    for change in found.sections:
        _section_lines(page, change.section, change.before, change.after)


def what_if_lines(page: Page, found: WhatIf) -> None:
    """Print how memory would differ, and its number of facts."""
    diff_lines(page, found, same="Memory would be the same.")
    page.line(f"There would be {counted(found.facts, 'fact')}. Nothing was written.")


def undo_lines(page: Page, result: UndoResult, *, dry_run: bool) -> None:
    """Print the changes of an undo, and its conflicts."""
    _undo_part(page, result)
    if result.users is not None and (result.users.events or result.users.superseded):
        page.line("In the user's memory, which agents share:")
        _undo_part(page, result.users)
        if result.users.commit is not None:
            page.line(f"That is commit {result.users.commit} of the user's memory.")
    for cleared in result.agents:
        _cleared_agent_lines(page, cleared)
    if not (result.events or result.superseded or result.conflicts or result.users or result.agents):
        page.line("No difference: memory is so already.")
    _undone_line(page, result, dry_run=dry_run)


def _undo_part(page: Page, undo: UndoResult) -> None:
    """Print what an undo does to one memory, and what of it is left alone or conflicts."""
    for event in undo.events:
        _event_line(page, event)
    for note in undo.superseded:
        page.line((f"left alone: {_noted(note)}", "dim"))
    for note in undo.conflicts:
        page.line((f"conflict: {_noted(note)}", "red"))


def _undone_line(page: Page, result: UndoResult, *, dry_run: bool) -> None:
    if result.commit is not None and not (result.events or result.users or result.agents):
        page.line(f"Memory is unchanged, which is recorded as commit {result.commit}.")
    elif result.commit is not None:
        page.line(("Done", "bold green"), f", as commit {result.commit}; revert that commit to undo this.")
    elif dry_run:
        page.line(("Nothing was written: this was a dry run.", "bold"))
    else:
        page.line(("Nothing was written", "bold red"), ": use --force to undo it in spite of the conflicts.")


def _cleared_agent_lines(page: Page, cleared: ClearedAgent) -> None:
    lost = f"agent {cleared.agent}, cleared at the same time: {counted(cleared.facts, 'fact')} (commit {cleared.seq})"
    undo = cleared.undo
    if undo is None:
        page.line(f"{lost}. --with-agents brings them back.")
        return
    page.line(f"In the memory of {lost}:")
    _undo_part(page, undo)


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
        case SharingEvent() | UpdateEvent() | IdsReserved() | ErasureEvent() | TurnEvent():
            page.line(type(event).__name__)
        case _:
            assert_never(event)


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


def verification_lines(page: Page, result: Verification) -> None:
    """Print the result of a verification."""
    checked = f"{counted(result.commits, 'commit')} and {counted(result.turns, 'turn')}"
    if result.ok:
        page.line(
            ("ok", "bold green"), f": {checked}; both hash chains are intact, and memory.json agrees with the ledger"
        )
    else:
        page.line(("NOT ok", "bold red"), f": {counted(len(result.problems), 'finding')} in {checked}")
    _problem_table(page, result.problems)
    _notes(page, result.notes)


def _problem_table(page: Page, problems: Sequence[Problem]) -> None:
    page.table(_PROBLEMS, ((p.kind, p.stream, str(p.line), str(p.byte), p.message) for p in problems))
    if any(problem.kind != "head_not_found" for problem in problems):
        page.line(("`doctor` says how to mend each.", "dim"))


def _notes(page: Page, notes: Iterable[str]) -> None:
    for note in notes:
        page.line((f"note: {note}", "dim"))


def verification_table(page: Page, results: Sequence[tuple[Scope, Verification]]) -> None:
    """Print the result of the verification of each scope."""
    columns = (
        Column("ok"),
        Column("commits", right=True),
        Column("turns", right=True),
        Column("user"),
        Column("agent"),
    )
    rows = (("ok" if r.ok else "NOT ok", str(r.commits), str(r.turns), *owner(s)) for s, r in results)
    page.table(columns, rows)
    _problem_table(page, [problem for _, r in results for problem in r.problems])
    # Each scope has the same note about a witness that cannot be read.
    _notes(page, dict.fromkeys(note for _, r in results for note in r.notes))
