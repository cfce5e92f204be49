"""The state of a memory: no erasure, repair, removal or end forgets one of its read models."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from doubles.bag import BagOfWords
from fakes import exchange, open_home

from backstory import scope_state
from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.lifecycle.maintenance import repair_scope
from backstory.projections.read_model import ReadModel
from backstory.projections.search.known import WORDS
from backstory.scope_state import ScopeState

ADA = Scope("ada")


class Planted(ReadModel):
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def start_over(self) -> None:
        self.done.append("start over")

    def purge(self) -> None:
        self.done.append("purge")

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    part = scope_state._Part(lambda _: Planted())
    part.__set_name__(ScopeState, "planted")
    monkeypatch.setattr(ScopeState, "planted", part, raising=False)


def repair(bs: Backstory) -> None:
    log = bs.home / "users/ada/ledger.jsonl"
    log.write_bytes(log.read_bytes()[:-20] + b"\n")
    repair_scope(bs, ADA)
    bs.memory("ada").facts()


ENDS: dict[str, tuple[Callable[[Backstory], object], str]] = {
    "erasure": (lambda bs: bs.memory("ada").forget(matching="tea"), "purge"),
    "erasure elsewhere": (lambda bs: bs.refresh(ADA, erased=True), "purge"),
    "removal": (lambda bs: bs.forget_user("ada"), "purge"),
    "repair": (repair, "start over"),
    "end": (lambda bs: bs.close(), "close"),
}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", ENDS)
def test_no_end_of_what_is_known_forgets_a_read_model(tmp_path: Path, name: str) -> None:
    happen, expected = ENDS[name]
    with open_home(tmp_path) as bs:
        bs.memory("ada").record("t", exchange("tea"))
        bs.memory("ada").add_fact("drinks tea")
        bs.memory("ada").add_fact("plays chess")
        done = vars(bs._services.states(ADA))["planted"] = Planted()
        happen(bs)
        assert expected in done.done


def test_every_part_that_holds_what_is_derived_is_a_read_model(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        state = bs._services.states(ADA)
        parts = {
            name: getattr(state, name) for name, part in vars(ScopeState).items() if isinstance(part, scope_state._Part)
        }
        assert [name for name, part in parts.items() if not isinstance(part, ReadModel)] == ["writer"]


def test_an_erasure_of_a_user_reaches_the_blocks_of_the_agents(tmp_path: Path) -> None:
    with open_home(tmp_path, agent_reads="both") as bs:
        bs.memory("ada").add_fact("drinks tea")
        chef = bs.memory("ada", "chef")
        chef.add_fact("cooks with gas")
        assert "tea" in chef.context().text
        blocks = chef._services.state.blocks
        assert blocks._joined is not None
        bs.memory("ada").forget(matching="tea")
        assert blocks._joined is blocks._prepared is None


class Many:
    """A home of ten memories, each with words in files, and vectors; notes what is read of them."""

    def __init__(self, bs: Backstory) -> None:
        self.bs = bs
        self._read: list[tuple[str, weakref.ref[object]]] = []
        for number in range(10):
            memory = bs.memory(f"user{number}")
            for text in ("green tea", "a cello", "Lisbon", "the harbour", "two cups"):
                memory.add_fact(text)
                memory.record("t", exchange(text), mode="append")
            memory.embed()
            self.asked(f"user{number}")

    def asked(self, name: str) -> list[str]:
        memory = self.bs.memory(name)
        found = [hit.content for within in WORDS for hit in memory.search("cello", within=within)]
        search = self.bs._services.states(Scope(name)).search
        assert search.meaning is not None
        known, vectors = search._kept, search.meaning.vectors
        read = [*known._words.values(), *known._files.values(), *vectors._spaces.values()]
        assert len(read) == 6
        self._read.extend((name, weakref.ref(one)) for one in read)
        return found

    def held(self) -> set[str]:
        """Whose indexes and vectors are in memory."""
        return {name for name, read in self._read if read() is not None}


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Many]:
    pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: BagOfWords())
    monkeypatch.setattr("backstory.projections.search.known.AT_ONCE", 3)
    monkeypatch.setattr(scope_state, "_WARM", 3)
    with open_home(tmp_path) as bs:
        yield Many(bs)


def test_memories_that_are_not_asked_hold_no_index_and_no_vectors(many: Many) -> None:
    assert many.held() == {"user7", "user8", "user9"}
    first = many.asked("user0")
    assert "a cello" in first
    assert many.held() == {"user0", "user8", "user9"}
    # It is the use that counts, also by a handle that was made long before.
    assert many.bs._services.states(Scope("user8")).search.find("cello").hits
    many.asked("user1")
    assert many.held() == {"user0", "user1", "user8"}
    assert many.asked("user9") == first


def test_a_memory_that_was_not_asked_for_long_holds_none_either(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    first, now = many.asked("user9"), monotonic()
    monkeypatch.setattr(scope_state, "monotonic", lambda: now + 601)
    assert many.asked("user8") == first
    assert many.held() == {"user8"}
    assert many.asked("user9") == first


def test_the_end_closes_also_what_was_not_asked_for_long(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = [many.bs._services.states(Scope(name)).search for name in sorted(many.held())]
    now = monotonic()
    monkeypatch.setattr(scope_state, "monotonic", lambda: now + 601)
    many.bs.close()
    assert [search.meaning.vectors._file.is_closed() for search in searches if search.meaning] == [True] * 3
