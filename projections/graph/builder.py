"""Builder of graphs: what each event says of facts, sections and earlier updates; and who sent what to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import (
    CandidateRejected,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    Redacted,
    SettingEvent,
    SharingEvent,
    SummaryUpdated,
    Turn,
    TurnEvent,
    UpdateEvent,
    UpdateFailed,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.projections.graph.dot import dot_of
from backstory.projections.graph.mermaid import mermaid_of
from backstory.projections.graph.model import (
    Edge,
    EdgeKind,
    FactNode,
    GraphData,
    LeftOut,
    MessageFlowData,
    Node,
    Route,
    SectionNode,
    ThreadNode,
    UpdateNode,
)
from backstory.projections.graph.outline import message_outline_of, outline_of
from backstory.projections.graph.selection import Choice, Chosen, Log, choose, kinships
from backstory.projections.history.audit import Removed
from backstory.projections.history.moment import Moment
from backstory.projections.history.views import entry, facts_of


class Graph(GraphData, frozen=True):
    """How facts, threads and updates hang together; `backstory.page.graph_page` draws it."""

    def dot(self) -> str:
        """Return it in the language of Graphviz, every text escaped and long ones cut."""
        return dot_of(outline_of(self))

    def mermaid(self) -> str:
        """Return it as a flowchart of Mermaid, every text escaped and long ones cut."""
        return mermaid_of(outline_of(self))


_UNDOING = ("revert", "rollback")


def graph_of(log: Log, scope: Scope, choice: Choice, at: str) -> Graph:
    """Build the graph of a choice of commits, as of the ledger's head and a moment, by which facts may have lapsed."""
    memory = log.memory().standing_at(at)
    chosen = choose(log, choice, memory.seq)
    building = _Building(memory, chosen)
    for commit in chosen.commits:
        building.take(commit)
    nodes, edges = building.done()
    unseen = 0
    if chosen.left_out and chosen.facts is None:
        drawn = {node.fact for node in nodes if isinstance(node, FactNode)}
        unseen = sum(fact_id not in drawn for fact_id in memory.facts)
    since = None if choice.since is None else str(choice.since)
    return Graph(
        scope.user,
        scope.agent,
        memory.seq,
        nodes,
        edges,
        LeftOut(chosen.left_out, unseen),
        choice.thread,
        choice.fact,
        since,
    )


class _FactStory(msgspec.Struct):
    """What is known of a fact so far."""

    last: Fact | None = None
    told: int | None = None
    gone: Removed | None = None


class _SectionStory(msgspec.Struct):
    written: int = 0
    last: int = 0
    erased: bool = False


class _Building:
    """Takes commits in, oldest first."""

    def __init__(self, memory: Memory, chosen: Chosen) -> None:
        self._memory = memory
        self._chosen = chosen
        self._seqs = {commit.seq for commit in chosen.commits}
        self._threads: dict[str, ThreadNode] = {}
        self._updates: list[UpdateNode] = []
        self._facts: dict[str, _FactStory] = {}
        self._sections: dict[str, _SectionStory] = {}
        self._edges: dict[Edge, None] = {}

    def take(self, commit: Commit) -> None:
        """Take a commit in, and of it what was chosen."""
        only = None if commit.seq in self._chosen.whole else self._chosen.facts
        update = _update(commit)
        self._updates.append(update)
        thread = commit.cause.thread
        if thread is not None:
            self._edge(update.id, self._thread(thread), "learned-from", commit)
        target = commit.cause.target
        # The target of a clear is a commit of another ledger.
        if target is not None and target in self._seqs and commit.cause.kind != "clear":
            kind: EdgeKind = "undid" if commit.cause.kind == "revert" else "returned-to"
            self._edge(update.id, f"update:{target}", kind, commit)
        for event in commit.events:
            about = facts_of(event)
            if only is None or any(fact in only for fact in about):
                self._event(update.id, event, commit)
        for kin in kinships(commit):
            if only is None or (kin.source in only and kin.target in only):
                self._story(kin.source)
                self._story(kin.target)
                kind = "merged-into" if kin.merged else "superseded-by"
                self._edge(f"fact:{kin.source}", f"fact:{kin.target}", kind, commit)

    def done(self) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
        """Return the graph: threads, updates and facts, each by time, then the sections."""
        facts = [self._fact(fact_id, story) for fact_id, story in self._facts.items()]
        facts.sort(key=lambda fact: (fact.born or 0, fact.place))
        sections = [
            SectionNode(
                id=f"section:{name}",
                section=name,
                summary=self._memory.section(name).summary,
                written=story.written,
                last=story.last,
                erased=story.erased,
            )
            for name, story in sorted(self._sections.items())
        ]
        return (*self._threads.values(), *self._updates, *facts, *sections), tuple(self._edges)

    def _event(self, update: str, event: Event, commit: Commit) -> None:
        match event:
            case FactAdded(fact=fact):
                self._story(fact.id).last = fact
                again = commit.cause.kind in _UNDOING
                self._edge(update, f"fact:{fact.id}", "restored" if again else "added", commit)
            case FactRevised(after=fact, change=change):
                self._story(fact.id).last = fact
                restored = change == "restored"
                self._edge(update, f"fact:{fact.id}", "restored" if restored else "revised", commit, change)
            case FactRemoved(fact=fact, reason=reason):
                story = self._story(fact.id)
                story.last = fact
                story.gone = Removed.by(event, commit)
                self._edge(update, f"fact:{fact.id}", "removed", commit, reason)
            case SummaryUpdated(section=section):
                told = self._section(section)
                told.written, told.last, told.erased = told.written + 1, commit.seq, False
                self._edge(update, f"section:{section}", "wrote", commit)
            case Redacted():
                self._redacted(update, event, commit)
            case SharingEvent() | UpdateEvent() | SettingEvent() | Erased() | TurnEvent():
                pass
            case _:
                assert_never(event)

    def _redacted(self, update: str, event: Redacted, commit: Commit) -> None:
        if event.fact is not None:
            story = self._story(event.fact)
            story.last = None
            story.told = min(event.seq, story.told or event.seq)
            story.gone = Removed(commit.seq, commit.at, "erased", actor=commit.cause.actor)
            self._edge(update, f"fact:{event.fact}", "erased", commit)
            if event.seq in self._seqs:
                self._edges[Edge(f"update:{event.seq}", f"fact:{event.fact}", "told-of", event.seq)] = None
        elif event.section is not None:
            told = self._section(event.section)
            told.last, told.erased = commit.seq, True
            self._edge(update, f"section:{event.section}", "erased", commit)
        elif event.thread is not None:
            self._edge(update, self._thread(event.thread), "erased", commit)

    def _edge(self, source: str, target: str, kind: EdgeKind, commit: Commit, detail: str | None = None) -> None:
        self._edges[Edge(source, target, kind, commit.seq, detail)] = None

    def _thread(self, name: str) -> str:
        node = self._threads.setdefault(name, ThreadNode(id=f"thread:{name}", thread=name))
        return node.id

    def _story(self, fact_id: str) -> _FactStory:
        return self._facts.setdefault(fact_id, _FactStory())

    def _section(self, name: str) -> _SectionStory:
        return self._sections.setdefault(name, _SectionStory())

    def _fact(self, fact_id: str, story: _FactStory) -> FactNode:
        live = self._memory.facts.get(fact_id)
        fact = live or story.last
        name = f"fact:{fact_id}"
        if fact is None:
            return FactNode(id=name, fact=fact_id, live=False, born=story.told, gone=story.gone)
        return FactNode(
            id=name,
            fact=fact_id,
            live=live is not None,
            content=fact.content,
            category=fact.category,
            confidence=fact.confidence,
            by_hand=fact.by_hand,
            born=fact.seq,
            place=fact.place,
            gone=None if live is not None else story.gone,
        )


def _update(commit: Commit) -> UpdateNode:
    refused = Counter(event.rule for event in commit.events if isinstance(event, CandidateRejected))
    failed = commit.first(UpdateFailed)
    cause = commit.cause
    return UpdateNode(
        id=f"update:{commit.seq}",
        seq=commit.seq,
        at=commit.at,
        cause=cause.kind,
        title=str(cause),
        by=cause.model or cause.actor or "",
        summary=entry(commit).summary,
        refused=dict(sorted(refused.items())),
        failed=None if failed is None else failed.reason,
    )


_TO_ALL, _TO_SELF = "<all>", "<self>"
"""How MetaGPT addresses everybody, and the sender itself."""


class MessageFlow(MessageFlowData, frozen=True):
    """Who sent what to whom; `backstory.page.graph_page` draws it."""

    def dot(self) -> str:
        """Return it in the language of Graphviz, every text escaped and long ones cut."""
        return dot_of(message_outline_of(self))

    def mermaid(self) -> str:
        """Return it as a flowchart of Mermaid, every text escaped and long ones cut."""
        return mermaid_of(message_outline_of(self))


def message_flow_of(
    threads: Mapping[str, Sequence[Turn]],
    scope: Scope,
    *,
    thread: str | None = None,
    since: Moment | None = None,
    limit: int = 200,
) -> MessageFlow:
    """Count the turns of some threads; of more routes than `limit` the busiest are named.

    A turn's sender is who sent it, else the name of who said it, else the role.
    """
    moment = "" if since is None else str(since)
    turns = [turn for said in threads.values() for turn in said if turn.at >= moment]
    turns.sort(key=lambda turn: turn.at)
    routes: dict[tuple[str, str | None, str | None], list[Turn]] = {}
    for turn in turns:
        sender = turn.sent_from or turn.name or turn.role
        for receiver in _receivers(turn, sender):
            routes.setdefault((sender, receiver, turn.cause_by), []).append(turn)
    found = [Route(*key, len(taken), taken[0].at, taken[-1].at) for key, taken in routes.items()]
    busiest = sorted(range(len(found)), key=lambda number: (-found[number].turns, number))[:limit]
    told = tuple(found[number] for number in sorted(busiest))
    return MessageFlow(
        scope.user, scope.agent, len(turns), told, len(found) - len(told), thread, None if since is None else moment
    )


def _receivers(turn: Turn, sender: str) -> Iterator[str | None]:
    """Name each receiver once; one that is named beside everybody is among them."""
    named = dict.fromkeys(turn.send_to)
    if not named or _TO_ALL in named:
        yield None
        return
    yield from dict.fromkeys(sender if name == _TO_SELF else name for name in named)
