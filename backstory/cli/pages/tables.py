"""Pages about the present state: document, facts, threads, turns, status, scopes and settings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from backstory.cli.pages.answers import ConfigValue, RecordAnswer
from backstory.cli.pages.labels import counted, duration, moment, size, whose
from backstory.cli.pages.page import Column, Page
from backstory.ledger.core.commit import Head
from backstory.ledger.core.events import Fact, spelled
from backstory.ledger.core.policy import POLICY_KEYS
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.joined import OwnedFact
from backstory.projections.document.document import Document, DocumentFact
from backstory.projections.history.views import value_in_words
from backstory.projections.turns import TurnView
from backstory.projections.turns.superseded import SupersededTurn
from backstory.results import (
    RECENT_COMMITS,
    Extracted,
    ParkedThread,
    PendingThread,
    PolicyResult,
    Restored,
    ScopeSummary,
    SkippedText,
    Status,
    ThreadSummary,
)

_FACTS = (Column("id", "cyan"), Column("category", "green"), Column("conf", right=True), Column("fact", folds=True))


def document_page(page: Page, document: Document, title: str) -> None:
    """Print a memory: its sections that have text, and its facts."""
    updated = f", as of {moment(document.last_updated)}" if document.last_updated else ""
    page.line((title[:1].upper() + title[1:], "bold"), (updated, "dim"))
    user, history = document.user, document.history
    for name, section in (
        ("Work", user.work_context),
        ("Personal", user.personal_context),
        ("Top of mind", user.top_of_mind),
        ("Recent months", history.recent_months),
        ("Earlier", history.earlier_context),
        ("Long ago", history.long_term_background),
    ):
        if section.summary:
            page.line((f"{name}: ", "green"), section.summary)
    fact_table(page, document.facts)


def period_in_words(fact: Fact | DocumentFact) -> list[str]:
    """Return when a fact is true and until when it is remembered, as far as it says so."""
    period = " ".join(
        f"{word} {stated}" for word, stated in (("from", fact.valid_from), ("until", fact.valid_until)) if stated
    )
    return [*([period] if period else []), *([f"expires {fact.expires_at}"] if fact.expires_at else [])]


def tags_in_words(fact: Fact | DocumentFact) -> list[str]:
    """Return the tags and the attributes of a fact."""
    attributes = [f"{name}={spelled(value)}" for name, value in fact.attributes.items()]
    return [*([f"tags {', '.join(fact.tags)}"] if fact.tags else []), *attributes]


def fact_table(page: Page, facts: Sequence[Fact | DocumentFact]) -> None:
    """Print facts, one per line."""
    rows = ((_id(f), f.category, f"{f.confidence:.2f}", _content(f)) for f in facts)
    page.table(_FACTS, rows, none="No facts.")


def _id(fact: Fact | DocumentFact) -> str:
    return fact.shown_id if isinstance(fact, OwnedFact) else fact.id


def _content(fact: Fact | DocumentFact) -> str:
    notes = ["by hand"] if fact.by_hand else []
    notes += [f"avoid: {fact.source_error}"] if fact.source_error else []
    notes += [*period_in_words(fact), *tags_in_words(fact)]
    return f"{fact.content} ({'; '.join(notes)})" if notes else fact.content


def fact_lines(page: Page, fact: Fact) -> None:
    """Print one fact."""
    page.line((fact.content, "bold"))
    details = [fact.id, fact.category, f"confidence {fact.confidence:.2f}"]
    details += ["by hand" if fact.by_hand else f"from {fact.source}"]
    details += [f"avoid: {fact.source_error}"] if fact.source_error else []
    details += [f"valid for {counted(fact.expected_valid_days, 'day')}"] if fact.expected_valid_days else []
    details += [*period_in_words(fact), *tags_in_words(fact)]
    details += [f"confirmed {counted(fact.confirmations, 'time')}"] if fact.confirmations else []
    page.line((" · ".join(details), "dim"))


def recorded_lines(page: Page, result: RecordAnswer, waiting: Sequence[PendingThread] = ()) -> None:
    """Print the result of `record`, one line for each scope, and which threads end in words that wait for an answer."""
    for scope in result.scopes:
        skipped = f", {scope.skipped} skipped (recorded already, or without content)" if scope.skipped else ""
        counts = f"{counted(scope.turns, 'turn')} of {counted(scope.threads, 'thread')}{skipped}"
        page.line(f"recorded for {Scope(scope.user, scope.agent)}: {counts}")
    if not result.scopes:
        page.line("recorded nothing: there are no messages")
    if result.superseded:
        superseded = f"{counted(result.superseded, 'turn')} superseded: this delivery edits or replaces earlier turns"
        page.line((f"{superseded}; see `turns THREAD --superseded`", "yellow"))
    if waiting:
        threads = waiting[0].thread if len(waiting) == 1 else counted(len(waiting), "thread")
        until = _in(max(one.due_in or 0 for one in waiting))
        page.line(
            (f"{threads}: the last words wait for an answer until {until}; `extract` learns from them now", "dim")
        )


def extracted_lines(
    page: Page, result: Extracted, *, none: str = "nothing was pending", parked: Sequence[ParkedThread] = ()
) -> None:
    """Print the result of `extract`, and what is parked after it; `none` if there was nothing to do."""
    if result.updates:
        page.line(f"{counted(result.updates, 'update')}: commit {_numbers(result.commits)}")
    elif not (result.summaries or result.summaries_failed):
        page.line(none)
    if result.failed:
        page.line((f"{result.failed} of them failed; their turns are parked until `retry` or `discard`", "red"))
    if result.summaries:
        made = counted(len(result.summaries), "summary", "summaries")
        page.line(f"{made} of long threads: commit {_numbers(result.summaries)}")
    if result.summaries_failed:
        failed = counted(result.summaries_failed, "summary", "summaries")
        page.line((f"{failed} failed and changed nothing: see `log`", "red"))
    _parked_table(page, parked)


def _parked_table(page: Page, parked: Sequence[ParkedThread]) -> None:
    page.table(
        (Column("parked thread", "cyan"), Column("turns"), Column("tried"), Column("why", "red", folds=True)),
        (
            (p.thread, counted(p.turns, "turn"), counted(p.attempts, "attempt"), f"{p.reason}: {p.detail}")
            for p in parked
        ),
    )


def nothing_extracted(pending: Sequence[PendingThread]) -> str:
    """Say why `extract` made no update, by what is pending after it."""
    turns = sum(one.turns for one in pending)
    if not turns:
        return "nothing was pending"
    if all(one.due_in is None for one in pending):
        return f"nothing to learn from: {counted(turns, 'pending turn')} will go along with the next update"
    return f"no update was made: {counted(turns, 'turn')} pending; see `status`"


def extracted_table(page: Page, results: Sequence[tuple[Scope, Extracted]]) -> None:
    """Print the result of `extract` in each scope."""
    columns = (*OWNER, Column("updates", right=True), Column("failed", right=True), Column("commits", folds=True))
    summed = any(result.summaries for _, result in results)
    page.table(
        (*columns, Column("summaries", folds=True)) if summed else columns,
        (
            (*owner(s), str(r.updates), str(r.failed), _numbers(r.commits), *([_numbers(r.summaries)] * summed))
            for s, r in results
        ),
    )


def _numbers(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs))


OWNER = (Column("user", "cyan"), Column("agent", "cyan"))
_NO_MEMORIES = "This home has no memories yet."


def owner(owned: Scope | ScopeSummary | Status) -> tuple[str, str]:
    """Return the cells of `OWNER`."""
    return owned.user or "-", owned.agent or "-"


def scope_table(page: Page, scopes: Sequence[ScopeSummary]) -> None:
    """Print the scopes of a home; the global one has neither user nor agent."""
    columns = (*OWNER, Column("seq", right=True), Column("facts", right=True))
    page.table(columns, ((*owner(s), str(s.seq), str(s.facts)) for s in scopes), none=_NO_MEMORIES)


def thread_table(page: Page, threads: Sequence[ThreadSummary]) -> None:
    """Print the conversations."""
    columns = (
        Column("last", "dim"),
        Column("turns", right=True),
        Column("pending", "yellow", right=True),
        Column("thread", "cyan", folds=True),
    )
    rows = ((moment(t.last), str(t.turns), str(t.pending or ""), t.thread) for t in threads)
    page.table(columns, rows, none="No conversations are recorded yet.")


def turn_lines(page: Page, turns: Sequence[TurnView]) -> None:
    """Print turns with their full text."""
    for turn in turns:
        name = f" ({turn.name})" if turn.name else ""
        page.line((f"{turn.role}{name}", "bold"), (f"  {turn.id}  {moment(turn.at)}", "dim"))
        page.quote(turn.content, indent=2)


def superseded_lines(page: Page, turns: Sequence[SupersededTurn]) -> None:
    """Print superseded turns, and why they were superseded."""
    if not turns:
        page.line(("This conversation has no superseded turns.", "dim"))
    for turn in turns:
        why = f"{turn.reason} on {moment(turn.since)}" + ("" if turn.proven else ", without proof")
        page.line((turn.role, "bold"), (f"  {turn.id}  {moment(turn.at)}  ", "dim"), (why, "yellow"))
        page.quote(turn.content, indent=2)


def skipped_lines(page: Page, texts: Sequence[SkippedText]) -> None:
    """Print what was not recorded, since a harness had put it before the words of the user."""
    if not texts:
        page.line(("Nothing of this conversation was skipped.", "dim"))
    for text in texts:
        size = counted(text.characters, "character")
        page.line((text.wrapper, "bold"), (f"  {size}, before turn {text.turn}  {moment(text.at)}", "dim"))


def restored_lines(page: Page, result: Restored) -> None:
    """Print which turns were restored."""
    ids = ", ".join(turn.id for turn in result.restored)
    restored = f"{counted(len(result.restored), 'turn')} of {result.thread} restored: {ids}"
    page.line(restored if ids else "nothing to restore")


def summary_lines(page: Page, summaries: Sequence[ThreadSummaryText]) -> None:
    """Print the summaries of a conversation, each with its range of turns and times."""
    if not summaries:
        page.line(("This conversation has no summary.", "dim"))
    for summary in summaries:
        turns = f"turns {summary.first} to {summary.last}" if summary.first < summary.last else f"turn {summary.first}"
        page.line((turns, "bold"), (f"  {moment(summary.since)} to {moment(summary.until)}", "dim"))
        page.quote(summary.text, indent=2)


def status_page(page: Page, status: Status, origins: str = "") -> None:
    """Print the status of a scope; `origins` says where its names come from."""
    title = whose(status.user, status.agent)
    page.line((title[:1].upper() + title[1:], "bold"), (f" ({origins})" if origins else "", "dim"))
    lines = {
        "head": f"commit {status.seq}, {status.hash[:12]}" if status.seq else "no commits yet",
        "facts": f"{status.facts} of {status.max_facts}{_full(status)}{_assistant_only(status)}",
        "said": f"{counted(status.turns, 'turn')} in {counted(status.threads, 'thread')}",
        "kept": f"ledger {size(status.ledger_bytes)}, transcript {size(status.transcript_bytes)}, {status.store}",
        "model": status.model or "none; set OPENAI_API_KEY to extract facts",
    }
    for name, text in lines.items():
        page.line((f"{name:<6} ", "green"), text)
    waiting = ((p.thread, counted(p.turns, "turn"), _due(p)) for p in status.pending)
    page.table((Column("pending thread", "cyan"), Column("turns"), Column("due", "yellow", folds=True)), waiting)
    page.table(
        (Column("ends", "yellow"), Column("fact", folds=True)),
        ((moment(one.at), f"{one.content} ({one.id})") for one in status.ending),
    )
    _parked_table(page, status.parked)
    failed = (
        (fault.doing, counted(fault.count, "time"), moment(fault.last), f"{fault.kind}: {fault.detail}".rstrip(": "))
        for fault in status.faults
    )
    page.table(
        (Column("failed to", "cyan"), Column("", right=True), Column("last"), Column("why", "red", folds=True)), failed
    )


def full_line(page: Page, status: Status) -> None:
    """Print that a memory is full, if it is."""
    if full := _full(status):
        page.line((f"{status.facts} of {status.max_facts} facts{full}", "yellow"))


def _full(status: Status) -> str:
    """Say after the number of facts that it is the most, and what was evicted for new ones."""
    if status.facts < status.max_facts:
        return ""
    if not status.evicted:
        return ": full"
    commits = counted(min(RECENT_COMMITS, status.seq), "commit")
    facts = counted(sum(len(one.facts) for one in status.evicted), "fact")
    last = status.evicted[0].seq
    return f": full; the last {commits} evicted {facts}, the last with commit {last}; see `log` and `why-not`"


def _assistant_only(status: Status) -> str:
    count = status.assistant_only
    return f"; {count} on an assistant's words alone" if count else ""


def _due(pending: PendingThread) -> str:
    if pending.due_in is None:
        return "with the next update"
    if pending.waiting_for == "answer":
        return f"waits for an answer until {_in(pending.due_in)}; `extract` learns from it now"
    needs = "; needs a model" if pending.waiting_for == "model" else ""
    return f"in {duration(pending.due_in)}{needs}" if pending.due_in else f"now{needs}"


def _in(seconds: float) -> str:
    return moment((datetime.now(UTC) + timedelta(seconds=seconds)).isoformat())


def status_table(page: Page, states: Sequence[Status]) -> None:
    """Print the status of each scope."""
    # Faults and full memories are rare, so their columns appear only with one.
    failed, full = any(s.faults for s in states), any(map(_is_full, states))
    numbers = ("seq", "facts", "turns", "pending", "parked", *(["faults"] * failed))
    columns = (*OWNER, *(Column(name, right=True) for name in numbers), *([Column("", "yellow")] * full))
    page.table(
        columns,
        (
            (*owner(s), *map(str, _numbers_of(s)[: len(numbers)]), *(["full" if _is_full(s) else ""] * full))
            for s in states
        ),
        none=_NO_MEMORIES,
    )


def _is_full(status: Status) -> bool:
    return 0 < status.max_facts <= status.facts


def _numbers_of(status: Status) -> tuple[int, ...]:
    waiting = (sum(p.turns for p in status.pending), sum(p.turns for p in status.parked))
    return status.seq, status.facts, status.turns, *waiting, sum(fault.count for fault in status.faults)


def head_line(page: Page, head: Head) -> None:
    """Print the last commit's number and hash."""
    page.line(f"{head.seq} {head.hash}")


def policy_table(page: Page, result: PolicyResult) -> None:
    """Print the policy in force."""
    if result.commit is not None:
        page.line(f"in force since commit {result.commit}")
    rows = []
    for key in POLICY_KEYS:
        value, asked = getattr(result.policy, key), getattr(result.configured, key)
        differs = "" if value == asked else f"configuration asks for {value_in_words(asked)}"
        rows.append((key, value_in_words(value), differs))
    page.table((Column("rule", "cyan"), Column("value"), Column("", "dim", folds=True)), rows)


def config_table(page: Page, values: dict[str, ConfigValue], home: str) -> None:
    """Print the settings and their origins."""
    page.line(("Home: ", "bold"), home)
    columns = (Column("key", "cyan"), Column("from", "dim"), Column("value", folds=True))
    page.table(columns, ((key, v.origin, _yaml(v.value)) for key, v in values.items()))


def _yaml(value: object) -> str:
    """Spell a value as a configuration file would; None as nothing."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case tuple() | list():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items() if inner is not None)
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)
