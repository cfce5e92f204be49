"""What was written once is read forever: every old format has its golden files, and they lead where they always led."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from doubles.event_strategies import names_of
from golden.make_v1 import (
    DOCUMENT,
    ERASED_EVENT,
    ERASED_TURN,
    LEDGER,
    PIN,
    STREAMS,
    THREAD,
    TRANSCRIPT,
    ledger,
    transcript,
)
from golden.make_v1_policy import STATED, WORDS, WORDS_DOCUMENT
from golden.make_v1_policy import ledger as ledger_of_words
from golden.make_v1_rules import LABELS, POLICY, RULES, RULES_DOCUMENT
from golden.make_v1_rules import ledger as ledger_of_rules
from golden.make_v2 import MARKS, MARKS_DOCUMENT
from golden.make_v2 import ledger as ledger_of_marks
from golden.make_v3 import BERGEN, LEASE, OSLO, PARIS, TIMES, TIMES_DOCUMENT
from golden.make_v3 import ledger as ledger_of_times
from golden.make_v4 import TAGS, TAGS_DOCUMENT, TAGS_TRANSCRIPT
from golden.make_v4 import ledger as ledger_of_tags
from golden.make_v4 import transcript as transcript_of_tags
from streams import memory_at

from backstory.ledger.core.commands import candidates_of
from backstory.ledger.core.commit import Commit, head_of
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Erased,
    Event,
    Extension,
    IdsReserved,
    NewFact,
    PolicyChanged,
    Removal,
    SectionsMoved,
    SummariesReceived,
    SummaryShared,
    TurnRestored,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.importing import read_document
from backstory.ledger.log.commits import read_commits
from backstory.ledger.threads.transcript import Transcript
from backstory.projections.document.document import render
from backstory.projections.history.moment import replay
from backstory.projections.integrity.verify import verify


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    for name, golden in (("ledger", LEDGER), ("transcript", TRANSCRIPT)):
        place = tmp_path / f"{STREAMS[name]}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(golden, place)
    shutil.copy(DOCUMENT, tmp_path / "users/ada/memory.json")
    return JsonlStore(tmp_path)


@pytest.fixture
def commits(store: JsonlStore) -> list[Commit]:
    return list(read_commits(store, STREAMS["ledger"]))


def test_it_replays_to_the_document_it_always_did(commits: list[Commit]) -> None:
    fold = Fold(Memory())
    for commit in commits:
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    assert render(fold.memory()) == DOCUMENT.read_bytes()


def test_it_verifies(store: JsonlStore) -> None:
    found = verify(store, Scope("ada"), document=store.home / "users/ada/memory.json")
    assert (found.ok, found.commits, found.turns, found.problems) == (True, 13, 3, ())


def test_it_can_be_read_at_any_moment(store: JsonlStore) -> None:
    live = {
        seq: {fact.content for fact in memory_at(store, Scope("ada"), seq).facts.values()} for seq in (1, 2, 3, 7, 13)
    }
    assert live == {
        1: set(),
        2: {"Drinks tea: 茶"},
        3: {"Drinks coffee"},
        7: {"Drinks coffee", "Has two cats"},
        13: {"Drinks coffee", "Has two cats", "Has a dog"},
    }


def test_its_turns_are_what_was_said(store: JsonlStore) -> None:
    said = Transcript()
    for commit in read_commits(store, STREAMS["transcript"]):
        said.apply(commit)
    thread = said.threads[THREAD]
    assert thread.turns[0] is not None
    assert thread.turns[0].content == "I drink tea: 茶, “Tee” \\ \t 👍🏽"
    assert thread.turns[0].send_to == ("Planner", "Coder")
    assert thread.turns[0].metadata == {"lang": "de", "tags": ["a", 1, 2.5, True, None], "deep": {"é": {}}}
    assert thread.turns[2] is None
    assert [turn.content for turn in thread.standing()] == ["Noted."]
    assert [turn.content for turn in said.threads["other"].standing()] == ["Hello\nthere"]


def test_what_was_erased_from_it_is_gone(commits: list[Commit], store: JsonlStore) -> None:
    seq, index = ERASED_EVENT
    assert isinstance(commits[seq - 1].events[index], Erased)
    turns = list(read_commits(store, STREAMS["transcript"]))
    assert isinstance(turns[ERASED_TURN[0] - 1].events[ERASED_TURN[1]], Erased)
    for file in (LEDGER, TRANSCRIPT, DOCUMENT):
        assert b"PIN is" not in file.read_bytes()
    assert "PIN is" in PIN.content


def test_it_says_what_was_meant(commits: list[Commit], store: JsonlStore) -> None:
    turns = list(read_commits(store, STREAMS["transcript"]))
    for read, meant in zip((turns, commits), (transcript(), ledger(turns[-1].head)), strict=True):
        assert [commit.at for commit in read] == [draft.at for draft in meant]
        assert [commit.cause for commit in read] == [draft.cause for draft in meant]
        for commit, draft in zip(read, meant, strict=True):
            for told, event in zip(commit.events, draft.events, strict=True):
                assert told == event or isinstance(told, Erased)


@pytest.fixture
def rules(tmp_path: Path) -> list[Commit]:
    place = tmp_path / "users/bo/ledger.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(RULES, place)
    return list(read_commits(JsonlStore(tmp_path), "users/bo/ledger"))


LATER = {IdsReserved, SectionsMoved, SummariesReceived, SummaryShared, TurnRestored}
"""Events that came after the files were made, which are never made anew."""


def test_they_hold_every_event_and_every_candidate(
    commits: list[Commit], rules: list[Commit], store: JsonlStore
) -> None:
    told = [*commits, *rules, *read_commits(store, STREAMS["transcript"])]
    events = [event for commit in told for event in commit.events]
    assert {type(event) for event in events} == names_of(msgspec.inspect.type_info(Event)) - LATER
    candidates = {type(event.candidate) for event in events if isinstance(event, CandidateRejected)}
    assert candidates == names_of(msgspec.inspect.type_info(Candidate))


def test_a_policy_of_three_values_is_read_as_one_that_has_the_defaults_besides(commits: list[Commit]) -> None:
    assert commits[8].events == (
        PolicyChanged(Policy(), Policy(max_facts=12, fact_confidence_threshold=0.6), "manual"),
    )
    assert b'"after":{"max_facts":12,"fact_confidence_threshold":0.6,"fact_eviction_policy":"confidence"}' in (
        LEDGER.read_bytes()
    )


def test_whatever_has_no_new_value_still_says_the_same_when_written(commits: list[Commit], store: JsonlStore) -> None:
    turns = list(read_commits(store, STREAMS["transcript"]))
    for path, read in ((LEDGER, commits), (TRANSCRIPT, turns)):
        for line, commit in zip(path.read_bytes().splitlines(), read, strict=True):
            stands = json.loads(line)
            assert json.loads(msgspec.json.encode(commit.cause)) == stands["cause"]
            for event, told in zip(commit.events, stands["events"], strict=True):
                assert isinstance(event, PolicyChanged) or json.loads(msgspec.json.encode(event)) == told


def test_what_the_rules_added_verifies(tmp_path: Path) -> None:
    place = tmp_path / "users/bo/ledger.jsonl"
    place.parent.mkdir(parents=True)
    shutil.copy(RULES, place)
    assert verify(JsonlStore(tmp_path), Scope("bo")).problems == ()


def test_the_marks_say_what_was_meant(tmp_path: Path) -> None:
    place = tmp_path / "users/cy/ledger.jsonl"
    place.parent.mkdir(parents=True)
    shutil.copy(MARKS, place)
    # Not to the byte: a policy that is written today has keys that came later.
    for read, meant in zip(read_commits(JsonlStore(tmp_path), "users/cy/ledger"), ledger_of_marks(), strict=True):
        assert (read.at, read.cause) == (meant.at, meant.cause)
        for told, event in zip(read.events, meant.events, strict=True):
            assert told == event or isinstance(told, Erased)


def test_marks_are_replayed(tmp_path: Path) -> None:
    place = tmp_path / "users/cy/ledger.jsonl"
    place.parent.mkdir(parents=True)
    shutil.copy(MARKS, place)
    store, scope = JsonlStore(tmp_path), Scope("cy")
    memory = replay(store, scope)
    assert render(memory) == MARKS_DOCUMENT.read_bytes()
    assert list(memory.marks) == ["has a cat", "lives in oslo"]
    assert list(memory.erased) == ["cd" * 32]


def test_a_policy_in_words_is_replayed(tmp_path: Path) -> None:
    place = tmp_path / "users/ed/ledger.jsonl"
    place.parent.mkdir(parents=True)
    shutil.copy(WORDS, place)
    store, scope = JsonlStore(tmp_path), Scope("ed")
    memory = replay(store, scope)
    assert memory.policy == STATED
    assert render(memory) == WORDS_DOCUMENT.read_bytes()
    found = list(read_commits(store, scope.stream("ledger")))
    assert [(commit.at, commit.cause, commit.events) for commit in found] == [
        (draft.at, draft.cause, draft.events) for draft in ledger_of_words()
    ]
    assert verify(store, scope).problems == ()
    stated = {candidate.place: candidate for candidate in candidates_of(found[2].events)}["newFacts/0"]
    assert isinstance(stated, NewFact)
    assert (stated.category, stated.topic) == ("diet", "inside")


def test_what_states_when_it_holds_is_replayed(tmp_path: Path) -> None:
    place = tmp_path / "users/di/ledger.jsonl"
    place.parent.mkdir(parents=True)
    shutil.copy(TIMES, place)
    store, scope = JsonlStore(tmp_path), Scope("di")
    assert render(replay(store, scope)) == TIMES_DOCUMENT.read_bytes()
    found = list(read_commits(store, scope.stream("ledger")))
    assert [(commit.at, commit.cause, commit.events) for commit in found] == [
        (draft.at, draft.cause, draft.events) for draft in ledger_of_times()
    ]
    versions = [json.loads(line)["v"] for line in TIMES.read_bytes().splitlines()]
    assert versions == [1, 3, 3, 3, 3, 3, 3]
    assert verify(store, scope).problems == ()
    _, first, second, third, *_ = found
    stated = {candidate.place: candidate for candidate in candidates_of(first.events)}["newFacts/3"]
    assert isinstance(stated, NewFact)
    assert (stated.content, stated.valid_until) == (PARIS.content, "2012")
    assert Removal(
        place="factsToEnd/0", id=OSLO.id, reason="moved", replacement=0, ended=True, valid_until="2026-02"
    ) in candidates_of(second.events)
    assert candidates_of(third.events) == (
        Removal(place="factsToEnd/0", id=BERGEN.id, reason="the lease ends", ended=True, valid_until=LEASE.valid_until),
    )


def test_tags_and_attributes_are_replayed(tmp_path: Path) -> None:
    folder = tmp_path / "users/ed"
    folder.mkdir(parents=True)
    shutil.copy(TAGS, folder / "ledger.jsonl")
    shutil.copy(TAGS_TRANSCRIPT, folder / "transcript.jsonl")
    store, scope = JsonlStore(tmp_path), Scope("ed")
    assert render(replay(store, scope)) == TAGS_DOCUMENT.read_bytes()
    for name, meant in (("ledger", ledger_of_tags()), ("transcript", transcript_of_tags())):
        assert [(commit.at, commit.cause, commit.events) for commit in read_commits(store, scope.stream(name))] == [
            (draft.at, draft.cause, draft.events) for draft in meant
        ]
    versions = [[json.loads(line)["v"] for line in path.read_bytes().splitlines()] for path in (TAGS, TAGS_TRANSCRIPT)]
    assert versions == [[1, 4, 4, 4], [4]]
    assert verify(store, scope).problems == ()
    read = [one for one in read_document(json.loads(TAGS_DOCUMENT.read_bytes())) if isinstance(one, NewFact)]
    assert [(one.tags, one.attributes) for one in read] == [
        (("heron", "gull"), {}),
        (("gull",), {"team": "red", "rank": 2, "share": 0.5, "open": True}),
    ]


def test_what_the_rules_added_says_what_was_meant(rules: list[Commit]) -> None:
    meant = ledger_of_rules()
    assert [(commit.at, commit.cause, commit.events) for commit in rules] == [
        (draft.at, draft.cause, draft.events) for draft in meant
    ]
    later = {"said_again_share", "evidence", "free_categories", "categories", "instructions"}
    stated = {name: value for name, value in msgspec.structs.asdict(POLICY).items() if name not in later}
    assert all(value != getattr(Policy(), name) for name, value in stated.items())


def test_a_proposal_is_rebuilt_from_what_the_rules_made_of_it(rules: list[Commit]) -> None:
    by_place = {candidate.place: candidate for candidate in candidates_of(rules[2].events)}
    assert len(by_place) == 9
    assert by_place["factsToConsolidate/0"] == Consolidation(
        place="factsToConsolidate/0",
        sources=("fact_2_0", "fact_2_1"),
        content="Drinks tea, oolong above all",
        category="drinks",
        **LABELS,
    )
    assert by_place["staleFactsToExtend/0"] == Extension(
        place="staleFactsToExtend/0", id="fact_2_2", days=100, reason="still does"
    )


def test_memory_json_states_confirmations_and_sources_only_where_there_are_any(rules: list[Commit]) -> None:
    fold = Fold(Memory())
    for commit in rules[:4]:
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    data = render(fold.memory())
    assert data == RULES_DOCUMENT.read_bytes()
    bus, both, chess = json.loads(data)["facts"]
    assert (bus["confirmationCount"], bus["lastConfirmedAt"]) == (1, "2026-03-12T10:13:00.123456Z")
    assert "consolidatedFrom" not in bus
    assert both["consolidatedFrom"] == ["fact_2_0", "fact_2_1"]
    assert not {"confirmationCount", "lastConfirmedAt"} & set(both)
    assert {"confirmationCount", "lastConfirmedAt", "consolidatedFrom"} <= set(chess)
    (again, *_) = [c for c in read_document(json.loads(data)) if getattr(c, "id", None) == "fact_4_0"]
    assert isinstance(again, NewFact)
    assert (again.confirmations, again.confirmed_at) == (3, "2026-03-12T10:02:00.123456Z")
    assert again.consolidated_from == ("fact_a", "fact_b")


def test_its_heads_have_not_moved() -> None:
    """So that nobody writes the files anew without noticing."""
    files = (LEDGER, TRANSCRIPT, RULES, MARKS, TIMES, WORDS, TAGS, TAGS_TRANSCRIPT)
    heads = {path.name: head_of(path.read_bytes().splitlines()[-1]) for path in files}
    assert {name: (head.seq, head.hash[:16]) for name, head in heads.items()} == {
        "v1.jsonl": (13, "9d381919e4e9e038"),
        "v1.policy.jsonl": (3, "cb21646013b39065"),
        "v1.rules.jsonl": (6, "33ec83348c46e0ae"),
        "v1.transcript.jsonl": (3, "87cf86ba1cadd56a"),
        "v2.jsonl": (7, "4bf8f7f655ca1d59"),
        "v3.jsonl": (7, "555c3ac406f61379"),
        "v4.jsonl": (4, "b11fdb5faa934c05"),
        "v4.transcript.jsonl": (1, "4d033747ce8d8fbf"),
    }
