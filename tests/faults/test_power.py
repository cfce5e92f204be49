"""The power goes, and every write that was not synced is gone, or some of it, torn anywhere.

Promised: each turn and each commit that was acknowledged is there, once; the chains hold; whoever opens the home goes
on from it. What is derived (memory.json, the index) may be behind, empty or missing; after an open it is exact.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fakes import ScriptedModel, exchange, open_home
from faults.logs import Scope
from faults.power import Power
from sizes import PATIENT, chance, sized

from backstory.ledger.extraction.models.model import Prompt
from backstory.memory import MemoryHandle

pytestmark = [pytest.mark.slow, PATIENT]

USER = "ada"


class Acknowledged(msgspec.Struct):
    """What the host was told is durable."""

    turns: list[str] = []
    facts: list[str] = []
    commits: list[str] = []

    def copy(self) -> Acknowledged:
        return Acknowledged(self.turns.copy(), self.facts.copy(), self.commits.copy())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.fixture
def power(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    power = Power(root, monkeypatch)
    yield power
    power.moment = lambda: None
    power.close()


class Work:
    """A random host: it records, learns, enters, removes and clears; and notes what was acknowledged, when it was."""

    def __init__(self, home: Path, luck: random.Random, name: str = "w") -> None:
        self.known = Acknowledged()
        self._home = home
        self._luck = luck
        self._name = name
        self._number = 0
        self.reopen()

    def reopen(self) -> None:
        self._backstory = open_home(
            self._home, ScriptedModel(self._answer, repeat=True), max_facts=10_000, max_facts_limit=10_000
        )
        self.memory = self._backstory.memory(USER)

    def _answer(self, prompt: Prompt) -> str:
        return msgspec.json.encode(
            {"newFacts": [{"content": f"{self._name} learned {self._number}", "confidence": 0.9}]}
        ).decode()

    def step(self) -> None:
        self._number += 1
        kinds = ["record"] * 4 + ["add"] * 3 + ["extract"] * 3 + ["remove", "clear", "reopen"]
        getattr(self, "_" + self._luck.choice(kinds))(f"{self._name} {self._number}")
        if self._luck.random() < 0.7 and self.memory.head().seq:
            self.known.commits.append(self.memory.head().hash)

    def _record(self, words: str) -> None:
        messages = exchange(words + " and so on" * 200)  # enough of it for an index in a file
        self.memory.record(f"{self._name}{self._luck.randrange(3)}", messages, mode="append")
        self.known.turns += [str(message["content"]) for message in messages]

    def _add(self, words: str) -> None:
        self.memory.add_fact(words)
        self.known.facts.append(words)

    def _extract(self, words: str) -> None:
        if self.memory.extract().updates:
            self.known.facts.append(f"{self._name} learned {self._number}")

    def _remove(self, words: str) -> None:
        for fact in self.memory.facts()[:1]:
            self.memory.remove_fact(fact.id)

    def _clear(self, words: str) -> None:
        self.memory.clear()

    def _reopen(self, words: str) -> None:
        self._backstory.close()
        self.reopen()


def check_found(home: Path, known: Acknowledged) -> None:
    """Open what a power cut left as a new process would, and hold it to what was acknowledged."""
    scope = Scope(home / "users" / USER)
    said = list(scope.turns().values())
    assert set(known.turns) <= set(said)
    assert len(said) == len(set(said))
    assert set(known.facts) <= set(scope.added())
    assert set(known.commits) <= {commit["hash"] for commit in scope.ledger.commits}
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        assert {problem.kind for problem in memory.verify().problems} <= {
            "torn_tail",
            "document_differs",
            "index_differs",
        }
        go_on(memory)
        memory.flush()
    with open_home(home) as backstory:
        found = backstory.memory(USER).verify()
        assert found.ok, found.problems
        document = backstory.memory(USER).document()
    after = Scope(home / "users" / USER)
    assert after.document() == [fact.content for fact in document.facts]
    assert after.ledger.commits[: len(scope.ledger.commits)] == scope.ledger.commits
    assert after.transcript.commits[: len(scope.transcript.commits)] == scope.transcript.commits


def go_on(memory: MemoryHandle) -> None:
    memory.record("after", exchange("what came after the power cut"))
    memory.add_fact("after the power cut")


@pytest.mark.parametrize("lucky", [False, True], ids=["all unsynced is gone", "some of it is left"])
@pytest.mark.parametrize("number", range(sized(1, 40)))
def test_the_power_goes_at_random_moments(
    root: Path, tmp_path: Path, power: Power, number: int, *, lucky: bool
) -> None:
    luck = chance(number)
    when = random.Random(number)  # noqa: S311 not the one that the work draws from
    work = Work(root / "outer" / "home", luck)
    found: list[tuple[Path, Acknowledged]] = []

    def moment() -> None:
        if when.random() < 0.03:
            # Told first, lost then: whatever is acknowledged in between only makes the disk hold more.
            told = work.known.copy()
            place = tmp_path / f"found{len(found)}"
            power.lose(place, when if lucky else None)
            found.append((place / "outer" / "home", told))

    power.moment = moment
    for _ in range(sized(40, 150)):
        work.step()
    power.moment = lambda: None
    assert len(found) > sized(5, 10)
    for home, known in found:
        check_found(home, known)
        shutil.rmtree(home.parents[1])


@pytest.mark.parametrize("number", range(sized(1, 20)))
def test_the_power_goes_while_threads_share_a_sync(root: Path, tmp_path: Path, power: Power, number: int) -> None:
    """Nobody is told of a commit before the sync that others make for it is over."""
    luck = chance(number)
    home = root / "home"
    known, mutex = Acknowledged(), threading.Lock()
    found: list[tuple[Path, Acknowledged]] = []
    when = random.Random(number)  # noqa: S311 not the one that the work draws from

    def moment() -> None:
        if when.random() < 0.03:
            with mutex:
                told = known.copy()
            place = tmp_path / f"found{len(found)}"
            power.lose(place)
            found.append((place / "home", told))

    with open_home(home, max_facts=10_000, max_facts_limit=10_000) as backstory:
        memory = backstory.memory(USER)

        def work(name: str) -> None:
            for n in range(sized(15, 60)):
                words = f"{name} {n}"
                memory.record(name, exchange(words), mode="append")
                with mutex:
                    known.turns += [str(message["content"]) for message in exchange(words)]
                memory.add_fact(words)
                with mutex:
                    known.facts.append(words)

        power.moment = moment
        threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(luck.randint(3, 8))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        power.moment = lambda: None
    assert len(known.facts) == len(threads) * sized(15, 60)
    assert len(found) > 3
    for place, told in found:
        check_found(place, told)


def test_the_layer_forgets_what_was_not_synced(root: Path, tmp_path: Path, power: Power) -> None:
    """The stand-in itself: were it to forget nothing, the tests above would prove nothing."""
    with (root / "file").open("wb", buffering=0) as file:
        file.write(b"synced")
        os.fsync(file.fileno())
        power.lose(tmp_path / "unlisted")
        folder = os.open(root, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        file.write(b" and not")
        power.lose(tmp_path / "listed")
        (root / "file").rename(root / "renamed")
        power.lose(tmp_path / "renamed")
    assert list((tmp_path / "unlisted").iterdir()) == []
    for place in ("listed", "renamed"):
        assert {path.name: path.read_bytes() for path in (tmp_path / place).iterdir()} == {"file": b"synced"}
