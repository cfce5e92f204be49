"""Saved documents, as properties: whatever callers load, change and save, in whatever order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from older import Installed, empty, fact, open_storage, said
from sizes import examples

from backstory.deerflow.tracked_document import track, tracked
from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.commands import ChangePolicy, SaveDocument, candidates_of
from backstory.ledger.core.commit import Cause
from backstory.ledger.core.events import LedgerEvent
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing import changes_since
from backstory.ledger.rules.decide import decide
from backstory.projections.document.document import document_of

ADA = Scope("ada")
SECTIONS = (("user", "workContext"), ("history", "recentMonths"))


class Kept:
    """What the storage does, without a disk: lends documents of a memory, and takes in what was changed in them."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.commits: list[tuple[Cause, tuple[LedgerEvent, ...]]] = []
        policy = Policy(max_facts=1_000_000, fact_confidence_threshold=0, dedup_key="exact")
        self._take(decide(self.memory, ChangePolicy(at=self._now(), policy=policy, source="config")))

    def load(self) -> dict[str, Any]:
        return track(ADA, document_of(self.memory))

    def save(self, document: dict[str, Any]) -> None:
        base = tracked(document, ADA)
        assert base is not None
        candidates = changes_since(base.said, document)
        if candidates:
            command = SaveDocument(at=self._now(), candidates=candidates)
            events = decide(self.memory, command)
            rebuilt = SaveDocument(at=command.at, candidates=candidates_of(events, stated=True))
            assert decide(self.memory, rebuilt) == events
            self._take(events)
        base.saved(document)

    def _take(self, events: tuple[LedgerEvent, ...]) -> None:
        fold = Fold(self.memory)
        fold.advance(self.memory.seq + 1, self._now(), "import", events)
        self.memory = fold.memory()

    def _now(self) -> str:
        return spell_moment(SystemClock().now())


class Caller:
    """One who loads, changes and saves; `base` and `said` are what a plain three-way merge would go by."""

    def __init__(self, kept: Kept) -> None:
        self.load(kept)

    def load(self, kept: Kept) -> None:
        self.document = kept.load()
        self.base = stated(self.document)


State = dict[object, object]


def stated(document: dict[str, Any]) -> State:
    """What a document says: facts by id, sections by name."""
    facts = {one["id"]: (one["content"], one["confidence"]) for one in document["facts"]}
    return {**facts, **{name: document[name[0]][name[1]]["summary"] for name in SECTIONS}}


def merged(now: State, base: State, mine: State) -> State:
    """What stands when one who started from `base` puts in `mine`: what they did not touch is as others left it."""
    touched = {key for key in {*base, *mine} if base.get(key) != mine.get(key)}
    kept = {key: value for key, value in now.items() if key not in touched}
    return kept | {key: mine[key] for key in touched if key in mine}


@given(st.data())
def test_whatever_several_callers_do_at_once_nobody_undoes_what_they_did_not_touch(data):
    kept = Kept()
    callers = [Caller(kept) for _ in range(3)]
    expected = stated(kept.load())
    for number in range(data.draw(st.integers(1, 12))):
        caller = data.draw(st.sampled_from(callers))
        facts = caller.document["facts"]
        match data.draw(st.sampled_from(["load", "add", "remove", "restate", "section", "save", "save"])):
            case "load":
                caller.load(kept)
            case "add":
                facts.append(fact(f"fact_{number:08x}", f"Fact {number}"))
            case "remove" if facts:
                del facts[data.draw(st.integers(0, len(facts) - 1))]
            case "restate" if facts:
                one = facts[data.draw(st.integers(0, len(facts) - 1))]
                one["content"] = data.draw(st.sampled_from([one["content"], f"Restated {number}"]))
                one["confidence"] = data.draw(st.sampled_from([0.0, 0.5, 0.9]))
            case "section":
                group, name = data.draw(st.sampled_from(SECTIONS))
                summary = data.draw(st.sampled_from(["", f"Summary {number}"]))
                caller.document[group][name] = {"summary": summary, "updatedAt": ""}
            case "save":
                mine = stated(caller.document)
                expected = merged(expected, caller.base, mine)
                kept.save(caller.document)
                caller.base = mine
                assert stated(kept.load()) == expected


contents = st.text(min_size=1, max_size=40).map(str.strip).filter(bool)
ids = st.text("abcdef0123456789-_", min_size=1, max_size=12).map("fact-{}".format)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    said_of = draw(st.dictionaries(ids, contents, max_size=8).filter(lambda d: len(set(d.values())) == len(d)))
    more = {
        "confidence": st.floats(0, 1),
        "category": st.sampled_from(["preference", "knowledge", "context", "behavior", "goal", "correction"]),
        "source": st.sampled_from(["thread-1", "import"]),
    }
    document = empty()
    for fact_id, content in said_of.items():
        one = fact(fact_id, content, **{name: draw(kind) for name, kind in more.items()})
        if draw(st.booleans()):
            one["sourceError"] = draw(contents)
        document["facts"].append(one)
    for group, name in SECTIONS:
        summary = draw(st.just("") | contents)
        document[group][name] = {"summary": summary, "updatedAt": "2026-05-01T00:00:00.000000Z" if summary else ""}
    return document


@given(st.lists(documents(), min_size=1, max_size=4))
def test_whatever_document_is_saved_comes_back(saved):
    kept = Kept()
    for document in saved:
        mine = kept.load()
        mine.update({**document, "user": {**mine["user"], **document["user"]}})
        kept.save(mine)
        back = json.loads(json.dumps(kept.load()))
        assert sorted(back.pop("facts"), key=by_id) == sorted(document["facts"], key=by_id)
        for group, name in SECTIONS:
            assert back[group][name]["summary"] == document[group][name]["summary"]


def by_id(one: dict[str, Any]) -> str:
    return one["id"]


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    installed = Installed(monkeypatch, tmp_path_factory.mktemp("deer"))
    yield installed
    installed.remove()


def test_the_same_holds_on_a_disk(older):
    storage = open_storage()
    users = iter(range(1_000))

    @settings(max_examples=examples(1 / 4))
    @given(st.lists(documents(), min_size=1, max_size=3))
    def saved(documents_saved):
        user = f"u{next(users)}"
        for document in documents_saved:
            assert storage.save(document, user_id=user)
        back = storage.load(user_id=user)
        facts = documents_saved[-1]["facts"]
        assert sorted(back["facts"], key=by_id) == sorted(facts, key=by_id)
        again = open_storage()
        assert said(again.load(user_id=user)) == said(back)
        again.close()

    saved()
