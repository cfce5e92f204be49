"""Audit: where a fact comes from, down to the turns it was learned from, and why something is not in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol, TypeVar, assert_never

import msgspec

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.dedup import mark_key
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import (
    CandidateRejected,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    Redacted,
    SectionEvent,
    SettingEvent,
    Turn,
    TurnEvent,
    TurnRange,
    UpdateEvent,
)
from backstory.ledger.core.memory import Memory, has_lapsed, lapses
from backstory.ledger.core.moments import ends
from backstory.ledger.threads import ranges
from backstory.ledger.threads.ranges import Ranges
from backstory.projections.history.views import concerns, revision_in_words

T = TypeVar("T")


class Birth(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The commit that first added a fact."""

    seq: int
    at: str
    cause: Cause


class Evidence(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A turn that a fact was learned from; `turn` is its id in the thread.

    `withdrawn` if its words stand no longer: they were edited, replaced or taken back.
    """

    turn: str
    thread: str
    role: str
    content: str
    at: str
    name: str | None = None
    withdrawn: bool = False


def evidence_in(logs: Logs, thread: str, turns: Iterable[Turn]) -> tuple[Evidence, ...]:
    """Return turns of a thread as evidence."""
    turns = tuple(turns)
    withdrawn = _withdrawn(logs, thread, turns)
    return tuple(
        Evidence(
            turn.id,
            thread,
            turn.role,
            turn.content,
            turn.at,
            turn.name,
            withdrawn=turn.n in withdrawn,
        )
        for turn in turns
    )


def _withdrawn(logs: Logs, thread: str, turns: Iterable[Turn]) -> set[int]:
    gone = logs.superseded(thread)
    left = [turn for turn in turns if ranges.overlap(gone, turn.n, turn.n)]
    # What follows an earlier answer that was given again is recorded once more behind it.
    told = logs.turns(thread) if left else ()
    stand = {(turn.role, turn.content) for turn in told if not ranges.overlap(gone, turn.n, turn.n)}
    return {turn.n for turn in left if (turn.role, turn.content) not in stand}


class HistoryItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a fact; `detail` describes it, and `actor` is who asked for it, if it was not a model's update."""

    seq: int
    at: str
    type: str
    cause: str
    detail: str
    actor: str | None = None


class Removed(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The last removal of a fact, or its erasure (reason `erased`); `actor` requested it.

    With the reason `ended` it was true until `valid_until`, or until the removal where that is None.
    """

    seq: int
    at: str
    reason: str
    note: str | None = None
    detail: str | None = None
    actor: str | None = None
    valid_until: str | None = None

    @classmethod
    def by(cls, event: FactRemoved, commit: Commit) -> Removed:
        """Return the removal that an event of a commit states."""
        until = event.valid_until or event.fact.valid_until if event.reason == "ended" else None
        return cls(commit.seq, commit.at, event.reason, event.note, event.detail, commit.cause.actor, until)


class Period(msgspec.Struct, frozen=True):
    """A time in which a statement was true: the fact that says so, since when and until when; None: unknown.

    `live` if that fact is in memory.
    """

    id: str
    valid_from: str | None
    valid_until: str | None
    live: bool


class Why(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The origin of a fact.

    Attributes:
        id: the fact's id.
        fact: the fact as it is, or as it was last; None where it was erased.
        live: whether it is in memory.
        added: the commit that first added it.
        evidence: the turns it was learned from.
        cited: whether the model cited the evidence; otherwise it is all turns of the update.
        history: its events, in order.
        removed: its removal, or None where it is in memory, or has only lapsed.
        periods: all facts that say the same in any spelling and are in memory or ended, each with its time.
        lapsed: the moment at which its time was over, where the commit that takes it out is still to come.
    """

    id: str
    fact: Fact | None
    live: bool
    added: Birth
    evidence: tuple[Evidence, ...]
    cited: bool
    history: tuple[HistoryItem, ...]
    removed: Removed | None
    periods: tuple[Period, ...] = ()
    lapsed: str | None = None


class Logs(Protocol):
    """The queries on a scope's logs that an audit needs; an index implements them."""

    def memory(self) -> Memory:
        """Return the memory at the ledger's head."""

    def commit(self, seq: int) -> Commit:
        """Return one commit of the ledger."""

    def commits_about(self, fact_id: str) -> Iterator[Commit]:
        """Yield the ledger's commits with an event about a fact, in order."""

    def saying(self, content: str) -> Sequence[str]:
        """Return the ids of all facts, live or gone, that said the same as a text at some time."""

    def in_force(self, seq: int) -> Sequence[range]:
        """Return the seqs of the commits up to one that nothing had set aside by then; see `questions.in_force`."""

    def turns(self, thread: str, within: TurnRange | None = None) -> Sequence[Turn]:
        """Return a thread's turns that were not erased, in order; all of them, or those in a range of ordinals."""

    def superseded(self, thread: str) -> Ranges:
        """Return the ordinals of a thread's turns that stand no longer."""


class _Story(msgspec.Struct):
    """The recorded history of one fact: the commit it was added in, its last state, and its removal."""

    history: list[HistoryItem] = []
    born: Commit | None = None
    last: Fact | None = None
    removed: Removed | None = None


def _story(logs: Logs, fact_id: str, until: int, standing: Sequence[range] | None = None) -> _Story:
    """Tell what became of a fact up to a commit; `standing` are the commits that count, all of them unless given."""
    story = _Story()
    erased: list[int] = []
    for commit in logs.commits_about(fact_id):
        # Commits made after the memory was read are ignored.
        counts = commit.seq <= until and (standing is None or any(commit.seq in some for some in standing))
        for event in concerns(commit, fact_id) if counts else ():
            detail = _in_words(event, commit)
            cause = commit.cause
            item = HistoryItem(commit.seq, commit.at, type(event).__name__, cause.kind, detail, cause.actor)
            story.history.append(item)
            match event:
                case FactAdded(fact=fact):
                    story.born, story.last, story.removed = story.born or commit, fact, None
                case FactRevised(after=fact):
                    story.last = fact
                case FactRemoved(fact=fact):
                    story.last = fact
                    story.removed = Removed.by(event, commit)
                case Redacted():
                    erased.append(event.seq)
                    story.removed = Removed(commit.seq, commit.at, "erased", actor=commit.cause.actor)
                case SectionEvent() | UpdateEvent() | SettingEvent() | Erased() | TurnEvent():
                    pass
                case _:
                    assert_never(event)
    if story.born is None and erased:
        story.born = logs.commit(min(erased))
    return story


def why(logs: Logs, fact_id: str, at: str) -> Why:
    """Explain a fact, a removed or erased one included, as it is at a moment: by then the time of a fact may be over.

    The evidence of a merged fact is that of the facts it was merged from.

    Raises:
        NotFoundError: No fact ever had this id.
    """
    memory = logs.memory()
    story = _story(logs, fact_id, memory.seq)
    born = story.born
    if born is None:
        raise NotFoundError(f"no fact ever had the id {fact_id}")
    evidence, cited = _evidence_of(logs, story, memory.seq, {fact_id})
    fact = memory.facts.get(fact_id)
    over = lapses(fact) if fact is not None and has_lapsed(fact, at) else None
    return Why(
        fact_id,
        fact or story.last,
        fact is not None and over is None,
        Birth(born.seq, born.at, born.cause),
        evidence,
        cited,
        tuple(story.history),
        None if fact is not None else story.removed,
        tuple(_periods(logs, memory, fact or story.last, at)),
        over,
    )


def _periods(logs: Logs, memory: Memory, fact: Fact | None, at: str) -> Iterator[Period]:
    """Yield when what a fact says was true, by all facts that say it; nothing where it was erased."""
    if fact is None:
        return
    key, standing = mark_key(fact.content), logs.in_force(memory.seq)
    for same in logs.saying(fact.content):
        held = memory.facts.get(same)
        story = None if held is not None else _story(logs, same, memory.seq, standing)
        last = held if story is None else story.last
        if last is None or mark_key(last.content) != key:
            continue
        if story is None:
            if last.expires_at is None or ends(last.expires_at) > at:
                yield Period(same, last.valid_from, last.valid_until, live=not has_lapsed(last, at))
        elif story.removed is not None and story.removed.reason == "ended":
            yield Period(same, last.valid_from, story.removed.valid_until or story.removed.at, live=False)


def last_state(logs: Logs, fact_id: str, until: int) -> tuple[str, Removed | None] | None:
    """Return what a fact said last, up to commit `until`, and its last removal; None if no fact had the id.

    What it said is "" where it was erased.
    """
    story = _story(logs, fact_id, until)
    if story.born is None:
        return None
    erased = story.removed is not None and story.removed.reason == "erased"
    return ("" if erased or story.last is None else story.last.content), story.removed


def _evidence_of(logs: Logs, story: _Story, until: int, seen: set[str]) -> tuple[tuple[Evidence, ...], bool]:
    """Find the evidence of a fact; a merged fact cites turns without their threads, so its sources are searched."""
    if story.born is None:
        return (), False
    last = story.last
    sources = () if last is None else [source for source in last.consolidated_from if source not in seen]
    seen.update(sources)
    found = [_evidence_of(logs, _story(logs, source, until), until, seen) for source in sources]
    turns = tuple(dict.fromkeys(chain.from_iterable(evidence for evidence, _ in found)))
    if turns:
        return turns, all(cited for evidence, cited in found if evidence)
    return _cited(logs, story.born, () if last is None else last.evidence)


def _cited(logs: Logs, born: Commit, ids: Sequence[str]) -> tuple[tuple[Evidence, ...], bool]:
    """Find the cited turns in the update or else in its thread; without citations, return all turns of the update."""
    thread, turns = born.cause.thread, born.cause.turns
    if thread is None or turns is None:
        return (), False
    update = logs.turns(thread, turns)
    here = {turn_id: _latest(update, turn_id) for turn_id in ids}
    elsewhere = logs.turns(thread) if None in here.values() else ()
    cited = [here[turn_id] or _latest(elsewhere, turn_id) for turn_id in ids]
    found = [turn for turn in cited if turn is not None]
    return evidence_in(logs, thread, found or update), bool(found)


def _latest(turns: Sequence[Turn], turn_id: str) -> Turn | None:
    """Return the last turn with an id; an id given by the host comes before a generated one."""
    found = [turn for turn in turns if turn.id == turn_id]
    return max(found, key=lambda turn: (not turn.anonymous, turn.n), default=None)


def _in_words(event: Event, commit: Commit) -> str:
    match event:
        case FactAdded(fact=fact):
            return fact.content
        case FactRemoved(reason="consolidated", detail=str(merged)):
            return f"merged into {merged}"
        case FactRemoved(reason="ended", note=note):
            until = event.valid_until or event.fact.valid_until
            said = "ended" if until is None else f"ended: true until {until}"
            return f"{said} ({note})" if note else said
        case FactRemoved(reason="stale", note=note):
            return f"removed after review: {note}" if note else "removed after review"
        case FactRemoved():
            return " ".join(filter(None, (event.reason, event.note and f"({event.note})", event.detail)))
        case FactRevised(change="confirmed", before=before, after=after):
            return revision_in_words(before, after)
        case FactRevised(change=change, before=before, after=after, proposed=proposed):
            reason = proposed.get("reason")
            return f"{change}: {revision_in_words(before, after)}" + (f" ({reason})" if reason else "")
        case CandidateRejected():
            return f"{event.candidate.__struct_config__.tag} refused: {event.rule}, {event.detail}"
        case Redacted():
            by = f" by {commit.cause.actor}" if commit.cause.actor else ""
            return f"its content in commit {event.seq} was erased{by}"
        case SectionEvent() | UpdateEvent() | SettingEvent() | Erased() | TurnEvent():
            return ""
        case _:
            assert_never(event)
