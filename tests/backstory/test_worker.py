"""Worker: learns from what other processes record, in the memories it takes care of, and ends in good order."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.commandline import Cli
from doubles.misbehaving import MisbehavingServer, completion
from fakes import PATIENCE, ScriptedModel, exchange, open_home, reply
from hypothesis import given
from hypothesis import strategies as st

from backstory import Backstory
from backstory.ledger.core.errors import (
    CorruptLogError,
    ModelUnavailableError,
    NoModelError,
    StoreError,
    UsageError,
)
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.changes import StreamChanges
from backstory.ledger.engines.port import Capabilities
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.log.reader import Reader
from backstory.worker import Selection, Worker


def learning(home: Path, *script: object, **settings: object) -> Backstory:
    """Open a home that learns in the background, without a delay."""
    model = ScriptedModel(*(script or (reply("Likes tea"),)), repeat=True)  # type: ignore[arg-type]
    return open_home(home, model, background=True, debounce_seconds=0, **settings)


def facts(bs: Backstory, user: str, agent: str | None = None) -> list[str]:
    return [fact.content for fact in bs.memory(user, agent).facts()]


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_learns_from_what_another_process_records(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        worker = Worker(bs)
        worker.look()
        recorder.memory("ada").record("t", exchange("tea"))
        recorder.memory("bob", "coder").record("t", exchange("tea"))
        worker.look()
        assert bs.flush(PATIENCE)
        assert facts(recorder, "ada") == facts(recorder, "bob", "coder") == ["Likes tea"]
        # Also from what comes later in a memory that it knows.
        recorder.memory("ada").record("u", exchange("milk"))
        worker.look()
        assert bs.flush(PATIENCE)
        assert recorder.memory("ada").status().pending == ()


def test_it_begins_with_what_was_pending_before(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder:
        recorder.memory("ada").record("t", exchange("tea"))
    with learning(tmp_path) as bs:
        Worker(bs).look()
        assert bs.flush(PATIENCE)
        assert facts(bs, "ada") == ["Likes tea"]


def test_new_turns_do_not_wait_for_the_scan_of_all_memories(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        users = [f"user-{number}" for number in range(4)]
        for user in users:
            recorder.memory(user).record("t", exchange("tea"))
        worker = Worker(bs, scan_seconds=0)
        worker.look()
        recorder.memory("zoe").record("t", exchange("tea"))
        recorder.memory("user-3").record("u", exchange("tea"))
        worker.look()
        assert bs.flush(PATIENCE)
        assert facts(recorder, "zoe") == facts(recorder, "user-3") == ["Likes tea"]
        # Two looks have gone through two memories.
        assert [facts(recorder, user) for user in users[:3]] == [["Likes tea"], ["Likes tea"], []]
        for _ in users:
            worker.look()
        assert bs.flush(PATIENCE)
        assert facts(recorder, "user-2") == ["Likes tea"]


@pytest.mark.parametrize(("debounce", "poll"), [(0, 1.0), (10, 1.0), (30, 3.0), (300, 5.0)])
def test_it_looks_often_enough_for_the_debounce(tmp_path: Path, debounce: int, poll: float) -> None:
    model = ScriptedModel(reply("Likes tea"))
    with open_home(tmp_path, model, background=True, debounce_seconds=debounce) as bs:
        assert Worker(bs)._poll_seconds == pytest.approx(poll)


def test_the_scan_goes_on_without_a_pause(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        users = [f"user-{number}" for number in range(3)]
        for user in users:
            recorder.memory(user).record("t", exchange("tea"))
        worker = Worker(bs, poll_seconds=PATIENCE, scan_seconds=0)
        running = threading.Thread(target=worker.run)
        running.start()
        until(lambda: all(facts(recorder, user) for user in users))
        worker.stop()
        running.join(PATIENCE)


def test_a_scan_that_the_engine_interrupts_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        users = ["ada", "bob", "eve"]
        for user in users:
            recorder.memory(user).record("t", exchange("tea"))
        watched: list[Scope] = []
        watch, streams = bs.watch, bs.store.streams
        monkeypatch.setattr(bs, "watch", lambda scope: watched.append(scope) or watch(scope))

        def broken(prefix: str = "") -> Iterator[str]:
            for number, stream in enumerate(streams(prefix)):
                if number == 2:
                    raise StoreError("down")
                yield stream

        worker = Worker(bs)
        worker._changes.find = lambda _: iter(())  # type: ignore[method-assign]
        with monkeypatch.context() as patch:
            patch.setattr(bs.store, "streams", broken)
            worker.look()
        assert [scope.user for scope in watched] == users[:2]
        worker.look()
        assert [scope.user for scope in watched] == users


def test_it_can_be_stopped_while_memories_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        for user in ("ada", "bob"):
            recorder.memory(user).record("t", exchange("tea"))
        tried: list[Scope] = []

        def watch(scope: Scope) -> bool:
            tried.append(scope)
            raise StoreError("down")

        monkeypatch.setattr(bs, "watch", watch)
        worker = Worker(bs)
        worker.look()
        tried.clear()
        worker.stop()
        worker.look()
        assert tried == []


def test_memories_that_are_not_selected_are_left_alone(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        for user in ("acme-ada", "acme-bob", "other"):
            recorder.memory(user).record("t", exchange("tea"))
        Worker(bs, Selection.of("acme-*")).look()
        assert bs.flush(PATIENCE)
        assert [facts(recorder, user) for user in ("acme-ada", "acme-bob", "other")] == [["Likes tea"]] * 2 + [[]]


def test_two_workers_learn_from_each_turn_once(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as one, learning(tmp_path) as two:
        workers = [Worker(one, poll_seconds=0.01), Worker(two, poll_seconds=0.01)]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        for number in range(6):
            recorder.memory(f"user-{number}").record("t", exchange("tea"))
        until(lambda: all(facts(recorder, f"user-{number}") for number in range(6)))
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(PATIENCE)
        assert one.flush(PATIENCE)
        assert two.flush(PATIENCE)
        for number in range(6):
            updates = [entry for entry in recorder.memory(f"user-{number}").log() if entry.cause.kind == "extraction"]
            assert len(updates) == 1


def test_a_memory_that_cannot_be_read_is_tried_again_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        for user in ("ada", "bob"):
            recorder.memory(user).record("t", exchange("tea"))
        known = bs.watch
        damaged = {Scope("ada")}

        def watch(scope: Scope) -> bool:
            if scope in damaged:
                raise CorruptLogError("damaged", kind="altered", stream="s", line=1, byte=0)
            return known(scope)

        monkeypatch.setattr(bs, "watch", watch)
        worker = Worker(bs)
        worker.look()
        worker.look()
        assert bs.flush(PATIENCE)
        assert [facts(recorder, user) for user in ("ada", "bob")] == [[], ["Likes tea"]]
        # It is said once.
        assert caplog.text.count("is tried again") == 1
        damaged.clear()
        worker.look()
        assert bs.flush(PATIENCE)
        assert facts(recorder, "ada") == ["Likes tea"]


def test_an_engine_that_cannot_be_reached_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        recorder.memory("ada").record("t", exchange("tea"))
        worker = Worker(bs)
        with monkeypatch.context() as patch:
            patch.setattr(bs.store, "streams", lambda *_: (_ for _ in ()).throw(StoreError("down")))
            worker.look()
        worker.look()
        assert bs.flush(PATIENCE)
        assert facts(recorder, "ada") == ["Likes tea"]


def test_a_gentle_scan_pauses_as_long_as_it_works(tmp_path: Path) -> None:
    with open_home(tmp_path) as recorder, learning(tmp_path) as bs:
        recorder.memory("ada").record("t", exchange("tea"))
        for gently, pause in ((True, 0.25), (False, 0.0)):
            worker = Worker(bs, scan_seconds=0, gently=gently)
            worker.look()
            assert worker._pause(0.25) == pause


def test_nobody_waits_for_the_scan_of_an_engine_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with learning(tmp_path) as bs:
        worker = Worker(bs)
        monkeypatch.setattr(bs.store, "streams", lambda *_: (_ for _ in ()).throw(StoreError("down")))
        monkeypatch.setattr(worker._stopped, "wait", lambda _: worker.has_begun.is_set() and worker.stop())
        worker.run()
        assert worker.has_begun.is_set()


def test_a_look_that_failed_is_followed_by_a_short_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away is waited for, which takes long and is no reason to come back late."""
    with learning(tmp_path) as bs:
        worker, pauses = Worker(bs, poll_seconds=1), []
        moments = itertools.count(0.0, 10.0)
        monkeypatch.setattr("backstory.worker.time", SimpleNamespace(monotonic=lambda: next(moments), time=time.time))
        monkeypatch.setattr(bs.store, "streams", lambda *_: (_ for _ in ()).throw(StoreError("down")))
        monkeypatch.setattr(worker._stopped, "wait", lambda seconds: pauses.append(seconds) or worker.stop())
        worker.run()
    assert pauses == [1]


@pytest.mark.parametrize("settings", [{"enabled": False}, {"mode": "tool"}])
def test_a_home_that_learns_nothing_is_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    with learning(tmp_path, **settings) as bs, pytest.raises(NoModelError):
        bs.must_learn()
    with open_home(tmp_path) as bs, pytest.raises(NoModelError):
        bs.watch(Scope("ada"))


# Which memories.


@given(st.text(max_size=20), st.integers(1, 9))
def test_each_user_is_in_one_shard_with_all_agents(user: str, shards: int) -> None:
    holding = [n for n in range(1, shards + 1) if Selection.of(f"{n}/{shards}").holds(Scope(user or None))]
    assert len(holding) == 1
    assert Selection.of(f"{holding[0]}/{shards}").holds(Scope(user or None, "coder"))


def test_shards_are_the_same_in_every_process() -> None:
    wanted = {"ada": 1, "bob": 3, "蔡": 2}
    assert {user: n for user in wanted for n in (1, 2, 3) if Selection.of(f"{n}/3").holds(Scope(user))} == wanted


@pytest.mark.parametrize("text", ["", "ada", "0/3", "4/3", "1/0", "a/b", "1/2/3", "-1/3"])
def test_what_selects_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="'acme-\\*'"):
        Selection.of(text)


# An engine that says itself what has changed.


class Telling:
    """An engine that answers which streams have changed."""

    def __init__(self, *answers: tuple[Sequence[str], str]) -> None:
        self._answers = iter(answers)
        self.asked: list[str | None] = []

    def capabilities(self) -> Capabilities:
        return Capabilities(changed=self.changed)

    def changed(self, since: str | None) -> tuple[Sequence[str], str]:
        self.asked.append(since)
        return next(self._answers)


def test_an_engine_that_tells_changes_is_asked_one_question() -> None:
    store = Telling(([], "7"), (["a/transcript", "a/ledger"], "8"), ([], "8"), (["b/transcript"], "9"))
    changes = StreamChanges(store)  # type: ignore[arg-type]
    found = [list(changes.find(lambda name: name.endswith("transcript"))) for _ in range(4)]
    assert found == [[], ["a/transcript"], [], ["b/transcript"]]
    assert store.asked == [None, "7", "8", "8"]


def test_changes_that_were_not_all_taken_are_found_again() -> None:
    store = Telling(([], "7"), (["a", "b"], "8"), (["a", "b"], "8"))
    changes = StreamChanges(store)  # type: ignore[arg-type]
    assert list(changes.find(lambda _: True)) == []
    assert next(changes.find(lambda _: True)) == "a"
    assert list(changes.find(lambda _: True)) == ["a", "b"]
    assert store.asked == [None, "7", "7"]


# What was settled at the last start.


def opened(bs: Backstory, monkeypatch: pytest.MonkeyPatch, selection: str = "*") -> list[str | None]:
    """Return the users whose memories a worker opens at its start."""
    watched: list[str | None] = []
    watch = bs.watch
    monkeypatch.setattr(bs, "watch", lambda scope: watched.append(scope.user) or watch(scope))
    worker = Worker(bs, Selection.of(selection))
    while not worker._is_scanned:
        worker.look()
    return watched


def settled(home: Path, *users: str, **settings: object) -> None:
    """Have a worker find that nothing is pending in some memories."""
    with learning(home, **settings) as bs:
        for user in users:
            bs.memory(user).record("t", exchange("tea"))
        assert bs.flush(PATIENCE)
        Worker(bs).look()


def test_memories_in_which_nothing_was_pending_are_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, "ada", "bob")
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == []


def test_a_memory_that_was_pending_or_has_changed_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(tmp_path, "ada", "bob", "eve")
    with open_home(tmp_path) as recorder:
        recorder.memory("ada").record("t", exchange("milk"))
        recorder.memory("bob").set_policy(max_facts=50)
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == ["ada", "bob"]
        assert bs.flush(PATIENCE)
        assert bs.memory("ada").status().pending == ()
    with learning(tmp_path) as bs:
        # It was pending when it was looked at.
        assert opened(bs, monkeypatch) == ["ada"]
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == []


def test_a_conversation_that_another_process_was_learning_from_when_it_died_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, "ada")
    with open_home(tmp_path) as other:
        memory = other.memory("ada")
        memory.record("u", exchange("milk"))
        with other.store.lease("users/ada/ledger", "u"), learning(tmp_path) as bs:
            # It ends with that lease still held, as where it is killed.
            opened(bs, monkeypatch)
            bs._services.producer.end()  # type: ignore[union-attr]
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == ["ada"]
        assert bs.flush(PATIENCE)
        assert bs.memory("ada").status().pending == ()


def test_what_an_outage_has_parked_is_pending_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with learning(tmp_path, ModelUnavailableError("down"), max_attempts=1) as bs:
        bs.memory("ada").record("t", exchange("tea"))
        bs.flush(PATIENCE)
        Worker(bs).look()
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == ["ada"]


def test_what_may_still_be_answered_is_pending_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with learning(tmp_path, answer_wait_seconds=3600) as bs:
        bs.memory("ada").record("t", exchange("tea")[:1])
        Worker(bs).look()
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == ["ada"]


def test_heads_at_which_turns_were_pending_are_not_noted_where_others_learn_from_them_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of that moment may be restored."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    with open_home(home) as other, learning(home) as bs:
        memory = other.memory("ada")
        memory.record("t", exchange("tea"))
        shutil.copytree(home, backup)
        watch = bs.watch

        def later(scope: Scope) -> bool:
            memory.extract([RecordedReply("t", reply("Likes tea"))])
            return watch(scope)

        monkeypatch.setattr(bs, "watch", later)
        worker = Worker(bs)
        worker._changes.find = lambda _: iter(())  # type: ignore[method-assign]
        worker.look()
    shutil.rmtree(home / "users")
    shutil.copytree(backup / "users", home / "users")
    with learning(home) as bs:
        assert opened(bs, monkeypatch) == ["ada"]


def test_an_erasure_that_could_not_be_completed_is_met_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, "ada")
    (tmp_path / "worker.json").unlink()
    with learning(tmp_path) as bs:
        monkeypatch.setattr(Reader, "has_unfinished_erasure", True)
        Worker(bs).look()
        monkeypatch.undo()
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == ["ada"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":1,"digests":["x"]}'])
def test_where_the_file_is_damaged_or_of_another_home_all_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    settled(tmp_path, "ada", "bob")
    (tmp_path / "worker.json").write_bytes(content)
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == ["ada", "bob"]


def test_a_new_witness_gets_the_heads_of_all_memories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(tmp_path / "home", "ada", "bob")
    with learning(tmp_path / "home", witness=str(tmp_path / "heads")) as bs:
        assert opened(bs, monkeypatch) == ["ada", "bob"]


def test_a_witness_that_was_away_gets_the_heads_at_a_later_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = tmp_path / "disk" / "heads"
    settled(tmp_path / "home", "ada", witness=str(heads))
    with learning(tmp_path / "home", witness=str(heads)) as bs:
        assert opened(bs, monkeypatch) == ["ada"]
    assert not heads.exists()
    heads.parent.mkdir()
    with learning(tmp_path / "home", witness=str(heads)) as bs:
        assert opened(bs, monkeypatch) == ["ada"]
    assert heads.read_bytes().count(b'"user":"ada"') == 1
    for expected in (["ada"], []):
        with learning(tmp_path / "home", witness=str(heads)) as bs:
            assert opened(bs, monkeypatch) == expected


def test_workers_of_other_memories_do_not_take_each_others_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, "ada", "bob")
    for selection, expected in (("a*", ["ada"]), ("b*", ["bob"]), ("a*", []), ("*", [])):
        with learning(tmp_path) as bs:
            assert opened(bs, monkeypatch, selection) == expected


def test_a_scan_that_does_not_end_notes_what_it_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.worker._WRITTEN_AFTER", 2)
    users = [f"user-{number}" for number in range(6)]
    settled(tmp_path, *users)
    (tmp_path / "worker.json").unlink()
    with learning(tmp_path) as bs:
        worker = Worker(bs, scan_seconds=0)
        for _ in range(3):
            worker.look()
    with learning(tmp_path) as bs:
        assert opened(bs, monkeypatch) == users[2:]


def test_memories_beyond_the_most_are_opened_at_each_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.worker._MOST_SETTLED", 2)
    users = [f"user-{number}" for number in range(4)]
    settled(tmp_path, *users)
    for _ in range(2):
        with learning(tmp_path) as bs:
            assert opened(bs, monkeypatch) == users[2:]


def test_what_is_outdated_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(tmp_path, "ada", "bob")
    with learning(tmp_path) as bs:
        bs.forget_user("ada")
        assert opened(bs, monkeypatch) == []
    assert len(json.loads((tmp_path / "worker.json").read_bytes())["digests"]) == 1


def test_the_file_names_no_user(tmp_path: Path) -> None:
    settled(tmp_path, "ada")
    assert b"ada" not in (tmp_path / "worker.json").read_bytes()


# The command.


def test_the_command_learns_until_sigterm_and_ends_the_update_under_way(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    asked, released = threading.Event(), threading.Event()

    def answer(_: object) -> object:
        asked.set()
        assert released.wait(PATIENCE)
        return completion(reply("Likes tea"))

    with MisbehavingServer(answer, repeat=True) as server:  # type: ignore[arg-type]
        config = tmp_path / "config.yaml"
        model = {"provider": "openai", "model": "m", "api_key": "k", "base_url": server.base_url}
        config.write_text(json.dumps({"memory": {"model": model, "debounce_seconds": 0, "summary_min_turns": 0}}))
        chat = cli.file("chat.jsonl", *({**message, "thread_id": "t"} for message in exchange("tea")))
        with cli.running("--config", config, "--json", "worker") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert json.loads(process.stdout.readline()) == {"store": f"jsonl:{cli.home}", "scopes": "*"}
            cli.run("--user", "ada", "record", chat)
            assert asked.wait(PATIENCE)
            os.kill(process.pid, signal.SIGTERM)
            assert "ending the updates under way" in process.stderr.readline()
            released.set()
            assert process.wait(PATIENCE) == 0
    assert [fact["content"] for fact in cli.json("--user", "ada", "show")["facts"]] == ["Likes tea"]


def test_the_command_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    assert "no model" in Cli(tmp_path / "home").error("worker", code=3)


def test_the_command_refuses_a_selection_that_it_cannot_read(tmp_path: Path) -> None:
    assert "acme-" in Cli(tmp_path / "home").error("worker", "--scopes", "ada", code=2)
