"""Rules of the sections that agents share with their user, by example."""

from __future__ import annotations

import msgspec
import pytest
from story import extract, news, summary

from backstory.ledger.core.commands import MoveSections, ShareSummaries, candidates_of
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    CandidateRejected,
    NewSummary,
    Section,
    SectionsMoved,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory, evolve
from backstory.ledger.rules.decide import decide

WORK, MIND = "user.workContext", "user.topOfMind"
EARLY, MIDDLE, LATE = (f"2026-03-0{day}T00:00:00.000000Z" for day in (1, 2, 3))


def share(text: str = "Writes Go", *, at: str = MIDDLE, seq: int = 7, basis: int = 3) -> ShareSummaries:
    new = NewSummary(place=WORK, summary=text, at=at, scope="user")
    return ShareSummaries(at=LATE, agent="coder", seq=seq, basis=basis, summaries=(new,))


def memory(**fields: object) -> Memory:
    return msgspec.structs.replace(Memory(seq=5, at=EARLY), **fields)


def test_a_shared_text_becomes_the_users_section_with_its_own_time_and_labels():
    before = Section("Builds bridges", EARLY)
    assert decide(memory(sections={WORK: before}), share()) == (
        SummariesReceived("coder", 7, 3),
        SummaryUpdated(WORK, before, Section("Writes Go", MIDDLE), WORK, None, {"scope": "user"}),
    )


@pytest.mark.parametrize(
    ("section", "rule"),
    [(Section("Builds bridges", LATE), "older"), (Section("Writes Go", EARLY), "unchanged")],
)
def test_an_older_and_an_unchanged_text_are_refused(section, rule):
    received, rejected = decide(memory(sections={WORK: section}), share())
    assert isinstance(received, SummariesReceived)
    assert isinstance(rejected, CandidateRejected)
    assert (rejected.rule, rejected.candidate) == (rule, share().summaries[0])


def test_of_two_texts_of_the_same_moment_the_later_delivery_stands():
    assert isinstance(decide(memory(sections={WORK: Section("Builds", MIDDLE)}), share())[1], SummaryUpdated)


@pytest.mark.parametrize("received", [7, 8])
def test_a_commit_is_received_once(received):
    with pytest.raises(ConflictError, match="received already"):
        decide(memory(received={"coder": received}), share())
    assert decide(memory(received={"coder": 6, "cook": 9}), share())


@pytest.mark.parametrize("kind", ["clear", "revert", "rollback"])
def test_a_barrier_since_refuses_the_texts(kind):
    _, rejected = decide(memory(barriers={kind: 4}), share())
    assert isinstance(rejected, CandidateRejected)
    assert rejected.rule == "basis"
    assert f"a {kind} at commit 4" in rejected.detail
    assert isinstance(decide(memory(barriers={kind: 3}), share())[1], SummaryUpdated)


def test_after_an_erasure_no_word_of_the_texts_is_kept():
    events = decide(memory(barriers={"redaction": 4, "clear": 5}), share())
    assert isinstance(events[1], UpdateFailed)
    assert "Writes Go" not in repr(events)


def test_an_update_on_the_users_sections_shares_its_texts_and_leaves_the_agents_own_alone():
    base = memory(sections={WORK: Section("Writes Go", EARLY)})
    command = extract(summary(WORK, "Writes Go"), *news("Likes tea"), basis=5, users=4)
    events = decide(base, command)
    proposed = next(event for event in events if isinstance(event, UpdateProposed))
    (shared,) = [event for event in events if isinstance(event, SummaryShared)]
    assert proposed.users == shared.basis == 4
    assert not any(isinstance(event, SummaryUpdated) for event in events)
    assert candidates_of(events) == tuple(command.proposal.candidates)
    fold = Fold(base)
    fold.advance(base.seq + 1, command.at, "extraction", events)
    assert (fold.memory().shared, fold.memory().sections) == (base.seq + 1, base.sections)


def test_an_erasure_in_the_users_memory_discards_the_whole_answer():
    (failed,) = decide(memory(), extract(*news("Likes tea"), basis=5, users=4, users_erased=6))
    assert isinstance(failed, UpdateFailed)
    assert "commit 6 of the user's memory" in failed.detail


def move(*barred: str) -> MoveSections:
    return MoveSections(at=LATE, users={WORK: Section("Builds", MIDDLE)}, basis=9, barred=barred)


def test_an_agent_gives_up_all_sections_and_shares_the_newer_ones():
    own = {
        WORK: Section("Writes Go", EARLY),
        MIND: Section("The ferry", EARLY),
        "thread/1/1-9/t": Section("Said", LATE),
    }
    assert decide(memory(sections=own), move()) == (
        SectionsMoved(9),
        SummaryUpdated(WORK, own[WORK], Section()),
        SummaryUpdated(MIND, own[MIND], Section()),
        SummaryShared(MIND, "The ferry", 9, EARLY),
    )


def test_a_barred_and_an_equal_section_are_only_emptied():
    own = {WORK: Section("Builds", LATE), MIND: Section("The ferry", EARLY)}
    events = decide(memory(sections=own), move(MIND))
    assert [type(event) for event in events] == [SectionsMoved, SummaryUpdated, SummaryUpdated]


def test_sections_are_moved_once():
    with pytest.raises(ConflictError, match="moved already"):
        decide(memory(moved=True), move())


def test_where_an_agents_ledger_was_cut_its_commits_are_received_anew_from_there():
    known = memory(received={"coder": 7})
    cut = ShareSummaries(at=LATE, agent="coder", seq=4, basis=0, summaries=(), cut=True)
    (noted,) = decide(known, cut)
    assert noted == SummariesReceived("coder", 4, 5, cut=True)
    assert evolve(known, noted).received == {"coder": 4}
    for seq in (7, 8):
        with pytest.raises(ConflictError, match="after commit"):
            decide(known, msgspec.structs.replace(cut, seq=seq))
