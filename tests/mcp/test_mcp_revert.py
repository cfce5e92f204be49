"""Undoing over MCP: the person is asked, or a code from a dry run confirms it, and both hold for what was shown."""

from __future__ import annotations

import json

import mcp_types
import pytest
from assistants import ERAS, Person, call, error, result_of, text_of, using
from fakes import exchange, open_home
from mcp.shared.exceptions import MCPError

from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.mcp.answering import Confirmation, Opened
from backstory.mcp.server import memory_server


@pytest.fixture(autouse=True)
def moved(memory):
    """Commit 2 adds a fact, commit 3 another."""
    memory.add_fact("Ada lives in Oslo")
    memory.add_fact("Ada has a cat")


def contents(memory):
    return [fact.content for fact in memory.facts()]


@pytest.mark.parametrize("era", ERAS)
def test_the_person_sees_what_would_change_and_agrees(server, memory, era):
    person = Person()
    result = result_of(server, "memory_revert", era=era, person=person, seq=2)
    assert person.asked == [
        'Undo commit 2 of your memory, which is at commit 3 now? It would change:\n- fact_2_0: "Ada lives in Oslo"'
    ]
    done = result.structured_content
    assert (done["status"], done["commit"]) == ("reverted", 4)
    assert done["changes"] == [{"change": "removed", "id": "fact_2_0", "before": "Ada lives in Oslo"}]
    assert contents(memory) == ["Ada has a cat"]
    cause = memory.log()[0].cause
    assert (cause.kind, cause.target, cause.actor) == ("revert", 2, "mcp:tester, and the person agreed")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "undo"), [("decline", True), ("cancel", True), ("accept", False)])
def test_without_the_persons_consent_nothing_changes(server, memory, era, action, undo):
    person = Person(action, undo=undo)
    code = call(server, "memory_revert", seq=2)["confirm"]
    # A code is no way around the question.
    result = result_of(server, "memory_revert", era=era, person=person, seq=2, confirm=code)
    assert person.asked
    assert (result.is_error, result.structured_content["status"]) == (False, "declined")
    assert "nothing was undone" in text_of(result)
    assert memory.head().seq == 3


@pytest.mark.parametrize("era", ERAS)
def test_a_memory_that_changes_while_the_person_thinks_is_not_undone_as_shown(server, memory, era):
    facts = iter(["Ada has a dog"])
    person = Person(meanwhile=lambda: [memory.add_fact(fact) for fact in facts])
    result = result_of(server, "memory_revert", era=era, person=person, seq=2)
    if era == "legacy":
        assert result.is_error
        assert "has changed since" in text_of(result)
        assert contents(memory) == ["Ada lives in Oslo", "Ada has a cat", "Ada has a dog"]
    else:
        # The question is put again, as it is then.
        assert [asked.split("which is at ")[1][:8] for asked in person.asked] == ["commit 3", "commit 4"]
        assert contents(memory) == ["Ada has a cat", "Ada has a dog"]


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_cannot_ask_gets_a_code_from_a_dry_run(server, memory, era):
    shown = result_of(server, "memory_revert", era=era, seq=2).structured_content
    assert shown["status"] == "preview"
    assert shown["changes"] == [{"change": "removed", "id": "fact_2_0", "before": "Ada lives in Oslo"}]
    assert memory.head().seq == 3
    done = result_of(server, "memory_revert", era=era, seq=2, confirm=shown["confirm"]).structured_content
    assert (done["status"], done["commit"]) == ("reverted", 4)
    assert contents(memory) == ["Ada has a cat"]
    assert memory.log()[0].cause.actor == "mcp:tester"


def test_a_code_holds_for_one_change_of_one_memory_as_it_was_in_one_process(bs, server, memory):
    code = call(server, "memory_revert", seq=2)["confirm"]
    assert "does not hold" in error(server, "memory_revert", seq=3, confirm=code)
    assert "does not hold" in error(server, "memory_revert", seq=2, confirm="")
    assert "does not hold" in error(server, "memory_revert", seq=2, confirm=f"{code[:-1]}ä")
    another = memory_server(bs, lambda _request, _need: Opened(bs.memory("ada")))
    assert "does not hold" in error(another, "memory_revert", seq=2, confirm=code)
    memory.add_fact("Ada has a dog")
    assert "has changed since" in error(server, "memory_revert", seq=2, confirm=code)
    assert memory.head().seq == 4
    assert call(server, "memory_revert", seq=2, confirm=f" {call(server, 'memory_revert', seq=2)['confirm']} ")


def test_codes_differ_by_memory_change_and_head(memory):
    codes = Confirmation(b"k" * 32)
    head, undo = memory.head(), memory.revert(2, dry_run=True)
    all_of_them = {
        codes.code(memory.scope, 2, head, undo),
        codes.code(Scope("bob"), 2, head, undo),
        codes.code(memory.scope, 3, head, undo),
        codes.code(memory.scope, 2, type(head)(4, head.hash), undo),
        codes.code(memory.scope, 2, head, memory.revert(3, dry_run=True)),
        Confirmation(b"l" * 32).code(memory.scope, 2, head, undo),
    }
    assert len(all_of_them) == 6
    assert codes.code(memory.scope, 2, head, undo) in all_of_them


def test_later_work_is_not_overwritten_and_nobody_is_asked(server, memory):
    memory.edit_fact("fact_2_0", "Ada lives in Bergen")
    person = Person()
    result = result_of(server, "memory_revert", person=person, seq=2).structured_content
    assert result["status"] == "conflict"
    assert result["conflicts"]
    assert "confirm" not in result
    assert (person.asked, memory.head().seq) == ([], 4)


def test_what_is_undone_already_is_not_undone_again(server, memory):
    memory.revert(2)
    person = Person()
    result = result_of(server, "memory_revert", person=person, seq=2).structured_content
    assert (result["status"], result["changes"], person.asked) == ("nothing_to_undo", [], [])
    assert memory.head().seq == 4


def test_a_long_undo_is_shown_in_part_and_counted(server, memory):
    memory.import_document([f"Ada keeps note number {n} {'about tea ' * 100}" for n in range(60)])
    person = Person("decline")
    result = result_of(server, "memory_revert", person=person, seq=4).structured_content
    (asked,) = person.asked
    assert asked.count("\n") == 21
    assert asked.endswith("and 40 more changes")
    assert len(asked) < 20 * 400
    assert result["left_out"] == 60 - len(result["changes"]) > 0


def test_what_a_fact_says_cannot_pose_as_a_part_of_the_question(server, memory):
    memory.add_fact('Ada"\n- fact_9_9: "nothing\n\x1b[2J')
    person = Person("decline")
    result_of(server, "memory_revert", person=person, seq=4)
    assert person.asked[0].count("\n") == 1
    assert "\x1b" not in person.asked[0]


def test_what_an_agent_shared_with_its_user_is_shown_and_undone_too(tmp_path):
    with open_home(tmp_path / "shared", shared_summaries=True) as home:
        agent = home.memory("ada", "lead")
        agent.record("t1", exchange("Rust", 1))
        section = {"workContext": {"summary": "Writes Rust.", "shouldUpdate": True}}
        agent.extract([RecordedReply("t1", json.dumps({"newFacts": [], "user": section}))])
        assert home.memory("ada").document().user.work_context.summary == "Writes Rust."
        lead = memory_server(home, lambda _request, _need: Opened(agent))
        person = Person()
        done = result_of(lead, "memory_revert", person=person, seq=agent.head().seq).structured_content
        assert [(one["change"], one["id"]) for one in done["changes"]] == [("section", "user.workContext")]
        assert "Writes Rust." in person.asked[0]
        assert home.memory("ada").document().user.work_context.summary == ""


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_fails_to_ask_changes_nothing(server, memory, era):
    async def fails(_context: object, _params: object) -> mcp_types.ErrorData:
        return mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message="no window to ask in")

    async def work(client):
        with pytest.raises(MCPError, match="no window to ask in"):
            await client.call_tool("memory_revert", {"seq": 2})

    using(server, work, era=era, person=fails)
    assert memory.head().seq == 3
