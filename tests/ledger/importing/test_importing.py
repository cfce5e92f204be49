"""What can be handed over to be remembered: a document, a list, a file, a DeerFlow home; and what becomes of it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
import yaml
from fakes import FakeClock, open_home

from backstory.home import Backstory
from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import CandidateRejected, Fact, FactAdded, NewFact, Unread
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing import read_document
from backstory.memory import MemoryHandle

T0 = "2026-01-01T00:00:00Z"


@pytest.fixture
def bs(tmp_path: Path) -> Backstory:
    return open_home(tmp_path / "ours", clock=FakeClock())


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    return bs.memory("ada")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A DeerFlow 2 home: ada's summaries, two facts of hers that no agent owns, one of the agent Coder, and bob's."""
    root = tmp_path / "theirs"
    summaries(root / "users/ada", "Works on compilers.")
    keep(root / "users/ada/agents/__default__", "fact_tea", "Likes tea", createdAt="2026-01-02T00:00:00Z")
    keep(root / "users/ada/agents/__default__", "fact_oslo", "Lives in Oslo", category="context")
    keep(root / "users/ada/agents/coder", "fact_rust", "Writes Rust", agent_name="Coder")
    summaries(root / "users/bob", "Bakes.")
    keep(root / "users/bob/agents/__default__", "fact_bread", "Bakes bread", user_id="bob")
    return root


def summaries(bucket: Path, work: str, **more: object) -> Path:
    bucket.mkdir(parents=True, exist_ok=True)
    section = {"summary": work, "updatedAt": T0}
    said = {"version": "2.0", "revision": 3, "lastUpdated": T0, "user": {"workContext": section}, "history": {}}
    path = bucket / "memory.json"
    path.write_text(json.dumps({**said, **more}), encoding="utf-8")
    return path


def keep(agent: Path, fact_id: str, content: str, *, file: str | None = None, **stated: object) -> Path:
    """Write a fact as DeerFlow 2 does."""
    front = {
        "id": fact_id,
        "category": "preference",
        "confidence": 0.9,
        "source": {"type": "conversation", "threadId": "thread-7"},
        "createdAt": T0,
        "schemaVersion": 2,
        "status": "active",
        "topics": [],
        "consolidatedFrom": [],
        "revision": 1,
        "user_id": "ada",
        "agent_name": agent.name,
        **stated,
    }
    title = content.splitlines()[0][:160]
    text = f"---\n{yaml.safe_dump(front, allow_unicode=True, sort_keys=False).strip()}\n---\n\n# {title}\n\n{content}\n"
    return put(agent, file or fact_id, text)


def put(agent: Path, name: str, text: str | bytes) -> Path:
    path = agent / "facts" / hashlib.sha256(name.encode()).hexdigest()[:2] / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def texts(memory: MemoryHandle) -> list[str]:
    return [fact.content for fact in memory.facts()]


def only(memory: MemoryHandle) -> Fact:
    (fact,) = memory.facts()
    return fact


def refused(memory: MemoryHandle) -> list[tuple[str, str]]:
    events = memory.log(limit=1)[0].events
    return [(event.rule, event.detail) for event in events if isinstance(event, CandidateRejected)]


def work(memory: MemoryHandle) -> str:
    return memory.document().user.work_context.summary


# A list.


def test_a_list_of_texts_is_taken_in_as_facts_of_one_commit(memory: MemoryHandle) -> None:
    memory.import_document(["Likes tea", "  Lives in Oslo "])
    assert texts(memory) == ["Likes tea", "Lives in Oslo"]
    fact = memory.facts()[0]
    assert (fact.source, fact.category, fact.confidence, fact.by_hand) == ("import", "context", 0.9, False)
    assert memory.head().seq == 2


def test_a_list_may_hold_facts_with_fields_of_their_own(memory: MemoryHandle) -> None:
    memory.import_document(
        [{"content": "Likes tea", "category": "preference"}, {"content": "Maybe", "confidence": 0.3}]
    )
    assert (only(memory).category, only(memory).confidence) == ("preference", 0.9)
    assert [rule for rule, _ in refused(memory)] == ["threshold"]


def test_what_of_a_list_is_no_fact_is_refused_and_recorded(memory: MemoryHandle) -> None:
    memory.import_document(["Likes tea", 5, None, "", {"category": "goal"}, "likes TEA."])
    assert texts(memory) == ["Likes tea"]
    assert [rule for rule, _ in refused(memory)] == ["malformed", "malformed", "empty", "malformed", "duplicate"]


def test_a_list_instead_of_what_is_there_leaves_only_the_list(memory: MemoryHandle) -> None:
    memory.import_document(["Likes tea", "Lives in Oslo"])
    memory.import_document(["Likes tea"], replace=True)
    assert texts(memory) == ["Likes tea"]


@pytest.mark.parametrize("given", [[], [5], [[]], None, 7, {}, {"role": "user"}, b"x"])
def test_what_is_no_memory_at_all_is_wrong_use_that_says_what_is_expected(memory: MemoryHandle, given: object) -> None:
    with pytest.raises(InputError, match=r"an object with user, history and facts, or a list of texts or facts"):
        memory.import_document(given)
    assert memory.head().seq == 0


# A document.


def test_every_import_is_one_commit_that_can_be_reverted(memory: MemoryHandle, root: Path, tmp_path: Path) -> None:
    memory.add_fact("Has a dog")
    before = memory.document()
    listed = tmp_path / "list.json"
    listed.write_text('["Runs"]')
    document = {"user": {"topOfMind": {"summary": "Tea."}}, "facts": [{"content": "Swims", "confidence": 0.9}]}
    for number, given in enumerate(([*"xyz"], document, memory.document(), listed, str(root), ["Has a cat"])):
        memory.import_document(given, replace=number == 5)
        assert memory.head().seq == 3 + 2 * number
        memory.revert("HEAD")
        after = memory.document()
        assert (after.user, after.history, after.facts) == (before.user, before.history, before.facts)


def test_what_deerflow_says_of_a_fact_beside_its_words_is_kept() -> None:
    told = {
        "content": "Likes tea",
        "source": {"type": "conversation", "threadId": "t9"},
        "expected_valid_days": 30,
        "sourceError": "thought coffee",
        "confirmationCount": 3,
        "lastConfirmedAt": "2026-02-01T00:00:00Z",
        "consolidatedFrom": ["fact_a", "fact_b"],
    }
    (fact,) = read_document({"facts": [told]})
    assert isinstance(fact, NewFact)
    assert (fact.source, fact.expected_valid_days, fact.source_error) == ("t9", 30, "thought coffee")
    assert (fact.confirmations, fact.confirmed_at) == (3, "2026-02-01T00:00:00.000000Z")
    assert fact.consolidated_from == ("fact_a", "fact_b")


@pytest.mark.parametrize(
    ("source", "kept", "by_hand"),
    [
        ("manual", "manual", True),
        ({"type": "manual", "threadId": None}, "manual", True),
        ("thread-1", "thread-1", False),
        ({"type": "conversation", "threadId": "thread-1"}, "thread-1", False),
        ({"threadId": "thread-1"}, "thread-1", False),
        ({"type": "import"}, "import", False),
        ({"type": "unknown"}, None, False),
        ("consolidation", None, False),
        ({"type": 5}, None, False),
        (5, None, False),
    ],
)
def test_a_source_is_the_thread_or_says_that_a_person_entered_it(
    source: object, kept: str | None, *, by_hand: bool
) -> None:
    (fact,) = read_document([{"content": "x", "source": source}])
    assert isinstance(fact, NewFact)
    assert (fact.source, fact.by_hand) == (kept, by_hand)


@pytest.mark.parametrize("days", [True, 0, -5, 0.5, "30", 10**30, float("nan"), float("inf"), [], None])
def test_a_lifetime_that_is_none_is_left_out_and_costs_no_fact(days: object) -> None:
    (fact,) = read_document([{"content": "x", "expectedValidDays": days, "confirmationCount": days, "sourceError": 5}])
    assert isinstance(fact, NewFact)
    assert fact.expected_valid_days is None
    assert fact.confirmations in (0, 10**6)
    assert fact.source_error is None


@pytest.mark.parametrize("name", ["mapping", "chat_messages", "memory"])
def test_the_export_of_another_tool_is_no_list_of_facts(memory: MemoryHandle, name: str) -> None:
    with pytest.raises(InputError, match=r"import_file or `backstory import FILE` reads it"):
        memory.import_document([{name: {}}])
    assert memory.head().seq == 0


def test_null_says_nothing_of_a_field(memory: MemoryHandle) -> None:
    nothing = dict.fromkeys(["confidence", "category", "id", "createdAt", "byHand", "expiresAt", "source"])
    memory.import_document([{"content": "Likes tea", **nothing}])
    assert (only(memory).confidence, only(memory).category, only(memory).by_hand) == (0.9, "context", False)


@pytest.mark.parametrize(
    "broken", [{"confidence": 2}, {"confidence": "high"}, {"confidence": "1.2"}, {"confidence": True}, {"category": 5}]
)
def test_a_fact_whose_own_fields_are_broken_is_refused_with_the_reason(
    memory: MemoryHandle, broken: dict[str, object]
) -> None:
    memory.import_document([{"content": "Likes tea", **broken}])
    ((rule, detail),) = refused(memory)
    assert (rule, next(iter(broken)) in detail) == ("malformed", True)


def on_unreadable(memory: MemoryHandle) -> list[tuple[str, str, str]]:
    found = [e.candidate for e in memory.log(limit=1)[0].events if isinstance(e, CandidateRejected)]
    return [(c.place, c.text, c.detail) for c in found if isinstance(c, Unread)]


@pytest.mark.parametrize("replace", [False, True])
def test_a_group_that_is_no_object_is_refused_and_recorded(memory: MemoryHandle, *, replace: bool) -> None:
    memory.import_document({"user": "x", "history": ["Löv"], "facts": []}, replace=replace)
    assert refused(memory) == [
        ("malformed", "user has to be an object of sections"),
        ("malformed", "history has to be an object of sections"),
    ]
    assert [(place, text) for place, text, _ in on_unreadable(memory)] == [("user", '"x"'), ("history", '["Löv"]')]


def test_a_section_that_nothing_is_known_of_is_refused_and_recorded(memory: MemoryHandle) -> None:
    sections = {"again": {"summary": "Tea."}, "topOfMind": {"summary": "Oslo."}, "x/again": 5, "empty": None}
    memory.import_document({"user": sections, "zzz": 1})
    assert memory.document().user.top_of_mind.summary == "Oslo."
    told = "user has no such section; those of a document are workContext, personalContext, topOfMind"
    assert on_unreadable(memory) == [
        ("user/0", '{"again": {"summary": "Tea."}}', told),
        ("user/1", '{"x/again": 5}', told),
    ]
    assert memory.what_if().facts == 0
    assert memory.verify().ok


def test_what_stands_beside_a_memory_is_other_programs_business(memory: MemoryHandle) -> None:
    memory.import_document({"zzz": 1, "version": [], "user": None, "facts": [{"content": "Runs", "confidence": 0.9}]})
    assert (texts(memory), refused(memory)) == (["Runs"], [])


@pytest.mark.parametrize(
    ("item", "text", "detail"),
    [
        (
            {"content": "Löv", "confidence": "high"},
            '{"content": "Löv", "confidence": "high"}',
            "confidence has to be a num",
        ),
        (
            {"content": "x", "confidence": 2},
            '{"content": "x", "confidence": 2}',
            "confidence has to be a number from 0",
        ),
        ({"content": True}, '{"content": true}', "content has to be a text"),
        ({"content": "x", "byHand": 1}, '{"content": "x", "byHand": 1}', "byHand has to be true or false"),
        ({"content": "x", "createdAt": 1}, '{"content": "x", "createdAt": 1}', "createdAt has to be a text"),
        ({"category": "goal"}, '{"category": "goal"}', "content is missing"),
        (None, "null", "a fact has to be an object with its words as content"),
        ("Runs", '"Runs"', "a fact has to be an object with its words as content"),
    ],
)
def test_a_fact_that_cannot_be_read_is_kept_as_json_with_the_reason_in_plain_words(
    memory: MemoryHandle, item: object, text: str, detail: str
) -> None:
    memory.import_document({"facts": [item]})
    ((place, kept, told),) = on_unreadable(memory)
    assert (place, kept) == ("facts/0", text)
    assert told.startswith(detail)


@pytest.mark.parametrize(
    ("section", "text", "detail"),
    [
        ("Tea.", '"Tea."', "a section has to be an object with its words as summary"),
        ({"summary": None}, '{"summary": null}', "summary has to be a text"),
        ({"updatedAt": T0}, f'{{"updatedAt": "{T0}"}}', "summary is missing"),
        ({"summary": "x", "updatedAt": 5}, '{"summary": "x", "updatedAt": 5}', "updatedAt has to be a text"),
    ],
)
def test_a_section_that_cannot_be_read_is_kept_as_json_with_the_reason_in_plain_words(
    memory: MemoryHandle, section: object, text: str, detail: str
) -> None:
    memory.import_document({"user": {"workContext": section}})
    assert on_unreadable(memory) == [("user.workContext", text, detail)]


def test_a_threshold_of_zero_takes_in_what_a_document_states_no_confidence_for(memory: MemoryHandle) -> None:
    document = {"facts": [{"content": "Runs"}, {"content": "Has a dog", "source": "manual"}]}
    memory.import_document(document)
    assert (texts(memory), [rule for rule, _ in refused(memory)]) == (["Has a dog"], ["threshold"])
    assert memory.what_if(fact_confidence_threshold=0.0).facts == 2


# A file.


def test_a_path_names_a_file_of_either_kind(memory: MemoryHandle, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_bytes(b'\xef\xbb\xbf["Likes tea"]')
    memory.import_document(file)
    file.write_text('{"facts":[{"content":"Runs","confidence":0.9}, {"content":"odd","confidence":NaN}]}')
    memory.import_document(str(file))
    assert texts(memory) == ["Likes tea", "Runs"]
    assert [rule for rule, _ in refused(memory)] == ["malformed"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "no JSON"),
        (b"[1,\n2,\n", "line 3"),
        (b"\xff\xfe", "no UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"facts":\n[{"content": "[9"},\n' + b"[" * 5_000 + b"]" * 5_000 + b"]}", "line 3: it is nested too deep"),
        (
            b'{"a": [[[],\n3]],\n"facts": ["' + b"9" * 5_000 + b'",\n' + b"9" * 5_000 + b"]}",
            "line 4: it holds a number",
        ),
        (b"3", "no memory document"),
        (b'{"facts":{}}', "facts in this document is not a list"),
    ],
)
def test_a_file_that_is_no_memory_is_wrong_use_that_names_it(
    memory: MemoryHandle, tmp_path: Path, content: bytes, told: str
) -> None:
    file = tmp_path / "memory.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=told) as caught:
        memory.import_document(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("path", ["", "missing.json", "a\0b", "x" * 5000, '{"facts": []}'])
def test_a_text_that_is_no_path_is_wrong_use(memory: MemoryHandle, path: str) -> None:
    with pytest.raises(InputError, match=r"path|cannot read"):
        memory.import_document(path)


def test_a_pipe_is_no_file_to_wait_for(memory: MemoryHandle, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is no file"):
        memory.import_document(tmp_path / "pipe")


def test_a_memory_json_without_its_facts_is_told_of(
    memory: MemoryHandle, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory.import_document(root / "users/ada/memory.json")
    assert (work(memory), texts(memory)) == ("Works on compilers.", [])
    assert "holds no facts" in caplog.text


# A DeerFlow home.


def test_a_deerflow_home_gives_a_user_its_summaries_and_facts_in_the_order_of_their_making(
    memory: MemoryHandle, root: Path
) -> None:
    memory.import_document(root)
    assert work(memory) == "Works on compilers."
    assert [(f.id, f.content, f.category) for f in memory.facts()] == [
        ("fact_oslo", "Lives in Oslo", "context"),
        ("fact_tea", "Likes tea", "preference"),
    ]
    assert {(f.source, f.confidence) for f in memory.facts()} == {("thread-7", 0.9)}
    assert memory.facts()[1].created_at == "2026-01-02T00:00:00.000000Z"
    assert memory.head().seq == 2


def test_facts_are_born_in_the_order_of_their_making_whatever_their_files_are_called(
    memory: MemoryHandle, tmp_path: Path
) -> None:
    agent = tmp_path / "h/agents/__default__"
    days = {"fact_d": 3, "fact_a": 5, "fact_c": 1, "fact_e": 2, "fact_b": 4}
    for fact_id, day in days.items():
        keep(agent, fact_id, f"Thing {day}", createdAt=f"2026-01-0{day}T00:00:00Z")
    put(agent, "fact_0", "broken")
    memory.import_document(tmp_path / "h")
    assert texts(memory) == [f"Thing {day}" for day in range(1, 6)]
    assert memory.facts()[0].place == 0


@pytest.mark.parametrize("given", ["", "users/ada", "users/ada/agents/__default__"])
def test_the_folder_may_be_the_root_or_the_users_or_the_agents_own(
    memory: MemoryHandle, root: Path, given: str
) -> None:
    memory.import_document(root / given)
    assert (work(memory), texts(memory)) == ("Works on compilers.", ["Lives in Oslo", "Likes tea"])


@pytest.mark.parametrize("name", ["Coder", "coder"])
@pytest.mark.parametrize("given", ["", "users/ada", "users/ada/agents/coder"])
def test_an_agent_gets_its_own_facts_and_the_summaries_that_deerflow_shows_it(
    bs: Backstory, root: Path, name: str, given: str
) -> None:
    coder = bs.memory("ada", name)
    coder.import_document(root / given)
    assert (work(coder), texts(coder)) == ("Works on compilers.", ["Writes Rust"])
    assert bs.memory("ada").head().seq == 0


def test_an_agents_folder_that_was_copied_elsewhere_is_its_facts(memory: MemoryHandle, tmp_path: Path) -> None:
    keep(tmp_path / "backup", "fact_rust", "Writes Rust", agent_name="coder", user_id="someone")
    memory.import_document(tmp_path / "backup")
    assert texts(memory) == ["Writes Rust"]


def test_a_users_own_folder_is_taken_at_its_word(bs: Backstory, root: Path) -> None:
    memory = bs.memory("someone-else")
    memory.import_document(root / "users/bob")
    assert texts(memory) == ["Bakes bread"]


def test_a_user_whose_name_is_no_folder_is_found_where_deerflow_keeps_it(bs: Backstory, root: Path) -> None:
    user = "Ada Löv@x.org"
    folder = f"Ada-L-v-x-org-{hashlib.sha256(user.encode()).hexdigest()[:16]}"
    keep(root / "users" / folder / "agents/__default__", "fact_1", "Has a cat", user_id=user)
    memory = bs.memory_of(Scope(user))
    memory.import_document(root)
    assert texts(memory) == ["Has a cat"]


def test_the_global_memory_lies_in_the_root(bs: Backstory, tmp_path: Path) -> None:
    summaries(tmp_path / "global", "Works.")
    keep(tmp_path / "global/agents/__default__", "fact_1", "Has a cat", user_id=None)
    memory = bs.memory(scope="global")
    memory.import_document(tmp_path / "global")
    assert (work(memory), texts(memory)) == ("Works.", ["Has a cat"])


def test_agents_that_are_left_out_are_told_of(
    memory: MemoryHandle, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        memory.import_document(root)
    assert "import each with --agent: coder" in caplog.text


def test_facts_of_the_former_default_agent_are_the_users_unless_it_is_an_agent_of_its_own(
    bs: Backstory, root: Path
) -> None:
    agent = root / "users/ada/agents/lead-agent"
    keep(agent, "fact_old", "Has a dog")
    bs.memory("ada").import_document(root)
    assert "Has a dog" in texts(bs.memory("ada"))
    (agent / "config.yaml").write_text("name: lead-agent")
    bs.memory("eve").import_document(root / "users/ada")
    assert "Has a dog" not in texts(bs.memory("eve"))


def test_a_category_that_deerflow_2_set_aside_is_the_facts_again(memory: MemoryHandle, root: Path) -> None:
    keep(root / "users/ada/agents/__default__", "fact_x", "Knows Go", category="other", categoryExtension="knowledge")
    memory.import_document(root)
    assert memory.fact("fact_x").category == "knowledge"


def test_a_fact_that_a_person_entered_there_is_out_of_a_models_reach_here(memory: MemoryHandle, root: Path) -> None:
    keep(root / "users/ada/agents/__default__", "fact_x", "Has a dog", source={"type": "manual", "threadId": None})
    memory.import_document(root)
    fact = memory.fact("fact_x")
    assert (fact.by_hand, fact.source) == (True, "manual")


@pytest.mark.parametrize(
    "content", ["# A heading that is the fact", "two\n\nlines", '用户喜欢茶: "是"', "--- dashes\n---\nmore"]
)
def test_a_facts_words_come_back_as_they_were(memory: MemoryHandle, tmp_path: Path, content: str) -> None:
    keep(tmp_path / "h/agents/__default__", "fact_1", content)
    memory.import_document(tmp_path / "h")
    assert only(memory).content == content


def test_a_fact_written_by_another_hand_needs_only_a_confidence_and_words(memory: MemoryHandle, tmp_path: Path) -> None:
    put(
        tmp_path / "h/agents/__default__",
        "mine",
        "\ufeff---\r\nconfidence: 0.8\r\ncreatedAt: 2026-01-05T10:00:00Z\r\n---\r\nLikes tea",
    )
    memory.import_document(tmp_path / "h")
    fact = only(memory)
    assert (fact.id, fact.content, fact.confidence) == ("mine", "Likes tea", 0.8)
    assert fact.created_at == "2026-01-05T10:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no front matter", "front matter"),
        ("", "front matter"),
        ("---\nid: [\n---\nx", "no YAML in line"),
        ("---\n- a\n---\nx", "no fields"),
        ("---\n---\nx", "no fields"),
        ("---\na: &a [x]\nb: *a\n---\nx", "aliases"),
        ("---\na: !!python/object:os.system x\n---\nx", "no YAML in line 2"),
        ("---\na: " + "[" * 5000 + "\n---\nx", "no YAML"),
        ("---\nn: " + "9" * 5000 + "\n---\nx", "no YAML"),
        ("---\na: " + "x" * 70_000 + "\n---\nx", "at most 65,536"),
        ("---\nconfidence: 2\n---\nx", "confidence"),
        ("---\nconfidence: .nan\n---\nx", "confidence"),
        ("---\nid: other\n---\nx", "says that it is other"),
        ("---\nstatus: deleted\n---\nx", "status is deleted"),
        ("---\nagent_name: coder\n---\nx", "belongs to agent coder"),
        ("---\nuser_id: eve\n---\nx", "belongs to user eve"),
        (b"---\nid: broken\n---\nlikes \xff tea", "no UTF-8"),
        (b"x" * (1 << 20) + b"y", "1,048,577 bytes"),
    ],
)
def test_a_broken_file_is_refused_recorded_and_named_and_harms_no_other(
    memory: MemoryHandle, root: Path, text: str | bytes, told: str
) -> None:
    path = put(root / "users/ada/agents/__default__", "broken", text)
    memory.import_document(root)
    assert texts(memory) == ["Lives in Oslo", "Likes tea"]
    unread = [
        (event.rule, event.candidate, event.detail)
        for event in memory.log(limit=1)[0].events
        if isinstance(event, CandidateRejected)
    ]
    ((rule, candidate, detail),) = unread
    assert (rule, isinstance(candidate, Unread)) == ("malformed", True)
    assert str(path.relative_to(root)) in detail
    assert told in detail


def test_what_a_broken_file_says_is_kept_with_its_refusal(memory: MemoryHandle, root: Path) -> None:
    put(root / "users/ada/agents/__default__", "broken", "no front matter, and tea")
    memory.import_document(root)
    (refusal,) = memory.why_not("no front matter, and tea")
    assert "broken.md" in refusal.detail


def test_a_fact_file_that_is_a_pipe_or_a_folder_keeps_nobody_waiting(memory: MemoryHandle, root: Path) -> None:
    os.mkfifo(root / "users/ada/agents/__default__/facts/pipe.md")
    memory.import_document(root)
    ((rule, detail),) = refused(memory)
    assert (rule, "pipe.md: it is no file" in detail) == ("malformed", True)


def test_summaries_that_cannot_be_read_are_refused_and_the_facts_taken(memory: MemoryHandle, root: Path) -> None:
    (root / "users/ada/memory.json").write_text("{")
    memory.import_document(root)
    assert texts(memory) == ["Lives in Oslo", "Likes tea"]
    ((rule, detail),) = refused(memory)
    assert (rule, "users/ada/memory.json" in detail) == ("malformed", True)


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "a package"}'])
def test_a_home_in_which_nothing_can_be_read_is_wrong_use(memory: MemoryHandle, tmp_path: Path, text: str) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h/memory.json").write_text(text)
    with pytest.raises(InputError, match=r"nothing in .* can be read: memory.json"):
        memory.import_document(tmp_path / "h")
    assert memory.head().seq == 0


@pytest.mark.parametrize(
    ("user", "agent", "told"),
    [
        ("eve", None, "no memory of user eve; the users there are ada, bob: name one with --user"),
        ("ada", "writer", "user ada, agent writer; the agents there are __default__, coder: name one with --agent"),
        (None, None, "the default user; the users there are ada, bob: name one with --user"),
        (None, "coder", "agent coder; the users there are ada, bob: name one with --user"),
    ],
)
def test_a_home_without_the_scope_says_whose_memories_are_there(
    bs: Backstory, root: Path, user: str | None, agent: str | None, told: str
) -> None:
    memory = bs.memory_of(Scope(user, agent))
    with pytest.raises(InputError) as caught:
        memory.import_document(root)
    assert told in str(caught.value)
    assert memory.head().seq == 0


def test_a_folder_that_is_no_home_says_what_one_looks_like(memory: MemoryHandle, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has a memory\.json, or a folder users or agents"):
        memory.import_document(tmp_path / "empty")


@pytest.mark.parametrize(
    ("journal", "settled"), [('{"state":"prepared"}', False), ("{", False), ('{"state":"committed"}', True)]
)
def test_a_home_that_deerflow_has_half_written_is_left_alone(
    memory: MemoryHandle, root: Path, journal: str, *, settled: bool
) -> None:
    (root / "users/ada/.memory.journal.json").write_text(journal)
    if settled:
        memory.import_document(root)
    else:
        with pytest.raises(InputError, match="start DeerFlow once"):
            memory.import_document(root)
    assert bool(texts(memory)) == settled


def test_a_broken_memory_of_an_agent_of_any_name_is_refused_and_can_be_decided_again(
    bs: Backstory, tmp_path: Path
) -> None:
    summaries(tmp_path / "h", "Works.")
    own = summaries(tmp_path / "h/agents/again-me", "x")
    own.write_text("{")
    memory = bs.memory(None, "again-me", scope="global")
    memory.import_document(tmp_path / "h")
    assert [detail.partition(":")[0] for _, detail in refused(memory)] == ["agents/again-me/memory.json"]
    assert memory.what_if().facts == 0


def test_a_home_of_version_1_is_read_by_user_and_agent(bs: Backstory, tmp_path: Path) -> None:
    fact = {"confidence": 0.9, "category": "goal", "createdAt": T0, "source": "t1"}
    summaries(tmp_path / "h/users/ada", "Works.", version="1.0", facts=[{**fact, "id": "fact_a", "content": "Runs"}])
    own = tmp_path / "h/users/ada/agents/coder"
    summaries(own, "Codes.", version="1.0", facts=[{**fact, "id": "fact_b", "content": "Writes Rust"}])
    ada, coder = bs.memory("ada"), bs.memory("ada", "coder")
    ada.import_document(tmp_path / "h")
    coder.import_document(tmp_path / "h")
    own = [fact.content for fact in coder.facts(joined=False)]
    assert (work(ada), texts(ada), work(coder), own) == ("Works.", ["Runs"], "Codes.", ["Writes Rust"])


def test_a_version_that_lists_files_has_them_read_and_none_outside_the_memory(
    memory: MemoryHandle, tmp_path: Path
) -> None:
    bucket = tmp_path / "h"
    inside = keep(bucket, "fact_in", "Likes tea")
    outside = keep(tmp_path / "secret", "fact_out", "A secret")
    listed = {
        "fact_in": {"path": str(inside.relative_to(bucket))},
        "fact_out": {"path": f"../secret/facts/{outside.parent.name}/fact_out.md"},
        "fact_absolute": {"path": str(outside)},
        "fact_gone": {"path": "facts/gone.md"},
        "fact_odd": 5,
    }
    summaries(bucket, "Works.", facts=listed)
    keep(bucket / "agents/__default__", "fact_newer", "Runs", createdAt="2026-01-09T00:00:00Z")
    memory.import_document(bucket)
    assert texts(memory) == ["Likes tea", "Runs"]
    assert [rule for rule, _ in refused(memory)] == ["malformed"] * 4


def test_a_home_of_ours_is_taken_in_elsewhere(bs: Backstory, tmp_path: Path) -> None:
    with open_home(tmp_path / "first") as first:
        first.memory("Ada L").add_fact("Likes tea")
    memory = bs.memory("Ada L")
    memory.import_document(tmp_path / "first")
    assert [(f.content, f.by_hand) for f in memory.facts()] == [("Likes tea", True)]


def test_importing_a_home_twice_changes_nothing(memory: MemoryHandle, root: Path) -> None:
    memory.import_document(root)
    before = memory.facts()
    memory.import_document(root)
    memory.import_document(root, replace=True)
    assert memory.facts() == before


def test_a_home_is_decided_again_under_another_policy(memory: MemoryHandle, root: Path) -> None:
    put(root / "users/ada/agents/__default__", "broken", "no front matter")
    memory.import_document(root)
    assert memory.what_if(max_facts=1).facts == 1
    assert memory.what_if().facts == 2
    assert [e.fact.id for e in memory.log(limit=1)[0].events if isinstance(e, FactAdded)] == ["fact_oslo", "fact_tea"]
    assert memory.verify().ok


# Links.


def test_no_file_is_read_that_a_link_out_of_the_folder_leads_to(
    memory: MemoryHandle, root: Path, tmp_path: Path
) -> None:
    secret = keep(tmp_path / "other" / "__default__", "fact_secret", "The password is tea")
    there = keep(root / "users/ada/agents/__default__", "fact_secret", "x")
    there.unlink()
    there.symlink_to(secret)
    document = root / "users/ada/memory.json"
    away = document.rename(tmp_path / "away.json")
    document.symlink_to(away)
    memory.import_document(str(root))
    assert not any("password" in text for text in texts(memory))
    assert texts(memory)
    assert work(memory) == ""
    assert (
        sorted(detail.partition(": ")[2].split(",")[0] for _, detail in refused(memory))
        == [f"a link leads out of {root}"] * 2
    )


def test_a_folder_that_is_named_may_be_a_link_and_links_within_it_are_read(
    memory: MemoryHandle, root: Path, tmp_path: Path
) -> None:
    document = root / "users/ada/memory.json"
    document.rename(root / "users/ada/kept.json")
    document.symlink_to("kept.json")
    (tmp_path / "link").symlink_to(root)
    memory.import_document(str(tmp_path / "link"))
    assert texts(memory)
    assert work(memory)
    assert refused(memory) == []
