"""`forget_user`: a user is gone altogether, in this process, in others, and after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home, reply
from sizes import LONG

from backstory.home import Backstory
from backstory.ledger.core.errors import (
    ConflictError,
    CorruptLogError,
    LockTimeoutError,
    NotFoundError,
    ScopeError,
    StoreError,
)
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.locks import FileLocks
from backstory.ledger.engines.jsonl import removal
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.model import Answer
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle
from backstory.operations import undoing
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.projections.index.index import ScopeIndex
from backstory.projections.index.index_file import IndexFile
from backstory.testing.lines import chain

SECRET = "secretive"  # noqa: S105 a name
"""The name of the user, which must be nowhere afterwards."""


def fill(bs: Backstory, user: str = SECRET) -> None:
    memory = bs.memory(user)
    memory.record("t", exchange("tea"))
    memory.extract([RecordedReply("t", reply("Likes tea"))])
    memory.add_fact("Lives in Oslo")
    memory.forget(matching="Oslo")
    memory.search("tea")
    memory.search("tea", within="turns")
    memory.context("tea")
    memory.touch(*(fact.id for fact in memory.facts()))
    memory.record("pending", exchange("rye"))
    bs.memory(user, "coder").add_fact("Writes Rust")
    bs.faults.note(Scope(user), "search", StoreError("x"))
    memory.flush(0.1)


def traces(home: Path) -> list[str]:
    """Paths with the user's name, and files that hold it or what the user said."""
    found = [str(path) for path in home.rglob("*") if SECRET in path.name]
    words = (SECRET.encode(), b"tea", b"Rust", b"rye")
    files = (path for path in home.rglob("*") if path.is_file())
    return found + [str(path) for path in files if any(word in path.read_bytes() for word in words)]


def reads(memory: MemoryHandle) -> None:
    """Everything that a running agent asks, of an empty memory."""
    assert memory.facts() == ()
    assert memory.document().facts == ()
    assert memory.search("tea").hits == ()
    assert memory.search("tea", within="turns").hits == ()
    assert "tea" not in memory.context("tea").text
    assert memory.threads() == ()
    assert memory.log() == ()
    assert memory.status().pending == ()
    assert memory.turns.get() == []
    assert memory.head().seq == 0
    assert memory.verify().ok
    assert memory.why_not("tea") == ()
    with pytest.raises(NotFoundError):
        memory.why("fact_2_0")


def test_nothing_of_the_user_is_left(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
        bs.memory("bob").add_fact("Likes coffee")
        for agent in (None, "coder"):
            # memory.json follows a commit in the background, and is counted.
            bs.memory(SECRET, agent).flush()
        planned = bs.forget_user(SECRET, dry_run=True)
        assert traces(tmp_path)
        done = bs.forget_user(SECRET)
        assert done == planned
        assert [(one.user, one.agent, one.facts) for one in done.scopes] == [(SECRET, "coder", 1), (SECRET, None, 1)]
        assert done.files > 6
        assert traces(tmp_path) == []
        assert [scope.user for scope in bs.scopes()] == ["bob"]
        assert [fact.content for fact in bs.memory("bob").facts()] == ["Likes coffee"]
    assert traces(tmp_path) == []
    assert {path.name for path in (tmp_path / "users").iterdir()} == {"bob"}


def test_what_stays_is_a_mark_without_a_name(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
        head = bs.memory(SECRET).head()
        bs.forget_user(SECRET)
    marks = [json.loads(path.read_bytes()) for path in (tmp_path / "removed").iterdir()]
    assert sorted(mark["kind"] for mark in marks) == ["ledger", "ledger", "transcript"]
    assert {"seq": head.seq, "hash": head.hash} in [mark["head"] for mark in marks]


def test_handles_go_on_with_an_empty_memory_and_a_new_log(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
        memory, agent = bs.memory(SECRET), bs.memory(SECRET, "coder")
        bs.forget_user(SECRET)
        for handle in (memory, agent):
            reads(handle)
        assert traces(tmp_path) == []
        memory.record("t", exchange("coffee"))
        assert [turn.content for turn in memory.transcript("t")] == [m["content"] for m in exchange("coffee")]
        memory.add_fact("Likes coffee")
        assert [fact.content for fact in agent.facts()] == ["Likes coffee"]
        assert memory.log()[-1].cause.kind == "genesis"
        assert memory.verify().ok


def test_forgetting_again_finds_nobody(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        for dry_run in (True, False):
            with pytest.raises(NotFoundError, match="no user ada"):
                bs.forget_user("ada", dry_run=dry_run)
        bs.memory("ada").add_fact("x")
        bs.forget_user("ada")
        with pytest.raises(NotFoundError):
            bs.forget_user("ada")
        bs.memory("ada").add_fact("y")
        assert bs.forget_user("ada").scopes[0].facts == 1
        for wrong in (None, "", True):
            with pytest.raises(ScopeError):
                bs.forget_user(wrong)  # type: ignore[arg-type]
    assert list((tmp_path / "users").iterdir()) == []


class Elsewhere:
    """Another process with a handle on the user's memory; it runs lines of code on demand."""

    CODE = (
        "import sys, traceback\n"
        "from backstory import Backstory\n"
        "bs = Backstory.open(sys.argv[1], background=False)\n"
        "memory, agent = bs.memory(sys.argv[2]), bs.memory(sys.argv[2], 'coder')\n"
        "for line in sys.stdin:\n"
        "    try:\n"
        "        print(repr(eval(line)), flush=True)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error, flush=True)\n"
        "bs.close()\n"
    )

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, str(home), SECRET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0
        self._process.stdout.close()


class Beside:
    """Another home on the same folder, in this process; it reads what it is told to, as a process elsewhere would."""

    def __init__(self, home: Path) -> None:
        self._home = Backstory.open(home, background=False)
        self._known = {
            "bs": self._home,
            "memory": self._home.memory(SECRET),
            "agent": self._home.memory(SECRET, "coder"),
        }

    def __call__(self, line: str) -> str:
        return repr(eval(line, self._known))  # noqa: S307 lines of this file

    def end(self) -> None:
        self._home.close()


READS = {
    "[f.content for f in memory.facts()]": "[]",
    "memory.document().facts": "()",
    "memory.search('tea').hits": "()",
    "memory.search('tea', within='turns').hits": "()",
    "'tea' in memory.context('tea').text": "False",
    "memory.threads()": "()",
    "memory.turns.get()": "[]",
    "memory.status().seq": "0",
    "memory.verify().ok": "True",
    "memory.log()": "()",
    "[f.content for f in agent.facts()]": "[]",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "opened"),
    [(first, Elsewhere if LONG or number == 0 else Beside) for number, first in enumerate(READS)],
    ids=READS,
)
def test_another_process_sees_an_empty_memory_whatever_it_reads_first(
    tmp_path: Path, first: str, opened: type[Elsewhere | Beside]
) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
        other = opened(tmp_path)
        for line, empty in READS.items():
            if "verify" not in line:
                assert other(line) != empty, line
        other("memory.touch(*[f.id for f in memory.facts()])")
        # The second count is not written before the end.
        other("bs.faults.count(memory, 'search', 'Wrong'), bs.faults.count(memory, 'search', 'Wrong')")
        bs.forget_user(SECRET)
        for line in (first, *READS):
            assert other(line) == READS[line], line
        other.end()
        assert traces(tmp_path) == []
        assert list((tmp_path / "users").iterdir()) == []


def test_another_process_begins_a_new_log_and_a_third_reads_it(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
        one, two = Elsewhere(tmp_path), Elsewhere(tmp_path)
        for other in (one, two):
            assert other("len(memory.facts()), len(agent.facts()), len(memory.threads())") == "(1, 2, 2)"
        bs.forget_user(SECRET)
        # As many commits as there were, and then more.
        for number in range(8):
            assert one(f"memory.add_fact('Likes coffee {number}').commit") == str(number + 2)
            assert two("len(memory.facts()), len(memory.log())") == f"({number + 1}, {number + 2})"
        assert one("memory.record('t', [{'role': 'user', 'content': 'again'}]).turns") == "1"
        assert two("[t.content for t in memory.transcript('t')]") == "['again']"
        assert two("memory.verify().ok") == "True"
        assert len(bs.memory(SECRET).facts()) == 8
        one.end()
        two.end()


def test_a_writer_that_decided_before_decides_again_on_the_new_log(tmp_path: Path) -> None:
    with open_home(tmp_path) as one, open_home(tmp_path) as two:
        for number in range(3):
            one.memory("ada").add_fact(f"Old {number}")
        stale = two.memory("ada")
        assert len(stale.facts()) == 3
        one.forget_user("ada")
        for number in range(3):
            one.memory("ada").add_fact(f"New {number}")
        # The new log is as long as the one that this process knows.
        stale.add_fact("Newest")
        assert [fact.content for fact in stale.facts()] == ["New 0", "New 1", "New 2", "Newest"]


def test_a_commit_that_was_under_way_is_decided_again_on_the_new_log(tmp_path: Path) -> None:
    with open_home(tmp_path) as one:
        one.memory("ada").add_fact("Old")
        begun = [False]

        def salt() -> str:
            if begun == [True]:
                # The commit is decided and not appended.
                begun.clear()
                one.forget_user("ada")
                one.memory("ada").add_fact("New")
            return os.urandom(16).hex()

        with Backstory.open(tmp_path, background=False, salts=salt) as two:
            memory = two.memory("ada")
            assert memory.facts()
            begun[:] = [True]
            memory.add_fact("Newest")
            assert [fact.content for fact in memory.facts()] == ["New", "Newest"]
            assert memory.verify().ok


def test_an_answer_about_a_removed_memory_is_dropped(tmp_path: Path) -> None:
    homes: list[Backstory] = []

    def answer(_: object) -> str:
        homes[0].forget_user("ada")
        homes[0].memory("ada").record("t", exchange("coffee"))
        return json.dumps(reply("Likes tea"))

    with (
        open_home(tmp_path) as other,
        Backstory.open(tmp_path, model=ScriptedModel(answer), background=False) as bs,
    ):
        homes.append(other)
        memory = bs.memory("ada")
        memory.add_fact("Old")
        memory.record("t", exchange("tea"))
        assert memory.extract().updates == 0
        assert memory.facts() == ()
        assert [thread.pending for thread in memory.threads()] == [2]
        assert not any(b"tea" in path.read_bytes() for path in tmp_path.rglob("*.jsonl"))


def test_a_background_worker_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slowly(_: object) -> Answer:
        asked.set()
        assert go_on.wait(PATIENCE)
        return Answer(json.dumps(reply("Likes tea")), "scripted")

    one_by_one = {"debounce_seconds": 0, "workers": 1, "min_seconds_between_calls": 0}
    with Backstory.open(tmp_path, model=ScriptedModel(slowly, repeat=True), config=one_by_one) as bs:
        memory = bs.memory(SECRET)
        memory.record("t", exchange("tea"))
        memory.record("u", exchange("tea, please"))
        assert asked.wait(PATIENCE)
        with open_home(tmp_path) as other:
            other.forget_user(SECRET)
        go_on.set()
        assert bs.flush(PATIENCE)
        reads(memory)
    assert traces(tmp_path) == []
    assert not [record for record in caplog.records if record.exc_info]


def test_deliveries_that_wait_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
        safe = FailSafeMemory(bs)
        with monkeypatch.context() as broken:
            broken.setattr(bs, "memory_of", lambda _: (_ for _ in ()).throw(StoreError("full")))
            assert safe.record(Scope(SECRET), "t", exchange("tea")) is None
            assert safe.record(Scope("bob"), "t", exchange("coffee")) is None
        bs.forget_user(SECRET)
        assert safe.flush(PATIENCE)
        assert bs.memory(SECRET).threads() == ()
        assert bs.memory("bob").threads()[0].turns == 2
    assert traces(tmp_path) == []


def test_a_damaged_memory_can_be_removed(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        fill(bs)
    log = tmp_path / "users" / SECRET / "ledger.jsonl"
    log.write_bytes(b"damage\n" + log.read_bytes())
    with open_home(tmp_path) as bs:
        with pytest.raises(CorruptLogError):
            bs.memory(SECRET).facts()
        bs.forget_user(SECRET)
        assert bs.memory(SECRET).facts() == ()
    assert traces(tmp_path) == []


def test_a_log_that_is_lost_is_still_damage(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.add_fact("x")
        (tmp_path / "users/ada/ledger.jsonl").unlink()
        with pytest.raises(CorruptLogError):
            memory.facts()


def test_a_locked_log_is_not_removed(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs, open_home(tmp_path) as other:
        fill(bs)
        other.store._locks._timeout = 0.05  # type: ignore[attr-defined]
        with bs.store.locked(f"users/{SECRET}/agents/coder/ledger"), pytest.raises(LockTimeoutError):
            other.forget_user(SECRET)
        assert [fact.content for fact in bs.memory(SECRET, "coder").facts(joined=False)] == ["Writes Rust"]
        other.forget_user(SECRET)


@pytest.mark.parametrize("point", ["marked", "moved", "deleting"])
def test_after_a_crash_the_next_call_completes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    def once(path: str, **__: object) -> None:
        next(file for file in Path(path).rglob("*") if file.is_file()).unlink()
        raise Crash

    places: dict[str, tuple[object, str, Callable[..., None]]] = {
        "marked": (Path, "rename", crash),
        "moved": (removal.Removals, "_sweep", crash),
        "deleting": (removal.shutil, "rmtree", once),
    }
    with open_home(tmp_path) as bs, open_home(tmp_path) as running:
        fill(bs)
        memory = running.memory(SECRET)
        assert memory.facts()
        with monkeypatch.context() as broken:
            target, name, how = places[point]
            broken.setattr(target, name, how)
            with pytest.raises(Crash):
                bs.forget_user(SECRET)
        with open_home(tmp_path) as again:
            again.forget_user(SECRET)
            assert traces(tmp_path) == []
        reads(memory)
    assert traces(tmp_path) == []


def test_logs_kept_elsewhere_go_with_the_read_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "engine_elsewhere.py"
    module.write_text(
        "from backstory.ledger.engines.jsonl.store import JsonlStore\n"
        "class Elsewhere(JsonlStore):\n"
        "    def __init__(self, home):\n"
        "        super().__init__(home / 'logs')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    home = tmp_path / "home"
    (home / "users" / SECRET).mkdir(parents=True)
    with open_home(home, storage_class="engine_elsewhere:Elsewhere") as bs:
        fill(bs)
        assert (home / "logs/users" / SECRET).exists()
        assert (home / "users" / SECRET).exists()
        bs.forget_user(SECRET)
        reads(bs.memory(SECRET))
    assert traces(home) == []


def test_what_a_witness_has_is_said(tmp_path: Path) -> None:
    witness = tmp_path / "elsewhere" / "heads"
    witness.parent.mkdir()
    with open_home(tmp_path / "home", witness=str(witness)) as bs:
        fill(bs)
        assert str(witness) in str(bs.forget_user(SECRET).witness)
        assert bs.memory(SECRET).facts() == ()
    assert traces(tmp_path / "home") == []


def test_a_user_whose_name_is_no_folder_name(tmp_path: Path) -> None:
    odd = "Ada/../💡" + "x" * 300
    with open_home(tmp_path) as bs:
        for user in (odd, "ad", "ada-2", "ada"):
            bs.memory(user, "coder").add_fact("x")
        bs.forget_user(odd)
        bs.forget_user("ada")
        assert [scope.user for scope in bs.scopes()] == ["ad", "ada-2"]
    assert not [path for path in tmp_path.rglob("*") if path.name == "ada"]


def without(bs: Backstory) -> None:
    """Remove the user, of whom something is learned anew at once."""
    bs.forget_user(SECRET)
    bs.memory(SECRET).add_fact("Swims")


@pytest.mark.parametrize("undo", ["revert", "rollback"])
def test_an_undo_that_was_planned_before_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undo: str
) -> None:
    with open_home(tmp_path) as bs, open_home(tmp_path) as other:
        memory = bs.memory(SECRET)
        memory.add_fact("Likes tea")
        memory.remove_fact(memory.facts()[0].id)
        whole = undoing.preview_undo

        def late(*args: object) -> object:
            plan = whole(*args)
            without(other)
            return plan

        monkeypatch.setattr(undoing, "preview_undo", late)
        with pytest.raises(ConflictError, match="removed"):
            memory.revert() if undo == "revert" else memory.rollback(2)
        assert [fact.content for fact in memory.facts()] == ["Swims"]
        assert memory.verify().ok
        other.forget_user(SECRET)
    assert traces(tmp_path) == []


def unlike(folder: Path) -> Backstory:
    """Open a home whose logs do not begin alike, as they would with the salts and the clock of a test."""
    return Backstory.open(folder, background=False)


def test_a_removal_while_a_snapshot_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IndexFile, "_small", lambda _: False)
    with unlike(tmp_path) as bs:
        for number in range(3):
            bs.memory(SECRET).add_fact(f"Likes tea number {number}")
        bs.memory(SECRET).search("tea")
    with unlike(tmp_path) as bs, unlike(tmp_path) as other:
        whole = ScopeIndex.origin

        def late(index: ScopeIndex) -> object:
            monkeypatch.setattr(ScopeIndex, "origin", whole)
            origin = whole(index)
            assert origin is not None
            without(other)
            return origin

        monkeypatch.setattr(ScopeIndex, "origin", late)
        assert [fact.content for fact in bs.memory(SECRET).facts()] == ["Swims"]


def test_a_removal_between_a_commit_and_its_announcement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with unlike(tmp_path) as bs, unlike(tmp_path) as other:
        memory = bs.memory(SECRET)
        memory.add_fact("Likes tea")
        memory.add_fact("Likes rye")
        whole = Writer._announce

        def late(writer: Writer) -> None:
            monkeypatch.setattr(Writer, "_announce", whole)
            without(other)
            with writer.state() as state:
                assert len(state.memory.facts) == 1
            whole(writer)

        monkeypatch.setattr(Writer, "_announce", late)
        memory.add_fact("Likes cocoa")
        assert [fact.content for fact in memory.facts()] == ["Swims"]


def test_the_locks_of_the_agents_are_taken_before_those_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of a delivery to the user's ledger, or the two would wait for each other."""
    with open_home(tmp_path) as bs:
        fill(bs)
        bs.memory(SECRET, "coder").record("t", exchange("tea"))
        taken: list[str] = []
        whole = FileLocks.held

        def held(locks: FileLocks, path: str, *, wait: bool = True) -> object:
            # Another thread may be writing a memory.json.
            if threading.current_thread() is threading.main_thread():
                taken.append(str(Path(path).relative_to(tmp_path / "users" / SECRET)))
            return whole(locks, path, wait=wait)

        whole_mark = removal.Removals._mark

        def mark(*args: object) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(FileLocks, "held", held)
                whole_mark(*args)

        with monkeypatch.context() as patch:
            patch.setattr(removal.Removals, "_mark", mark)
            patch.setattr(removal.Removals, "_sweep", lambda _: False)
            bs.forget_user(SECRET)
        agents = ["agents/coder/transcript.lock", "agents/coder/ledger.lock"]
        assert taken == [*agents, "transcript.lock", "ledger.lock"]


def test_a_removal_waits_for_a_process_that_is_writing_a_document(tmp_path: Path) -> None:
    """Where no log lies beside it, that process holds a lock of the document's own."""
    document = tmp_path / "users" / "ada" / "memory.json"
    others, ours = FileLocks(0.0, FakeClock()), FileLocks(0.0, FakeClock())
    removals = removal.Removals(tmp_path, ours, FakeClock())
    with others.held(str(document.with_suffix(".lock"))), pytest.raises(LockTimeoutError):
        removals.remove("users/ada")
    document.write_bytes(b"written in time")
    assert removals.remove("users/ada")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_removal_waits_for_whoever_holds_the_lock_of_a_log_before_its_first_line(tmp_path: Path) -> None:
    ours, others = (JsonlStore(tmp_path, lock_timeout=0, clock=FakeClock()) for _ in range(2))
    with others.locked("users/ada/ledger"):
        with pytest.raises(LockTimeoutError):
            ours.remove("users/ada")
        others.append("users/ada/ledger", [chain(1)[0]], 0)
    assert ours.remove("users/ada")


def test_of_two_removals_at_once_the_slower_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = JsonlStore(tmp_path), JsonlStore(tmp_path)
    ours.append("users/ada/ledger", [chain(1)[0]], 0)
    real = removal.Removals._mark

    def mark(self: removal.Removals, path: Path, held: ExitStack) -> None:
        monkeypatch.undo()
        others.remove("users/ada")
        real(self, path, held)

    monkeypatch.setattr(removal.Removals, "_mark", mark)
    assert not ours.remove("users/ada")
    assert not list(tmp_path.rglob("ada"))


def test_a_lock_that_comes_into_what_is_being_deleted_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, made = JsonlStore(tmp_path), os.rmdir, []
    store.append("users/ada/ledger", [chain(1)[0]], 0)

    def rmdir(path: str, **where: int) -> None:
        if not made:
            made.extend((tmp_path / "removed").glob("*.gone"))
            (made[0] / "ledger.lock").touch()
        real(path, **where)

    monkeypatch.setattr(os, "rmdir", rmdir)
    assert store.remove("users/ada")
    assert made
    assert not made[0].exists()


def test_a_document_that_is_about_to_be_written_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(tmp_path) as bs, open_home(tmp_path) as other:
        bs.memory("ada").add_fact("Likes tea")
        bs.memory("ada").flush(PATIENCE)
        writer = bs._writer(Scope("ada"))
        known = writer.reader.standing

        def standing() -> object:
            other.forget_user("ada")
            return known()

        monkeypatch.setattr(writer.reader, "standing", standing)
        bs._services.states(writer.scope).document.write(spare_edits=False, wait=True)
    assert list(tmp_path.rglob("memory.json")) == []
