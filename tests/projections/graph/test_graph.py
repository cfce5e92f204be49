"""The graph as data: what each edge says, what it is narrowed to, and what is left out; and who sent what to whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeClock, open_home

from backstory.home import Backstory
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import Fact, FactAdded, NewFact, Redacted, Turn
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections.graph import (
    Choice,
    Edge,
    FactNode,
    Graph,
    LeftOut,
    MessageFlow,
    SectionNode,
    UpdateNode,
    graph_of,
    message_flow_of,
)
from backstory.projections.history.moment import fold


def fact(content: str, confidence: float = 0.9, **more: object) -> dict[str, object]:
    return {"content": content, "category": "knowledge", "confidence": confidence, **more}


def say(memory: MemoryHandle, thread: str) -> None:
    number = memory.status().turns
    said = [{"role": "user", "content": "words", "id": f"u{number}"}, {"role": "assistant", "content": "ok"}]
    memory.record(thread, said, mode="append")


def learn(memory: MemoryHandle, thread: str, **answer: object) -> int:
    say(memory, thread)
    return memory.extract([RecordedReply(thread, json.dumps(answer))]).commits[0]


@pytest.fixture
def home(tmp_path: Path):
    with open_home(tmp_path, consolidation_enabled=True, consolidation_min_facts=3) as bs:
        yield bs


@pytest.fixture
def memory(home: Backstory) -> MemoryHandle:
    return home.memory("ada")


@pytest.fixture
def story(memory: MemoryHandle) -> MemoryHandle:
    """Learned (2), superseded (3), merged and confirmed (4), superseded again (5), which is taken back (6)."""
    first = [fact(f"Ada {words}") for words in ("lives in Oslo", "likes tea", "likes green tea", "runs")]
    summary = {"workContext": {"summary": "Makes maps.", "shouldUpdate": True}}
    learn(memory, "mon", newFacts=[*first, fact("weak", 0.1)], user=summary)
    moved = [{"id": "fact_2_0", "reason": "she moved", "replacementFactIndex": 1}]
    learn(memory, "tue", newFacts=[fact("Ada swims"), fact("Ada moved to Bergen")], factsToRemove=moved)
    two = {"sourceIds": ["fact_2_1", "fact_2_2"], "consolidated": {"content": "Ada likes tea, green most of all"}}
    learn(memory, "wed", factsToConsolidate=[two], factsToReinforce=["fact_2_3"])
    again = [{"id": "fact_3_1", "replacementFactIndex": 0}]
    learn(memory, "mon", newFacts=[fact("Ada moved to Bodø")], factsToRemove=again)
    memory.revert(5)
    return memory


def said(graph: Graph) -> set[str]:
    return {f"{edge.source} {edge.kind} {edge.target}" for edge in graph.edges}


def fact_of(graph: Graph, fact_id: str) -> FactNode:
    return next(node for node in graph.nodes if isinstance(node, FactNode) and node.fact == fact_id)


def updates(graph: Graph) -> list[int]:
    return [node.seq for node in graph.nodes if isinstance(node, UpdateNode)]


def facts(graph: Graph) -> set[str]:
    return {node.fact for node in graph.nodes if isinstance(node, FactNode)}


# The graph.


def test_an_edge_says_who_did_what_to_whom(story: MemoryHandle) -> None:
    told = said(story.graph())
    merged = "fact_4_10000"
    assert {
        "update:2 learned-from thread:mon",
        "update:2 added fact:fact_2_0",
        "update:2 wrote section:user.workContext",
        "update:3 removed fact:fact_2_0",
        "fact:fact_2_0 superseded-by fact:fact_3_1",
        "update:4 revised fact:fact_2_3",
        f"update:4 added fact:{merged}",
        f"fact:fact_2_1 merged-into fact:{merged}",
        f"fact:fact_2_2 merged-into fact:{merged}",
        "update:5 learned-from thread:mon",
        "fact:fact_3_1 superseded-by fact:fact_5_0",
        "update:6 undid update:5",
        "update:6 removed fact:fact_5_0",
        "update:6 restored fact:fact_3_1",
    } <= told
    # What came back was not added by the one that brought it back, and what is related to nothing stays so.
    assert "update:6 added fact:fact_3_1" not in told
    assert not any("superseded-by fact:fact_3_0" in edge for edge in told)
    assert len(told) == len(story.graph().edges)


def test_every_edge_ends_at_nodes_that_are_there_and_ids_are_unique(story: MemoryHandle) -> None:
    graph = story.graph()
    ids = [node.id for node in graph.nodes]
    assert len(ids) == len(set(ids))
    assert {end for edge in graph.edges for end in (edge.source, edge.target)} <= set(ids)


def test_a_fact_is_as_it_is_or_as_it_was_last_with_how_it_went(story: MemoryHandle) -> None:
    graph = story.graph()
    assert {fact.id for fact in story.facts()} == {n.fact for n in graph.nodes if isinstance(n, FactNode) and n.live}
    oslo = fact_of(graph, "fact_2_0")
    assert (oslo.content, oslo.live, oslo.born) == ("Ada lives in Oslo", False, 2)
    assert oslo.gone is not None
    assert (oslo.gone.seq, oslo.gone.reason, oslo.gone.note) == (3, "model", "she moved")
    assert (gone := fact_of(graph, "fact_2_1").gone) is not None
    assert (gone.reason, gone.detail) == ("consolidated", "fact_4_10000")
    assert fact_of(graph, "fact_3_1").gone is None
    assert fact_of(graph, "fact_5_0").gone is not None


def test_an_edited_fact_has_its_present_words(memory: MemoryHandle) -> None:
    memory.add_fact("Ada runs")
    memory.edit_fact("fact_2_0", content="Ada swims")
    memory.remove_fact("fact_2_0")
    graph = memory.graph()
    assert fact_of(graph, "fact_2_0").content == "Ada swims"
    assert fact_of(graph, "fact_2_0").by_hand
    assert Edge("update:3", "fact:fact_2_0", "revised", 3, "edited") in graph.edges
    assert Edge("update:4", "fact:fact_2_0", "removed", 4, "hand") in graph.edges


def test_facts_stand_in_order_of_birth_whatever_happened_to_them_last(memory: MemoryHandle) -> None:
    for words in ("Ada runs", "Ada swims"):
        memory.add_fact(words)
    for fact_id in ("fact_3_0", "fact_2_0"):
        memory.edit_fact(fact_id, confidence=0.7)
    assert [node.fact for node in memory.graph(since=4).nodes if isinstance(node, FactNode)] == ["fact_2_0", "fact_3_0"]


def test_an_update_counts_what_it_refused_and_says_why_it_failed(story: MemoryHandle) -> None:
    say(story, "fri")
    story.extract([RecordedReply("fri", "{oh")])
    nodes = {node.seq: node for node in story.graph().nodes if isinstance(node, UpdateNode)}
    assert nodes[2].refused == {"threshold": 1}
    assert (nodes[2].failed, nodes[7].failed) == (None, "reply")
    assert (nodes[6].title, nodes[2].title, nodes[2].by) == ("revert of 5", "extraction", "recorded")


def test_a_hosts_saved_document_and_what_was_taken_over_from_it_are_called_so(memory: MemoryHandle) -> None:
    memory.own.take_over([NewFact(place="facts/0", content="Ada sails", confidence=0.9)], "/deer/users/ada")
    memory.own.save([NewFact(place="facts/0", content="Ada runs", confidence=0.9)])
    memory.import_document({"facts": [{"content": "Ada swims", "confidence": 0.9}]})
    titles = [node.title for node in memory.graph().nodes if isinstance(node, UpdateNode)]
    assert titles == ["genesis", "imported from /deer/users/ada", "saved document", "import"]


def test_going_back_points_at_where_it_went_back_to(story: MemoryHandle) -> None:
    story.rollback(2)
    told = said(story.graph())
    assert "update:7 returned-to update:2" in told
    assert "update:7 restored fact:fact_2_0" in told
    assert not any(edge.kind == "undid" and edge.target == "update:2" for edge in story.graph().edges)


def test_a_section_is_as_it_is_now_and_counts_its_rewritings(story: MemoryHandle) -> None:
    for summary in ("Makes globes.", "Makes clocks."):
        learn(story, "thu", user={"workContext": {"summary": summary, "shouldUpdate": True}})
    (section,) = [node for node in story.graph().nodes if isinstance(node, SectionNode)]
    assert (section.section, section.summary, section.written, section.last) == (
        "user.workContext",
        "Makes clocks.",
        3,
        8,
    )


def test_what_was_erased_is_shown_as_erased_and_nowhere_spelled(story: MemoryHandle) -> None:
    story.add_fact("the PIN is 4711")
    story.edit_fact("fact_7_0", content="the PIN is 4712")
    story.forget("fact_7_0")
    graph = story.graph()
    erased = fact_of(graph, "fact_7_0")
    assert (erased.content, erased.category, erased.live, erased.erased) == (None, None, False, True)
    assert {
        "update:9 erased fact:fact_7_0",
        "update:7 told-of fact:fact_7_0",
        "update:8 told-of fact:fact_7_0",
    } <= said(graph)
    assert erased.born == 7
    for written in (graph.dot(), graph.mermaid()):
        assert "PIN" not in written
        assert "471" not in written
        assert "erased for good" in written


class Told:
    """A ledger of what a test tells."""

    def __init__(self, *commits: Commit) -> None:
        self.commits = commits

    def memory(self) -> Memory:
        return fold(self.commits)

    def newest(self, since: int = 1) -> Iterator[Commit]:
        return (commit for commit in reversed(self.commits) if commit.seq >= since)

    def first_since(self, moment: int | str) -> int:
        raise NotImplementedError

    commits_about = commits_of = first_since  # type: ignore[assignment]


def test_what_a_fact_said_is_not_told_after_its_erasure_whatever_of_it_still_stands() -> None:
    born = Fact(id="f", content="the PIN", category="goal", confidence=1, created_at="", source="t", seq=1)
    log = Told(
        Commit(1, "", Cause(kind="manual"), (FactAdded(born),), "", ""),
        Commit(2, "", Cause(kind="redaction"), (Redacted("ledger", 1, 0, "fact", fact="f"),), "", ""),
    )
    (erased,) = [node for node in graph_of(log, Scope(), Choice(), "").nodes if isinstance(node, FactNode)]
    assert (erased.content, erased.erased, erased.born) == (None, True, 1)


def test_what_is_committed_while_a_graph_is_made_is_for_the_next_one() -> None:
    facts = [
        Fact(id=f"f{n}", content="words", category="goal", confidence=1, created_at="", source="t", seq=n)
        for n in (1, 2)
    ]
    log = Told(*(Commit(f.seq, "", Cause(kind="manual"), (FactAdded(f),), "", "") for f in facts))
    log.memory = lambda: fold(log.commits[:1])  # type: ignore[method-assign]
    graph = graph_of(log, Scope(), Choice(), "")
    assert (graph.seq, updates(graph), graph.left_out) == (1, [1], LeftOut())


def test_a_merged_fact_that_comes_back_was_merged_once(story: MemoryHandle) -> None:
    story.revert(4)
    story.revert(7)
    merged = [edge for edge in story.graph().edges if edge.kind == "merged-into"]
    assert [edge.seq for edge in merged] == [4, 4]
    assert "update:8 restored fact:fact_4_10000" in said(story.graph())


def test_an_erased_section_and_thread_are_shown_so(story: MemoryHandle) -> None:
    story.forget(matching="maps")
    (section,) = [node for node in story.graph().nodes if isinstance(node, SectionNode)]
    assert (section.summary, section.erased) == ("", True)
    assert "update:7 erased section:user.workContext" in said(story.graph())
    story.forget(thread_id="tue")
    assert "update:8 erased thread:tue" in said(story.graph())


def test_the_sources_of_an_imported_fact_are_there_though_nobody_knows_their_words(memory: MemoryHandle) -> None:
    memory.import_document({"facts": [{**fact("Ada likes tea"), "consolidatedFrom": ["a", "b"]}]})
    graph = memory.graph()
    assert {"fact:a merged-into fact:fact_2_0", "fact:b merged-into fact:fact_2_0"} <= said(graph)
    assert (fact_of(graph, "a").content, fact_of(graph, "a").live, fact_of(graph, "a").gone) == (None, False, None)
    assert "not in these updates" in graph.dot()


def test_a_source_that_is_still_in_memory_has_its_words_though_only_older_updates_tell_them(
    memory: MemoryHandle,
) -> None:
    memory.add_fact("Ada drinks tea")
    memory.import_document({"facts": [{**fact("Ada likes tea"), "consolidatedFrom": ["fact_2_0"]}]})
    graph = memory.graph(limit=1)
    assert (fact_of(graph, "fact_2_0").live, fact_of(graph, "fact_2_0").content) == (True, "Ada drinks tea")
    assert graph.left_out == LeftOut(updates=2)


# Narrowing.


def test_the_newest_updates_are_there_and_the_others_counted(story: MemoryHandle) -> None:
    graph = story.graph(limit=2)
    assert updates(graph) == [5, 6]
    # fact_2_3, fact_3_0 and the merged one live, and only older updates tell of them.
    assert graph.left_out == LeftOut(updates=4, facts=3)
    assert facts(graph) == {"fact_3_1", "fact_5_0"}
    assert "4 older updates left out, and 3 present facts with them" in graph.dot()
    assert "left out" not in story.graph(limit=6).dot()
    assert story.graph(limit=6).left_out == LeftOut()


def test_since_a_commit_or_a_time(story: MemoryHandle, tmp_path: Path) -> None:
    assert updates(story.graph(since=4)) == [4, 5, 6]
    assert updates(story.graph(since=0)) == [1, 2, 3, 4, 5, 6]
    assert story.graph(since=99).nodes == ()
    with open_home(tmp_path / "other", clock=(clock := FakeClock())) as bs:
        other = bs.memory("ada")
        for words in ("one", "two"):
            clock.advance(60)
            other.add_fact(words)
        since = other.log()[0].at
        assert updates(other.graph(since=since)) == [3]
        assert other.graph(since=since).since == since
    with pytest.raises(UsageError, match="since must be a commit"):
        story.graph(since="soon")


def test_of_a_fact_what_it_was_made_of_and_what_took_its_place_is_drawn(story: MemoryHandle) -> None:
    graph = story.graph(fact="fact_2_0")
    assert facts(graph) == {"fact_2_0", "fact_3_1", "fact_5_0"}
    assert updates(graph) == [2, 3, 5, 6]
    assert facts(story.graph(fact="fact_4")) == {"fact_4_10000", "fact_2_1", "fact_2_2"}
    assert story.graph(fact="fact_4").fact == "fact_4_10000"
    assert facts(story.graph(fact="fact_3_0")) == {"fact_3_0"}
    assert not any(isinstance(node, SectionNode) for node in graph.nodes)
    assert story.graph(fact="fact_2_0", limit=1).left_out == LeftOut(updates=3)
    assert updates(story.graph(fact="fact_2_0", limit=1)) == [6]
    assert updates(story.graph(fact="fact_2_0", thread="tue")) == [3]
    with pytest.raises(NotFoundError):
        story.graph(fact="fact_9")


def test_of_a_thread_what_was_learned_from_it_and_what_became_of_that_is_drawn(story: MemoryHandle) -> None:
    graph = story.graph(thread="tue")
    # 2 added what it removed; 5 and 6 took its fact away and brought it back.
    assert updates(graph) == [2, 3, 5, 6]
    assert facts(graph) == {"fact_2_0", "fact_3_0", "fact_3_1"}
    assert not any(isinstance(node, SectionNode) for node in graph.nodes)
    assert any(isinstance(node, SectionNode) for node in story.graph(thread="mon").nodes)
    assert story.graph(thread="mon", limit=1).left_out.updates == 1
    assert updates(story.graph(thread="mon", since=5)) == [5, 6]
    assert updates(story.graph(fact="fact_2_0", since=5)) == [5, 6]
    say(story, "quiet")
    assert story.graph(thread="quiet").nodes == ()
    with pytest.raises(NotFoundError, match="no thread"):
        story.graph(thread="none")


def test_a_limit_of_nothing_is_refused(memory: MemoryHandle) -> None:
    for call in (memory.graph, memory.message_flow):
        with pytest.raises(UsageError, match="got 0"):
            call(limit=0)


def test_with_fallback_an_agent_without_memory_of_its_own_sees_the_users(home: Backstory, story: MemoryHandle) -> None:
    with open_home(home.home, agent_reads="fallback") as other:
        agents = other.memory("ada", "helper").graph()
    assert (agents.user, agents.agent, updates(agents)) == ("ada", None, [1, 2, 3, 4, 5, 6])


# Who sent what to whom.


def turn(n: int, role: str = "user", at: str = "2026-01-01", **more: object) -> Turn:
    return Turn(n=n, id=f"{n}", role=role, content="words", at=at, **more)  # type: ignore[arg-type]


def routes(letters: MessageFlow) -> list[tuple[str, str | None, str | None, int]]:
    return [(route.sender, route.receiver, route.cause_by, route.turns) for route in letters.routes]


def test_turns_are_counted_by_sender_receiver_and_cause() -> None:
    write = {"sent_from": "Alice", "name": "somebody", "cause_by": "actions.Write"}
    turns = [
        turn(1, **write, send_to=("Bob", "Carol", "Bob")),
        turn(2, **write, send_to=("Bob",)),
        turn(3, name="Bob", send_to=("<all>", "Alice")),
        turn(4, "assistant"),
        turn(5, "assistant", send_to=("<self>", "assistant")),
    ]
    letters = message_flow_of({"t": turns}, Scope("ada"))
    assert letters.turns == 5
    assert routes(letters) == [
        ("Alice", "Bob", "actions.Write", 2),
        ("Alice", "Carol", "actions.Write", 1),
        ("Bob", None, None, 1),
        ("assistant", None, None, 1),
        ("assistant", "assistant", None, 1),
    ]


def test_the_busiest_routes_are_told_and_the_others_counted() -> None:
    turns = [turn(n, name=name, at=f"2026-01-0{n}") for n, name in enumerate("abbcc", 1)]
    letters = message_flow_of({"t": turns[3:], "s": turns[:3]}, Scope("ada"), limit=2)
    assert routes(letters) == [("b", None, None, 2), ("c", None, None, 2)]
    assert (letters.routes[0].first, letters.routes[0].last) == ("2026-01-02", "2026-01-03")
    assert letters.left_out == 1
    assert "1 route with fewer turns left out" in letters.dot()
    since = message_flow_of({"t": turns}, Scope("ada"), since="2026-01-03")
    assert (since.turns, since.since, routes(since)) == (3, "2026-01-03", [("b", None, None, 1), ("c", None, None, 2)])


def test_letters_are_those_of_the_turns_that_stand(memory: MemoryHandle) -> None:
    for words in ("I run.", "I swim."):
        memory.record("t", [{"role": "user", "content": words, "id": "1", "sent_from": "Alice", "send_to": "Bob"}])
    memory.record("s", [{"role": "user", "content": "hi", "id": "1", "name": "Carol"}])
    assert routes(memory.message_flow()) == [("Alice", "Bob", None, 1), ("Carol", None, None, 1)]
    assert routes(memory.message_flow(thread="s")) == [("Carol", None, None, 1)]
    assert memory.message_flow(since="2100-01-01").routes == ()
    with pytest.raises(UsageError, match="since must be a time"):
        memory.message_flow(since="3")
    with pytest.raises(NotFoundError, match="no thread"):
        memory.message_flow(thread="none")
