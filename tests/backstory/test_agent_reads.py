"""What an agent reads of its user's facts, and that nothing but reading joins the two ledgers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import open_home, reply

from backstory.home import Backstory
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.lifecycle.maintenance import doctor
from backstory.memory import MemoryHandle
from backstory.projections.context.joined import OwnedFact

PEANUTS = "Ada is severely allergic to peanuts"
USER, CHEF = Scope("ada"), Scope("ada", "chef")


@pytest.fixture
def bs(tmp_path: Path):
    with open_home(tmp_path / "home") as home:
        yield home


@pytest.fixture
def ada(bs: Backstory) -> MemoryHandle:
    memory = bs.memory("ada")
    memory.add_fact(PEANUTS)
    return memory


@pytest.fixture
def chef(bs: Backstory, ada: MemoryHandle) -> MemoryHandle:
    memory = bs.memory("ada", "chef")
    memory.add_fact("Ada cooks with gas")
    return memory


def owned(memory: MemoryHandle) -> list[tuple[str, Scope]]:
    found = [fact for fact in memory.facts() if isinstance(fact, OwnedFact)]
    return [(fact.content, fact.owner) for fact in found]


def test_an_agent_still_knows_its_users_facts_after_it_has_learned_one_of_its_own(chef: MemoryHandle) -> None:
    assert owned(chef) == [(PEANUTS, USER), ("Ada cooks with gas", CHEF)]
    assert next((hit.content, hit.owner) for hit in chef.search("allergic to peanuts")) == (PEANUTS, USER)
    assert next((hit.content, hit.owner) for hit in chef.search("cooks with gas")) == ("Ada cooks with gas", CHEF)
    text = chef.context("what can I cook?").text
    assert PEANUTS in text
    assert "Ada cooks with gas" in text


def test_facts_of_two_ledgers_may_have_one_id_and_are_told_apart_by_their_owner(
    ada: MemoryHandle, chef: MemoryHandle
) -> None:
    assert ada.facts()[0].id == chef.facts()[0].id == chef.facts()[1].id
    assert {hit.owner for hit in chef.search("Ada")} == {USER, CHEF}
    assert sorted(chef.context().facts) == ["fact_2_0", "user:fact_2_0"]
    assert ada.context().facts == ("fact_2_0",)


def test_what_the_user_forgets_or_removes_the_agent_forgets_at_once(ada: MemoryHandle, chef: MemoryHandle) -> None:
    assert PEANUTS in chef.context().text
    ada.forget(fact_id=ada.facts()[0].id)
    assert owned(chef) == [("Ada cooks with gas", CHEF)]
    assert PEANUTS not in chef.context().text
    assert not chef.search("peanuts")
    ada.add_fact("Ada likes tea")
    assert [content for content, _ in owned(chef)] == ["Ada likes tea", "Ada cooks with gas"]
    ada.remove_fact(ada.facts()[0].id)
    assert owned(chef) == [("Ada cooks with gas", CHEF)]


def test_of_equal_facts_the_agents_own_is_read(ada: MemoryHandle, chef: MemoryHandle) -> None:
    chef.add_fact(f"  {PEANUTS.upper()}. ")
    assert [owner for content, owner in owned(chef) if content.casefold().startswith(PEANUTS.casefold())] == [CHEF]
    assert [hit.owner for hit in chef.search("peanuts")] == [CHEF]
    assert chef.context().text.casefold().count("peanuts") == 1


def test_of_equal_facts_a_search_of_the_past_finds_the_agents_own(ada: MemoryHandle, chef: MemoryHandle) -> None:
    for memory in (ada, chef):
        memory.add_fact("Lives in Oslo", valid_from="2019", valid_until="2020")
    ada.add_fact("Lives in Oslo", valid_from="2011", valid_until="2012")
    found = chef.search("Oslo", include_past=True)
    assert sorted((hit.valid_from, hit.owner) for hit in found) == [("2011", USER), ("2019", CHEF)]
    assert [hit.owner for hit in chef.search("Oslo", valid_at="2019")] == [CHEF]
    assert {hit.id for hit in found} < {fact.id for fact in chef.facts(include_past=True)}
    assert [fact.valid_from for fact in chef.facts(include_past=True, tags=["none"])] == []
    past = ada.facts(include_past=True)
    assert [(fact.valid_from, fact.valid_until) for fact in past if fact.content == "Lives in Oslo"] == [
        ("2019", "2020"),
        ("2011", "2012"),
    ]
    assert [fact.content for fact in ada.facts(2, include_past=True)] == [fact.content for fact in ada.facts(2)]
    chef.add_fact(PEANUTS)
    assert [hit.owner for hit in chef.search("peanuts", include_past=True)] == [CHEF]


def test_everything_but_reading_stays_in_its_own_ledger(ada: MemoryHandle, chef: MemoryHandle) -> None:
    assert [fact.content for fact in chef.document().facts] == ["Ada cooks with gas"]
    assert chef.what_if(max_facts=10).facts == 1
    assert chef.status().facts == 1
    chef.clear()
    assert chef.document().facts == ()
    assert owned(chef) == [(PEANUTS, USER)]
    assert len(ada.facts()) == 1


def test_a_model_that_updates_the_agents_memory_is_shown_its_own_facts_only(chef: MemoryHandle) -> None:
    chef.record(
        "t", [{"role": "user", "content": "I am allergic to peanuts."}, {"role": "assistant", "content": "Ok."}]
    )
    assert chef.extract([RecordedReply("t", reply(PEANUTS))]).failed == 0
    assert [fact.content for fact in chef.document().facts] == ["Ada cooks with gas", PEANUTS]


def test_an_agent_cannot_change_what_it_only_reads(ada: MemoryHandle, bs: Backstory) -> None:
    chef = bs.memory("ada", "chef")
    fact_id = chef.facts()[0].id
    for change in (
        lambda: chef.remove_fact(fact_id),
        lambda: chef.edit_fact(fact_id, "Ada likes peanuts"),
        lambda: chef.fact(fact_id),
        lambda: chef.why(fact_id),
    ):
        with pytest.raises(
            NotFoundError, match=f"{fact_id} is a fact of user ada, which user ada, agent chef only reads"
        ):
            change()
    assert [fact.content for fact in ada.facts()] == [PEANUTS]


def test_facts_at_an_earlier_moment_are_those_that_both_had_then(ada: MemoryHandle, chef: MemoryHandle) -> None:
    clock = chef._services.own.clock
    before = chef.log()[0].at
    clock.sleep(60)
    ada.remove_fact(ada.facts()[0].id)
    chef.add_fact("Ada has a wok")
    assert [fact.content for fact in chef.facts(before)] == [PEANUTS, "Ada cooks with gas"]
    assert [fact.content for fact in chef.facts(chef.head().seq)] == ["Ada cooks with gas", "Ada has a wok"]


def test_a_section_that_the_agent_has_not_written_is_the_users(ada: MemoryHandle, chef: MemoryHandle) -> None:
    sections = {"user": {"workContext": {"summary": "Bakes bread."}, "topOfMind": {"summary": "Ada's wedding."}}}
    ada.import_document({**sections, "facts": []})
    chef.import_document({"user": {"workContext": {"summary": "Runs the kitchen."}}, "facts": []})
    text = chef.context().text
    assert "Runs the kitchen." in text
    assert "Bakes bread." not in text
    assert "Ada's wedding." in text


@pytest.mark.parametrize(
    ("reads", "fresh", "later"),
    [
        ("both", [PEANUTS], [PEANUTS, "Ada cooks with gas"]),
        ("fallback", [PEANUTS], ["Ada cooks with gas"]),
        ("own", [], ["Ada cooks with gas"]),
    ],
)
def test_the_setting_chooses_what_is_read(tmp_path: Path, reads: str, fresh: list[str], later: list[str]) -> None:
    with open_home(tmp_path, agent_reads=reads) as bs:
        bs.memory("ada").add_fact(PEANUTS)
        chef = bs.memory("ada", "chef")
        for expected in (fresh, later):
            assert [fact.content for fact in chef.facts()] == expected
            assert sorted(hit.content for hit in chef.search("Ada", top_k=9)) == sorted(expected)
            assert all(content in chef.context().text for content in expected)
            if expected is fresh:
                chef.add_fact("Ada cooks with gas")


def test_another_process_that_changes_the_users_memory_is_seen(tmp_path: Path) -> None:
    with open_home(tmp_path) as one, open_home(tmp_path) as other:
        chef = one.memory("ada", "chef")
        chef.add_fact("Ada cooks with gas")
        seen = chef.heads()
        other.memory("ada").add_fact(PEANUTS)
        assert PEANUTS in chef.context().text
        assert chef.heads() != seen


def test_facts_that_a_prompt_shows_count_as_used_where_they_are_kept(tmp_path: Path) -> None:
    with open_home(tmp_path, fact_eviction_policy="hybrid") as bs:
        ada, chef = bs.memory("ada"), bs.memory("ada", "chef")
        ada.add_fact(PEANUTS)
        chef.add_fact("Ada cooks with gas")
        chef.context()
        for memory in (ada, chef):
            assert list(bs._services.states(memory.scope).use.facts()) == [memory.facts(joined=False)[0].id]


def test_the_page_shows_what_its_example_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "agents.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    exec(example, {})  # noqa: S102 the page's own example
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(("reads", "said"), [("both", "beside its own"), ("own", "its own facts only")])
def test_doctor_says_what_agents_read(tmp_path: Path, chef: MemoryHandle, bs: Backstory, reads: str, said: str) -> None:
    (found,) = [
        check for check in doctor(bs.home, config={"agent_reads": reads}, environ={}) if check.check == "agents"
    ]
    assert found.ok
    assert said in found.hint


def test_tools_and_tables_show_ids_that_cannot_be_taken_for_the_agents_own(chef: MemoryHandle, bs: Backstory) -> None:
    shown = {hit.shown_id for hit in chef.search("Ada")}
    assert shown == {"fact_2_0", "user:fact_2_0"}
    with pytest.raises(NotFoundError, match="only reads"):
        chef.remove_fact("user:fact_2_0")


def test_an_answer_that_was_given_facts_of_both_is_explained(ada: MemoryHandle, bs: Backstory) -> None:
    chef = bs.memory("ada", "chef")
    for learned in (0, 1):
        note = chef.context("What can I cook?").note()
        answer = {"id": f"a{learned}", "role": "assistant", "content": "No peanuts.", "metadata": note}
        chef.record("t", [{"id": f"u{learned}", "role": "user", "content": "Dinner?"}, answer], mode="append")
        chef.add_fact("Ada cooks with gas") if not learned else ada.forget(fact_id=ada.facts()[0].id)
    first, second = chef.why_said("a0"), chef.why_said("a1")
    assert (first.noted, first.holds, second.noted, second.holds) == (True, True, True, True)
    # The user's fact was erased since: its id stays, its text does not.
    assert [(fact.id, fact.live, fact.content) for fact in first.facts] == [("user:fact_2_0", False, None)]
    assert {(fact.id, fact.live) for fact in second.facts} == {("user:fact_2_0", False), ("fact_2_0", True)}
