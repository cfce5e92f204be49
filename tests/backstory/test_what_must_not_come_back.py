"""What a person took away, undid or erased does not come back by a model, until the user says it again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from fakes import open_home, reply
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import PATIENT, examples, sized

from backstory.ledger.core.errors import RefusedError
from backstory.ledger.core.events import CandidateRejected, UpdateProposed
from backstory.ledger.core.memory import MOST_MARKS, Fold, Memory
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log.commits import read_commits
from backstory.memory import MemoryHandle
from backstory.projections.what_if.counterfactual import decide_again

TEXTS = ("Lives in Oslo", "Drinks green tea", "喜欢 Rust", "Plays chess on Sundays")
SAYS = ("I live in Oslo again", "I drink green tea!", "我又喜欢 Rust 了", "On Sundays I play chess")
CHATTER = "Nice weather"


def learn(memory: MemoryHandle, said: str, *facts: str, thread: str = "t") -> tuple[CandidateRejected, ...]:
    """Record an exchange and answer it; return what was refused."""
    memory.record(
        thread, [{"role": "user", "content": said}, {"role": "assistant", "content": "I see."}], mode="append"
    )
    done = memory.extract([RecordedReply(thread, reply(*facts))])
    events = [event for seq in done.commits for event in next(c for c in memory.log() if c.seq == seq).events]
    return tuple(event for event in events if isinstance(event, CandidateRejected))


def contents(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def agrees_with_what_if(memory: MemoryHandle) -> bool:
    writer = memory._services.writer
    commits = list(read_commits(writer.store, writer.ledger))
    again, live = decide_again(commits, {}), writer.memory()
    return (again.facts, again.marks, again.erased) == (live.facts, live.marks, live.erased)


def take_away(memory: MemoryHandle, how: str) -> None:
    """Take the only fact away, which the last commit added."""
    fact = memory.facts()[0]
    match how:
        case "remove":
            memory.remove_fact(fact.id)
        case "edit":
            memory.edit_fact(fact.id, "Something else entirely")
        case "revert":
            memory.revert()
        case "rollback":
            memory.rollback(1)
        case "forget":
            memory.forget(fact_id=fact.id)


WAYS = ("remove", "edit", "revert", "rollback", "forget")


@pytest.mark.parametrize("how", WAYS)
def test_what_was_taken_away_comes_back_only_by_the_users_words(tmp_path: Path, how: str) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        learn(memory, "I live in Oslo", TEXTS[0])
        take_away(memory, how)
        rule = "erased" if how == "forget" else "removed_by_hand"
        (refused,) = learn(memory, CHATTER, "lives in  Oslo.")
        assert refused.rule == rule
        assert "Lives in Oslo" not in contents(memory)
        assert agrees_with_what_if(memory)
        assert learn(memory, SAYS[0], TEXTS[0]) == ()
        assert TEXTS[0] in contents(memory)
        assert agrees_with_what_if(memory)
    with open_home(tmp_path) as home:
        assert home.memory("ada").verify().ok


def test_words_from_before_and_other_words_do_not_bring_it_back(tmp_path: Path) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        memory.record("t", [{"role": "user", "content": "I live in Oslo", "id": "u1"}], mode="append")
        learn(memory, CHATTER, TEXTS[0])
        memory.remove_fact(memory.facts()[0].id)
        memory.record("t", [{"role": "user", "content": "I live in Bergen", "id": "u2"}], mode="append")
        cited = json.dumps({"newFacts": [{"content": TEXTS[0], "confidence": 0.9, "evidence": ["u1"]}]})
        memory.extract([RecordedReply("t", cited)])
        (refused,) = memory.log()[0].events[1:]
        assert isinstance(refused, CandidateRejected)
        assert refused.rule == "removed_by_hand"


def test_the_refusal_of_an_erased_text_keeps_nothing_of_it(tmp_path: Path) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        learn(memory, "I live in Oslo", TEXTS[0])
        memory.forget(matching="Oslo")
        (refused,) = learn(memory, CHATTER, TEXTS[0])
        assert (refused.rule, refused.candidate.place) == ("erased", "newFacts/0")
        proposed = next(e for e in memory.log()[0].events if isinstance(e, UpdateProposed))
        assert proposed.digest == ""
        assert b"Oslo" not in (tmp_path / "users/ada/ledger.jsonl").read_bytes()


def test_forgetting_everything_leaves_no_marks(tmp_path: Path) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        learn(memory, "I live in Oslo", TEXTS[0])
        memory.remove_fact(memory.facts()[0].id)
        memory.forget(everything=True)
        assert learn(memory, CHATTER, TEXTS[0]) == ()


def test_a_person_lifts_the_mark_and_a_tool_is_told_the_way_out(tmp_path: Path) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        learn(memory, "I live in Oslo", TEXTS[0])
        document = memory.document()
        memory.remove_fact(memory.facts()[0].id)
        with pytest.raises(RefusedError, match=r"removed_by_hand.*a person can add it by hand"):
            memory.by("model", by_model=True).add_fact(TEXTS[0])
        assert memory.why_not(TEXTS[0])[0].rule == "removed_by_hand"
        memory.import_document(document)
        assert contents(memory) == [TEXTS[0]]
        memory.remove_fact(memory.facts()[0].id)
        memory.add_fact(TEXTS[0])
        memory.edit_fact(memory.facts()[0].id, "Lives in Bergen")
        memory.add_fact(TEXTS[0])
        assert not memory._services.writer.memory().marks
        assert agrees_with_what_if(memory)


def test_only_the_newest_marks_are_kept() -> None:
    from backstory.ledger.core.events import Fact, FactRemoved

    fold = Fold(Memory())
    for n in range(MOST_MARKS + 5):
        fact = Fact(id=f"f{n}", content=f"Fact {n}", category="context", confidence=1, created_at="", source="t", seq=1)
        fold.apply(FactRemoved(fact, "hand", marked_after=0))
    marks = fold.memory().marks
    assert len(marks) == MOST_MARKS
    assert next(iter(marks)) == "fact 5"


def test_a_memory_keeps_its_marks_while_the_fold_goes_on() -> None:
    from backstory.ledger.core.events import Fact, FactAdded, FactRemoved, Redacted

    def fact(n: int) -> Fact:
        return Fact(id=f"f{n}", content=f"Fact {n}", category="context", confidence=1, created_at="", source="t", seq=1)

    events = [
        FactRemoved(fact(1), "hand", marked_after=0),
        FactRemoved(fact(2), "contradicted", said_at="2026-03-02"),
        Redacted("users/ada/ledger", 2, 0, "fact", fact="f3", mark="digest", marked_after=0),
        FactAdded(fact(1)),
        FactRemoved(fact(4), "hand", marked_after=0),
    ]
    fold, seen = Fold(Memory()), []
    for event in events:
        fold.apply(event)
        memory = fold.memory()
        seen.append((memory, list(memory.marks), list(memory.erased), list(memory.taken)))
    assert [(list(memory.marks), list(memory.erased), list(memory.taken)) for memory, *_ in seen] == [
        tuple(held) for _, *held in seen
    ]
    assert seen[-1][1:] == (["fact 4"], ["digest"], ["fact 2"])


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "chat", "chat", *WAYS]), st.integers(0, len(TEXTS) - 1)), min_size=3, max_size=10
)


@PATIENT
@settings(max_examples=sized(examples(), 1_000), deadline=None)
@given(STEPS)
def test_nothing_comes_back_by_itself_and_all_that_is_said_again(steps: list[tuple[str, int]]) -> None:
    """Each reply tries to add every text; a model of what the user wants decides which of them may be there."""
    with tempfile.TemporaryDirectory() as path, open_home(Path(path)) as home:
        memory = home.memory("ada")
        learn(memory, "; ".join(SAYS), *TEXTS)
        barred: set[int] = set()
        for how, n in steps:
            live = {text: fact for fact in memory.facts() for text in TEXTS if fact.content == text}
            match how:
                case "say":
                    learn(memory, SAYS[n], *TEXTS)
                    barred.discard(n)
                case "chat":
                    learn(memory, CHATTER, *TEXTS)
                case "remove" | "edit" | "forget" if TEXTS[n] in live:
                    fact_id = live[TEXTS[n]].id
                    if how == "remove":
                        memory.remove_fact(fact_id)
                    elif how == "edit":
                        memory.edit_fact(fact_id, f"An edit {len(memory.log())}")
                    else:
                        memory.forget(fact_id=fact_id)
                    barred.add(n)
                case "revert" if TEXTS[n] in live:
                    memory.revert(live[TEXTS[n]].seq, force=True)
                    left = contents(memory)
                    barred |= {at for at, text in enumerate(TEXTS) if text in live and text not in left}
                case "rollback":
                    memory.rollback(1)
                    barred |= {at for at, text in enumerate(TEXTS) if text in live}
                case _:
                    continue
            assert {text for text in contents(memory) if text in TEXTS}.isdisjoint(TEXTS[at] for at in barred)
            if how in ("say", "chat"):
                assert set(contents(memory)) >= {text for at, text in enumerate(TEXTS) if at not in barred}
        assert agrees_with_what_if(memory)


def test_no_process_knows_a_mark_of_a_text_that_another_one_erased(tmp_path: Path) -> None:
    with open_home(tmp_path) as home, open_home(tmp_path) as other:
        memory, following = home.memory("ada"), other.memory("ada")
        learn(memory, "I live in Oslo", TEXTS[0])
        live = memory.facts()[0]
        memory.record("t", [{"role": "user", "content": "Not any more"}], mode="append")
        memory.extract([RecordedReply("t", json.dumps({"factsToRemove": [{"id": live.id, "reason": "moved"}]}))])
        added = memory.add_fact(TEXTS[1]).fact
        memory.remove_fact(added.id)

        def known() -> list[dict[str, object]]:
            following.facts()
            memories = [one._services.reading().memory() for one in (memory, following)]
            return [{**one.taken, **one.marks} for one in memories]

        before = known()
        assert before[0] == before[1]
        assert len(before[0]) == 2
        memory.forget(fact_id=live.id)
        memory.forget(matching="green tea")
        assert known() == [{}, {}]
