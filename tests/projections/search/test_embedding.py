from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from doubles.bag import BagOfWords, passage
from fakes import PATIENCE, open_home

from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import ModelUnavailableError, StoreError
from backstory.ledger.core.scope import Scope
from backstory.projections.search.vectors.background_embedding import (
    BackgroundEmbedding,
    Embedded,
    ScopeEmbedding,
    Source,
)
from backstory.projections.search.vectors.embedder import Passage
from backstory.projections.search.vectors.scope_vectors import VECTORS, Vectors

pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
import numpy as np

ADA, BOB = Scope("ada"), Scope("bob")


class Texts:
    """A source whose texts a test changes; `listed` counts how often they were read."""

    spaces = ("facts", "turns")

    def __init__(self, folder: Path, embedder: BagOfWords, count: int = 3) -> None:
        self.vectors = Vectors(folder / VECTORS, embedder)
        self.texts = {
            "facts": {f"f{number}": f"fact {number}" for number in range(count)},
            "turns": {f"t{number}": f"turn {number}" for number in range(count)},
        }
        self.listed = 0
        self.version = 0

    def state(self) -> object:
        return self.version

    def passages(self, space: str) -> Iterator[Passage]:
        self.listed += 1
        for key, text in self.texts[space].items():
            yield passage(key, text)

    @property
    def embedded(self) -> int:
        return sum(self.vectors.count(space) for space in self.spaces)


class Bench:
    """A home's worth of sources around one embedder and the thread that serves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.embedder = BagOfWords()
        self.known: dict[Scope, ScopeEmbedding] = {}
        self.all: list[BackgroundEmbedding] = []

    def add(self, scope: Scope, count: int = 3) -> Texts:
        folder = self.folder / str(scope.user)
        folder.mkdir()
        texts = Texts(folder, self.embedder, count)
        self.known[scope] = ScopeEmbedding(scope, lambda: texts)
        return texts

    def embedding(self, **options) -> BackgroundEmbedding:
        self.all.append(BackgroundEmbedding(**{"again": 0.0, "pauses": (0.0, 0.0), **options}))
        return self.all[-1]


def reached(embedded: int, total: int, new: int) -> Embedded:
    return Embedded(BagOfWords().name, embedded, total, new)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for embedding in made.all:
        embedding.close(PATIENCE)
        assert not any(thread.is_alive() for thread in embedding._threads)


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < ends, "it never came to be"
        time.sleep(0.002)


# In the background


def test_what_is_wanted_is_embedded_by_and_by_in_a_thread_of_its_own(bench):
    texts = bench.add(ADA)
    threads: set[str] = set()
    bench.embedder.before = lambda _: threads.add(threading.current_thread().name)
    bench.embedding().wanted(bench.known[ADA])
    until(lambda: texts.embedded == 6)
    assert threads == {"backstory-embedding"}


def test_no_thread_is_started_before_the_first_need(bench):
    bench.add(ADA)
    assert not bench.embedding()._threads


def test_to_want_something_never_waits(bench):
    bench.add(ADA)
    entered, leave = threading.Event(), threading.Event()

    def hold(_: Sequence[str]) -> None:
        entered.set()
        leave.wait(PATIENCE)

    bench.embedder.before = hold
    embedding = bench.embedding()
    embedding.wanted(bench.known[ADA])
    assert entered.wait(PATIENCE)
    begun = time.monotonic()
    for _ in range(100):
        embedding.wanted(bench.known[ADA])
    assert time.monotonic() - begun < PATIENCE / 2
    leave.set()


def test_what_has_changed_is_embedded_when_it_is_wanted_again(bench):
    texts = bench.add(ADA)
    embedding = bench.embedding()
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.embedded == 6)
    texts.texts["turns"]["new"] = "a new thing"
    del texts.texts["facts"]["f0"]
    texts.version += 1
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.vectors.has("turns", "new") and not texts.vectors.has("facts", "f0"))
    assert bench.embedder.read.count("a new thing") == 1
    assert len(bench.embedder.read) == 7


def test_where_nothing_has_changed_nothing_is_listed(bench):
    texts = bench.add(ADA)
    other = bench.add(BOB)
    embedding = bench.embedding()
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.embedded == 6 and bench.known[ADA].looked is not None)
    listed = texts.listed
    embedding.wanted(bench.known[ADA])
    until(lambda: bench.known[ADA] not in embedding._due)
    # Scopes take their turns, so that one was looked at before this one is done.
    embedding.wanted(bench.known[BOB])
    until(lambda: other.embedded == 6)
    assert texts.listed == listed


def test_where_the_file_was_lost_it_is_embedded_again(bench):
    texts = bench.add(ADA)
    embedding = bench.embedding()
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.embedded == 6 and bench.known[ADA].looked is not None)
    (bench.folder / "ada" / VECTORS).unlink()
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.embedded == 6)
    assert len(bench.embedder.read) == 12


def test_a_scope_is_not_looked_at_all_the_time(bench):
    texts = bench.add(ADA)
    embedding = bench.embedding(again=3600.0)
    embedding.wanted(bench.known[ADA])
    until(lambda: bench.known[ADA].looked is not None)
    listed = texts.listed
    texts.version += 1
    embedding.wanted(bench.known[ADA])
    assert embedding._due[bench.known[ADA]] > time.monotonic() + 3000
    assert texts.listed == listed


def test_one_large_scope_does_not_keep_the_others_waiting(bench):
    large, small = bench.add(ADA, 200), bench.add(BOB)
    now = [0.0]

    def slowly(texts: Sequence[str]) -> None:
        now[0] += 10
        if len(bench.embedder.read) == 32:
            embedding.wanted(bench.known[BOB])

    bench.embedder.before = slowly
    embedding = bench.embedding(now=lambda: now[0])
    embedding.wanted(bench.known[ADA])
    until(lambda: small.embedded == 6)
    assert "fact 199" not in bench.embedder.read[: bench.embedder.read.index("turn 2")]
    until(lambda: large.embedded == 400)


def test_what_goes_wrong_is_told_once_and_tried_again(bench, caplog):
    texts = bench.add(ADA)
    left = [3]

    def fail(_: Sequence[str]) -> None:
        if left[0]:
            left[0] -= 1
            raise ModelUnavailableError("the server is down")

    bench.embedder.before = fail
    with caplog.at_level(logging.WARNING):
        bench.embedding().wanted(bench.known[ADA])
        until(lambda: texts.embedded == 6)
    assert left == [0]
    assert caplog.text.count("the server is down") == 1
    assert "searched by words as far as it is not embedded" in caplog.text


def test_the_pauses_after_what_goes_wrong_grow_up_to_a_bound(bench):
    bench.add(ADA)
    embedding = bench.embedding(pauses=(1.0, 300.0))
    pauses = []
    for bench.known[ADA].failures in (1, 2, 3, 9, 10, 5000):
        pauses.append(embedding._pause(bench.known[ADA]))
    assert pauses == [1, 2, 4, 256, 300, 300]


def test_a_source_that_fails_harms_no_other(bench, caplog):
    texts, broken = bench.add(BOB), bench.add(ADA)

    def fail(space: str) -> Iterator[Passage]:
        raise ZeroDivisionError("a bug")

    broken.passages = fail  # type: ignore[method-assign]
    embedding = bench.embedding(pauses=(3600.0, 3600.0))
    with caplog.at_level(logging.WARNING):
        embedding.wanted(bench.known[ADA])
        embedding.wanted(bench.known[BOB])
        until(lambda: texts.embedded == 6)
    assert "Traceback" in caplog.text
    assert "a bug" in caplog.text


def test_closing_ends_it_after_the_batch_it_is_at(bench):
    texts = bench.add(ADA, 500)
    embedding = bench.embedding()
    entered, leave = threading.Event(), threading.Event()

    def hold(_: Sequence[str]) -> None:
        entered.set()
        leave.wait(PATIENCE)

    bench.embedder.before = hold
    embedding.wanted(bench.known[ADA])
    assert entered.wait(PATIENCE)
    closing = threading.Thread(target=embedding.close)
    closing.start()
    until(lambda: embedding.ending)
    leave.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert len(bench.embedder.read) == 16
    embedding.wanted(bench.known[ADA])
    assert not embedding._threads
    assert texts.embedded == 16


def test_a_thread_without_work_ends_and_comes_back(bench):
    texts = bench.add(ADA)
    embedding = bench.embedding(idle=0.0)
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.embedded == 6)
    until(lambda: not embedding._threads)
    texts.texts["turns"]["new"] = "a new thing"
    texts.version += 1
    embedding.wanted(bench.known[ADA])
    until(lambda: texts.embedded == 7)


def test_what_nobody_holds_any_more_goes(bench):
    bench.add(ADA)
    embedding = BackgroundEmbedding(idle=0.0)
    embedding.wanted(bench.known[ADA])
    until(lambda: not embedding._threads)
    gone = weakref.ref(embedding)
    embedding = None  # type: ignore[assignment]
    until(lambda: gc.collect() >= 0 and gone() is None)


def test_a_forked_process_embeds_for_itself(bench):
    texts = bench.add(ADA)
    embedding = bench.embedding()
    register(embedding)  # as the services of a home do for theirs
    embedding.wanted(bench.known[ADA])
    # A child of this test has the same vectors, so the thread must not be reading them; that of a home has new ones.
    until(lambda: bench.known[ADA].looked is not None)
    assert texts.embedded == 6
    with embedding._changed:
        child = os.fork()
        if child == 0:
            texts.texts["turns"]["new"] = "a new thing"
            texts.version += 1
            embedding.wanted(bench.known[ADA])
            ends = time.monotonic() + PATIENCE
            while texts.embedded < 7 and time.monotonic() < ends:
                time.sleep(0.01)
            os._exit(0 if texts.embedded == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert texts.embedded == 7


# In the foreground


def test_catching_up_embeds_here_and_says_how_far_it_is(bench):
    source: Source = bench.add(ADA)
    embedding = bench.embedding()
    told: list[tuple[int, int]] = []
    assert embedding.catch_up(bench.known[ADA], progress=lambda done, total: told.append((done, total))) == reached(
        6, 6, 6
    )
    assert told == [(0, 3), (3, 3), (3, 6), (6, 6)]
    assert not embedding._threads
    assert embedding.catch_up(bench.known[ADA]) == reached(6, 6, 0)
    assert source.vectors.count("turns") == 3


def test_catching_up_ends_when_the_time_is_up(bench):
    bench.add(ADA, 40)
    now = [0.0]

    def slowly(_: Sequence[str]) -> None:
        now[0] += 10

    bench.embedder.before = slowly
    embedding = bench.embedding(now=lambda: now[0])
    assert embedding.catch_up(bench.known[ADA], timeout=0) == reached(0, 80, 0)
    assert embedding.catch_up(bench.known[ADA], timeout=15) == reached(32, 80, 32)
    assert embedding.catch_up(bench.known[ADA]) == reached(80, 80, 48)


def test_catching_up_tells_the_model_how_much_time_is_left(bench):
    bench.add(ADA, 40)
    now = [0.0]

    def slowly(_: Sequence[str]) -> None:
        now[0] += 10

    bench.embedder.before = slowly
    embedding = bench.embedding(now=lambda: now[0])
    embedding.catch_up(bench.known[ADA], timeout=25)
    assert bench.embedder.given == [25, 15, 5]
    embedding.catch_up(bench.known[ADA])
    assert bench.embedder.given[3:] == [None] * 3


def test_catching_up_stops_at_a_model_that_hangs_until_the_time_is_up(bench):
    bench.add(ADA, 40)
    now = [0.0]

    def hang(_: Sequence[str]) -> None:
        if bench.embedder.read:
            now[0] += 10
            raise ModelUnavailableError("it kept silent")

    bench.embedder.before = hang
    assert bench.embedding(now=lambda: now[0]).catch_up(bench.known[ADA], timeout=10) == reached(16, 80, 16)


def test_catching_up_raises_what_goes_wrong_and_keeps_what_was_done(bench):
    texts = bench.add(ADA, 40)

    def fail(_: Sequence[str]) -> None:
        if bench.embedder.read:
            raise ModelUnavailableError("down")

    bench.embedder.before = fail
    embedding = bench.embedding()
    with pytest.raises(ModelUnavailableError, match="down"):
        embedding.catch_up(bench.known[ADA])
    assert texts.embedded == 16
    broken = bench.add(BOB)
    broken.passages = lambda space: (_ for _ in ()).throw(StoreError("unreadable"))  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="unreadable"):
        embedding.catch_up(bench.known[BOB])


def test_the_foreground_does_not_wait_for_the_background(bench):
    texts = bench.add(ADA, 100)
    entered, leave = threading.Event(), threading.Event()

    def hold(_: Sequence[str]) -> None:
        if threading.current_thread().name == "backstory-embedding":
            entered.set()
            leave.wait(PATIENCE)

    bench.embedder.before = hold
    embedding = bench.embedding()
    embedding.wanted(bench.known[ADA])
    assert entered.wait(PATIENCE)
    assert embedding.catch_up(bench.known[ADA]).embedded == 200
    leave.set()
    assert texts.embedded == 200


# In a home


def open_files(folder: Path) -> list[str]:
    """What of a folder this process has open, where the system tells."""
    found = []
    for link in Path("/proc/self/fd").glob("*") if Path("/proc/self/fd").exists() else ():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_closing_a_home_waits_for_no_model_and_leaves_nothing_locked(tmp_path, monkeypatch):
    folder = tmp_path / "users/ada"
    embedder = BagOfWords()
    entered, leave = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hold(_: Sequence[str]) -> None:
        if threading.current_thread().name == "backstory-embedding":
            threads.append(threading.current_thread())
            entered.set()
            leave.wait(PATIENCE)

    embedder.before = hold
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    home = open_home(tmp_path, background=True)
    home.memory("ada").add_fact("has a dog")
    home.memory("ada").search("dog")
    assert entered.wait(PATIENCE)
    assert (folder / "vectors.busy").exists()
    home.close()
    assert not leave.is_set()
    assert not (folder / "vectors.busy").exists()
    assert open_files(folder) == []
    with open_home(tmp_path) as another:
        assert another.memory("ada").embed().embedded == 1
        before = (folder / VECTORS).read_bytes()
        leave.set()
        threads[0].join(PATIENCE)
        assert not threads[0].is_alive()
        assert (folder / VECTORS).read_bytes() == before
    assert open_files(folder) == []


def test_what_a_model_says_after_its_home_was_closed_is_not_written(tmp_path, monkeypatch, caplog):
    embedder = BagOfWords()
    entered, leave = threading.Event(), threading.Event()

    def hold(_: Sequence[str]) -> None:
        entered.set()
        leave.wait(PATIENCE)

    embedder.before = hold
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    home = open_home(tmp_path)
    memory = home.memory("ada")
    memory.add_fact("has a dog")
    embedding = threading.Thread(target=memory.embed)
    embedding.start()
    assert entered.wait(PATIENCE)
    home.close()
    leave.set()
    embedding.join(PATIENCE)
    assert not embedding.is_alive()
    assert len(embedder.read) == 1
    assert not (tmp_path / "users/ada" / VECTORS).exists()
    assert open_files(tmp_path) == []
    assert "vectors" not in caplog.text


def test_a_thread_that_is_left_behind_complains_about_nothing(bench, caplog):
    bench.add(ADA)
    entered, leave = threading.Event(), threading.Event()

    def fail(_: Sequence[str]) -> None:
        entered.set()
        leave.wait(PATIENCE)
        raise ModelUnavailableError("closed under it")

    bench.embedder.before = fail
    embedding = bench.embedding()
    embedding.wanted(bench.known[ADA])
    assert entered.wait(PATIENCE)
    embedding.close(0.0)
    leave.set()
    embedding.close(PATIENCE)
    assert "closed under it" not in caplog.text


@pytest.mark.parametrize("where", ["here", "in another home object"])
@pytest.mark.parametrize("first", [True, False])
def test_what_is_forgotten_while_it_is_embedded_is_in_no_file_afterwards(tmp_path, monkeypatch, where, first):
    embedder = BagOfWords()
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: embedder)
    asked: list[str] = []
    with open_home(tmp_path) as home, open_home(tmp_path) as another:
        memory = home.memory("ada")
        memory.record("t1", [{"role": "user", "content": "I drink matcha in the morning", "id": "1"}])
        memory.record("t2", [{"role": "user", "content": "My dog is called Rex", "id": "2"}])
        memory.add_fact("has a dog")
        if not first:
            memory.embed()
            memory.record("t1", [{"role": "user", "content": "More matcha in the evening", "id": "3"}])
            memory.record("t2", [{"role": "user", "content": "Rex is old", "id": "4"}])

        def forget(texts: Sequence[str]) -> None:
            asked.extend(texts)
            if any("matcha" in text for text in texts):
                embedder.before = asked.extend
                (home if where == "here" else another).memory("ada").forget(thread_id="t1")

        embedder.before = forget
        memory.embed()
        assert any("matcha" in text for text in asked)
        erased = {text for text in embedder.read if "matcha" in text}
        data = (tmp_path / "users/ada" / VECTORS).read_bytes() if (tmp_path / "users/ada" / VECTORS).exists() else b""
        assert not any(embedder._vector(text).astype(np.float16).tobytes() in data for text in erased)
        embedder.read.clear()
        reached = memory.embed()
        assert reached.embedded == reached.total == (2 if first else 3)
        assert not any("matcha" in text for text in embedder.read)
        assert [hit.content for hit in memory.search("drink matcha", within="turns")] != []
        assert all("matcha" not in hit.content for hit in memory.search("drink matcha", within="turns"))
