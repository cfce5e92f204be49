"""The files of the indexes by words: they find what reading the logs finds, and are believed only if of them."""

from __future__ import annotations

import fcntl
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fakes import open_home
from sizes import examples

from backstory.home import Backstory
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle
from backstory.projections import derived_files
from backstory.projections.search import corpus, known
from backstory.projections.search.corpus import StandingTurns
from backstory.projections.search.filters import SearchFilters
from backstory.projections.search.known import WORDS
from backstory.projections.search.query import Search, delete_stale_words
from backstory.projections.turns import TurnFollower

ADA = Scope("ada")
SAID = (
    "the cello",
    "a violin in May",
    "what about tea?",
    "grandmother's house",
    "tea, and no cello",
    "茶叶很好",
    "Lisbon",
)
QUERIES = ("cello", "violin tea house", "茶叶", "celo lisbon may 2026")


@pytest.fixture(autouse=True)
def _written_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "AT_ONCE", 3)


def opened(home: Path) -> Backstory:
    return open_home(home, embedding_model="none")


@pytest.fixture
def bs(tmp_path: Path) -> Iterator[Backstory]:
    with opened(tmp_path / "home") as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    """A memory whose index by words is in its file."""
    memory = bs.memory("ada")
    for number, text in enumerate(SAID):
        say(memory, "monday", f"m{number}", text)
    assert found(memory) == ["m0", "m4"]
    assert words(bs).exists()
    return memory


def words(bs: Backstory, within: str = "turns") -> Path:
    return bs.home / "users/ada" / WORDS[within]


def say(memory: MemoryHandle, thread: str, turn: str, text: str, **more: object) -> None:
    memory.record(thread, [{"role": "user", "content": text, "id": turn, **more}], mode="append")


def found(memory: MemoryHandle, query: str = "cello") -> list[str]:
    """The turns that say it themselves; those beside them are found as well."""
    return sorted(hit.id for hit in memory.search(query, within="turns", top_k=50) if query in hit.content)


def stated(memory: MemoryHandle, query: str = "cello") -> list[str]:
    """The facts that say it."""
    return sorted(hit.content for hit in memory.search(query, top_k=50))


@pytest.fixture
def stating(bs: Backstory) -> MemoryHandle:
    """A memory whose index of facts is in its file."""
    memory = bs.memory("ada")
    for text in SAID:
        memory.add_fact(text)
    assert stated(memory) == ["tea, and no cello", "the cello"]
    assert words(bs, "facts").stat().st_mode & 0o077 == 0
    return memory


def is_in_use(bs: Backstory, within: str = "turns") -> bool:
    return within in bs._services.states(ADA).search._kept._files


def answers(search: Search) -> list[object]:
    """All that a search says, with each part of each score."""
    asked: list[object] = []
    for query in QUERIES:
        for bounds in ({}, {"thread": "monday"}, {"since": "2026-03-02T00:00:00.000000Z"}, {"tags": ("music",)}):
            with suppress(BackstoryError):
                asked.append(search.find(query, 50, SearchFilters.read("turns", **bounds), explain=True))
        facts_within: list[dict[str, Any]] = [{}, {"thread": "monday"}, {"category": "goal"}]
        asked.extend(search.find(query, 50, SearchFilters.read(**bounds), explain=True) for bounds in facts_within)
        asked.append(search.said(query, 50, lambda turn: turn.n == 2))
    return asked


def read_anew(bs: Backstory, place: Path) -> Search:
    """A search that keeps no file."""
    writer = bs._services.states(ADA).writer
    with mock.patch.object(known, "AT_ONCE", 10**9):
        return Search(writer, follower=TurnFollower(bs.store, ADA), vectors=place / "none" / "vectors.sqlite")


class Walk:
    """Random changes of a memory."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 it is to be repeated
        self.count = 0

    def step(self, memory: MemoryHandle) -> None:
        act = self.chance.choice(
            [
                *[self.say] * 6,
                *[self.learn] * 3,
                *[self.state] * 3,
                self.revise,
                self.edit,
                self.remove,
                self.withdraw,
                *self.rare(),
            ]
        )
        with suppress(BackstoryError):
            act(memory)

    def rare(self) -> list[Callable[[MemoryHandle], object]]:
        return [self.restore, self.forget_fact, self.forget_thread, self.clear] if self.chance.random() < 0.3 else []

    def thread(self) -> str:
        return self.chance.choice(["monday", "tuesday", "so far"])

    def say(self, memory: MemoryHandle) -> None:
        messages = []
        for _ in range(self.chance.randint(1, 4)):
            self.count += 1
            text = f"{self.chance.choice(SAID)} {'word ' * self.chance.choice([0, 0, 40])}"
            at = f"2026-03-0{self.chance.randint(1, 3)}T10:00:00Z"
            role = self.chance.choice(["user", "assistant"])
            messages.append({"role": role, "content": text, "id": f"u{self.count}", "at": at})
        memory.record(self.thread(), messages, mode="append", tags=self.chance.choice([(), ("music",)]))

    def known(self) -> str:
        return f"u{self.chance.randint(1, max(1, self.count))}"

    def edit(self, memory: MemoryHandle) -> None:
        say(memory, self.thread(), self.known(), self.chance.choice(SAID))

    def learn(self, memory: MemoryHandle) -> None:
        item = {"content": f"Owns a cello and {self.count} cups", "confidence": 0.9, "evidence": [self.known()]}
        memory.extract([RecordedReply(self.thread(), json.dumps({"newFacts": [item]}))])

    def state(self, memory: MemoryHandle) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.count += 1
            content = f"{self.chance.choice(SAID)} {self.count}"
            category = self.chance.choice(["goal", "context"])
            memory.add_fact(content, category=category, confidence=self.chance.choice([0.7, 0.9]))

    def revise(self, memory: MemoryHandle) -> None:
        fact = self.chance.choice(memory.facts() or [mock.Mock(id="none")])
        memory.edit_fact(fact.id, f"{self.chance.choice(SAID)}, {self.count} times")

    def remove(self, memory: MemoryHandle) -> None:
        memory.remove_fact(self.chance.choice(memory.facts() or [mock.Mock(id="none")]).id)

    def withdraw(self, memory: MemoryHandle) -> None:
        memory.record(self.thread(), [{"role": "user", "content": "Lisbon", "id": "w"}], mode="replace")

    def restore(self, memory: MemoryHandle) -> None:
        memory.restore(self.thread(), [self.known()])

    def forget_fact(self, memory: MemoryHandle) -> None:
        memory.forget(self.chance.choice(memory.facts() or [mock.Mock(id="none")]).id)

    def forget_thread(self, memory: MemoryHandle) -> None:
        memory.forget(thread_id=self.thread())

    def clear(self, memory: MemoryHandle) -> None:
        memory.clear()


@pytest.mark.parametrize("seed", range(examples(1 / 25)))
def test_it_finds_what_reading_the_logs_finds_whatever_happens(tmp_path: Path, seed: int) -> None:
    walk, home, used = Walk(seed), tmp_path / "home", Counter[str]()
    with opened(home) as bs, opened(home) as other:
        memory = bs.memory("ada")
        for _ in range(15):
            for _ in range(walk.chance.randint(1, 3)):
                walk.step(walk.chance.choice([memory, other.memory("ada")]))
            expected = answers(read_anew(bs, tmp_path))
            assert answers(bs._services.states(ADA).search) == expected
            if walk.chance.random() < 0.5:
                assert answers(other._services.states(ADA).search) == expected
            if walk.chance.random() < 0.3:
                with opened(home) as later:
                    assert answers(later._services.states(ADA).search) == expected
                    used.update(within for within in WORDS if is_in_use(later, within))
    assert used["facts"]
    assert used["turns"]


def test_the_next_process_reads_no_transcript(memory: MemoryHandle, bs: Backstory) -> None:
    with opened(bs.home) as other, mock.patch.object(StandingTurns, "entries", side_effect=AssertionError):
        assert found(other.memory("ada")) == ["m0", "m4"]
        assert is_in_use(other)
        say(memory, "monday", "m9", "one more cello")
        assert found(other.memory("ada")) == ["m0", "m4", "m9"]
        assert len(other._services.states(ADA).search._kept.turns.fresh) == 1


def test_it_is_written_again_when_much_has_come(memory: MemoryHandle, bs: Backstory) -> None:
    before = words(bs).stat().st_ino
    say(memory, "monday", "m8", "a harp")
    found(memory)
    assert words(bs).stat().st_ino == before
    for number in range(9, 15):
        say(memory, "tuesday", f"m{number}", "a harp")
    assert len(found(memory, "harp")) == 7
    assert words(bs).stat().st_ino != before
    assert is_in_use(bs)
    assert words(bs).stat().st_mode & 0o077 == 0


def test_an_erased_word_is_in_no_file(memory: MemoryHandle, bs: Backstory) -> None:
    with opened(bs.home) as other:
        assert found(other.memory("ada"), "grandmother") == ["m3"]
        assert b"grandmoth" in words(bs).read_bytes()
        memory.forget(matching="grandmother")
        assert not words(bs).exists()
        for handle in (other.memory("ada"), memory):
            assert found(handle, "grandmother") == []
            assert "m0" in found(handle)
    assert not [path for path in bs.home.rglob("*") if path.is_file() and b"grandmoth" in path.read_bytes()]


def test_what_was_read_before_an_erasure_is_not_written_during_it_or_after_it(
    memory: MemoryHandle, bs: Backstory
) -> None:
    with opened(bs.home) as other:
        handle = other.memory("ada")
        say(memory, "monday", "m9", "a cello")
        assert found(handle, "grandmother") == ["m3"]
        held = other._services.states(ADA).search._kept
        written: list[bool] = []

        def write() -> None:
            held._put_off = dict.fromkeys(WORDS, 0)
            with mock.patch.object(known, "_TAIL", 10**9):
                assert not held._write("turns")
                assert not held._write("facts")
            written.append(any((bs.home / "users/ada" / name).exists() for name in WORDS.values()))

        redact = JsonlStore.redact

        def redacting(*args: object) -> None:
            write()
            redact(*args)

        with mock.patch.object(JsonlStore, "redact", redacting):
            memory.forget(matching="grandmother")
        write()
        assert written == [False, False, False]


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" * 100)


def of_another_memory(path: Path) -> None:
    with opened(path.parents[2]) as bs:
        other = bs.memory("ben")
        for number, text in enumerate(SAID):
            say(other, "monday", f"x{number}", text)
            other.add_fact(f"{text} of his cello")
        assert len(found(other)) == 2
        assert len(stated(other)) == 7
        path.write_bytes((bs.home / "users/ben" / path.name).read_bytes())


def of_turns(path: Path) -> None:
    with opened(path.parents[2]) as bs:
        for number, text in enumerate(SAID):
            say(bs.memory("ada"), "monday", f"m{number}", text)
        assert found(bs.memory("ada"))
    path.write_bytes(path.with_name(WORDS["turns"]).read_bytes())


def test_the_next_process_indexes_no_fact_but_those_that_changed(stating: MemoryHandle, bs: Backstory) -> None:
    with opened(bs.home) as other:
        handle = other.memory("ada")
        with mock.patch.object(corpus, "fact_entry", side_effect=AssertionError):
            assert stated(handle) == ["tea, and no cello", "the cello"]
            assert is_in_use(other, "facts")
        tea = next(fact for fact in stating.facts() if fact.content == SAID[2])
        stating.edit_fact(tea.id, "what about a cello?")
        stating.add_fact("Lost a cello")
        assert stated(handle) == ["Lost a cello", "tea, and no cello", "the cello", "what about a cello?"]
        assert other._services.states(ADA).search._kept.words("facts").added == 2


def test_facts_that_changed_since_the_file_was_written_are_found_as_they_are(
    stating: MemoryHandle, bs: Backstory
) -> None:
    facts = {fact.content: fact.id for fact in stating.facts()}
    stating.edit_fact(facts["the cello"], "the harp")
    seq = stating.remove_fact(facts["a violin in May"]).commit
    stating.remove_fact(facts["tea, and no cello"])
    stating.revert(seq)
    with opened(bs.home) as other:
        assert stated(other.memory("ada")) == []
        assert stated(other.memory("ada"), "harp") == ["the harp"]
        search, anew = other._services.states(ADA).search, read_anew(other, bs.home)
        assert [search.find(query, 50, explain=True) for query in QUERIES] == [
            anew.find(query, 50, explain=True) for query in QUERIES
        ]
        assert is_in_use(other, "facts")


def test_an_erased_fact_is_in_no_file(stating: MemoryHandle, bs: Backstory) -> None:
    kept = words(bs, "facts").read_bytes()
    assert b"grandmoth" in kept
    with opened(bs.home) as other:
        assert stated(other.memory("ada"), "grandmother") == ["grandmother's house"]
        stating.forget(next(fact.id for fact in stating.facts() if "grandmother" in fact.content))
        assert not words(bs, "facts").exists()
        for handle in (other.memory("ada"), stating):
            assert stated(handle, "grandmother") == []
            assert "the cello" in stated(handle)
    assert not [path for path in bs.home.rglob("*") if path.is_file() and b"grandmoth" in path.read_bytes()]
    words(bs, "facts").write_bytes(kept)
    bs.refresh(ADA)
    assert not words(bs, "facts").exists()


@pytest.mark.parametrize("damage", [flipped, cut, emptied, foreign, of_another_memory, of_turns, Path.unlink])
def test_a_file_of_facts_that_is_not_what_was_written_is_written_anew(
    stating: MemoryHandle, bs: Backstory, damage: Callable[[Path], None]
) -> None:
    damage(words(bs, "facts"))
    for _ in range(2):
        with opened(bs.home) as other:
            assert stated(other.memory("ada")) == ["tea, and no cello", "the cello"]
            assert is_in_use(other, "facts")
    stating.add_fact("Lost a cello")
    assert stated(stating) == ["Lost a cello", "tea, and no cello", "the cello"]


@pytest.mark.parametrize("damage", [flipped, cut, emptied, foreign, of_another_memory, Path.unlink])
def test_a_file_that_is_not_what_was_written_is_written_anew(
    memory: MemoryHandle, bs: Backstory, damage: Callable[[Path], None]
) -> None:
    damage(words(bs))
    with opened(bs.home) as other:
        assert found(other.memory("ada")) == ["m0", "m4"]
        assert is_in_use(other)
    with opened(bs.home) as third:
        assert found(third.memory("ada")) == ["m0", "m4"]


@pytest.mark.parametrize("damage", [flipped, cut, emptied, foreign, Path.unlink])
def test_a_file_that_changes_while_it_is_open_misleads_and_ends_no_process(
    memory: MemoryHandle, bs: Backstory, damage: Callable[[Path], None]
) -> None:
    damage(words(bs))
    say(memory, "monday", "m9", "a cello")
    assert found(memory) == ["m0", "m4", "m9"]
    assert found(memory, "grandmother") == ["m3"]


def test_a_file_of_logs_that_were_exchanged_is_not_believed(
    memory: MemoryHandle, bs: Backstory, tmp_path: Path
) -> None:
    kept = words(bs).read_bytes()
    with opened(tmp_path / "new") as other:
        handle = other.memory("ada")
        for number in range(9):
            say(handle, "monday", f"n{number}", "a harp")
        (other.home / "users/ada" / WORDS["turns"]).write_bytes(kept)
        assert found(handle) == []
        assert len(found(handle, "harp")) == 9


def test_a_file_of_another_version_is_deleted(memory: MemoryHandle, bs: Backstory) -> None:
    module = "backstory.projections.search.on_disk.words_file._VERSION"
    with mock.patch(module, 999):
        delete_stale_words(bs.store, ADA, words(bs).parent)
    assert not words(bs).exists()
    delete_stale_words(bs.store, ADA, words(bs).parent)


def test_copies_that_are_brought_up_to_date_hold_no_word_that_was_erased_elsewhere(
    memory: MemoryHandle, bs: Backstory
) -> None:
    kept = words(bs).read_bytes()
    memory.forget(matching="grandmother")
    words(bs).write_bytes(kept)
    bs.refresh(ADA)
    assert not words(bs).exists()


def test_where_the_folder_cannot_be_written_it_stays_in_memory(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as bs:
        memory = bs.memory("ada")
        for number, text in enumerate(SAID):
            say(memory, "monday", f"m{number}", text)
        with mock.patch("backstory.projections.search.on_disk.words_file.replacing", side_effect=PermissionError):
            assert found(memory) == ["m0", "m4"]
            say(memory, "monday", "m9", "a cello")
            assert found(memory) == ["m0", "m4", "m9"]
        assert not words(bs).exists()


def test_an_erasure_waits_for_who_writes_the_file_and_says_whom_it_waited_for(
    memory: MemoryHandle, bs: Backstory
) -> None:
    lock = words(bs).with_name(derived_files.LOCK)
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LockTimeoutError, match=r"index\.lock is held"):
            derived_files.delete_derived(words(bs), 0.0)
    derived_files.delete_derived(words(bs), 0.0)
    assert not words(bs).exists()


def test_a_first_fact_does_not_make_the_file_useless(memory: MemoryHandle, bs: Backstory) -> None:
    memory.add_fact("Owns a cello")
    with opened(bs.home) as other:
        assert found(other.memory("ada")) == ["m0", "m4"]
        assert is_in_use(other)


def cite(memory: MemoryHandle, thread: str, turn: str, content: str) -> None:
    item = {"content": content, "confidence": 0.9, "evidence": [turn]}
    memory.extract([RecordedReply(thread, json.dumps({"newFacts": [item]}))])


def test_of_facts_that_cite_turns_only_those_of_a_thread_that_is_asked_for_are_read(bs: Backstory) -> None:
    memory = bs.memory("ada")
    for thread in ("monday", "tuesday"):
        for number, text in enumerate(SAID):
            say(memory, thread, f"m{number}", text)
        cite(memory, thread, "m6", f"Went to the seaside on {thread}")
    assert [hit.thread for hit in memory.search("seaside", within="turns", top_k=2)] == ["tuesday", "monday"]
    with opened(bs.home) as other:
        handle = other.memory("ada")
        assert [hit.thread for hit in handle.search("seaside", within="turns", top_k=2)] == ["tuesday", "monday"]
        cited = other._services.states(ADA).search._kept._cited
        assert cited._unread == {"monday", "tuesday"}
        say(memory, "monday", "m7", "one more")
        cite(memory, "monday", "m7", "Owns a boat")
        assert "m7" in {hit.id for hit in handle.search("boat", within="turns")}
        assert cited._unread == {"tuesday"}
        memory.remove_fact(next(fact.id for fact in memory.facts() if "tuesday" in fact.content))
        assert {hit.thread for hit in handle.search("seaside", within="turns")} == {"monday"}
        assert not cited._unread


def test_a_fact_that_came_back_since_the_file_was_written_says_what_its_turn_says(bs: Backstory) -> None:
    memory = bs.memory("ada")
    for number, text in enumerate(SAID):
        say(memory, "monday", f"m{number}", text)
    cite(memory, "monday", "m6", "Went to the seaside")
    commit = memory.remove_fact(memory.facts()[0].id).commit
    assert found(memory)
    with opened(bs.home) as other:
        assert found(other.memory("ada"))
        assert is_in_use(other)
        memory.revert(commit)
        search = other._services.states(ADA).search
        assert not search.said("Lisbon", 1, lambda _: False)[0].changed


def test_few_turns_have_no_file(bs: Backstory) -> None:
    say(bs.memory("ada"), "monday", "m1", "the cello")
    assert found(bs.memory("ada")) == ["m1"]
    assert not words(bs).exists()


def test_a_prompt_waits_for_no_transcript_where_there_is_a_file(memory: MemoryHandle, bs: Backstory) -> None:
    with opened(bs.home) as other, mock.patch("backstory.projections.search.query.AT_ONCE", 3):
        search = other._services.states(ADA).search
        search._background = True
        with mock.patch("backstory.projections.search.query.start_thread", side_effect=AssertionError):
            assert [one.turn.id for one in search.said("cello", 1, lambda _: False)] == ["m0"]
