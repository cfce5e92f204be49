"""The Python door: what a host may count on."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys

import msgspec
import pytest
from fakes import FakeClock, ScriptedModel, exchange, open_home, reply

from backstory import Backstory
from backstory.ledger.core.errors import (
    CapError,
    ConfigError,
    CorruptLogError,
    DuplicateFactError,
    InputError,
    NoModelError,
    NotFoundError,
    ScopeError,
    StoreError,
    UsageError,
)
from backstory.ledger.core.events import CandidateRejected, PolicyChanged
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.openai import OpenAIModel
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log.reader import Reader
from backstory.projections.document.document import render


@pytest.fixture
def home(tmp_path):
    with open_home(tmp_path) as bs:
        yield bs


@pytest.fixture
def memory(home):
    return home.memory("ada")


def learn(memory, thread, *facts, **more):
    memory.record(thread, exchange(thread, memory.status().turns + 1))
    return memory.extract([RecordedReply(thread, reply(*facts, **more))])


@pytest.mark.parametrize(("engine", "questions"), [({}, 3), ({"storage_class": "doubles.other_engine:OtherEngine"}, 1)])
def test_an_engine_that_does_not_answer_is_asked_once_what_waits(tmp_path, monkeypatch, engine, questions):
    asked = []

    def stand(*_: object) -> None:
        asked.append(_)
        raise StoreError("no answer")

    with open_home(tmp_path, **engine) as bs:
        memories = [bs.memory(user) for user in ("ada", "bob", "eve")]
        for memory in memories:
            memory.record("t", exchange("tea"))
        assert bs.waiting() == (3, 0)
        with monkeypatch.context() as patched:
            patched.setattr(Reader, "standing", stand)
            assert bs.waiting() == (0, 0)
        assert len(asked) == questions


def test_without_a_model_recording_works_and_nothing_is_tried(memory):
    assert memory.record("t1", exchange("tea")).turns == 2
    flushed = memory.flush()
    assert not flushed
    assert "OPENAI_API_KEY" in flushed.reason
    assert [(p.thread, p.turns) for p in memory.status().pending] == [("t1", 2)]
    with pytest.raises(NoModelError, match="OPENAI_API_KEY"):
        memory.extract()
    memory.extract([RecordedReply("t1", reply())])
    assert memory.extract().updates == 0


def test_a_function_a_chat_model_and_a_model_object_are_asked_alike(tmp_path):
    class Chat:
        model_name = "chat-1"

        def invoke(self, messages):
            assert [role for role, _ in messages] == ["system", "human"]
            return type("Message", (), {"content": reply("from chat")})()

    def function(messages):
        assert [m["role"] for m in messages] == ["system", "user"]
        return reply("from function")

    for number, (model, name, text) in enumerate(
        [
            (Chat(), "chat-1", "from chat"),
            (function, "function", "from function"),
            (ScriptedModel(reply("from script")), "scripted", "from script"),
        ]
    ):
        with open_home(tmp_path / str(number), model) as bs:
            memory = bs.memory("ada")
            memory.record("t", exchange("tea"))
            assert memory.extract().failed == 0
            assert [fact.content for fact in memory.facts()] == [text]
            assert memory.log()[0].cause.model == name


def test_tokens_are_counted_as_those_of_a_block(tmp_path):
    with Backstory.open(tmp_path, config={"token_counting": "char"}) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada likes 嗨 and tea")
        block = memory.context()
        assert bs.count_tokens(block.text) == block.tokens > 0
        assert bs.count_tokens("") == 0
        with pytest.raises(UsageError, match="text must be a string"):
            bs.count_tokens(3)
    with pytest.raises(UsageError, match="closed"):
        bs.count_tokens("x")


def test_memory_json_lies_where_the_contract_says(tmp_path, home):
    for scope in (Scope(), Scope("ada"), Scope(None, "Coder"), Scope("ada", "Coder")):
        handle = home.memory_of(scope)
        handle.add_fact("x")
        handle.flush()
    for place in ("", "users/ada", "agents/Coder", "users/ada/agents/Coder"):
        folder = tmp_path / place
        assert {"memory.json", "ledger.jsonl"} <= {path.name for path in folder.iterdir()}


def test_with_fallback_an_agent_reads_its_users_memory_until_it_has_its_own_and_never_writes_there(tmp_path):
    with open_home(tmp_path, agent_reads="fallback") as home:
        user, agent = home.memory("ada"), home.memory("ada", "coder")
        user.add_fact("Ada's own")
        assert [fact.content for fact in agent.facts()] == ["Ada's own"]
        assert agent.why(agent.facts()[0].id).live
        with pytest.raises(NotFoundError):
            agent.remove_fact(agent.facts()[0].id)
        agent.add_fact("the agent's")
        assert [fact.content for fact in agent.facts()] == ["the agent's"]
        assert [fact.content for fact in user.facts()] == ["Ada's own"]


def test_scopes_tells_everyone_also_who_has_only_spoken(home):
    odd = "Ada/../💡" + "x" * 300
    home.memory(odd).record("t", exchange("tea"))
    home.memory("ada", "coder").add_fact("x")
    home.memory(scope="global").add_fact("y")
    assert {(s.user, s.agent, s.seq, s.facts) for s in home.scopes()} == {
        (odd, None, 0, 0),
        ("ada", "coder", 2, 1),
        (None, None, 2, 1),
    }


def test_a_user_can_be_required(tmp_path):
    with open_home(tmp_path, strict_user_scope=True) as bs:
        with pytest.raises(ScopeError, match="strict_user_scope"):
            bs.memory(scope="global")
        assert bs.memory("ada").facts() == ()


def test_a_refused_fact_is_an_error_and_on_record(memory):
    first = memory.add_fact("Ada runs")
    with pytest.raises(DuplicateFactError) as caught:
        memory.add_fact("ada RUNS.")
    assert caught.value.fact_id == first.fact.id
    assert caught.value.seq == memory.head().seq
    assert any(isinstance(event, CandidateRejected) for event in memory.log(limit=1)[0].events)


def test_a_memory_full_of_facts_by_hand_takes_no_more(memory):
    for n in range(10):
        memory.add_fact(f"fact {n}")
    memory.set_policy(max_facts=10)
    with pytest.raises(CapError):
        memory.add_fact("one more")
    assert len(memory.facts()) == 10


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.add_fact("  "), UsageError),
        (lambda m: m.add_fact("x", category=" "), UsageError),
        (lambda m: m.add_fact("x", confidence=1.5), UsageError),
        (lambda m: m.add_fact("x", confidence="0.5"), UsageError),
        (lambda m: m.set_policy(max_facts=True), ConfigError),
        (lambda m: m.add_fact("x", confidence=float("nan")), UsageError),
        (lambda m: m.edit_fact("fact_9_9", content="x"), NotFoundError),
        (lambda m: m.edit_fact("fact_9_9"), UsageError),
        (lambda m: m.remove_fact("fact_9_9"), NotFoundError),
        (lambda m: m.why("fact_9_9"), NotFoundError),
        (lambda m: m.why(""), NotFoundError),
        (lambda m: m.document(at="soon"), UsageError),
        (lambda m: m.document(at=99), NotFoundError),
        (lambda m: m.document(at="9" * 5000), UsageError),
        (lambda m: m.revert("9" * 5000), UsageError),
        (lambda m: m.revert("2026-01-01"), UsageError),
        (lambda m: m.document(at=-1), UsageError),
        (lambda m: m.revert(99), NotFoundError),
        (lambda m: m.revert(1), UsageError),
        (lambda m: m.revert("x"), UsageError),
        (lambda m: m.rollback(99), NotFoundError),
        (lambda m: m.diff(0, 99), NotFoundError),
        (lambda m: m.transcript("nowhere"), NotFoundError),
        (lambda m: m.discard("nowhere"), NotFoundError),
        (lambda m: m.what_if(luck=1), ConfigError),
        (lambda m: m.set_policy(max_facts=0), ConfigError),
        (lambda m: m.set_policy(luck=1), ConfigError),
        (lambda m: m.import_document([1]), InputError),
        (lambda m: m.import_document({"facts": {}}), InputError),
        (lambda m: m.record("t", [{"role": "user"}, {"content": "x"}]), InputError),
        (lambda m: m.record("", exchange("x")), UsageError),
        (lambda m: m.record(5, exchange("x")), UsageError),
        (lambda m: m.record("x" * 513, exchange("x")), UsageError),
        (lambda m: m.record("t", exchange("x"), mode="both"), UsageError),
    ],
)
def test_wrong_use_is_told_and_writes_nothing(memory, call, error):
    memory.add_fact("there is something")
    before = memory.status()
    with pytest.raises(error):
        call(memory)
    assert memory.status() == before


def test_the_twins_do_the_same(memory):
    async def story():
        await memory.arecord("t", exchange("tea"))
        await memory.aextract([RecordedReply("t", reply("Ada likes tea"))])
        added = await memory.aadd_fact("Ada runs")
        await memory.arevert(added.commit)
        return await memory.afacts()

    assert [fact.content for fact in asyncio.run(story())] == ["Ada likes tea"]


def test_a_document_exported_and_imported_elsewhere_says_the_same(home, memory):
    learn(memory, "t1", "Ada likes tea")
    memory.add_fact("Ada runs")
    other = home.memory("bob")
    other.import_document(memory.document())
    told = [(f.id, f.content, f.created_at, f.source, f.by_hand) for f in other.facts()]
    # Born in another commit, and otherwise the same.
    assert [row[1:] for row in told] == [(f.content, f.created_at, f.source, f.by_hand) for f in memory.facts()]
    again = json.loads(msgspec.json.encode(memory.document()))
    before = memory.facts()
    memory.import_document(again)
    memory.import_document(again, replace=True)
    assert memory.facts() == before


def test_memory_json_is_exact_after_a_flush_and_readable_by_deerflow(tmp_path, home, memory):
    learn(memory, "t1", "用户喜欢 Rust")
    memory.flush()
    path = tmp_path / "users/ada/memory.json"
    document = json.loads(path.read_bytes())
    assert list(document) == ["version", "lastUpdated", "user", "history", "facts"]
    assert "用户喜欢 Rust".encode() in path.read_bytes()
    assert set(document["facts"][0]) == {"id", "content", "category", "confidence", "createdAt", "source"}
    assert path.read_bytes() == render(memory._services.writer.memory())
    assert document["lastUpdated"] == memory.log()[0].at


def test_a_commit_that_changes_nothing_leaves_last_updated(memory):
    learn(memory, "t1", "Ada runs")
    before = memory.document()
    learn(memory, "t2", "ada runs.")
    assert memory.head().seq == 3
    assert memory.document() == before


def test_configuration_puts_a_policy_in_force_once_and_a_hand_may_overrule_it(tmp_path):
    with open_home(tmp_path, max_facts=20) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("x")
        assert memory.set_policy(max_facts=30).policy.max_facts == 30
    with open_home(tmp_path, max_facts=20) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("y")
        assert memory.policy().policy.max_facts == 30
    with open_home(tmp_path, max_facts=40) as bs:
        memory = bs.memory(scope="global")
        assert memory.policy().policy.max_facts == 30
        memory.add_fact("z")
        assert memory.policy().policy.max_facts == 40
        changes = [e for entry in memory.log() for e in entry.events if isinstance(e, PolicyChanged)]
        assert [(e.after.max_facts, e.source) for e in changes] == [(40, "config"), (30, "manual"), (20, "config")]


def test_two_homes_open_at_once_see_each_others_commits(tmp_path):
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as one, open_home(tmp_path, clock=clock) as two:
        one.memory("ada").add_fact("from one")
        two.memory("ada").add_fact("from two")
        one.memory("ada").add_fact("from one again")
        contents = [fact.content for fact in two.memory("ada").facts()]
        assert contents == ["from one", "from two", "from one again"]
        assert one.memory("ada").verify().ok


def test_the_last_of_a_clock_set_back_still_comes_last(tmp_path):
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as bs:
        memory = bs.memory(scope="global")
        memory.add_fact("before")
        clock.advance(-365 * 86_400)
        memory.add_fact("after")
        times = [entry.at for entry in reversed(memory.log())]
        assert times == sorted(times)


def test_a_clock_set_back_puts_nothing_off_for_longer_than_the_debounce(tmp_path):
    clock = FakeClock()
    with open_home(tmp_path, clock=clock, debounce_seconds=30) as bs:
        memory = bs.memory(scope="global")
        memory.record("t", exchange("tea"))
        clock.advance(-365 * 86_400)
        assert memory.status().pending[0].due_in <= 30


def test_a_ledger_exchanged_for_another_of_the_same_length_is_noticed(tmp_path):
    with open_home(tmp_path / "a") as one, open_home(tmp_path / "b") as two:
        ours, other = one.memory(scope="global"), two.memory(scope="global")
        ours.add_fact("ours")
        other.add_fact("theirs")
        (tmp_path / "b" / "ledger.jsonl").replace(tmp_path / "a" / "ledger.jsonl")
        with pytest.raises(CorruptLogError, match="exchanged"):
            ours.facts()


def test_a_log_laid_in_anothers_folder_is_not_believed(tmp_path):
    with open_home(tmp_path) as bs:
        bs.memory("ada").record("t", exchange("tea"))
        bs.memory("ada").add_fact("Ada's")
    (tmp_path / "users" / "ada").rename(tmp_path / "users" / "bob")
    with open_home(tmp_path) as bs:
        with pytest.raises(CorruptLogError, match="the log of user ada, not of user bob"):
            bs.memory("bob").facts()
        with pytest.raises(CorruptLogError, match="the log of user ada"):
            bs.memory("bob").status()


def test_a_second_agent_whose_name_differs_in_case_is_refused_where_both_have_one_folder(tmp_path):
    """The renamed folder stands for a file system that ignores case."""
    with open_home(tmp_path) as bs:
        bs.memory("ada", "Coder").add_fact("Coder's")
        bs.memory("ada", "coder").add_fact("coder's")
        assert [fact.content for fact in bs.memory("ada", "Coder").facts()] == ["Coder's"]
    agents = tmp_path / "users" / "ada" / "agents"
    (agents / "coder").rename(tmp_path / "away")
    (agents / "Coder").rename(agents / "coder")
    with open_home(tmp_path) as bs, pytest.raises(CorruptLogError, match="spell the name as it was first"):
        bs.memory("ada", "coder").add_fact("more")


def test_a_policy_that_cannot_be_leaves_an_empty_home_empty(tmp_path):
    with open_home(tmp_path / "new") as bs:
        with pytest.raises(ConfigError):
            bs.memory(scope="global").set_policy(max_facts=0)
        assert bs.memory(scope="global").head().seq == 0


def test_a_memory_without_commits_shows_the_policy_that_its_first_commit_records(tmp_path):
    with open_home(tmp_path / "new", max_facts=12, fact_confidence_threshold=0.55) as bs:
        memory = bs.memory("ada")
        before = memory.policy()
        assert (before.policy.max_facts, before.configured.fact_confidence_threshold) == (12, 0.55)
        assert memory.status().max_facts == 12
        assert memory.head().seq == 0
        memory.add_fact("likes tea")
        after = memory.policy()
        assert (after.policy, after.configured) == (before.policy, before.configured)


def test_opening_is_lazy_and_leaves_no_trace(tmp_path):
    with Backstory.open(tmp_path / "new", background=False) as bs:
        assert bs.memory("ada").facts() == ()
        assert bs.scopes() == ()
        assert bs.memory("ada").verify().ok
    assert not (tmp_path / "new").exists()


def test_a_closed_home_says_so_and_closing_it_again_does_nothing(tmp_path):
    bs = open_home(tmp_path, ScriptedModel(reply("Ada likes tea")))
    memory = bs.memory("ada")
    memory.record("t", exchange("tea"))
    bs.close()
    bs.close()
    for use in (
        memory.extract,
        lambda: memory.record("t", exchange("coffee")),
        lambda: memory.add_fact("runs"),
        memory.facts,
        memory.flush,
        memory.status,
        lambda: bs.memory("ada"),
        bs.scopes,
        bs.owners,
    ):
        with pytest.raises(UsageError, match="was closed: open it again"):
            use()
    assert memory.scope.user == "ada"
    with open_home(tmp_path) as again:
        assert again.memory("ada").status().turns == 2


def test_a_home_that_is_about_to_end_learns_from_all_that_is_pending(tmp_path):
    asked = ScriptedModel(reply("Likes tea"), repeat=True)
    with open_home(tmp_path, model=asked, background=True) as bs:
        for user in ("ada", "bob"):
            bs.memory(user).record("t", exchange("tea"))
        assert bs.flush()
        assert [fact.content for user in ("ada", "bob") for fact in bs.memory(user).facts()] == ["Likes tea"] * 2
    with open_home(tmp_path) as bs:
        assert bs.flush()


def test_closing_closes_the_connections_it_opened_and_no_others(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(OpenAIModel, "close", lambda model: closed.append(model.name))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with open_home(tmp_path, OpenAIModel("mine")):
        pass
    assert closed == []
    with open_home(tmp_path, "ours") as bs:
        pass
    bs.close()
    assert closed == ["ours"]


def test_a_scope_that_nobody_holds_any_more_is_let_go_of(tmp_path, monkeypatch):
    monkeypatch.setattr("backstory.scope_state._RECENT", 3)
    with open_home(tmp_path) as bs:
        for number in range(20):
            bs.memory(f"user-{number}").record("t", exchange("tea"))
        held = bs.memory("held")
        gc.collect()
        assert {state.scope.user for state in bs._services.states.living()} == {"held", "user-18", "user-19"}
        assert bs.memory("user-19")._services.own is bs.memory("user-19")._services.own
        for number in range(20):
            bs.memory(f"user-{number}")
        gc.collect()
        assert bs.memory("held")._services.writer is held._services.writer


def test_a_scope_whose_memory_json_is_not_written_yet_is_not_let_go_of(tmp_path, monkeypatch):
    monkeypatch.setattr("backstory.scope_state._RECENT", 1)
    with open_home(tmp_path) as bs:
        bs._services.states.projector._delay = 3600
        for number in range(5):
            bs.memory(f"user-{number}").add_fact("runs")
    for number in range(5):
        assert b"runs" in (tmp_path / f"users/user-{number}/memory.json").read_bytes()


def test_listing_scopes_keeps_none_of_them(tmp_path):
    with open_home(tmp_path) as bs:
        for number in range(5):
            bs.memory(f"user-{number}").add_fact("runs")
    with open_home(tmp_path) as bs:
        assert [(s.user, s.seq, s.facts) for s in bs.scopes()] == [(f"user-{number}", 2, 1) for number in range(5)]
        assert bs._services.states.living() == []


HEAVY = {
    "asyncio",
    "httpx",
    "markdown_it",
    "openai",
    "pydantic",
    "pygments",
    "rich",
    "sqlite3",
    "tenacity",
    "tiktoken",
    "typer",
    "yaml",
}


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import backstory", set()),
        ("from backstory import Backstory", {"asyncio", "pydantic"}),
        ("from backstory.cli.app import app", {"typer"}),
    ],
)
def test_what_is_slow_to_load_is_loaded_when_it_is_needed(statement, allowed):
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert HEAVY & set(loaded) <= allowed
    if statement == "import backstory":
        assert {name for name in loaded if name.startswith(("backstory.", "ledger", "projections"))} == set()


def test_recorded_replies_may_be_plain_mappings_and_nothing_else(tmp_path):
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        assert memory.extract([{"thread_id": "t", "reply": {"newFacts": [{"content": "x1", "confidence": 1}]}}]).updates
        assert [fact.content for fact in memory.facts()] == ["x1"]
        with pytest.raises(InputError, match="thread_id"):
            memory.extract([{"thread": "t"}])
        with pytest.raises(InputError, match="thread_id"):
            memory.extract(["a text"])


@pytest.mark.parametrize("learned", ["nothing recorded", "recorded", "only a genesis"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_reverting_the_head_before_anything_was_learned_says_what_to_do_first(memory, learned, dry_run):
    if learned != "nothing recorded":
        memory.record("t", exchange("I live in Oslo"))
    if learned == "only a genesis":
        memory._services.writer.put_policy_in_force()
        assert memory.head().seq == 1
    before = memory.head()
    with pytest.raises(NotFoundError, match=r"nothing was learned yet.*`record` a conversation and `extract` it first"):
        memory.revert("HEAD", dry_run=dry_run)
    assert memory.head() == before


def test_some_users_are_found_without_a_list_of_all(home, monkeypatch):
    for user in ("ada", "bob", "cy"):
        home.memory(user).add_fact("x")
    home.memory("bob", "coder").add_fact("x")
    monkeypatch.setattr(type(home.store), "folders", None)
    found = home.find_owners(users=["bob", "ada", "nobody"])
    assert [owner.folder for owner in found.owners] == ["users/ada", "users/bob", "users/bob/agents/coder"]
    assert found.users == 2
    assert [owner.user for owner in home.find_owners("b", users=["bob", "ada"]).owners] == ["bob", "bob"]


def test_what_is_printed_while_one_tries_things_is_short(tmp_path) -> None:
    with Backstory.open(tmp_path, background=False) as bs:
        memory = bs.memory("ada")
        fact = memory.add_fact("Ada likes tea").fact
        block = memory.context("What does Ada drink?")
        assert f"{block}" == str(block) == block.text != ""
        assert repr(bs) == f"<Backstory at {tmp_path}>"
        assert repr(memory) == "<MemoryHandle of user ada>"
        assert repr(fact).startswith("Fact(id='fact_2_0', content='Ada likes tea', category='context', confidence=0.9,")
        assert "tokens" not in repr(memory.why(fact.id))


def test_a_home_is_closed_at_the_end_of_an_asynchronous_block(tmp_path) -> None:
    async def use() -> Backstory:
        async with Backstory.open(tmp_path, background=False) as bs:
            await bs.memory("ada").aadd_fact("Ada likes tea")
        return bs

    bs = asyncio.run(use())
    with pytest.raises(UsageError, match="was closed"):
        bs.memory("ada").facts()
