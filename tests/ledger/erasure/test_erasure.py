"""What an erasure takes, what it leaves and what it says again: examples, and properties over random histories."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from histories import History, take_step
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import examples
from story import at, extract, longer, merged, new, removal, summary
from strategies import WORDS, contents, policies, proposals

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    EditFact,
    FailUpdate,
    RemoveFact,
    Revert,
    RollBack,
)
from backstory.ledger.core.commit import Cause, Commit, Draft, Head, seal
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import ConflictError, NotFoundError, UsageError
from backstory.ledger.core.events import (
    CandidateRejected,
    Edit,
    Erased,
    Event,
    FactAdded,
    FactRemoved,
    PolicyChanged,
    Redacted,
    Reinforcement,
    Section,
    SummaryUpdated,
    Turn,
    TurnRange,
    TurnRecorded,
    Unread,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.erasure.content import fact_texts, folded, may_say, words_in
from backstory.ledger.erasure.plan import plan_erasure
from backstory.ledger.erasure.requests import (
    Erasure,
    ErasurePlan,
    ForgetEverything,
    ForgetExpired,
    ForgetFact,
    ForgetMatching,
    ForgetThread,
    Only,
    Walk,
)
from backstory.ledger.rules.decide import decide
from backstory.operations.undoing import preview_undo, revert_command, rollback_command
from backstory.projections.history.moment import fold
from backstory.projections.what_if.counterfactual import decide_again

thorough = settings(max_examples=examples(), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
WORK = "user.workContext"
GONE = Erased("0" * 64)
UNGATED = Policy(gate_enabled=False)
"""So that a fact with a label of the model's own invention is taken in."""


@dataclass
class Whole:
    stream: str
    commits: Sequence[Commit]

    def __call__(self, only: Only | None = None) -> Iterable[Commit]:
        return self.commits


class AskedFor(Whole):
    def __call__(self, only: Only | None = None) -> Iterable[Commit]:
        for commit in self.commits:
            draft = Draft(commit.at, commit.cause, commit.events)
            line = seal(draft, Head(commit.seq - 1, ""), lambda: "0" * 32)
            if only is None or only(commit.seq, line):
                yield commit


def slots(plan: ErasurePlan) -> set[tuple[str, int, int]]:
    return {(event.stream, event.seq, event.index) for event in plan.redacted}


@dataclass
class Scene(History):
    """A history with a transcript beside it."""

    said: list[Commit] = field(default_factory=list)
    ordinals: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        History.__init__(self)

    def say(self, thread: str, *texts: str, **more: object) -> TurnRange:
        """Record turns, with ids `<thread>-<ordinal>`."""
        first = self.ordinals.get(thread, 0) + 1
        turns = [
            Turn(n=n, id=f"{thread}-{n}", role="user", content=text, at=at(0), **more)  # type: ignore[arg-type]
            for n, text in enumerate(texts, first)
        ]
        self.ordinals[thread] = first + len(texts) - 1
        recorded = TurnRange(first, self.ordinals[thread])
        events = tuple(map(TurnRecorded, turns))
        cause = Cause(kind="record", thread=thread, turns=recorded)
        self.said.append(Commit(len(self.said) + 1, at(len(self.said)), cause, events, "", ""))
        return recorded

    def update(self, thread: str, turns: TurnRange | None, *candidates: object) -> tuple[Event, ...]:
        command = extract(*candidates, basis=self.memory.seq, thread=thread)  # type: ignore[arg-type]
        return self.ask(command, "extraction", thread=thread, turns=turns) or ()

    def plan(self, request: Erasure) -> ErasurePlan:
        """Plan on all commits; a plan on the lines alone that the planner asks for must be the same."""
        try:
            plan = self._planned(request, Whole)
        except NotFoundError:
            with pytest.raises(NotFoundError):
                self._planned(request, AskedFor)
            raise
        assert self._planned(request, AskedFor) == plan
        return plan

    def _planned(self, request: Erasure, walk: Callable[[str, Sequence[Commit]], Walk]) -> ErasurePlan:
        return plan_erasure(
            request,
            self.memory,
            ledger=walk("ledger", self.commits),
            transcript=walk("transcript", self.said),
        )

    def forget(self, request: Erasure) -> ErasurePlan:
        """Plan, and do it to the decoded history."""
        plan = self.plan(request)
        gone = slots(plan)
        for stream, commits in (("ledger", self.commits), ("transcript", self.said)):
            for place, commit in enumerate(commits):
                events = tuple(
                    GONE if (stream, commit.seq, index) in gone else event for index, event in enumerate(commit.events)
                )
                commits[place] = msgspec.structs.replace(commit, events=events)
        self.take(plan.events, "redaction")
        self.commits.append(Commit(self.memory.seq, self.memory.at, Cause(kind="redaction"), plan.events, "", ""))
        self.log = [commit.events for commit in self.commits]
        replayed = Fold(Memory())
        self.memories = [replayed.memory()]
        for commit in self.commits:
            replayed.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            self.memories.append(replayed.memory())
        return plan


def scene(policy: Policy | None = None) -> Scene:
    story = Scene()
    story.ask(ChangePolicy(at="", policy=policy or Policy(), source="config"), "genesis")
    return story


def left(story: Scene) -> list[Event]:
    return [event for commits in (story.commits, story.said) for commit in commits for event in commit.events]


_NAMES = {
    "id", "place", "at", "createdAt", "confirmedAt", "updatedAt", "source", "evidence", "section", "kind", "type",
    "rule", "digest", "stream", "what", "fact", "turn", "thread", "reason", "change", "role", "shown", "category",
    "stale", "sources", "consolidatedFrom",
}  # fmt: skip


def strings(value: object, key: str = "") -> Iterator[str]:
    """Every text in an event's JSON that is no name, without asking the code under test what content is."""
    if isinstance(value, dict):
        ours = value.get("type") == "CandidateRejected" and value.get("rule") != "malformed"
        for name, inner in value.items():
            if not (name == "detail" and (ours or value.get("type") in ("FactAdded", "FactRemoved"))):
                yield from strings(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, key)
    elif isinstance(value, str) and (key not in _NAMES or (key == "reason" and value == "moved")):
        yield folded(value)


def said_in(events: Sequence[Event]) -> list[str]:
    """What anybody said; a policy is nobody's words."""
    told = (event for event in events if not isinstance(event, PolicyChanged))
    return [text for event in told for text in strings(msgspec.to_builtins(event))]


def memories_agree(before: Memory, story: Scene) -> None:
    """Whoever folds the redaction onto what it knew sees what a replay sees, but for marks, which are texts.

    A process that knew them replays the log after an erasure: tests/backstory/test_what_must_not_come_back.py.
    """
    redaction = story.commits[-1]
    folding = Fold(before)
    folding.advance(redaction.seq, redaction.at, redaction.cause.kind, redaction.events)
    onward, replayed = folding.memory(), fold(story.commits)
    assert replayed.taken.items() <= onward.taken.items()
    assert replayed.marks.items() <= onward.marks.items()
    assert replayed == msgspec.structs.replace(onward, taken=replayed.taken, marks=replayed.marks)


def whats(plan: ErasurePlan) -> list[tuple[str, int, str]]:
    return [(event.stream, event.seq, event.what) for event in plan.redacted]


# A fact.


def test_a_fact_goes_with_every_event_that_carries_its_words() -> None:
    story = scene()
    turns = story.say("t1", "I live in Oslo.")
    story.update("t1", turns, new("Lives in Oslo"), summary(WORK, "She LIVES in  Oslo, by the sea."))
    story.update("t1", None, new("lives in oslo."), new("Likes tea", place="newFacts/1"))
    plan = story.forget(ForgetFact("fact_2_0"))
    assert whats(plan) == [
        ("ledger", 2, "proposal"),
        ("ledger", 2, "section"),
        ("ledger", 2, "fact"),
        ("ledger", 3, "proposal"),
        ("ledger", 3, "candidate"),
    ]
    assert story.texts() == ["Likes tea"]
    assert not story.memory.sections


def test_what_a_fact_once_said_goes_too() -> None:
    story = scene()
    story.ask(AddFact(at="", fact=new("Lives in Oslo", place="facts/0")), "manual")
    story.ask(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="Moved away")), "manual")
    story.update("t1", None, new("Lives in Oslo, with a dog"))
    story.forget(ForgetFact("fact_2_0"))
    assert not [text for text in said_in(left(story)) if "oslo" in text or "moved away" in text]
    assert story.texts() == []


def test_an_edit_that_was_refused_goes_with_its_fact() -> None:
    story = scene()
    story.update("t1", None, new("Likes tea"), new("Likes coffee", place="newFacts/1"))
    story.ask(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="Likes coffee")), "manual")
    assert isinstance(story.log[-1][0], CandidateRejected)
    plan = story.plan(ForgetFact("fact_2_0"))
    assert ("ledger", 3, "candidate") in whats(plan)


def test_the_evidence_goes_only_when_it_is_asked_for() -> None:
    story = scene()
    turns = story.say("t1", "I live in Oslo.", "By the way, I like tea.")
    story.update("t1", turns, new("Lives in Oslo", evidence=("t1-1",)), new("Likes tea", place="newFacts/1"))
    assert "turn" not in {event.what for event in story.plan(ForgetFact("fact_2_0")).redacted}
    plan = story.plan(ForgetFact("fact_2_0", with_evidence=True))
    assert [event for event in plan.redacted if event.what == "turn"] == [
        Redacted("transcript", 1, 0, "turn", thread="t1", n=1, turn="t1-1", size=15)
    ]


@pytest.mark.parametrize("cited", [(), ("nowhere",)])
def test_where_no_turn_was_cited_all_of_the_update_are_the_evidence(cited: tuple[str, ...]) -> None:
    story = scene()
    story.say("t1", "Before.")
    turns = story.say("t1", "I live in Oslo.", "Really.")
    story.update("t1", turns, new("Lives in Oslo", evidence=cited))
    plan = story.plan(ForgetFact("fact_2_0", with_evidence=True))
    assert [event.n for event in plan.redacted if event.what == "turn"] == [2, 3]


def test_what_shares_the_evidence_is_told_and_stays() -> None:
    story = scene()
    turns = story.say("t1", "I live in Oslo and like tea.")
    others = story.say("t2", "I run.")
    story.update("t1", turns, new("Lives in Oslo"), new("Likes tea", place="newFacts/1"), summary(WORK, "A person."))
    story.update("t2", others, new("Runs"))
    plan = story.forget(ForgetFact("fact_2_0"))
    assert [(also.kind, also.id, also.content) for also in plan.also] == [
        ("fact", "fact_2_1", "Likes tea"),
        ("section", WORK, "A person."),
    ]
    assert story.texts() == ["Likes tea", "Runs"]


def test_a_fact_that_is_unknown_or_erased_already_is_not_found() -> None:
    story = scene()
    story.update("t1", None, new("Lives in Oslo"))
    with pytest.raises(NotFoundError):
        story.plan(ForgetFact("fact_9_9"))
    story.forget(ForgetFact("fact_2_0"))
    with pytest.raises(NotFoundError):
        story.plan(ForgetFact("fact_2_0"))


def test_a_short_fact_does_not_take_words_that_merely_contain_it() -> None:
    story = scene()
    story.update("t1", None, new("tea"), new("He is a teacher", place="newFacts/1"), new("No tea", place="newFacts/2"))
    story.forget(ForgetFact("fact_2_0"))
    assert story.texts() == ["He is a teacher"]


# Words.


def test_rare_words_of_a_fact_do_not_stay_in_sections_and_refusals() -> None:
    story = scene()
    story.update(
        "t1",
        None,
        new("Has a dog called Quillfeather"),
        new("Walks Quillfeather daily", 0.1, place="newFacts/1"),
        new("Has a garden", 0.1, place="newFacts/2"),
        summary(WORK, "Walks with Quillfeather's friends."),
        summary("user.topOfMind", "A garden."),
    )
    story.forget(ForgetFact("fact_2_0"))
    assert not [text for text in said_in(left(story)) if "quillfeather" in text]
    assert story.memory.sections.keys() == {"user.topOfMind"}
    assert any(isinstance(e, CandidateRejected) and e.candidate.content == "Has a garden" for e in story.log[1])


def test_a_word_that_a_retained_turn_or_fact_uses_is_left_alone() -> None:
    story = scene()
    story.say("t1", "Gardens are nice")
    story.update("t1", None, new("Gardens often"), new("Oslo", place="newFacts/1"), summary(WORK, "Gardens, Oslo."))
    story.update("t1", None, new("Gardens often in Oslo or not"))
    story.forget(ForgetFact("fact_2_0"))
    assert story.memory.section(WORK).summary == "Gardens, Oslo."


def test_a_word_that_a_fact_of_the_past_uses_is_left_alone() -> None:
    story = scene()
    story.update("t1", None, new("Wed to Quillfeather"))
    story.update("t2", None, new("Knows Quillfeather well"))
    story.update("t3", None, removal("fact_3_0"))
    story.update("t4", None, summary(WORK, "Quillfeather is about."))
    story.forget(ForgetFact("fact_2_0"))
    assert story.texts() == []
    assert story.memory.section(WORK).summary == "Quillfeather is about."


def test_in_a_script_without_spaces_a_run_is_a_word() -> None:
    story = scene()
    story.update("t1", None, new("住在柏林 now"), summary(WORK, "他住在柏林的家里"))
    story.forget(ForgetFact("fact_2_0"))
    assert not story.memory.sections


def test_a_note_that_uses_a_rare_word_takes_the_fact_it_removed_along() -> None:
    story = scene()
    story.update("t1", None, new("Lives in Oslo"), new("Wed to Quillfeather", place="newFacts/1"))
    gone = msgspec.structs.replace(removal("fact_2_0"), reason="moved in with quillfeather")
    story.update("t2", None, gone)
    story.forget(ForgetFact("fact_2_1"))
    assert not [text for text in said_in(left(story)) if "oslo" in text]
    assert all(memory.facts == {} for memory in story.memories)


def test_rare_words_of_the_evidence_go_along_with_it() -> None:
    story = scene()
    turns = story.say("t1", "I live in Oslo with Quillfeather.")
    story.update("t1", turns, new("Lives in Oslo"), summary(WORK, "Quillfeather is about."))
    story.forget(ForgetFact("fact_2_0"))
    assert story.memory.sections
    story = scene()
    turns = story.say("t1", "I live in Oslo with Quillfeather.")
    story.update("t1", turns, new("Lives in Oslo"), summary(WORK, "Quillfeather is about."))
    story.forget(ForgetFact("fact_2_0", with_evidence=True))
    assert not story.memory.sections


def test_a_word_that_only_a_fact_said_again_uses_is_left_alone() -> None:
    story = scene(UNGATED)
    story.update("t1", None, new("Gardens", scope="Oslo gardens"), summary(WORK, "Gardens."))
    story.forget(ForgetMatching("Oslo gardens"))
    assert story.memory.section(WORK).summary == "Gardens."
    assert story.texts() == ["Gardens"]


# Facts that were merged.

MERGING = Policy(consolidation_enabled=True, consolidation_min_facts=2, consolidation_max_sources=3)


def merged_scene(words: str = "Warm drinks at any hour") -> Scene:
    """Tea of one conversation and cocoa of another, merged by a third; the merged fact is fact_4_10000."""
    story = scene(MERGING)
    story.update("t1", story.say("t1", "I like tea."), new("Likes green tea", evidence=("t1-1",)))
    story.update("t2", story.say("t2", "I like cocoa."), new("Drinks cocoa"))
    story.update("t3", story.say("t3", "Well."), merged(["fact_2_0", "fact_3_0"], words))
    assert story.texts() == [words]
    return story


def also(plan: ErasurePlan) -> list[tuple[str, str, str]]:
    return [(one.kind, one.id, one.content) for one in plan.also]


@pytest.mark.parametrize(
    "request_", [ForgetFact("fact_2_0"), ForgetFact("fact_3_0"), ForgetThread("t2"), ForgetMatching("cocoa")]
)
def test_what_a_forgotten_fact_was_merged_into_is_told_for_it_says_the_same_in_other_words(request_: Erasure) -> None:
    story = merged_scene()
    plan = story.forget(request_)
    assert also(plan) == [("fact", "fact_4_10000", "Warm drinks at any hour")]
    assert story.texts() == ["Warm drinks at any hour"]


def test_what_a_fact_was_merged_into_is_told_also_where_nobody_knows_what_it_was_learned_from() -> None:
    story = scene(MERGING)
    story.update("t1", None, new("Likes green tea"), new("Drinks cocoa", place="newFacts/1"))
    story.update("t2", None, merged(["fact_2_0", "fact_2_1"], "Warm drinks at any hour"))
    assert also(story.forget(ForgetFact("fact_2_0"))) == [("fact", "fact_3_10000", "Warm drinks at any hour")]
    assert also(story.forget(ForgetFact("fact_2_1"))) == [("fact", "fact_3_10000", "Warm drinks at any hour")]


def test_a_merged_fact_that_carries_the_words_of_what_is_forgotten_goes_too() -> None:
    story = merged_scene("Likes green tea, and drinks cocoa too")
    plan = story.forget(ForgetFact("fact_2_0"))
    assert story.texts() == []
    assert not [text for text in said_in([e for c in story.commits for e in c.events]) if "green tea" in text]
    assert also(plan) == [("fact", "fact_3_0", "Drinks cocoa")]


def test_what_was_merged_twice_is_followed_to_the_last() -> None:
    story = merged_scene()
    story.update("t4", None, new("Has breakfast late"))
    story.update("t4", None, merged(["fact_4_10000", "fact_5_0"], "Slow mornings"))
    assert also(story.plan(ForgetFact("fact_2_0"))) == [("fact", "fact_6_10000", "Slow mornings")]
    again = story.plan(ForgetFact("fact_6_10000"))
    assert sorted(also(again)) == [
        ("fact", "fact_2_0", "Likes green tea"),
        ("fact", "fact_3_0", "Drinks cocoa"),
        ("fact", "fact_4_10000", "Warm drinks at any hour"),
        ("fact", "fact_5_0", "Has breakfast late"),
    ]


def test_what_a_forgotten_fact_was_merged_from_is_told_for_an_undo_would_bring_it_back() -> None:
    story = merged_scene()
    plan = story.forget(ForgetFact("fact_4_10000"))
    assert sorted(also(plan)) == [("fact", "fact_2_0", "Likes green tea"), ("fact", "fact_3_0", "Drinks cocoa")]
    assert story.texts() == []


def test_a_merged_fact_shares_the_evidence_of_its_sources_in_their_own_conversations() -> None:
    story = merged_scene()
    story.update("t1", None, new("Up early", evidence=("t1-1",)))
    assert also(story.plan(ForgetFact("fact_5_0"))) == [("fact", "fact_4_10000", "Warm drinks at any hour")]
    story.update("t2", TurnRange(1, 1), new("Up late"))
    assert also(story.plan(ForgetFact("fact_6_0"))) == [("fact", "fact_4_10000", "Warm drinks at any hour")]


def test_the_evidence_of_a_merged_fact_is_that_of_its_sources_and_not_the_update_that_merged_them() -> None:
    story = merged_scene()
    plan = story.plan(ForgetFact("fact_4_10000", with_evidence=True))
    assert [(e.thread, e.n) for e in plan.redacted if e.what == "turn"] == [("t1", 1), ("t2", 1)]
    story = scene(MERGING)
    story.update("t1", story.say("t1", "I like tea."), new("Likes green tea"))
    story.update("t2", story.say("t2", "I like cocoa."), new("Drinks cocoa"))
    story.update("t3", story.say("t3", "Well."), merged(["fact_2_0", "fact_3_0"], "Warm drinks"))
    plan = story.plan(ForgetFact("fact_4_10000", with_evidence=True))
    assert [(e.thread, e.n) for e in plan.redacted if e.what == "turn"] == [("t1", 1), ("t2", 1)]


def test_another_conversation_that_removes_a_fact_lends_no_turns_to_its_evidence() -> None:
    story = scene()
    for thread in ("t1", "t2"):
        turns = [Turn(n=1, id="m1", role="user", content=f"Said in {thread}.", at=at(0))]
        cause = Cause(kind="record", thread=thread, turns=TurnRange(1, 1))
        story.said.append(Commit(len(story.said) + 1, at(0), cause, tuple(map(TurnRecorded, turns)), "", ""))
    story.update("t1", TurnRange(1, 1), new("Likes tea", evidence=("m1",)))
    story.update("t2", TurnRange(1, 1), removal("fact_2_0"))
    plan = story.plan(ForgetFact("fact_2_0", with_evidence=True))
    assert [event.thread for event in plan.redacted if event.what == "turn"] == ["t1"]


def test_a_refused_merging_or_extension_of_a_fact_goes_with_it() -> None:
    story = scene(Policy(staleness_review_enabled=False))
    story.update("t1", None, new("Likes green tea"), new("Drinks cocoa", place="newFacts/1"))
    story.update(
        "t2",
        None,
        merged(["fact_2_0", "fact_2_1"], "Warm drinks"),
        longer("fact_2_0", 90, reason="still sips leaves"),
        longer("fact_2_1", 90, 1, reason="still does"),
    )
    story.forget(ForgetFact("fact_2_0"))
    assert not {"Warm drinks", "still sips leaves"} & set(strings_of(story.log[2]))
    assert "still does" in strings_of(story.log[2])


def strings_of(events: Sequence[Event]) -> list[str]:
    return [text for event in events for text in _raw_strings(msgspec.to_builtins(event))]


def _raw_strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _raw_strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _raw_strings(inner)
    elif isinstance(value, str):
        yield value


# Matching.


@pytest.mark.parametrize(
    "text", ["LIVES in zürich", unicodedata.normalize("NFD", "Zürich"), "Ｚürich", "  lives \n in  "]
)
def test_matching_ignores_case_unicode_form_and_white_space(text: str) -> None:
    story = scene()
    turns = story.say("t1", "I now lives in Zürich, ok?", "Fine.")
    story.update("t1", turns, new("Lives in Zürich"), new("Fine", place="newFacts/1"))
    plan = story.forget(ForgetMatching(text))
    assert whats(plan) == [("ledger", 2, "proposal"), ("ledger", 2, "fact"), ("transcript", 1, "turn")]
    assert story.texts() == ["Fine"]


@given(st.text(), st.text(min_size=1))
def test_a_line_that_is_passed_over_holds_no_such_text(text: str, needle: str) -> None:
    for said in (text, f"{text}{needle}", f"{needle}{text}", f"{text} {needle} {text}"):
        for sought in (folded(needle), folded(needle.upper())):
            if sought and sought in folded(said):
                assert may_say(msgspec.json.encode({"content": said, "more": text}), [sought])
    assert not may_say(b'{"content":"Ada likes tea","more":""}', ["coffee"])


def test_a_text_without_a_word_that_identifies_anything_is_found_where_nothing_else_goes() -> None:
    story = scene()
    story.update("t1", None, new("Has tea", 0.1))
    assert whats(story.forget(ForgetMatching("tea"))) == [("ledger", 2, "proposal"), ("ledger", 2, "candidate")]


@pytest.mark.parametrize("text", ["", "  ", "\u3000\n"])
def test_an_empty_text_matches_nothing_and_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        scene().plan(ForgetMatching(text))


def test_matching_looks_into_whatever_the_host_sent_along() -> None:
    story = scene()
    for more in (
        {"name": "Secret Ada"},
        {"metadata": {"a": [{"b secret": 1}]}},
        {"metadata": {"a": {"b": ["secret"]}}},
        {"metadata": {"phone": 41177}},
        {"send_to": ("secret",)},
        {"cause_by": "secret", "sent_from": "x"},
    ):
        story.say("t1", "hello", **more)
    assert len(story.plan(ForgetMatching("SECRET")).redacted) == 5
    assert len(story.plan(ForgetMatching("4117")).redacted) == 1


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1))
def test_a_number_is_found_as_the_log_spells_it(number: float) -> None:
    story = scene()
    story.say("t1", "hello", metadata={"size": number})
    assert len(story.plan(ForgetMatching(msgspec.json.encode(number).decode())).redacted) == 1


def test_matching_finds_what_an_unread_item_or_a_failure_quotes() -> None:
    story = scene()
    story.update("t1", None, Unread(place="newFacts/0", text='{"fact":"say \\"hi\\"\\nto Ada"}', detail="no text"))
    story.ask(FailUpdate(at="", reason="rejected", detail="the server said 'say \"hi\" to Ada'"), "extraction")
    plan = story.plan(ForgetMatching('say "hi" to ada'))
    assert [event.what for event in plan.redacted] == ["proposal", "candidate", "failure"]


def test_a_fact_that_once_matched_goes_with_its_whole_history() -> None:
    story = scene()
    story.update("t1", None, new("Lives in Oslo"))
    story.ask(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="Moved")), "manual")
    story.ask(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="Moved on")), "manual")
    plan = story.forget(ForgetMatching("oslo"))
    assert [event.fact for event in plan.redacted if event.what == "fact"] == ["fact_2_0"] * 3
    assert story.texts() == []


def test_a_live_fact_of_which_only_a_label_matched_is_said_again() -> None:
    story = scene(UNGATED)
    story.update("t1", None, new("Likes tea", scope="secret project"))
    before = story.memory
    plan = story.forget(ForgetMatching("secret"))
    assert plan.restated == (FactAdded(before.facts["fact_2_0"]),)
    assert story.memory.facts == before.facts
    assert "secret" not in repr(story.commits)


def test_our_own_words_are_no_content() -> None:
    story = scene()
    story.update("t1", None, new("Likes tea", 0.1))
    with pytest.raises(NotFoundError):
        story.plan(ForgetMatching("confidence"))


# Sections.


def test_a_section_falls_back_to_its_last_clean_text() -> None:
    story = scene()
    story.update("t1", None, summary(WORK, "Writes Rust."))
    clean = story.memory.section(WORK)
    story.update("t1", None, summary(WORK, "Writes Rust in Oslo."))
    story.update("t1", None, summary(WORK, "In Oslo he writes."))
    plan = story.forget(ForgetMatching("Oslo"))
    assert plan.restated == (SummaryUpdated(WORK, Section(), clean),)
    assert story.memory.section(WORK) == clean


def test_a_section_whose_text_is_clean_keeps_it_though_its_event_goes() -> None:
    story = scene()
    story.update("t1", None, summary(WORK, "In Oslo."))
    story.update("t1", None, summary(WORK, "Writes Rust."))
    story.forget(ForgetMatching("Oslo"))
    assert story.memory.section(WORK).summary == "Writes Rust."


def test_a_section_does_not_fall_back_past_its_emptying() -> None:
    story = scene()
    story.update("t1", None, summary(WORK, "Writes Rust."))
    story.ask(Clear(at=""), "clear")
    story.update("t1", None, summary(WORK, "In Oslo."))
    story.forget(ForgetMatching("Oslo"))
    assert story.memory.section(WORK) == Section()


def test_an_emptying_that_goes_takes_nothing_from_before_an_erasure_that_said_the_section_again() -> None:
    story = scene()
    story.update("t1", None, summary(WORK, "Writes Rust."))
    story.update("t1", None, summary(WORK, "Writes Rust in Bergen."))
    story.forget(ForgetMatching("bergen"))
    story.update("t1", None, summary(WORK, "Writes Rust in Oslo."))
    story.ask(Clear(at=""), "clear")
    story.forget(ForgetMatching("oslo"))
    assert GONE not in story.log[1]
    assert all(not memory.sections for memory in story.memories[6:])


def test_an_emptying_that_goes_takes_the_texts_before_it_along() -> None:
    story = scene()
    story.update("t1", None, summary(WORK, "Writes Rust."))
    story.update("t1", None, summary(WORK, "Writes Rust in Oslo."))
    story.ask(Clear(at=""), "clear")
    story.forget(ForgetMatching("Oslo"))
    assert all(not memory.sections for memory in story.memories[4:])


# A thread, everything, what has expired.


def test_a_thread_goes_with_its_turns_its_commits_and_its_facts() -> None:
    story = scene()
    turns = story.say("t1", "I live in Oslo.")
    story.say("t2", "I like tea.")
    story.update("t2", None, new("Likes tea"), summary(WORK, "Tea."))
    story.update("t1", turns, new("Lives in Oslo"), new("weak", 0.1, place="newFacts/1"), summary(WORK, "Oslo."))
    story.update("t2", None, summary(WORK, "Tea and more."), removal("fact_3_0"))
    story.ask(FailUpdate(at="", reason="reply", detail="broken", turns=turns), "extraction", thread="t1")
    plan = story.forget(ForgetThread("t1"))
    assert whats(plan) == [
        ("ledger", 3, "proposal"),
        ("ledger", 3, "section"),
        ("ledger", 3, "fact"),
        ("ledger", 3, "candidate"),
        ("ledger", 4, "proposal"),
        ("ledger", 4, "section"),
        ("ledger", 4, "fact"),
        ("ledger", 5, "failure"),
        ("transcript", 1, "turn"),
    ]
    assert story.texts() == ["Likes tea"]
    assert story.memory.section(WORK).summary == "Tea and more."
    assert not [text for text in said_in(left(story)) if "oslo" in text]


def test_a_fact_that_a_forgotten_thread_confirmed_stays_as_it_is() -> None:
    story = scene()
    story.update("t2", None, new("Likes tea"))
    story.update("t1", None, Reinforcement(place="factsToReinforce/0", id="fact_2_0"))
    before = story.memory.facts
    story.forget(ForgetThread("t1"))
    assert story.memory.facts == before


def test_a_fact_that_a_forgotten_thread_removed_does_not_come_back_to_life() -> None:
    story = scene()
    story.update("t2", None, new("Likes tea"))
    story.update("t1", None, removal("fact_2_0"))
    story.forget(ForgetThread("t1"))
    assert all(not memory.facts for memory in story.memories)


def test_a_thread_called_manual_does_not_take_what_was_entered_by_hand() -> None:
    story = scene()
    story.ask(AddFact(at="", fact=new("Likes tea", place="facts/0")), "manual")
    story.update("manual", None, new("Runs"))
    story.forget(ForgetThread("manual"))
    assert story.texts() == ["Likes tea"]


def test_what_an_erasure_said_again_is_not_taken_for_the_threads() -> None:
    story = scene()
    story.update("t2", None, new("Likes tea", scope="secret"))
    story.forget(ForgetMatching("secret"))
    story.commits[-1] = msgspec.structs.replace(story.commits[-1], cause=Cause(kind="redaction", thread="t1"))
    story.say("t1", "x")
    assert whats(story.plan(ForgetThread("t1"))) == [("transcript", 1, "turn")]


def test_everything_is_all_that_holds_content() -> None:
    story = scene()
    turns = story.say("t1", "I live in Oslo.")
    story.update("t1", turns, new("Lives in Oslo"), new("weak", 0.1, place="newFacts/1"), summary(WORK, "Oslo."))
    story.forget(ForgetEverything())
    assert {type(event).__name__ for event in left(story)} == {"PolicyChanged", "Erased", "Redacted"}
    assert (story.memory.facts, story.memory.sections) == ({}, {})
    with pytest.raises(NotFoundError):
        story.plan(ForgetEverything())


def test_expired_turns_are_those_that_are_old_and_covered() -> None:
    story = scene()
    story.say("t1", "old", "older")
    story.say("t1", "new")
    plan = story.plan(ForgetExpired(at(1), lambda thread, n: (thread, n) != ("t1", 2)))
    assert plan.events == (Redacted("transcript", 1, 0, "expired", thread="t1", n=1, turn="t1-1", size=3),)
    assert story.plan(ForgetExpired(at(0), lambda *_: True)).events == ()


# Undoing, and deciding again, afterwards.


def forgotten(request: Erasure) -> Scene:
    """Oslo was learned in commit 2 and tea in commit 3; something was forgotten in commit 4."""
    story = scene()
    story.update("t1", None, new("Lives in Oslo"), summary(WORK, "Oslo."))
    story.update("t1", None, new("Likes tea"), removal("fact_2_0"))
    story.forget(request)
    return story


def test_a_rollback_names_what_was_erased_since_and_brings_none_of_it_back() -> None:
    story = forgotten(ForgetMatching("oslo"))
    told = preview_undo(story.memory, rollback_command(story.memories[2]), story.commits)
    assert [(note.kind, note.fact, note.section) for note in told.superseded] == [
        ("erased", None, WORK),
        ("erased", "fact_2_0", None),
    ]
    assert "commit 4" in told.superseded[0].detail
    assert [type(event) for event in told.events] == [FactRemoved]
    later = preview_undo(story.memory, rollback_command(story.memories[4]), story.commits)
    assert later.superseded == ()


def test_a_revert_names_what_was_erased_and_undoes_the_rest() -> None:
    story = forgotten(ForgetMatching("oslo"))
    told = preview_undo(story.memory, revert_command(story.commits[2]), story.commits)
    assert [(note.kind, note.fact) for note in told.superseded] == [("erased", "fact_2_0")]
    assert [event.fact.id for event in told.events if isinstance(event, FactRemoved)] == ["fact_3_0"]
    assert not told.conflicts


def test_a_revert_of_what_lost_a_refusal_only_says_so_too() -> None:
    story = scene()
    story.update("t1", None, new("Oslo is a city", 0.1))
    story.forget(ForgetMatching("oslo"))
    told = preview_undo(story.memory, revert_command(story.commits[1]), story.commits)
    assert [(note.kind, note.fact) for note in told.superseded] == [("erased", None)]


def test_a_revert_of_an_erasure_takes_nothing_away_that_it_said_again() -> None:
    story = scene(UNGATED)
    story.update("t1", None, new("Likes tea", scope="secret"))
    story.forget(ForgetMatching("secret"))
    told = preview_undo(story.memory, revert_command(story.commits[2]), story.commits)
    assert told.events == ()
    assert [note.kind for note in told.superseded] == ["erased"]


@pytest.mark.parametrize("kind", ["revert", "rollback"])
def test_an_undo_that_was_planned_before_an_erasure_is_refused(kind: str) -> None:
    story = scene()
    story.update("t1", None, new("Lives in Oslo"))
    story.update("t1", None, removal("fact_2_0"))
    if kind == "revert":
        command: Revert | RollBack = revert_command(story.commits[2], seen=3)
    else:
        command = rollback_command(story.memories[2], seen=story.memory.seq)
    story.forget(ForgetMatching("oslo"))
    with pytest.raises(ConflictError):
        decide(story.memory, msgspec.structs.replace(command, at=at(5)))


@pytest.mark.parametrize("then", ["clear", "revert", "rollback", "policy"])
def test_an_answer_under_way_leaves_no_word_and_no_digest_whatever_came_after_the_erasure(then: str) -> None:
    story = scene()
    story.update("t1", None, new("Lives in Oslo"))
    basis = story.memory.seq
    story.forget(ForgetMatching("oslo"))
    story.take((), then)
    events = story.learn(new("Lives in Oslo"), summary(WORK, "Oslo."), basis=basis)
    assert [type(event) for event in events] == [UpdateFailed]
    assert "oslo" not in repr(events).lower()


def test_the_expiry_of_turns_does_not_discard_an_answer_under_way() -> None:
    story = scene()
    story.say("t1", "old")
    basis = story.memory.seq
    story.forget(ForgetExpired(at(1), lambda *_: True))
    story.learn(new("Likes tea"), basis=basis)
    assert story.texts() == ["Likes tea"]


def test_what_if_keeps_the_outcome_of_what_was_decided_on_something_erased() -> None:
    story = scene(Policy(max_facts=1))
    story.update("t1", None, new("Lives in Oslo", 0.9))
    story.update("t1", None, new("Likes tea", 0.8))
    story.forget(ForgetFact("fact_2_0"))
    assert decide_again(story.commits, {}).facts == {} == story.memory.facts


@pytest.mark.parametrize("request_", [ForgetThread("t2"), ForgetMatching("oslo")])
def test_what_if_takes_nothing_in_by_an_erasure_that_the_other_policy_kept_out(request_: Erasure) -> None:
    story = scene()
    story.update("t1", None, new("Likes coffee"), new("Likes tea", 0.8, place="newFacts/1"))
    story.update("t2", None, Reinforcement(place="factsToReinforce/0", id="fact_2_1"), new("Oslo"))
    story.ask(RemoveFact(at="", fact_id="fact_2_0"), "manual", action="remove", fact="fact_2_0")
    story.forget(request_)
    assert story.memory.facts["fact_2_1"].confirmations == 1
    assert decide_again(story.commits, {}).facts == story.memory.facts
    assert decide_again(story.commits, {"max_facts": 1}).facts == {}


def test_what_if_keeps_its_own_policy_where_what_a_policy_put_out_was_erased() -> None:
    story = scene()
    story.update("t1", None, new("Lives in Oslo", 0.8))
    story.ask(ChangePolicy(at="", policy=Policy(fact_confidence_threshold=0.9)), "policy")
    story.forget(ForgetFact("fact_2_0"))
    assert decide_again(story.commits, {"max_facts": 7}).policy == Policy(max_facts=7, fact_confidence_threshold=0.9)


# Properties.


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    story = scene(draw(policies))
    steps = st.sampled_from(
        [
            "learn",
            "learn",
            "learn",
            "learn",
            "say",
            "fail",
            "late",
            "add",
            "edit",
            "remove",
            "import",
            "replace",
            "clear",
            "policy",
            "revert",
            "rollback",
            "forget",
        ]
    )
    for step in draw(st.lists(steps, max_size=9)):
        thread = draw(st.sampled_from(["t1", "t2"]))
        if step in ("say", "learn"):
            texts = draw(st.lists(contents.filter(bool), max_size=2))
            turns = story.say(thread, *texts) if texts else None
        if step == "learn":
            story.update(thread, turns, *draw(proposals(story.memory)))
        elif step == "fail":
            story.ask(FailUpdate(at="", reason="reply", detail=draw(contents)), "extraction", thread=thread)
        elif step == "forget":
            request = draw(requests(story))
            if request is not None:
                story.forget(request)
        elif step != "say":
            take_step(draw, story, step)
    return story


@st.composite
def requests(draw: st.DrawFn, story: Scene) -> Erasure | None:
    """Something that is there to be forgotten, or nothing."""
    ids = sorted({e.fact.id for c in story.commits for e in c.events if isinstance(e, FactAdded | FactRemoved)})
    wanted = draw(
        st.one_of(
            st.builds(ForgetFact, st.sampled_from(ids or ["fact_0_0"]), st.booleans()),
            st.builds(ForgetThread, st.sampled_from(["t1", "t2"])),
            st.builds(ForgetMatching, st.sampled_from([*WORDS, "ada", "oslo", "moved"])),
            st.just(ForgetEverything()),
        )
    )
    try:
        story.plan(wanted)
    except NotFoundError:
        return None
    return wanted


def asked_texts(story: Scene, request: Erasure) -> set[str]:
    """What must not be found afterwards, told from the history alone."""
    match request:
        case ForgetMatching(text=text):
            return {folded(text)}
        case ForgetFact(fact_id=fact_id):
            found = [fact.content for fact in facts_in(story) if fact.id == fact_id]
        case ForgetThread(thread=thread):
            found = [fact.content for fact in facts_in(story) if fact.source == thread]
            found += [
                event.after.summary
                for commit in story.commits
                for event in commit.events
                if commit.cause.thread == thread and isinstance(event, SummaryUpdated)
            ]
        case _:
            return set()
    return {key for text in found if len(key := dedup_key(text)) >= 4}


def facts_in(story: Scene):
    for commit in story.commits:
        for event in commit.events:
            for name in ("fact", "before", "after"):
                value = getattr(event, name, None)
                if type(value).__name__ == "Fact":
                    yield value


@thorough
@given(scenes(), st.data())
def test_an_erasure_leaves_nothing_of_what_was_asked_and_all_else_as_it_was(story: Scene, data: st.DataObject) -> None:
    request = data.draw(requests(story))
    if request is None:
        return
    before, texts = story.memory, asked_texts(story, request)
    erased_words = {
        word
        for commits in (story.commits, story.said)
        for commit in commits
        for event in commit.events
        for text in strings(msgspec.to_builtins(event))
        for word in words_in(text)
        if any(word in words_in(wanted) for wanted in texts)
    }
    dry = story.plan(request)
    plan = story.forget(request)
    assert dry == plan
    assert len(slots(plan)) == len(plan.redacted)
    memories_agree(before, story)

    # Nothing is left of the texts, word for word or as single words that nobody else uses.
    remaining = left(story)
    learned = remaining if isinstance(request, ForgetMatching) else [e for c in story.commits for e in c.events]
    for text in said_in(learned):
        assert not [wanted for wanted in texts if wanted in text], (text, texts)
    kept = [fact for event in remaining for fact in said_of(event)]
    used = {word for text in kept for word in words_in(folded(text))}
    for event in remaining:
        if isinstance(event, SummaryUpdated | CandidateRejected | UpdateFailed):
            assert not {w for text in strings(msgspec.to_builtins(event)) for w in words_in(text)} & (
                erased_words - used
            )

    # What was not named is as it was; what stays under the rules stays within them.
    named = {event.fact for event in plan.redacted} - {e.fact.id for e in plan.restated if isinstance(e, FactAdded)}
    assert story.memory.facts == {i: fact for i, fact in before.facts.items() if i not in named}
    rewritten = {event.section for event in plan.redacted}
    for name in {*before.sections, *story.memory.sections}:
        if name not in rewritten:
            assert story.memory.section(name) == before.section(name)
    keys = [dedup_key(fact.content, story.memory.policy.dedup_key) for fact in story.memory.facts.values()]
    assert len(keys) == len(set(keys)) <= story.memory.policy.max_facts
    with pytest.raises(NotFoundError):
        story.plan(request)


def said_of(event: Event) -> list[str]:
    match event:
        case TurnRecorded(turn=turn):
            return [turn.content]
        case FactAdded(fact=fact) | FactRemoved(fact=fact):
            return [*fact_texts(fact)]
        case _ if hasattr(event, "change"):
            return [*fact_texts(event.before), *fact_texts(event.after)]
    return []


@thorough
@given(scenes(), st.data())
def test_no_fact_comes_back_to_life_in_the_past(story: Scene, data: st.DataObject) -> None:
    request = data.draw(requests(story))
    if request is None:
        return
    before = list(story.memories)
    live = set(story.memory.facts)
    story.forget(request)
    for then, now in zip(before, story.memories, strict=False):
        assert set(now.facts) - live <= set(then.facts)
        assert set(now.sections) <= set(then.sections)


@thorough
@given(scenes(), st.data())
def test_where_a_candidate_is_erased_no_digest_of_the_answer_is_left(story: Scene, data: st.DataObject) -> None:
    request = data.draw(requests(story))
    if request is None:
        return
    events = {("ledger", commit.seq, n): event for commit in story.commits for n, event in enumerate(commit.events)}
    plan = story.forget(request)
    for slot in slots(plan) & events.keys():
        if getattr(events[slot], "place", None) or isinstance(events[slot], CandidateRejected):
            assert not [e for e in story.commits[slot[1] - 1].events if isinstance(e, UpdateProposed)]


@pytest.mark.slow
@thorough
@given(scenes())
def test_what_if_under_the_policies_that_were_in_force_equals_live_after_erasures(story: Scene) -> None:
    again = decide_again(story.commits, {})
    assert (again.facts, again.sections, again.policy) == (
        story.memory.facts,
        story.memory.sections,
        story.memory.policy,
    )


@thorough
@given(scenes(), st.integers(1, 3), st.sampled_from([0.0, 0.5, 0.95]))
def test_what_if_under_another_policy_keeps_to_it_whatever_was_erased(story: Scene, cap: int, threshold: float) -> None:
    memory = decide_again(story.commits, {"max_facts": cap, "fact_confidence_threshold": threshold})
    facts, policy = memory.facts, memory.policy
    assert (policy.max_facts, policy.fact_confidence_threshold) == (cap, threshold)
    assert len(facts) <= max(cap, sum(fact.by_hand for fact in facts.values()))
    keys = [dedup_key(fact.content, policy.dedup_key) for fact in facts.values()]
    assert len(keys) == len(set(keys))


@thorough
@given(scenes(), st.data())
def test_no_undo_brings_anything_erased_back(story: Scene, data: st.DataObject) -> None:
    request = data.draw(requests(story))
    if request is None:
        return
    texts = asked_texts(story, request)
    story.forget(request)
    for seq in range(1, story.memory.seq):
        back_to = msgspec.structs.replace(rollback_command(story.memories[seq]), at=story.now())
        told = [preview_undo(story.memory, back_to, story.commits)]
        if seq > 1:
            undo = msgspec.structs.replace(revert_command(story.commits[seq - 1], force=True), at=story.now())
            told.append(preview_undo(story.memory, undo, story.commits))
        for result in told:
            back = [event for event in result.events if not isinstance(event, FactRemoved)]
            assert not [text for text in said_in(back) for wanted in texts if wanted in text]
