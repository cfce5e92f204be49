"""Verify tells commits that no rule could have written, though their hashes are right: one forged commit for each rule.

That it is silent over whatever the rules do write is tried in test_wandering.py, test_machine.py and golden/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
from fakes import CountingSalts, open_home
from small_home import LEDGER, SCOPE, TRANSCRIPT, USER, Home

from backstory.ledger.core.commit import Cause, Draft, Head, decode, head_of, seal
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    CandidateRejected,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    PolicyChanged,
    Redacted,
    Section,
    SectionsMoved,
    Spoken,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    TurnRange,
    TurnRestored,
    TurnSuperseded,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.kinds import LedgerCauseKind, words_of
from backstory.ledger.core.policy import Policy
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.projections.history.moment import replay
from backstory.projections.integrity.invariants import EVENTS
from backstory.projections.integrity.verify import verify
from backstory.testing.lines import AT, erase, offsets, turn

WORK = "user.workContext"
EMPTY = Section()
TOLD = Section("Ada works.", AT)
ASKED = UpdateProposed(6, "ab" * 32, 9)
KNOWN = frozenset({"fact_2_0", "fact_3_0", "fact_4_0", "fact_5_0", "fact_6_0"})


def test_each_kind_of_commit_says_which_events_it_may_hold() -> None:
    assert sorted(EVENTS) == sorted(words_of(LedgerCauseKind))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("forged") / "home")
    home.document.unlink()
    home.transcript = appended(home.transcript, [said(1, thread="t3", last=2)])
    home.put(TRANSCRIPT, home.transcript)
    facts = replay(JsonlStore(home.path), SCOPE).facts
    assert {OSLO, TEA} <= set(facts.values())
    assert set(facts) == KNOWN
    assert home.verify().ok
    return home


@pytest.fixture
def home(template: Home) -> Iterable[Home]:
    yield template
    template.put(LEDGER, template.ledger)
    template.put(TRANSCRIPT, template.transcript)


def fact(seq: int, place: int, content: str, source: str = "t1", **more: object) -> Fact:
    given: dict[str, object] = {"category": "context", "confidence": 0.9, "created_at": AT, **more}
    return Fact(id=f"fact_{seq}_{place}", content=content, source=source, seq=seq, place=place, **given)  # type: ignore[arg-type]


OSLO = fact(2, 0, "lives in Oslo", said=Spoken(AT, "user"))
TEA = fact(4, 0, "likes tea", "manual", by_hand=True)
NEW = fact(7, 0, "sings")
OTHER = fact(7, 1, "dances")
IN_FORCE = Policy(free_categories=True)
LOWER = Policy(fact_confidence_threshold=0.5)


def changed(known: Fact, **fields: object) -> Fact:
    return msgspec.structs.replace(known, **fields)


def added(new: Fact, place: str | None = None) -> FactAdded:
    return FactAdded(new, place or f"newFacts/{new.place}")


def learned(*events: Event, basis: int = 6, **cause: object) -> Draft:
    told = Cause(kind="extraction", **{"thread": "t1", **cause})  # type: ignore[arg-type]
    return Draft(AT, told, (msgspec.structs.replace(ASKED, basis=basis), *events))


def covering(first: int, last: int, thread: str = "t1", **cause: object) -> Draft:
    return learned(thread=thread, turns=TurnRange(first, last), **cause)


def made(kind: str, *events: Event, at: str = AT, **cause: object) -> Draft:
    return Draft(at, Cause(kind=kind, **cause), events)  # type: ignore[arg-type]


def summary(section: str, *events: Event, first: int = 1, last: int = 2) -> Draft:
    put = SummaryUpdated(section, EMPTY, TOLD)
    return made("summary", put, *events, thread="t1", level=1, summarized=TurnRange(first, last))


def received(seq: int, *events: Event, basis: int = 6, agent: str = "coder", cut: bool = False) -> Draft:
    return made("share", SummariesReceived(agent, seq, basis, cut=cut), *events, agent=agent)


def appended(lines: Sequence[bytes], drafts: Iterable[Draft]) -> list[bytes]:
    """Seal drafts behind lines, each with the hash that is right there."""
    chained = list(lines)
    for draft in drafts:
        chained.append(seal(draft, head_of(chained[-1]) if chained else Head(0, "0" * 64), CountingSalts()))
    return chained


# What may be written is written: else the rules below would prove nothing.

HONEST: dict[str, list[Draft]] = {
    "an update": [learned(added(NEW), added(OTHER))],
    "an agent that was cut off": [received(7), received(3, basis=7, cut=True), received(4, basis=8)],
    "sections of an agent": [received(7, basis=6), received(9, basis=7, agent="cook"), received(8, basis=7)],
    "sections that are shared": [learned(SummaryShared(WORK, "Ada works.", 3, None, WORK))],
    "sections that are moved": [made("share", SectionsMoved(3), SummaryShared(WORK, "Ada works.", 3), action="move")],
    "a removal": [learned(FactRemoved(OSLO, "model", "factsToRemove/0"))],
    "a fact by hand": [made("manual", FactAdded(fact(7, 0, "sings", "manual", by_hand=True), "facts/0"), action="add")],
    "a tool's fact": [made("manual", added(NEW), action="add", thread="t1", by_model=True)],
    "a tool's fact of no thread": [
        made("manual", FactAdded(changed(NEW, source="tool"), "facts/0"), action="add", by_model=True)
    ],
    "a tool's edit": [
        made("manual", FactRevised(OSLO, changed(OSLO, content="x"), "edited", "facts/0"), action="edit", by_model=True)
    ],
    "a tool's removal": [made("manual", FactRemoved(OSLO, "model"), action="remove", by_model=True)],
    "an import under another id": [made("import", FactAdded(changed(NEW, id="fact_ab12", source="x"), "facts/0"))],
    "a merged fact": [
        learned(
            FactRemoved(OSLO, "consolidated", detail="fact_7_10000"),
            added(
                fact(7, 10_000, "lives and runs", consolidated_from=("fact_2_0", "fact_3_0")), "factsToConsolidate/0"
            ),
        )
    ],
    "an undo": [learned(added(NEW)), made("revert", FactRemoved(NEW, "revert"), target=7)],
    "an undo of an undo": [
        learned(FactRemoved(OSLO, "model", "factsToRemove/0")),
        made("revert", FactAdded(OSLO), target=7),
        made("revert", FactRemoved(OSLO, "revert"), target=8),
    ],
    "a return": [made("clear", FactRemoved(OSLO, "clear")), made("rollback", FactAdded(OSLO), target=6)],
    "a policy": [made("policy", PolicyChanged(IN_FORCE, LOWER, "manual"))],
    "a summary": [summary("thread/1/1-2/t1")],
    "a failure": [made("extraction", UpdateFailed("reply", "no JSON", 1, TurnRange(1, 2)), thread="t1")],
}


@pytest.mark.parametrize("drafts", HONEST.values(), ids=HONEST)
def test_what_the_rules_write_is_no_problem(home: Home, drafts: list[Draft]) -> None:
    home.put(LEDGER, appended(home.ledger, drafts))
    assert home.verify().problems == ()


REVISED = changed(OSLO, confirmations=1, confirmed_at=AT)
FORGED: dict[str, tuple[list[Draft], str]] = {
    # What is learned.
    "a fact that is there already": (
        [learned(added(changed(OSLO, content="lives in Rome"), "newFacts/0"))],
        "exists",
    ),
    "a fact twice": ([learned(added(NEW), added(NEW))], "exists already"),
    "a fact of another commit": ([learned(added(fact(5, 7, "sings"), "newFacts/7"))], "not its place"),
    "a fact of another place": ([learned(added(NEW, "newFacts/3"))], "not its place"),
    "a fact under a made-up id": ([learned(added(changed(NEW, id="fact_mine")))], "cannot give"),
    "an import under a later commit's id": (
        [made("import", FactAdded(changed(NEW, id="fact_9_0_2"), "facts/0"))],
        "cannot give",
    ),
    "a fact that says what another does": ([learned(added(changed(NEW, content="Lives in OSLO.")))], "say the same"),
    "a model's fact under the threshold": ([learned(added(changed(NEW, confidence=0.3)))], "under the threshold"),
    "more facts than there may be": (
        [
            made("policy", PolicyChanged(IN_FORCE, Policy(max_facts=5), "manual")),
            learned(added(changed(NEW, id="fact_8_0", seq=8)), basis=7),
        ],
        "leaves 6 facts",
    ),
    "a policy that leaves too many": (
        [made("policy", PolicyChanged(IN_FORCE, Policy(max_facts=4), "manual"))],
        "leaves 5 facts",
    ),
    "a policy that leaves weak ones": (
        [made("policy", PolicyChanged(IN_FORCE, Policy(fact_confidence_threshold=0.95), "manual"))],
        "under the threshold of 0.95",
    ),
    "a model's fact as a person's": ([learned(added(changed(NEW, by_hand=True)))], "a person's, which it is not"),
    "a person's fact as a model's": (
        [made("manual", FactAdded(changed(NEW, source="manual"), "facts/0"), action="add")],
        "a model's, which it is not",
    ),
    "a tool's fact as a person's": (
        [made("manual", FactAdded(changed(NEW, source="manual", by_hand=True), "facts/0"), by_model=True)],
        "a person's, which it is not",
    ),
    "a tool's fact as a person entered it": (
        [made("manual", FactAdded(changed(NEW, source="manual"), "facts/0"), by_model=True)],
        "learned from manual",
    ),
    "a person's fact removed by a tool": ([made("manual", FactRemoved(TEA, "model"), by_model=True)], "no model remov"),
    "a person's fact changed by a tool": (
        [made("manual", FactRevised(TEA, changed(TEA, content="x"), "edited", "facts/0"), by_model=True)],
        "no model changes",
    ),
    "a tool's removal by hand": ([made("manual", FactRemoved(OSLO, "hand"), by_model=True)], "the reason hand"),
    "a person's removal as a model's": ([made("manual", FactRemoved(OSLO, "model"))], "the reason model"),
    "a tool's import": ([made("import", by_model=True)], "a model's change of a single fact"),
    "an update that insists": ([made("manual", action="add", insist=True)], "only imports do"),
    "a fact of another thread": ([learned(added(changed(NEW, source="t2")))], "learned from t2"),
    "a person's fact removed by a model": ([learned(FactRemoved(TEA, "model", "factsToRemove/0"))], "no model removes"),
    "a person's fact changed by a model": (
        [learned(FactRevised(TEA, changed(TEA, confirmations=1), "confirmed", "factsToReinforce/0"))],
        "no model changes",
    ),
    "an answer without a question": ([made("extraction", added(NEW), thread="t1")], "without an answer"),
    "an answer to a later question": ([learned(added(NEW), basis=7)], "no earlier commit"),
    "an answer that came too late": (
        [made("clear"), learned(added(changed(NEW, id="fact_8_0", seq=8)))],
        "a clear came at commit 7",
    ),
    "an answer that came too late and covers": ([made("clear"), covering(1, 2, "t3")], "a clear came at commit 7"),
    # What is said to have been there.
    "a removal of what is not there": ([learned(FactRemoved(NEW, "model", "factsToRemove/0"))], "does not exist"),
    "a removal of what was otherwise": (
        [learned(FactRemoved(changed(OSLO, content="lives in Rome"), "model", "factsToRemove/0"))],
        "in a state that differs",
    ),
    "a change of what is not there": (
        [learned(FactRevised(NEW, changed(NEW, confirmations=1), "confirmed"))],
        "does not exist",
    ),
    "a change of what was otherwise": (
        [learned(FactRevised(changed(REVISED, confidence=1.0), REVISED, "confirmed", "factsToReinforce/0"))],
        "in a state that differs",
    ),
    "a change into another fact": (
        [learned(FactRevised(OSLO, NEW, "confirmed", "factsToReinforce/0"))],
        "into another",
    ),
    "a confirmation that changes the words": (
        [learned(FactRevised(OSLO, changed(REVISED, content="lives in Rome"), "confirmed", "factsToReinforce/0"))],
        "changes more",
    ),
    "tags that change the words": (
        [learned(FactRevised(OSLO, changed(OSLO, content="lives in Rome", tags=("a",)), "tagged"))],
        "changes more",
    ),
    "an edit by a model": ([learned(FactRevised(OSLO, changed(OSLO, content="x"), "edited"))], "as edited"),
    "an edit by hand that stays a model's": (
        [made("manual", FactRevised(OSLO, changed(OSLO, content="x"), "edited", "facts/0"), action="edit")],
        "does not make it a person's",
    ),
    "a removal for another's reason": ([learned(FactRemoved(OSLO, "hand"))], "the reason hand"),
    "a section that said something else": (
        [learned(SummaryUpdated(WORK, Section("Ada rests.", AT), TOLD, WORK))],
        "a text that was not in it",
    ),
    "a section of no document": ([learned(SummaryUpdated("user.secrets", EMPTY, TOLD))], "the document does not have"),
    "a policy that was not in force": ([made("policy", PolicyChanged(LOWER, Policy(), "manual"))], "not in force"),
    "a policy that is not told": ([made("policy")], "which policy"),
    # Undoing.
    "a clear that writes": ([made("clear", SummaryUpdated(WORK, EMPTY, TOLD))], "a clear empties"),
    "a revert that brings back what was not there": (
        [made("clear", FactRemoved(OSLO, "clear")), made("revert", FactAdded(fact(3, 9, "is rich")), target=7)],
        "restores fact fact_3_9",
    ),
    "a revert that takes what was not added": ([made("revert", FactRemoved(OSLO, "revert"), target=3)], "did not add"),
    "a revert that changes what was not changed": (
        [made("revert", FactRevised(OSLO, changed(OSLO, content="lives in Rome"), "restored"), target=3)],
        "to a state that it did not have",
    ),
    "a revert that writes a section": (
        [made("revert", SummaryUpdated(WORK, EMPTY, TOLD), target=3)],
        "restores a text",
    ),
    "a revert of a policy that was not replaced": (
        [made("revert", PolicyChanged(IN_FORCE, LOWER, "manual"), target=3)],
        "did not replace",
    ),
    "a revert of what comes later": ([made("revert", target=8)], "undoes commit 8"),
    "a rollback to what was not there": (
        [made("clear", FactRemoved(OSLO, "clear")), made("rollback", FactAdded(changed(OSLO, content="x")), target=6)],
        "restores fact fact_2_0",
    ),
    "a rollback to before a fact": (
        [made("clear", FactRemoved(TEA, "clear")), made("rollback", FactAdded(TEA), target=3)],
        "restores fact fact_4_0",
    ),
    "a rollback that restores what was not there": (
        [made("rollback", FactRevised(OSLO, changed(OSLO, content="x"), "restored"), target=6)],
        "restores fact fact_2_0",
    ),
    "a rollback that writes a section": (
        [made("rollback", SummaryUpdated(WORK, EMPTY, TOLD), target=6)],
        "restores a text",
    ),
    "a rollback to nowhere": ([made("rollback", target=None)], "undoes commit None"),
    # Erasing.
    "an erasure in another scope": ([made("redaction", Redacted("users/bob/ledger", 1, 0, "fact"))], "another scope"),
    "an erasure that adds a fact": ([made("redaction", FactAdded(fact(3, 9, "is rich")))], "erases nothing"),
    # Kinds and times.
    "a second genesis": ([made("genesis", PolicyChanged(Policy(), LOWER))], "a second genesis"),
    "a kind of the transcript": ([made("record", thread="t1")], "of a kind that a ledger does not have"),
    "an event of another kind": (
        [made("manual", SummaryUpdated(WORK, EMPTY, TOLD), action="add")],
        "holds a SummaryUpdated",
    ),
    "a removal that adds": ([made("clear", added(NEW))], "holds a FactAdded"),
    "a time that goes back": ([made("clear", at="2026-02-01T12:00:00.000000Z")], "before the commit it follows"),
    # Turns.
    "turns that are covered already": ([covering(1, 2)], "covered already"),
    "a turn that is covered already": ([covering(2, 2)], "covered already"),
    "covered turns given up": (
        [made("manual", UpdateFailed("discarded", ""), action="discard", thread="t1", turns=TurnRange(1, 2))],
        "covered already",
    ),
    "sections that were received before": ([received(7), received(7, basis=7)], "a second time"),
    "sections older than the last received": ([received(7), received(6, basis=7)], "a second time"),
    "an agent cut off behind what was received": (
        [received(7), received(7, basis=7, cut=True)],
        "cuts agent coder off",
    ),
    "sections made on a later commit": ([received(7, basis=7)], "no earlier commit"),
    "a thread's summary from an agent": (
        [received(7, SummaryUpdated("thread/1/1-2/t1", EMPTY, TOLD, "thread/1/1-2/t1"))],
        "which the document does not have",
    ),
    "a fact from an agent": ([received(7, added(NEW))], "holds a FactAdded"),
    "a section shared without an answer": (
        [made("extraction", SummaryShared(WORK, "Ada works.", 3), thread="t1")],
        "without an answer of a model",
    ),
    "turns that were never recorded": ([covering(3, 4)], "turn 4 of thread t1, of which 2 were recorded"),
    "turns of no thread": ([covering(1, 1, "t9")], "turn 1 of thread t9, of which 0"),
    "failed turns that were never recorded": (
        [made("extraction", UpdateFailed("reply", "no JSON", 1, TurnRange(3, 3)), thread="t1")],
        "of which 2 were recorded",
    ),
    "turns from the last to the first": ([covering(4, 3)], "the turns 4 to 3"),
    "turns before the first": ([covering(0, 1)], "the turns 0 to 1"),
    "turns that a clear covers": ([made("clear", thread="t3", turns=TurnRange(1, 2))], "covers turns"),
    "turns without a thread": ([learned(thread=None, turns=TurnRange(1, 2))], "covers turns"),
    # Summaries of threads.
    "a summary of what was summed up": ([summary("thread/1/1-2/t1"), summary("thread/1/2-2/t1", first=2)], "earlier"),
    "a summary under another name": ([summary("thread/1/1-9/t1")], "and summarises thread/1/1-2/t1"),
    "a summary of a section": ([summary(WORK)], "not a summary of turns"),
    "a summary that takes another away": (
        [
            summary("thread/1/1-1/t1", last=1),
            summary("thread/1/2-2/t1", SummaryUpdated("thread/1/1-1/t1", TOLD, EMPTY), first=2),
        ],
        "does not replace",
    ),
    "turns summed up by hand": ([made("manual", thread="t1", level=1, summarized=TurnRange(1, 2))], "sums up turns"),
}


@pytest.mark.parametrize(("drafts", "told"), FORGED.values(), ids=FORGED)
def test_a_forged_commit_is_told_once(home: Home, drafts: list[Draft], told: str) -> None:
    lines = appended(home.ledger, drafts)
    home.put(LEDGER, lines)
    found = home.verify()
    assert not found.ok
    assert [(p.kind, p.stream, p.line, p.byte) for p in found.problems] == [
        ("impossible", LEDGER, len(lines), offsets(lines)[-2])
    ]
    assert told in found.problems[0].message
    assert f"commit {len(lines)}" in found.problems[0].message


def test_one_forged_commit_does_not_hide_the_next_and_honest_ones_behind_are_not_blamed(home: Home) -> None:
    honest = learned(added(fact(8, 0, "sings")), basis=7)
    lines = appended(home.ledger, [learned(added(OSLO, "newFacts/0")), honest, covering(1, 2, basis=8)])
    home.put(LEDGER, lines)
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 7), ("impossible", 9)]


def test_what_a_forged_commit_does_beside_is_not_laid_on_the_one_behind_it(home: Home) -> None:
    forged = learned(added(changed(OSLO, id="fact_mine", seq=7)))
    home.put(LEDGER, appended(home.ledger, [forged, learned(added(fact(8, 0, "sings")), basis=7)]))
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 7)]


def test_a_forged_commit_is_folded_all_the_same_as_memory_is(home: Home) -> None:
    home.put(LEDGER, appended(home.ledger, [learned(added(fact(7, 4, "is rich"), "newFacts/0"))]))
    with open_home(home.path) as bs:
        memory = bs.memory(USER)
        assert "is rich" in {known.content for known in memory.facts()}
        memory.flush()
        assert [problem.kind for problem in memory.verify().problems] == ["impossible"]
    home.document.unlink()


def test_a_ledger_without_a_genesis(home: Home) -> None:
    home.put(LEDGER, appended([], [made("policy", PolicyChanged(None, Policy()), user=USER)]))
    home.file(TRANSCRIPT).unlink()
    found = home.verify().problems
    assert [(p.kind, p.line) for p in found] == [("impossible", 1)]
    assert "the first commit is one" in found[0].message


def test_a_genesis_that_follows_a_policy(home: Home) -> None:
    home.put(LEDGER, appended([], [made("genesis", PolicyChanged(LOWER, Policy()), user=USER)]))
    home.file(TRANSCRIPT).unlink()
    assert "names a policy before it" in home.verify().problems[0].message


# Against the transcript.


def said(first: int, *more: Event, thread: str = "t4", last: int | None = None, at: str = AT) -> Draft:
    end = first if last is None else last
    turns = [turn("said", n) for n in range(first, end + 1)]
    return Draft(at, Cause(kind="record", thread=thread, turns=TurnRange(first, end)), (*more, *turns))


def test_turns_that_a_clear_had_covered(home: Home) -> None:
    home.put(TRANSCRIPT, appended(home.transcript, [said(1, last=2), said(3, last=4)]))
    cleared = head_of(home.file(TRANSCRIPT).read_bytes().splitlines()[3])
    clear = made("clear", transcript=cleared)
    home.put(LEDGER, appended(home.ledger, [clear, covering(3, 4, "t4", basis=7)]))
    assert home.verify().ok, home.verify().problems
    home.put(LEDGER, appended(home.ledger, [clear, covering(3, 4, "t4", basis=7), covering(2, 2, "t4", basis=8)]))
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 9)]
    assert "which a clear had covered" in home.verify().problems[0].message


def test_turns_that_came_after_what_the_commit_was_made_on(home: Home) -> None:
    home.put(TRANSCRIPT, appended(home.transcript, [said(1), said(2)]))
    pins = [head_of(line) for line in home.file(TRANSCRIPT).read_bytes().splitlines()]
    home.put(LEDGER, appended(home.ledger, [covering(1, 2, "t4", transcript=pins[4])]))
    assert home.verify().ok, home.verify().problems
    home.put(LEDGER, appended(home.ledger, [covering(1, 2, "t4", transcript=pins[3])]))
    assert "recorded later" in home.verify().problems[0].message


def test_turns_are_covered_in_any_order_and_once(home: Home) -> None:
    home.put(TRANSCRIPT, appended(home.transcript, [said(1, last=9)]))
    ranges = [(7, 8), (1, 2), (5, 6), (3, 3), (9, 9), (4, 4)]
    drafts = [covering(*turns, "t4", basis=7 + n) for n, turns in enumerate(ranges, -1)]
    home.put(LEDGER, appended(home.ledger, drafts))
    assert home.verify().ok, home.verify().problems
    for again in ((1, 9), (2, 3), (4, 4), (8, 9)):
        home.put(LEDGER, appended(home.ledger, [*drafts, covering(*again, "t4")]))
        assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 13)]


def test_turns_that_were_restored_are_covered_once_more_by_who_has_seen_them(home: Home) -> None:
    gone, back = TurnSuperseded(1), TurnRestored(1, again=True)
    changes = [made("withdrawal", gone, thread="t4"), made("restore", back, thread="t4")]
    home.put(TRANSCRIPT, appended(home.transcript, [said(1, last=2), *changes]))
    pins = [head_of(line) for line in home.file(TRANSCRIPT).read_bytes().splitlines()]
    first = covering(1, 2, "t4", transcript=pins[3])
    home.put(LEDGER, appended(home.ledger, [first, covering(1, 1, "t4", basis=7, transcript=pins[5])]))
    assert home.verify().ok, home.verify().problems
    for turns, pin in (((1, 1), pins[4]), ((1, 2), pins[5])):
        home.put(LEDGER, appended(home.ledger, [first, covering(*turns, "t4", basis=7, transcript=pin)]))
        assert "covered already" in home.verify().problems[0].message


SAID: dict[str, tuple[list[Draft], str]] = {
    "a turn superseded twice": (
        [said(1), said(2, TurnSuperseded(1)), said(3, TurnSuperseded(1))],
        "superseded already",
    ),
    "a turn superseded that was never recorded": ([said(1, TurnSuperseded(1))], "was not recorded"),
    "a turn withdrawn that was superseded": (
        [said(1), said(2, TurnSuperseded(1)), made("withdrawal", TurnSuperseded(1), thread="t4")],
        "superseded already",
    ),
    "a turn restored that stands": ([said(1), made("restore", TurnRestored(1), thread="t4")], "was not superseded"),
    "a withdrawal that records": ([made("withdrawal", turn("said"), thread="t4")], "holds a TurnRecorded"),
    "more turns than it states": ([said(1, turn("said", 7))], "records 2 turns, and states 1"),
    "turns that it does not state": ([made("record", turn("said"), thread="t4")], "records 1 turns, and states 0"),
    "a turn of no thread": ([made("record", turn("said"))], "about no thread"),
    "an event of the ledger": ([made("record", FactAdded(NEW), thread="t4")], "holds a FactAdded"),
    "a kind of the ledger": ([made("clear")], "of a kind that a transcript does not have"),
    "a time that goes back": ([said(1, at="2026-02-01T12:00:00.000000Z")], "before the commit it follows"),
}


@pytest.mark.parametrize(("drafts", "told"), SAID.values(), ids=SAID)
def test_a_forged_commit_of_the_transcript_is_told_once(home: Home, drafts: list[Draft], told: str) -> None:
    lines = appended(home.transcript, drafts)
    home.put(TRANSCRIPT, lines)
    assert home.problems() == [("impossible", TRANSCRIPT, len(lines), offsets(lines)[-2])]
    assert told in home.verify().problems[0].message


# Where content was erased.


def erasing(home: Home, *drafts: Draft, seq: int, index: int, fact_id: str | None) -> None:
    """Put the drafts behind the ledger, and erase an event of it, as its last commit says."""
    redaction = made("redaction", Redacted(LEDGER, seq, index, "fact", fact=fact_id))
    lines = appended(home.ledger, [*drafts, redaction])
    lines[seq - 1] = erase(lines[seq - 1], index)
    home.put(LEDGER, lines)


def test_of_a_fact_that_was_erased_nothing_is_concluded_and_of_the_others_as_before(home: Home) -> None:
    gone = learned(FactRemoved(OSLO, "model", "factsToRemove/0"))
    erasing(home, gone, seq=2, index=1, fact_id="fact_2_0")
    assert home.verify().ok, home.verify().problems
    forged = learned(FactRemoved(changed(TEA, by_hand=False), "model", "factsToRemove/0"), basis=7)
    erasing(home, gone, forged, seq=2, index=1, fact_id="fact_2_0")
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 8)]


def test_a_fact_is_known_again_once_an_event_says_it(home: Home) -> None:
    confirmed = learned(FactRevised(OSLO, REVISED, "confirmed", "factsToReinforce/0"))
    erasing(home, confirmed, seq=2, index=1, fact_id="fact_2_0")
    assert home.verify().ok, home.verify().problems
    erasing(home, confirmed, learned(FactRemoved(OSLO, "model"), basis=7), seq=2, index=1, fact_id="fact_2_0")
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 8)]


def test_a_stub_that_no_redaction_names_leaves_nothing_to_conclude(home: Home) -> None:
    lines = appended(home.ledger, [learned(FactRemoved(NEW, "model", "factsToRemove/0"))])
    lines[3] = erase(lines[3], 0)
    home.put(LEDGER, lines)
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("unexplained_redaction", 4)]


def test_what_the_erased_commit_took_away_may_come_back_by_a_revert(home: Home) -> None:
    gone = learned(FactRemoved(OSLO, "model", "factsToRemove/0"))
    back = made("revert", FactAdded(OSLO), target=7)
    erasing(home, gone, back, seq=7, index=1, fact_id="fact_2_0")
    assert home.verify().ok, home.verify().problems
    erasing(home, gone, made("revert", FactAdded(fact(3, 9, "is rich")), target=7), seq=7, index=1, fact_id="fact_2_0")
    assert [(kind, line) for kind, _, line, _ in home.problems()] == [("impossible", 8)]


def test_behind_damage_nothing_is_concluded(home: Home) -> None:
    forged = learned(FactRemoved(NEW, "model", "factsToRemove/0"))
    lines = appended(home.ledger, [forged, covering(1, 2, basis=7), covering(9, 9, basis=8)])
    home.put(LEDGER, [*lines[:2], *lines[3:]])
    assert [kind for kind, *_ in home.problems()] == ["missing"]


def test_two_facts_that_swap_their_words_say_the_same_at_no_time(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory(USER)
        one, two = (memory.add_fact(text).fact for text in ("Ada runs", "Ada swims"))
        pairs = enumerate(((one, two), (two, one)))
        memory.own.save([NewFact(f"facts/{n}", id=a.id, content=b.content, confidence=0.9) for n, (a, b) in pairs])
        assert dedup_key(memory.facts()[0].content, "normalized") == dedup_key("Ada swims", "normalized")
        assert memory.verify().problems == ()


def test_the_commit_that_was_refused_is_none(home: Home) -> None:
    refusal = CandidateRejected(NewFact(place="facts/0", content="x"), "duplicate", "said")
    home.put(LEDGER, appended(home.ledger, [made("manual", refusal, action="add")]))
    found = verify(JsonlStore(home.path), SCOPE)
    assert found.problems == ()
    assert decode(home.file(LEDGER).read_bytes().splitlines()[-1]).events == (refusal,)


@pytest.mark.parametrize("draft", [made("manual", Erased("0" * 64)), made("erased")], ids=["event", "cause"])
def test_a_stub_with_a_salt_is_no_erasure(home: Home, draft: Draft) -> None:
    """Its hash is right and no redaction has to name it, so content that never was would pass for erased."""
    home.put(LEDGER, appended(home.ledger, [draft]))
    assert ("impossible", "has the salt of content") in {
        (problem.kind, problem.message.partition(", and ")[2].partition(": ")[0]) for problem in home.verify().problems
    }
