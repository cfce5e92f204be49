"""Rounds of faults: while writers of two processes append and followers follow, servers, links and writers fail."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fakes import PATIENCE
from rounds.checking import notes_in, problems_of
from rounds.child import LONGEST, Child
from rounds.engines import ENGINES, Engine
from rounds.writers import open_engine
from sizes import sized

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.port import EventStore

pytestmark = [
    pytest.mark.engine,
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

ROUNDS = sized(1, 200)
IN_TURN = sized(1, 3)
"""In how many rounds each fault happens once."""
THREADS = sized(4, 8)
MORE = 2 * THREADS
"""How many lines each process appends before the first fault and after each."""
STREAMS = [f"users/u{number}/ledger" for number in range(3)]


class Writing(Child):
    """A process of writers, and the file of its notes."""

    def __init__(self, url: str, notes: Path) -> None:
        self.notes = notes
        super().__init__("writers", url, notes, str(THREADS), *STREAMS)

    def kept(self) -> int:
        """How many lines it was told are kept."""
        self.must_run()
        return self.notes.read_bytes().count(b'"said":"kept"') if self.notes.exists() else 0


class Followed:
    """What a follower of each stream has got, each with a connection of its own."""

    def __init__(self, url: str) -> None:
        self.lines: dict[str, list[bytes]] = {stream: [] for stream in STREAMS}
        self.wrong: list[BaseException] = []
        self._over = False
        self._threads = [
            # Of a round that failed none may keep the tests from ending.
            threading.Thread(target=self._follow, args=(open_engine(url), stream), daemon=True)
            for stream in STREAMS
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self, store: EventStore, stream: str) -> None:
        while not self._over:
            try:
                for record in store.follow(stream, len(self.lines[stream])):
                    self.lines[stream].append(record.line)
            except StoreError:
                # A server was away for longer than a store waits for it: it goes on from where it was.
                continue
            except BaseException as error:  # noqa: BLE001 told to the test
                self.wrong.append(error)
                break
        store.close()

    def end(self, store: EventStore) -> None:
        """Remove what they follow, which ends them."""
        self._over = True
        store.remove("users")
        for thread in self._threads:
            thread.join(PATIENCE)

    def until(self, store: EventStore) -> None:
        """Wait until they have got the last line that there is."""
        heads = {stream: store.head(stream) for stream in STREAMS}
        wait(lambda: all(lines and head_of(lines[-1]) == heads[stream] for stream, lines in self.lines.items()))


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    while not until():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def wait_for_more(writing: Sequence[Writing]) -> None:
    """Wait until each process has appended more. They do so by themselves, once the servers are back."""
    before = [one.kept() for one in writing]
    wait(lambda: all(one.kept() >= kept + MORE for one, kept in zip(writing, before, strict=True)))


def faults_of(names: Sequence[str], number: int) -> list[str]:
    """Choose the faults of a round: of as many as are `IN_TURN`, each fault is in one."""
    turn, place = divmod(number, IN_TURN)
    chance = random.Random(turn)  # noqa: S311 faults are chosen
    return chance.sample(names, len(names))[place::IN_TURN]


def play(engine: Engine, number: int, folder: Path) -> list[str]:
    """Play a round and return what is wrong."""
    chance = random.Random(number)  # noqa: S311 moments are chosen
    reached, direct = engine.begin(number)
    followed = Followed(reached)
    writing = [Writing(reached, folder / f"notes-{number}-{one}") for one in range(2)]
    files = [one.notes for one in writing]
    try:
        wait_for_more(writing)
        for fault in faults_of(["writer", *sorted(engine.faults)], number):
            time.sleep(chance.random() / 10)
            if fault == "writer":
                writing[0].kill()
                writing[0] = Writing(reached, folder / f"notes-{number}-again")
                files.append(writing[0].notes)
            else:
                engine.faults[fault](chance)
            wait_for_more(writing)
        for one in writing:
            one.end()
    finally:
        for one in writing:
            one.kill()
    store = open_engine(direct)
    followed.until(store)
    problems = problems_of(store, STREAMS, notes_in(*files), followed.lines)
    problems += [f"a follower ended: {error!r}" for error in followed.wrong]
    followed.end(store)
    store.close()
    engine.end()
    return problems


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE * 20 * ROUNDS)
@pytest.mark.parametrize(
    # One of them, so that the rounds work when they are needed: each engine has tests of its own for each fault.
    "name",
    [pytest.param(name, marks=() if name == "postgres" else pytest.mark.torture) for name in ENGINES],
)
def test_nothing_that_was_acknowledged_is_lost_whatever_fails(name: str, tmp_path: Path) -> None:
    with ENGINES[name]() as engine:
        for number in range(ROUNDS):
            begun = time.monotonic()
            problems = play(engine, number, tmp_path)
            chosen = ", ".join(faults_of(["writer", *sorted(engine.faults)], number))
            print(f"round {number} ({chosen}): {time.monotonic() - begun:.1f} s")  # noqa: T201 shown beside a failure
            assert problems == [], f"round {number}"
