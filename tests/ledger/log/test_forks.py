"""A forked child has none of its parent's threads: it starts over from disk, and waits for none of them."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, Gate, ScriptedModel, Step, exchange, open_home, reply, updater_on

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.concurrency.forks import ForkLock, register
from backstory.ledger.core.commands import AddFact
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import LockTimeoutError, UsageError
from backstory.ledger.core.events import Access, NewFact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.learning.producer import Producer, _Waiting
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.pipeline import PendingCommit
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.ledger.threads.due import Timing

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ADA = Scope("ada")
_LONGEST_SECONDS = 20


def writer_on(home: Path, **settings: object) -> Writer:
    writer = Writer(JsonlStore(home), ADA, clock=FakeClock(), salts=CountingSalts(), **settings)  # type: ignore[arg-type]
    # As the services of a home do for theirs.
    register(writer)
    return writer


def add(writer: Writer, text: str) -> Commit:
    fact = NewFact(place="facts/0", content=text, confidence=0.9)
    return writer.commit(AddFact(at="", fact=fact), Cause(kind="manual", action="add"))


def say(writer: Writer, text: str) -> None:
    writer.record("t", [Kept("user", text)], mode="append")


def use(writer: Writer, mark: str) -> None:
    with writer.state() as state:
        assert state.memory.seq
    before = len(writer.memory().facts)
    say(writer, f"word {mark}")
    add(writer, f"fact {mark}")
    assert len(writer.memory().facts) > before
    assert f"fact {mark}" in facts_in(writer)
    assert f"word {mark}" in said_in(writer)


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(_LONGEST_SECONDS)
        try:
            work()
        except BaseException:  # noqa: BLE001 the exit code tells
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def gone_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


def facts_in(writer: Writer) -> list[str]:
    return sorted(fact.content for fact in writer.memory().facts.values())


def said_in(writer: Writer) -> list[str]:
    with writer.state() as state:
        thread = state.transcript.threads.get("t")
        return [turn.content for turn in thread.turns if turn is not None] if thread is not None else []


def test_children_forked_while_threads_write_go_on_by_themselves(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    done, told, words = threading.Event(), [[], []], [[], []]  # type: ignore[var-annotated]
    add(writer, "fact 0")

    def busy(which: int) -> None:
        n = 0
        while not done.is_set() and n < 40:
            n += 1
            add(writer, f"fact {which}.{n}")
            told[which].append(f"fact {which}.{n}")
            say(writer, f"word {which}.{n}")
            words[which].append(f"word {which}.{n}")

    threads = [threading.Thread(target=busy, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    children = []
    for k in range(6):
        children.append(forked(lambda k=k: use(writer, f"child {k}")))  # type: ignore[misc]
        time.sleep(0)
    well = [gone_well(child) for child in children]
    done.set()
    for thread in threads:
        thread.join()
    assert all(well)
    facts = sorted(["fact 0", *told[0], *told[1], *(f"fact child {k}" for k in range(6))])
    assert facts_in(writer) == facts_in(writer_on(tmp_path)) == facts
    spoken = sorted([*words[0], *words[1], *(f"word child {k}" for k in range(6))])
    assert sorted(said_in(writer)) == sorted(said_in(writer_on(tmp_path))) == spoken
    for stream in (writer.ledger, writer.transcript_stream):
        seqs = [commit.seq for commit in read_commits(writer.store, stream)]
        assert seqs == list(range(1, len(seqs) + 1))


def test_no_lock_that_a_thread_of_the_parent_holds_stops_a_child(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    add(writer, "fact 0")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        pipeline = writer._pipeline
        with pipeline.mutex, pipeline.ledger._mutex, pipeline.transcript._mutex, pipeline.announcing:
            pipeline.ledger._led = pipeline.transcript._led = True
            held.set()
            let_go.wait(_LONGEST_SECONDS)
            pipeline.ledger._led = pipeline.transcript._led = False

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(_LONGEST_SECONDS)
    well = gone_well(forked(lambda: use(writer, "child")))
    let_go.set()
    holder.join()
    assert well
    use(writer, "parent")
    assert facts_in(writer) == ["fact 0", "fact child", "fact parent"]


def test_what_is_decided_and_not_written_is_the_parents_to_write(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    add(writer, "fact 0")
    with writer._mutex:
        writer._pipeline.catch_up(writer._ledger_queue)
        command = AddFact(at="", fact=NewFact(place="facts/0", content="fact 1", confidence=0.9))
        head = writer._state.head
        decided = writer._decided(command, Cause(kind="manual", action="add"), writer.memory(durable=False).at)
        ticket: PendingCommit = writer._append(head, *decided)
        assert gone_well(forked(lambda: _starts_over(writer, ticket)))
    assert not writer._ledger_queue.is_settled(ticket), "the child was quicker"
    add(writer, "fact 1")
    assert facts_in(writer) == facts_in(writer_on(tmp_path)) == ["fact 0", "fact 1", "fact child"]


def _starts_over(writer: Writer, ticket: PendingCommit) -> None:
    assert not writer._ledger_queue.is_settled(ticket)
    assert facts_in(writer) == ["fact 0"]
    add(writer, "fact child")


@pytest.mark.parametrize("first", [True, False])
def test_a_fork_between_deciding_and_writing_lets_the_child_decide_again(tmp_path: Path, *, first: bool) -> None:
    children: list[int] = []

    def heat() -> dict[str, Access]:
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                signal.alarm(_LONGEST_SECONDS)
        return {}

    writer = writer_on(tmp_path, uses=heat, policy={"fact_eviction_policy": "hybrid", "max_facts": 10})
    if not first:
        writer.put_policy_in_force()
    try:
        for n in range(12):
            # The one that finds memory full asks for heat, and is forked there.
            add(writer, f"fact {os.getpid() if children else 0}.{n}")
    except BaseException:
        if children and children[0] == 0:
            os._exit(1)
        raise
    if children[0] == 0:
        os._exit(0 if len(facts_in(writer)) == 10 else 2)
    assert gone_well(children[0])
    assert facts_in(writer) == facts_in(writer_on(tmp_path))
    seqs = [commit.seq for commit in read_commits(writer.store, writer.ledger)]
    assert seqs == [*range(1, 1 + 1 + 10 + 2 * 2)]


def test_a_listener_may_fork_and_the_child_tells_of_its_own_commits_only(tmp_path: Path) -> None:
    told: list[int] = []
    children: list[int] = []

    def listener(scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        told.append(commit.seq)
        if not children:
            children.append(os.fork())

    writer = writer_on(tmp_path, listeners=[listener])
    try:
        add(writer, "fact 0")
        if children[0] == 0:
            signal.alarm(_LONGEST_SECONDS)
            assert told == [1]
            add(writer, "fact child")
            os._exit(0 if told == [1, 3] else 2)
    except BaseException:
        if children and children[0] == 0:
            os._exit(1)
        raise
    assert gone_well(children[0])
    add(writer, "fact 1")
    assert told == [1, 2, 4]
    assert facts_in(writer) == ["fact 0", "fact 1", "fact child"]


class Shop:
    """A producer with workers over one scope; `asked` tells that its model was."""

    def __init__(self, home: Path, *script: Step, min_gap: float = 0, workers: int = 2, start: bool = True) -> None:
        self.clock = FakeClock()
        self.writer = writer_on(home)
        self.asked = threading.Event()
        self.model = ScriptedModel(*script, self._answer, repeat=True)
        self.updater = updater_on(self.clock, min_gap=min_gap)
        self.producer = Producer(self.updater, self.model, timing=Timing(30, 300), workers=workers)
        register(self.updater.model_caller)
        register(self.producer)
        if start:
            self.producer.start()
        self.producer.watch(self.writer)

    def _answer(self, prompt: object) -> str:
        self.asked.set()
        return reply("User likes tea")

    def say(self, thread: str = "t", *, immediate: bool = False) -> None:
        self.writer.record(thread, [Kept("user", "I like tea."), Kept("assistant", "Tea it is.")], mode="append")
        self.producer.notice(self.writer, thread, immediate=immediate)

    def pending(self, thread: str = "t") -> bool:
        with self.writer.state() as state:
            return bool(state.coverage.pending(state.transcript.threads[thread]))


@contextmanager
def held(*locks: AbstractContextManager[object]) -> Iterator[None]:
    """Have another thread hold these."""
    there, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            there.set()
            let_go.wait(_LONGEST_SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert there.wait(PATIENCE)
        yield
    finally:
        let_go.set()
        holder.join()


def workers_here() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("backstory-"))


@pytest.mark.parametrize("warm", [False, True])
def test_a_child_learns_by_itself_with_workers_that_it_starts_when_there_is_something_to_do(
    tmp_path: Path, *, warm: bool
) -> None:
    shop = Shop(tmp_path)
    if warm:
        shop.say("before", immediate=True)
        assert shop.producer.flush(PATIENCE)
        shop.asked.clear()

    def child() -> None:
        assert threading.active_count() == 1, "the fork itself starts nothing"
        shop.say(immediate=True)
        assert workers_here() == ["backstory-learning", "backstory-learning"]
        assert shop.asked.wait(PATIENCE), "nobody learned"
        shop.say("u", immediate=True)
        assert workers_here() == ["backstory-learning", "backstory-learning"], "they are started once"
        assert shop.producer.close(PATIENCE)
        assert workers_here() == []
        assert not shop.pending()
        assert not shop.pending("u")

    assert gone_well(forked(child))
    shop.say("parent", immediate=True)
    assert shop.producer.close(PATIENCE)
    assert not shop.pending("parent")


@pytest.mark.parametrize("first", ["notice", "watch", "flush", "drain"])
def test_the_first_thing_that_a_child_does_starts_its_workers(tmp_path: Path, first: str) -> None:
    shop = Shop(tmp_path)

    def child() -> None:
        first_things: dict[str, Callable[[], object]] = {
            "notice": lambda: shop.producer.notice(shop.writer, "t"),
            "watch": lambda: shop.producer.watch(shop.writer),
            "flush": lambda: shop.producer.flush(PATIENCE),
            "drain": lambda: shop.producer.drain(PATIENCE),
        }
        first_things[first]()
        assert workers_here() == ["backstory-learning", "backstory-learning"]

    assert gone_well(forked(child))
    assert shop.producer.close(PATIENCE)


def test_a_child_hangs_on_no_lock_of_the_producer_that_a_thread_of_the_parent_holds(tmp_path: Path) -> None:
    shop = Shop(tmp_path, workers=1)

    def child() -> None:
        assert shop.producer.depth() == 0
        shop.say(immediate=True)
        assert shop.producer.flush(PATIENCE)
        assert shop.producer.close(PATIENCE)
        assert not shop.pending()

    with held(shop.producer._changed, shop.updater.model_caller._mutex):
        assert gone_well(forked(child))
    assert shop.producer.close(PATIENCE)


def test_what_a_parent_is_at_is_not_what_its_child_is_at(tmp_path: Path) -> None:
    gate = Gate(reply("User likes tea"))
    shop = Shop(tmp_path, gate, workers=1)
    shop.say(immediate=True)
    assert gate.entered.wait(PATIENCE)

    def child() -> None:
        # It would wait for the parent's worker, which is not there.
        with shop.producer.claim(shop.writer, "t"):
            pass

    def other() -> None:
        shop.say("u", immediate=True)
        assert shop.producer.close(PATIENCE), "it waited for its parent"
        assert not shop.pending("u")
        assert shop.pending("t"), "that is the parent's"

    try:
        assert gone_well(forked(other))
        assert gone_well(forked(child))
    finally:
        gate.opened.set()
    assert shop.producer.close(PATIENCE)
    assert not shop.pending()


def test_what_waited_in_the_parent_waits_in_the_child_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.say()
    # Where the parent found it at another process, it is the parent that looks again later.
    waiting = shop.producer._waiting[shop.writer.scope, "t"]
    waiting.elsewhere_until = time.monotonic() + 10 * PATIENCE

    def child() -> None:
        assert shop.producer.depth() == 0
        assert shop.producer.flush(PATIENCE)
        assert not shop.pending()

    assert gone_well(forked(child))
    waiting.elsewhere_until = 0.0
    assert shop.producer.close(PATIENCE)
    assert len(shop.model.prompts) == 0, "the child was first, and nothing is learned twice"


def test_a_reminder_that_was_half_made_when_the_parent_was_forked_does_no_harm(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.producer._waiting[shop.writer.scope, "t"] = _Waiting(shop.writer)

    def child() -> None:
        assert shop.producer._waiting == {}
        shop.say("u")
        assert shop.producer.close(PATIENCE)
        assert not shop.pending("u")

    assert gone_well(forked(child))
    shop.producer._waiting.clear()
    assert shop.producer.close(PATIENCE)


def test_a_child_that_did_nothing_closes_at_once_and_leaves_its_parents_words_to_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.say()

    def child() -> None:
        begun = time.monotonic()
        assert shop.producer.close(10 * PATIENCE)
        assert time.monotonic() - begun < PATIENCE
        assert not shop.asked.is_set()
        assert workers_here() == []

    assert gone_well(forked(child))
    assert shop.pending()
    assert shop.producer.close(PATIENCE)
    assert not shop.pending()


def test_a_child_starts_no_workers_where_its_parent_had_none(tmp_path: Path) -> None:
    shop = Shop(tmp_path, start=False)

    def child() -> None:
        shop.say()
        assert workers_here() == []
        assert shop.producer.flush(PATIENCE), "it is learned from in the caller's thread"
        assert not shop.pending()
        assert workers_here() == []

    assert gone_well(forked(child))


def test_a_child_of_a_parent_that_has_closed_starts_no_workers(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.producer.close(PATIENCE)

    def child() -> None:
        shop.say()
        assert workers_here() == []
        assert shop.updater.model_caller.stopped
        shop.producer.close(PATIENCE)
        assert shop.pending()

    assert gone_well(forked(child))


@pytest.mark.parametrize("used", [False, True])
def test_the_child_of_a_child_learns_as_well(tmp_path: Path, *, used: bool) -> None:
    shop = Shop(tmp_path)

    def grandchild() -> None:
        assert workers_here() == []
        shop.asked.clear()
        shop.say("grandchild", immediate=True)
        assert shop.asked.wait(PATIENCE)
        assert shop.producer.close(PATIENCE)

    def child() -> None:
        if used:
            shop.say("child", immediate=True)
            assert shop.producer.flush(PATIENCE)
        assert gone_well(forked(grandchild))
        assert shop.producer.close(PATIENCE)

    assert gone_well(forked(child))
    assert not shop.pending("grandchild")
    assert shop.producer.close(PATIENCE)


def test_where_no_thread_may_start_a_child_records_and_learns_when_it_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def child() -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        shop.say()
        assert shop.producer.close(PATIENCE)
        assert not shop.pending()

    assert gone_well(forked(child))
    assert shop.producer.close(PATIENCE)


def test_the_haste_of_a_parents_threads_is_not_the_childs(tmp_path: Path) -> None:
    shop = Shop(tmp_path, min_gap=5, workers=1)
    asking = shop.updater.model_caller

    def child(naps: list[float]) -> None:
        shop.say("t")
        shop.say("u")
        assert shop.producer.flush(PATIENCE)
        assert shop.clock.slept == naps

    with held(asking.hurrying(), asking.hurrying()):
        assert gone_well(forked(lambda: child([5])))
        with asking.hurrying():
            assert gone_well(forked(lambda: child([])))
    assert shop.producer.close(PATIENCE)


def test_a_home_opened_before_a_fork_learns_in_the_child(tmp_path: Path) -> None:
    model = ScriptedModel(reply("User likes tea"), repeat=True)
    home = open_home(tmp_path, model, background=True, debounce_seconds=1)
    home.memory("ada")

    def child() -> None:
        for user in ("ada", "bob"):
            home.memory(user).record("t", exchange("tea"), immediate=True)
            assert home.memory(user).flush(PATIENCE)
            assert [fact.content for fact in home.memory(user).facts()] == ["User likes tea"]
        home.close()
        with pytest.raises(UsageError, match="closed"):
            home.memory("ada")

    with held(home._mutex):
        assert gone_well(forked(child))
    assert [fact.content for fact in home.memory("bob").facts()] == ["User likes tea"]
    home.close()


def test_a_child_forked_while_its_parent_closes_a_home_closes_it_for_itself(tmp_path: Path) -> None:
    home = open_home(tmp_path, ScriptedModel(reply("User likes tea"), repeat=True), background=True)
    gate = Gate("")
    closing = threading.Thread(target=home.close)
    home._services.outbox.close = lambda timeout: bool(gate(None))  # type: ignore[method-assign,arg-type]
    closing.start()
    assert gate.entered.wait(PATIENCE)

    def child() -> None:
        gate.opened.set()
        home.memory("ada").record("t", exchange("tea"))
        home.close()
        with pytest.raises(UsageError, match="closed"):
            home.memory("ada")
        home.close()

    well = gone_well(forked(child))
    gate.opened.set()
    closing.join()
    assert well
    with open_home(tmp_path) as again:
        assert [fact.content for fact in again.memory("ada").facts()] == ["User likes tea"]

    assert gone_well(forked(home.close)), "one that was closed stays so"


def test_a_fork_lock_that_another_thread_holds_is_free_in_a_child() -> None:
    lock = ForkLock()

    def child() -> None:
        with lock:
            pass

    with held(lock):
        assert gone_well(forked(child))


def test_a_fork_lock_that_the_forking_thread_holds_is_its_own_to_give_back() -> None:
    lock = ForkLock()
    with lock:
        child = forked(lambda: lock.__exit__() or lock.__enter__())
    assert gone_well(child)


def test_a_child_that_leaves_a_file_lock_leaves_it_to_its_parent(tmp_path: Path) -> None:
    locks, path = FileLocks(0, SystemClock(), tidy=True), str(tmp_path / "a.lock")
    others = FileLocks(0, SystemClock())

    def child() -> None:
        with pytest.raises(LockTimeoutError), locks.held(path):
            pass

    def leave() -> None:
        within.__exit__(None, None, None)
        with pytest.raises(LockTimeoutError), others.held(path):
            pass

    within = locks.held(path)
    with within, held(locks._guard):
        assert gone_well(forked(child))
        assert gone_well(forked(leave))
        with pytest.raises(LockTimeoutError), others.held(path):
            pass


def test_one_object_that_cannot_begin_anew_does_not_keep_the_others_from_it(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def renew(self) -> None:
            raise ValueError

    broken = Broken()
    register(broken)
    lock = ForkLock()

    def child() -> None:
        with lock:
            pass
        assert "Broken could not begin anew" in caplog.text

    with held(lock):
        assert gone_well(forked(child))


def test_a_home_names_every_service_that_begins_anew(tmp_path: Path) -> None:
    settings = {"witness": str(tmp_path / "heads.jsonl")}
    with open_home(tmp_path / "home", ScriptedModel(reply("")), background=True, **settings) as bs:  # type: ignore[arg-type]
        services = bs._services
        parts = list(services.parts())
        held_by = dict(vars(services))
        for value in list(held_by.values()):
            held_by.update(getattr(value, "__dict__", {}))
        for name, value in held_by.items():
            if callable(getattr(value, "renew", None)) and not isinstance(value, ForkLock | FileLocks):
                assert any(part is value for part in parts), f"{name} would wait for threads of its parent"


def test_few_things_register_for_forks() -> None:
    root = Path(__file__).parents[3]
    found = [
        path.relative_to(root).as_posix()
        for folder in ("ledger", "projections", "backstory")
        for path in sorted((root / folder).rglob("*.py"))
        if "backstory/ledger" not in str(path) and "backstory/projections" not in str(path)
        if re.search(r"^ *register\(\w+\)$", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(set(found)) == [
        "backstory/services/home_services.py",
        "ledger/concurrency/forks.py",
        "ledger/disk/locks.py",
        "ledger/engines/nats/store.py",
        "ledger/engines/postgres/store.py",
    ]
