"""Sections that agents share with their user, as DeerFlow's do: one text for all, written by any agent's update."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeClock, Gate, ScriptedModel, exchange

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.errors import CorruptLogError, LockTimeoutError, NotFoundError, UsageError
from backstory.ledger.core.events import (
    CandidateRejected,
    SectionsMoved,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
)
from backstory.ledger.learning import sharing

WORK = "user.workContext"


def section(text: str, *facts: str, name: str = "workContext", group: str = "user") -> dict[str, object]:
    return {
        group: {name: {"summary": text, "shouldUpdate": True}},
        "newFacts": [{"content": fact, "confidence": 0.9} for fact in facts],
    }


def opened(folder: Path, *, model: object = None, clock: FakeClock | None = None, **settings: object) -> Backstory:
    settings = {"shared_summaries": True, "agent_reads": "own", "min_seconds_between_calls": 0, **settings}
    return Backstory.open(folder, model=model, background=False, clock=clock, **settings)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bs(tmp_path: Path, clock: FakeClock) -> Iterator[Backstory]:
    with opened(tmp_path / "home", clock=clock) as home:
        yield home


def learn(memory: MemoryHandle, reply: dict[str, object], *, thread: str = "t1", words: str = "I like tea.") -> None:
    """Record an exchange, and learn from it with this answer."""
    memory.record(
        thread, [{"role": "user", "content": words}, {"role": "assistant", "content": "Noted."}], mode="append"
    )
    assert memory.extract([{"thread_id": thread, "reply": reply}]).failed == 0


def work(memory: MemoryHandle) -> str:
    return memory.document().user.work_context.summary


def events_of(memory: MemoryHandle, kind: str) -> list[list[str]]:
    return [[type(e).__name__ for e in entry.events] for entry in memory.log() if entry.cause.kind == kind]


def bytes_below(folder: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


# Writing and reading.


def test_an_agents_update_writes_the_users_section_and_its_own_facts(bs):
    coder, cook, user = bs.memory("ada", "coder"), bs.memory("ada", "cook"), bs.memory("ada")
    learn(coder, section("Writes Go", "Likes tea"))
    assert [work(memory) for memory in (coder, cook, user)] == ["Writes Go"] * 3
    assert [fact.content for fact in coder.facts()] == ["Likes tea"]
    assert cook.facts() == user.facts() == ()


def test_the_users_commit_says_which_update_wrote_the_section(bs):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(coder, section("Writes Go", "Likes tea"))
    shared = coder.log()[0]
    assert [type(event) for event in shared.events][1:] == [SummaryShared, type(shared.events[2])]
    entry = user.log()[0]
    assert (entry.cause.kind, entry.cause.agent, entry.cause.thread) == ("share", "coder", None)
    assert entry.summary == f"1 section, from commit {shared.seq} of agent coder, thread t1"
    assert entry.cause.model == shared.cause.model
    received, updated = entry.events
    assert received == SummariesReceived("coder", shared.seq, 0, "t1")
    assert isinstance(updated, SummaryUpdated)
    assert (updated.before.summary, updated.after.summary) == ("", "Writes Go")
    assert entry.at == shared.at
    assert user.threads() == user.status().pending == ()


def test_the_prompt_of_an_agent_shows_the_users_sections_and_the_agents_facts(tmp_path):
    model = ScriptedModel({"newFacts": []})
    with opened(tmp_path, model=model) as bs:
        bs.memory("ada").import_document({"user": {"workContext": {"summary": "Builds bridges"}}, "facts": []})
        bs.memory("ada").add_fact("Is tall")
        bs.memory("ada", "coder").add_fact("Writes Go")
        bs.memory("ada", "coder").record("t1", exchange("tea"))
        bs.memory("ada", "coder").extract()
        (prompt,) = model.prompts
        assert "Builds bridges" in prompt.user
        assert "Writes Go" in prompt.user
        assert "Is tall" not in prompt.user


def test_summaries_of_threads_stay_with_the_agent_and_without_the_setting_nothing_is_shared(tmp_path):
    with opened(tmp_path, shared_summaries=False) as bs:
        learn(bs.memory("ada", "coder"), section("Writes Go"))
        assert work(bs.memory("ada", "coder")) == "Writes Go"
        assert work(bs.memory("ada")) == ""
        assert bs.memory("ada").log() == ()


def test_the_global_memory_shares_with_its_agents_too(bs):
    learn(bs.memory(None, "coder", scope="global"), section("Writes Go"))
    assert work(bs.memory(scope="global")) == "Writes Go"
    assert work(bs.memory("ada")) == ""


def test_an_agents_context_and_its_past_show_the_users_sections(bs, clock):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    coder.add_fact("Is tall")
    clock.advance(60)
    learn(coder, section("Writes Go", "Likes tea"))
    first = coder.head().seq
    clock.advance(60)
    learn(coder, section("Writes Rust"))
    assert "Writes Rust" in coder.context().text
    assert coder.document(at=first).user.work_context.summary == "Writes Go"
    assert coder.document(at=first - 1).user.work_context.summary == ""
    assert coder.document(at="2026-03-01T12:00:30Z").user.work_context.summary == ""
    assert [change.after for change in user.diff(1, user.head().seq).sections] == ["Writes Rust"]


def test_an_agents_past_has_the_sections_that_its_own_commit_wrote(tmp_path):
    with opened(tmp_path) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        learn(coder, section("Writes Go"))
        assert coder.document(at=coder.head().seq).user.work_context.summary == "Writes Go"
        assert [memory.log()[0].at for memory in (coder, user)] == [coder.log()[0].at] * 2


def test_memory_json_of_an_agent_holds_its_own_replay(bs, tmp_path):
    coder = bs.memory("ada", "coder")
    learn(coder, section("Writes Go", "Likes tea"))
    assert coder.flush()
    folder = tmp_path / "home" / "users" / "ada"
    assert json.loads((folder / "memory.json").read_text())["user"]["workContext"]["summary"] == "Writes Go"
    own = json.loads((folder / "agents" / "coder" / "memory.json").read_text())
    assert own["user"]["workContext"]["summary"] == ""
    assert [fact["content"] for fact in own["facts"]] == ["Likes tea"]
    assert coder.verify().ok
    assert bs.memory("ada").verify().ok


def test_an_unchanged_and_an_older_text_are_refused_in_the_users_ledger(bs, clock):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(coder, section("Writes Go"))
    learn(coder, section("Writes Go"))
    (_, rejected) = user.log()[0].events
    assert isinstance(rejected, CandidateRejected)
    assert rejected.rule == "unchanged"
    clock.advance(60)
    learn(user, section("Builds bridges"))
    coder.record("t2", [{**turn, "at": "2020-01-01T00:00:00Z"} for turn in exchange("tea")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "_hand_over", _dated(sharing._hand_over, "2020-01-01T00:00:00.000000Z"))
        coder.extract([{"thread_id": "t2", "reply": section("Was young")}])
    (_, rejected) = user.log()[0].events
    assert rejected.rule == "older"
    assert work(coder) == "Builds bridges"


def _dated(hand_over, at):
    import msgspec

    return lambda agent, users, name, commit: hand_over(agent, users, name, msgspec.structs.replace(commit, at=at))


# Delivery.


def test_what_a_lock_kept_from_the_users_ledger_is_delivered_once_with_the_next_read(bs, monkeypatch):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    whole = sharing._hand_over

    def locked(*_: object) -> None:
        raise LockTimeoutError("somebody holds the lock")

    monkeypatch.setattr(sharing, "_hand_over", locked)
    learn(coder, section("Writes Go", "Likes tea"))
    assert work(user) == ""
    assert [fact.content for fact in coder.facts()] == ["Likes tea"]
    monkeypatch.setattr(sharing, "_hand_over", whole)
    assert work(user) == "Writes Go"
    assert work(coder) == "Writes Go"
    assert len(events_of(user, "share")) == 1


def test_a_read_does_not_wait_for_a_lock_to_deliver(tmp_path, monkeypatch):
    with opened(tmp_path) as bs, opened(tmp_path) as other:
        coder = bs.memory("ada", "coder")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharing, "_hand_over", lambda *_: (_ for _ in ()).throw(LockTimeoutError("locked")))
            learn(coder, section("Writes Go", "Likes tea"))
        for stream in ("users/ada/ledger", "users/ada/agents/coder/transcript"):
            with other.store.locked(stream), monkeypatch.context() as patch:
                patch.setattr(sharing, "_undelivered", lambda *_: pytest.fail("it waits for the lock"))
                assert [fact.content for fact in coder.facts()] == ["Likes tea"]
                assert work(bs.memory("ada")) == ""
        assert work(bs.memory("ada")) == "Writes Go"


def test_all_that_was_left_behind_is_delivered_in_order_by_the_next_process(tmp_path, monkeypatch):
    with opened(tmp_path) as bs:
        monkeypatch.setattr(sharing, "_hand_over", lambda *_: (_ for _ in ()).throw(LockTimeoutError("locked")))
        learn(bs.memory("ada", "coder"), section("Writes Go"))
        monkeypatch.undo()
        with bs.store.locked("users/ada/ledger"):
            pass
    with opened(tmp_path) as bs:
        # The user's memory alone is opened: nobody asks for the agent.
        assert work(bs.memory("ada")) == "Writes Go"
        learn(bs.memory("ada", "coder"), section("Writes Rust"))
        user = bs.memory("ada")
        assert work(user) == "Writes Rust"
        assert [e.seq for entry in user.log() for e in entry.events if isinstance(e, SummariesReceived)] == [3, 2]
        assert user.verify().ok


def test_an_agent_whose_log_is_damaged_does_not_keep_the_user_from_reading(tmp_path):
    with opened(tmp_path) as bs:
        learn(bs.memory("ada", "coder"), section("Writes Go"))
        learn(bs.memory("ada", "cook"), section("Bakes bread", name="topOfMind"))
    ledger = tmp_path / "users" / "ada" / "agents" / "coder" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"Writes Go", b"Writes No"))
    for index in tmp_path.rglob("index.sqlite*"):
        index.unlink()
    with opened(tmp_path, model=ScriptedModel()) as bs:
        assert work(bs.memory("ada")) == work(bs.memory("ada", "cook")) == "Writes Go"
        with pytest.raises(CorruptLogError):
            bs.memory("ada", "coder").facts()


def test_an_update_waits_until_what_was_shared_before_it_is_received(bs, monkeypatch):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    whole = sharing._hand_over
    monkeypatch.setattr(sharing, "_hand_over", lambda *_: (_ for _ in ()).throw(LockTimeoutError("locked")))
    learn(coder, section("Writes Go"))
    coder.record("t2", exchange("coffee"))
    with pytest.raises(LockTimeoutError):
        coder.extract([{"thread_id": "t2", "reply": section("Writes Rust")}])
    monkeypatch.setattr(sharing, "_hand_over", whole)
    assert coder.extract([{"thread_id": "t2", "reply": section("Writes Rust")}]).failed == 0
    assert [entry.events[0].seq for entry in user.log() if entry.cause.kind == "share"] == [3, 2]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_between_the_two_commits_leads_to_exactly_one_delivery(tmp_path, moment):
    script = f"""
import os, signal
from backstory import Backstory
from backstory.ledger.learning import sharing
hand_over = sharing._hand_over
def killed(*args):
    if {moment!r} == "after":
        hand_over(*args)
    os.kill(os.getpid(), signal.SIGKILL)
sharing._hand_over = killed
bs = Backstory.open({str(tmp_path)!r}, shared_summaries=True, background=False)
memory = bs.memory("ada", "coder")
memory.record("t1", [{{"role": "user", "content": "Tea"}}, {{"role": "assistant", "content": "Yes"}}])
memory.extract([{{"thread_id": "t1", "reply": {section("Writes Go", "Likes tea")!r}}}])
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    for _ in range(2):
        with opened(tmp_path) as bs:
            user, coder = bs.memory("ada"), bs.memory("ada", "coder")
            assert work(user) == work(coder) == "Writes Go"
            assert [fact.content for fact in coder.facts()] == ["Likes tea"]
            (entry,) = [entry for entry in user.log() if entry.cause.kind == "share"]
            assert entry.events[0] == SummariesReceived("coder", coder.head().seq, 0, "t1")
            assert coder.status().pending == ()
            assert user.verify().ok
            assert coder.verify().ok


def test_two_processes_that_deliver_at_once_deliver_once(tmp_path):
    with opened(tmp_path) as one, opened(tmp_path) as other:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharing, "_hand_over", lambda *_: (_ for _ in ()).throw(LockTimeoutError("locked")))
            learn(one.memory("ada", "coder"), section("Writes Go"))
        readers = [threading.Thread(target=work, args=(bs.memory("ada", "coder"),)) for bs in (one, other) * 4]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
        assert work(one.memory("ada", "coder")) == work(other.memory("ada")) == "Writes Go"
        assert len(events_of(one.memory("ada"), "share")) == 1


# Barriers.


@pytest.mark.parametrize("kind", ["clear", "revert", "rollback"])
def test_a_barrier_in_the_users_ledger_refuses_the_sections_that_were_asked_for_before_it(tmp_path, kind):
    gate = Gate(json.dumps(section("Writes Go", "Likes tea")))
    with opened(tmp_path, model=ScriptedModel(gate)) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        user.add_fact("Is tall")
        user.add_fact("Is kind")
        with_answer_in_flight(
            coder,
            gate,
            {"clear": user.clear, "revert": user.revert, "rollback": lambda: user.rollback(2)}[kind],
        )
        assert work(coder) == ""
        assert [fact.content for fact in coder.facts()] == ["Likes tea"]
        (received, rejected) = user.log()[0].events
        assert isinstance(received, SummariesReceived)
        assert (rejected.rule, rejected.candidate.summary) == ("basis", "Writes Go")
        assert user.verify().ok


def with_answer_in_flight(memory, gate, act):
    memory.record("t1", exchange("tea"))
    worker = threading.Thread(target=memory.extract)
    worker.start()
    assert gate.entered.wait(60)
    act()
    gate.opened.set()
    worker.join(60)


def test_an_erasure_in_the_users_memory_discards_the_answer_that_was_made_on_it(tmp_path):
    gate = Gate(json.dumps(section("Lives in Oslo", "Knows Oslo well")))
    with opened(tmp_path, model=ScriptedModel(gate)) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        learn(user, section("Lives in Oslo"), words="I live in Oslo.")
        with_answer_in_flight(coder, gate, lambda: user.forget(matching="Oslo"))
        assert coder.facts() == ()
        assert work(coder) == ""
        assert events_of(coder, "extraction") == [["UpdateFailed"]]
        assert coder.status().pending == ()
        assert coder.verify().ok
        assert user.verify().ok
    assert b"oslo" not in bytes_below(tmp_path).lower()


# Explaining.


def test_why_names_the_update_of_an_agent_that_wrote_a_section_and_the_words_it_read(bs, clock):
    coder, cook, user = bs.memory("ada", "coder"), bs.memory("ada", "cook"), bs.memory("ada")
    learn(cook, section("Likes bread"), thread="rye", words="I like rye bread.")
    clock.advance(60)
    learn(coder, section("Likes bread, writes Go"), thread="code", words="I write Go.")
    for memory in (user, coder, cook):
        why = memory.why_section("workContext")
        assert (why.section, why.text) == (WORK, "Likes bread, writes Go")
        assert (why.written.agent, why.written.agent_seq, why.written.thread) == ("coder", coder.head().seq, "code")
        assert (why.written.cause, why.written.seq) == ("share", user.head().seq)
        assert [words.content for words in why.evidence] == ["I write Go.", "Noted."]
        assert [(item.agent, item.detail) for item in why.history] == [
            ("cook", "Likes bread"),
            ("coder", "Likes bread, writes Go"),
        ]
    user.revert()
    why = coder.why_section(WORK)
    assert (why.written.agent, [words.thread for words in why.evidence]) == ("cook", ["rye", "rye"])
    assert why.history[-1].cause == "revert"


def test_why_of_a_section_without_agents_an_empty_one_and_one_that_is_none(bs):
    user = bs.memory("ada")
    learn(user, section("Builds bridges"), words="I build bridges.")
    why = user.why_section(WORK)
    assert (why.written.agent, why.written.thread, why.evidence[0].content) == (None, "t1", "I build bridges.")
    user.clear()
    assert user.why_section(WORK).written is None
    with pytest.raises(NotFoundError, match="never written"):
        user.why_section("topOfMind")
    with pytest.raises(UsageError, match=r"user\.workContext"):
        user.why_section("nonsense")


# Undoing.


def test_reverting_the_users_commit_puts_the_section_back(bs, clock):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(user, section("Builds bridges"))
    clock.advance(60)
    learn(coder, section("Writes Go", "Likes tea"))
    user.revert()
    assert work(coder) == "Builds bridges"
    assert [fact.content for fact in coder.facts()] == ["Likes tea"]


def test_reverting_the_agents_commit_undoes_its_sections_too_and_says_where(bs):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(coder, section("Writes Go", "Likes tea"))
    before = user.head()
    dry = coder.revert(dry_run=True)
    assert [event.after.summary for event in dry.users.events] == [""]
    assert (dry.commit, dry.users.commit, user.head()) == (None, None, before)
    done = coder.revert()
    assert work(coder) == ""
    assert coder.facts() == ()
    assert done.users.commit == user.log()[0].seq
    user.revert(done.users.commit)
    assert work(coder) == "Writes Go"


def test_a_section_rewritten_since_stays_when_the_agents_commit_is_reverted(bs, clock):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(coder, section("Writes Go", "Likes tea"))
    seq = coder.head().seq
    clock.advance(60)
    learn(user, section("Builds bridges"))
    head = user.head()
    done = coder.revert(seq)
    assert [note.section for note in done.users.superseded] == [WORK]
    assert (done.users.commit, user.head(), work(coder)) == (None, head, "Builds bridges")


# What if, and the documents.


def test_what_if_decides_shared_sections_again(bs, clock):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(coder, section("Writes Go", "Likes tea"))
    clock.advance(60)
    learn(coder, section("Writes Go", "Likes cocoa"))
    learn(user, section("Builds bridges"))
    for memory in (coder, user):
        assert memory.what_if().sections == ()
        assert memory.what_if(max_facts=10).added == ()


def test_asking_again_shows_the_sections_of_then_and_leaves_the_users_alone(tmp_path, clock):
    model = ScriptedModel(section("Writes Go", "Likes tea"), section("Writes Rust", "Likes rye"), {"newFacts": []})
    with opened(tmp_path, model=model, clock=clock) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        for number, topic in enumerate(("tea", "rye")):
            coder.record(f"t{number}", exchange(topic))
            coder.extract()
            clock.advance(60)
        head = user.head()
        again = ScriptedModel(section("Sails", "Likes cocoa"), repeat=True)
        found = coder.reextract(again)
        assert found.sections == ()
        assert [fact.content for fact in found.added] == ["Likes cocoa"]
        assert ["Writes Go" in prompt.user for prompt in again.prompts] == [False, True]
        assert (user.head(), work(user)) == (head, "Writes Rust")


def test_an_import_with_an_agent_replaces_its_facts_and_the_users_sections(bs):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    user.add_fact("Is tall")
    learn(coder, section("Writes Go", "Likes tea"))
    document = {
        "user": {"workContext": {"summary": "Bakes bread"}},
        "facts": [{"content": "Likes rye", "confidence": 1}],
    }
    coder.import_document(document, replace=True)
    assert work(user) == work(coder) == "Bakes bread"
    assert [fact.content for fact in coder.facts()] == ["Likes rye"]
    assert [fact.content for fact in user.facts()] == ["Is tall"]


def test_clearing_an_agent_leaves_the_users_sections(bs):
    coder, user = bs.memory("ada", "coder"), bs.memory("ada")
    learn(coder, section("Writes Go", "Likes tea"))
    assert coder.clear().user.work_context.summary == "Writes Go"
    assert coder.facts() == ()
    assert user.clear(all_agents=True).user.work_context.summary == ""
    assert work(coder) == ""


# Homes that have drifted.


def drifted(folder: Path, clock: FakeClock) -> None:
    with opened(folder, clock=clock, shared_summaries=False) as bs:
        learn(bs.memory("ada", "coder"), section("Writes Go", "Likes tea"))
        learn(bs.memory("ada", "coder"), section("The ferry", name="topOfMind"))
        clock.advance(60)
        learn(bs.memory("ada"), section("Builds bridges"))
        clock.advance(60)


def test_a_home_that_has_drifted_is_brought_back_once_by_commits_that_can_be_reverted(tmp_path, clock):
    drifted(tmp_path, clock)
    with opened(tmp_path, clock=clock) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        document = user.document()
        assert document.user.work_context.summary == "Builds bridges"
        assert document.user.top_of_mind.summary == "The ferry"
        assert document.user.top_of_mind.updated_at == "2026-03-01T12:00:00.000000Z"
        assert coder.document().user == document.user
        moved = coder.log()[0]
        assert (moved.cause.kind, moved.cause.action) == ("share", "move")
        assert [type(event) for event in moved.events] == [
            SectionsMoved,
            SummaryUpdated,
            SummaryUpdated,
            SummaryShared,
        ]
        head = coder.head()
        done = coder.revert()
        assert user.document().user.top_of_mind.summary == ""
        assert done.users.commit == user.head().seq
        assert coder.head().seq == head.seq + 1
        assert coder.verify().ok
        assert user.verify().ok
    with opened(tmp_path, clock=clock) as bs:
        # Once is once: what was reverted is not moved again.
        assert bs.memory("ada").document().user.top_of_mind.summary == ""
        assert bs.memory("ada", "coder").head().seq == head.seq + 1
        assert bs.memory("ada", "coder").what_if().sections == ()


def test_a_text_from_before_a_clear_does_not_come_back_from_an_agent(tmp_path, clock):
    drifted(tmp_path, clock)
    with opened(tmp_path, clock=clock, shared_summaries=False) as bs:
        bs.memory("ada").clear()
    with opened(tmp_path, clock=clock) as bs:
        assert bs.memory("ada").document().user.top_of_mind.summary == ""
        assert bs.memory("ada", "coder").document().user.top_of_mind.summary == ""
        assert len(events_of(bs.memory("ada", "coder"), "share")[0]) == 3


# Erasing.


def two_agents(bs: Backstory, clock: FakeClock) -> None:
    """The coder learns of Oslo, the cook restates it in a section that the coder then shows again."""
    coder, cook = bs.memory("ada", "coder"), bs.memory("ada", "cook")
    learn(cook, section("Likes bread"), thread="rye", words="I like rye bread.")
    clock.advance(60)
    learn(coder, section("Likes bread, lives in Oslo", "Moved to Oslo"), thread="move", words="I live in Oslo now.")
    clock.advance(60)
    learn(cook, section("Oslo resident who likes rye bread"), thread="rye", words="Rye it is, with bread.")
    clock.advance(60)


@pytest.mark.parametrize(
    "request_", [{"thread_id": "move"}, {"matching": "oslo"}, {"everything": True}], ids=["thread", "matching", "all"]
)
def test_nothing_that_is_forgotten_of_an_agent_survives_in_any_ledger_of_the_user(tmp_path, clock, request_):
    with opened(tmp_path, clock=clock) as bs:
        two_agents(bs, clock)
        coder, cook, user = bs.memory("ada", "coder"), bs.memory("ada", "cook"), bs.memory("ada")
        listed = coder.forget(**request_, dry_run=True)
        heads = [memory.head() for memory in (coder, cook, user)]
        assert {item.stream for item in listed.redacted} >= {
            "users/ada/ledger",
            "users/ada/agents/coder/ledger",
            "users/ada/agents/cook/ledger",
        }
        assert [memory.head() for memory in (coder, cook, user)] == heads
        done = coder.forget(**request_)
        assert done.redacted == listed.redacted
        assert done.commit == coder.head().seq
        assert work(user) == work(cook) == "Likes bread"
        for memory in (coder, cook, user):
            assert memory.flush()
            assert memory.verify().ok
    assert b"oslo" not in bytes_below(tmp_path).lower()
    with opened(tmp_path, clock=clock) as bs:
        assert work(bs.memory("ada")) == "Likes bread"


def test_what_the_user_forgets_leaves_the_agents_ledgers_too(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        two_agents(bs, clock)
        bs.memory("ada", "coder").forget(thread_id="move")
        user, cook = bs.memory("ada"), bs.memory("ada", "cook")
        learn(user, section("Plays the trombone"), thread="brass", words="I play the trombone.")
        clock.advance(60)
        learn(cook, section("Trombone player, likes rye bread"), thread="rye", words="Bread again.")
        user.forget(thread_id="brass")
        assert work(cook) == "Likes bread"
        assert user.verify().ok
        assert cook.verify().ok
    assert b"trombone" not in bytes_below(tmp_path).lower()


def test_a_text_that_only_the_shared_sections_hold_can_be_forgotten_from_an_agent(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        two_agents(bs, clock)
        other = bs.memory("ada", "painter")
        assert "Oslo" in work(other)
        listed = other.forget(matching="resident", dry_run=True)
        assert other.forget(matching="resident").redacted == listed.redacted
        assert work(other) == "Likes bread, lives in Oslo"
        with pytest.raises(NotFoundError):
            other.forget(matching="resident")
    assert b"resident" not in bytes_below(tmp_path).lower()


def test_a_fact_that_is_forgotten_takes_the_section_that_says_it_along(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        coder = bs.memory("ada", "coder")
        learn(coder, section("Keeps a ferret", "Keeps a ferret"), words="I keep a ferret.")
        (fact,) = coder.facts()
        coder.forget(fact_id=fact.id, with_evidence=True)
        assert work(coder) == ""
    assert b"ferret" not in bytes_below(tmp_path).lower()


def test_a_section_that_was_not_delivered_yet_is_forgotten_before_it_is(tmp_path, clock, monkeypatch):
    with opened(tmp_path, clock=clock) as bs:
        coder = bs.memory("ada", "coder")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharing, "_hand_over", lambda *_: (_ for _ in ()).throw(LockTimeoutError("locked")))
            learn(coder, section("Keeps a ferret"), words="I keep a ferret.")
            coder.forget(thread_id="t1")
        assert work(bs.memory("ada")) == ""
    with opened(tmp_path, clock=clock) as bs:
        assert work(bs.memory("ada")) == ""
    assert b"ferret" not in bytes_below(tmp_path).lower()


def test_a_section_that_comes_after_an_erasure_of_what_it_was_made_on_leaves_the_agents_ledger(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        learn(user, section("Lives in Oslo"), words="I live in Oslo.")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharing, "_hand_over", lambda *_: (_ for _ in ()).throw(LockTimeoutError("locked")))
            learn(coder, section("Fjord city dweller"), words="Tea, please.")
            user.forget(matching="Oslo")
        assert work(user) == ""
        assert work(coder) == ""
        assert user.log()[0].events[-1].reason == "basis"
        assert coder.verify().ok
        assert user.verify().ok
    assert b"fjord" not in bytes_below(tmp_path).lower()


def shared_by(memory: MemoryHandle) -> list[str]:
    return [event.text for entry in memory.log() for event in entry.events if isinstance(event, SummaryShared)]


def test_what_is_erased_of_an_agent_leaves_the_user_though_others_use_its_words(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        coder, cook, user = bs.memory("ada", "coder"), bs.memory("ada", "cook"), bs.memory("ada")
        learn(cook, {"newFacts": []}, thread="pie", words="What does a ferret eat at home?")
        learn(coder, section("Has a ferret at home", "Keeps one ferret"), words="I keep a ferret.")
        (fact,) = coder.facts()
        coder.forget(fact_id=fact.id, with_evidence=True)
        assert shared_by(coder) == []
        assert [e for entry in user.log() for e in entry.events if isinstance(e, SummaryUpdated)] == []
        assert work(user) == ""
        assert user.verify().ok


def test_what_is_erased_of_the_user_leaves_the_agent_that_shared_it_though_others_use_its_words(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        coder, cook, user = bs.memory("ada", "coder"), bs.memory("ada", "cook"), bs.memory("ada")
        learn(coder, {"newFacts": []}, thread="pie", words="What is a trombone?")
        learn(user, section("Plays it"), thread="brass", words="I play the trombone.")
        clock.advance(60)
        learn(cook, section("A trombone at dinner"), thread="rye", words="Bread again.")
        user.forget(thread_id="brass")
        assert shared_by(cook) == []
        assert work(cook) == ""
        assert cook.verify().ok


@pytest.mark.parametrize("request_", [{"thread_id": "boat"}, {"matching": "ferry"}], ids=["thread", "matching"])
@pytest.mark.parametrize("agent", ["coder", None])
def test_a_section_that_was_moved_is_forgotten_in_both_ledgers(tmp_path, clock, agent, request_):
    with opened(tmp_path, clock=clock, shared_summaries=False) as bs:
        learn(bs.memory("ada", "coder"), section("Takes the ferry"), thread="boat", words="I take the ferry.")
        learn(bs.memory("ada", "coder"), section("Old news", name="topOfMind"), thread="news", words="Some old news.")
    with opened(tmp_path, clock=clock) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        assert work(user) == "Takes the ferry"
        if agent is None and "thread_id" in request_:
            with pytest.raises(NotFoundError):
                user.forget(**request_)
            return
        bs.memory("ada", agent).forget(**request_)
        assert work(user) == work(coder) == ""
        assert user.document().user.top_of_mind.summary == "Old news"
        assert coder.verify().ok
        assert user.verify().ok
        left = bytes_below(tmp_path / "users" / "ada" / "agents") if agent else b""
        # What the agent's own conversation says is the agent's to forget.
        said = [t.content for t in coder.transcript("boat")] if agent is None else []
        assert b"ferry" not in left
        assert ("I take the ferry." in said) is (agent is None)
    ledgers = b"".join(file.read_bytes() for file in tmp_path.rglob("ledger.jsonl"))
    assert b"ferry" not in ledgers
