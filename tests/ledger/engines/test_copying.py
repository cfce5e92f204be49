"""A copy from one engine to another: complete or sealed, whatever happens meanwhile and wherever it is killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from doubles.copied_streams import USERS, contents, copy, grow, takes_changes, write
from doubles.other_engine import OtherEngine
from fakes import PATIENCE

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import ConflictError, CorruptLogError, NotFoundError, SealedError, StoreError
from backstory.ledger.engines.copying import cancel_copy, copy_streams
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import EventStore, Record, Seal
from backstory.testing.conformance import lines_of
from backstory.testing.lines import chain, endless_chain, erase, fill


class KilledError(BaseException):
    """The process is killed here."""


class Home:
    """Where an engine of a kind keeps its streams."""

    def __init__(self, folder: Path, kind: type) -> None:
        self.folder = folder
        self.kind = kind

    def open(self, *more: object) -> EventStore:
        return self.kind(self.folder, *more)  # type: ignore[no-any-return]


@pytest.fixture(params=[(JsonlStore, JsonlStore), (JsonlStore, OtherEngine), (OtherEngine, JsonlStore)], ids=str)
def homes(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Home, Home]:
    source, target = (Home(tmp_path / name, kind) for name, kind in zip(("a", "b"), request.param, strict=True))
    return source, target


@pytest.fixture
def files(tmp_path: Path) -> tuple[Home, Home]:
    return Home(tmp_path / "a", JsonlStore), Home(tmp_path / "b", OtherEngine)


@pytest.fixture
def others(tmp_path: Path) -> tuple[Home, Home]:
    return Home(tmp_path / "a", OtherEngine), Home(tmp_path / "b", OtherEngine)


def test_a_copy_is_the_same_to_the_byte_and_only_it_takes_changes(homes: tuple[Home, Home]) -> None:
    source, target = (home.open() for home in homes)
    write(source)
    before = contents(source)
    told: list[tuple[int, int]] = []
    done = copy_streams(source, target, lambda *step: told.append(step))
    assert (done.streams, done.commits, done.new) == (5, 25, 25)
    assert contents(homes[1].open()) == contents(source) == before
    assert told[0] == (0, 25)
    assert told[-1] == (25, 25)
    for home, open_ in zip(homes, (False, True), strict=True):
        assert takes_changes(home.open()) == open_
    grow(target, "users/ada/ledger")
    with pytest.raises(SealedError, match=f"has moved to {target} and takes no changes: use that one"):
        grow(source, "users/ada/ledger")


def test_a_second_copy_finds_nothing_to_do_and_leaves_the_target_as_it_is(homes: tuple[Home, Home]) -> None:
    source, target = (home.open() for home in homes)
    write(source)
    copy(source, target)
    grow(target, "users/ada/ledger")
    target.remove("users/al")
    before = contents(target)
    assert copy(source, homes[1].open()).new == 0
    assert contents(homes[1].open()) == before
    assert takes_changes(target)


def test_a_copy_that_was_deleted_is_made_again(files: tuple[Home, Home], tmp_path: Path) -> None:
    source, target = (home.open() for home in files)
    write(source)
    copy(source, target)
    (tmp_path / "b").rename(tmp_path / "lost")
    copy(source, files[1].open())
    assert contents(files[1].open()) == contents(source)


def test_a_home_can_move_back(homes: tuple[Home, Home]) -> None:
    source, target = (home.open() for home in homes)
    write(source)
    copy(source, target)
    grow(target, "users/ada/ledger")
    with target.locked("users/ada/transcript"):
        stub = erase(lines_of(target, "users/ada/transcript")[0], 0)
        target.redact("users/ada/transcript", {1: stub})
    assert copy(homes[1].open(), homes[0].open()).new == 1
    assert contents(homes[0].open()) == contents(target)
    assert lines_of(source, "users/ada/transcript")[0] == stub
    assert takes_changes(source)
    assert not takes_changes(target)


# Killed.


def test_wherever_it_is_killed_the_next_call_completes_it(files: tuple[Home, Home], tmp_path: Path) -> None:
    moments = 0
    for moment in itertools.count():
        folder = tmp_path / str(moment)
        source_home, target_home = Home(folder / "a", OtherEngine), Home(folder / "b", OtherEngine)
        write(source_home.open())
        before = contents(source_home.open())
        changes = itertools.count()

        def killed(_: str, moment: int = moment, changes: Iterator[int] = changes) -> None:
            if next(changes) == moment:
                raise KilledError

        try:
            copy(source_home.open(killed), target_home.open(killed))
        except KilledError:
            # At least one of both is sealed at any time, and what can be read at the source is all there is.
            assert contents(source_home.open()) == before
            assert [home.open().seal() for home in (source_home, target_home)] != [None, None] or moment == 0
            copy(source_home.open(), target_home.open())
        else:
            moments = moment
        assert contents(target_home.open()) == before
        assert (source_home.open().seal(), target_home.open().seal()) == (Seal("moved", "other:b"), None)
        if moments:
            break
    assert moments > 25


def test_a_copy_that_goes_on_reads_no_line_into_the_target_twice(files: tuple[Home, Home]) -> None:
    source = files[0].open()
    write(source)
    changes = itertools.count()

    def killed(_: str) -> None:
        if next(changes) == 12:
            raise KilledError

    with pytest.raises(KilledError):
        copy(source, files[1].open(killed))
    there = sum(len(lines_of(files[1].open(), stream)) for stream in USERS)
    assert there == 11
    assert copy(source, files[1].open()).new == 25 - there


# What happens meanwhile.


class Meanwhile(OtherEngine):
    """A source in which something happens just before it is sealed, when everything is copied once."""

    def __init__(self, home: Path, happens: Callable[[EventStore], None]) -> None:
        super().__init__(home, lambda name: happens(self.inner) if name == "set_seal" else None)


def erase_third(store: EventStore) -> None:
    with store.locked("users/ada/ledger"):
        store.redact("users/ada/ledger", {3: erase(lines_of(store, "users/ada/ledger")[2], 0)})


def begin_anew(store: EventStore) -> None:
    store.remove("users/ada")
    fill(store, "users/ada/ledger", chain(5, text="anew"))


HAPPENINGS: Mapping[str, Callable[[EventStore], None]] = {
    "a line is appended": lambda store: grow(store, "users/al/ledger"),
    "a stream is begun": lambda store: fill(store, "users/new/ledger", chain(2)),
    "an event is erased": erase_third,
    "a user is removed": lambda store: store.remove("users/ada"),
    "a user is removed and begins anew": begin_anew,
    "a secret is made": lambda store: store.key("transcript", create=True),
    "a secret is destroyed": lambda store: store.set_key("users/ada/transcript", None),
}


@pytest.mark.parametrize("happens", HAPPENINGS.values(), ids=HAPPENINGS)
@pytest.mark.parametrize("interrupted", [False, True])
def test_what_happens_during_a_copy_is_copied(
    others: tuple[Home, Home], happens: Callable[[EventStore], None], interrupted: bool
) -> None:
    source, target = (home.open() for home in others)
    write(source)
    happened = []

    def once(store: EventStore) -> None:
        if not happened:
            happens(store)
            happened.append(True)
            if interrupted:
                raise KilledError

    meanwhile = Meanwhile(others[0].folder, once)
    if interrupted:
        with pytest.raises(KilledError):
            copy(meanwhile, target)
    copy(meanwhile, others[1].open())
    assert contents(others[1].open()) == contents(others[0].open())
    assert happened == [True]


def test_nothing_that_was_acknowledged_is_lost_to_a_copy(homes: tuple[Home, Home]) -> None:
    write(homes[0].open())
    acknowledged: set[bytes] = set()
    written = threading.Semaphore(0)
    refusals: list[str] = []

    def work(who: int) -> None:
        store = homes[0].open()
        for number in itertools.count():
            stream = f"users/u{who}/agents/a{number % 5}/ledger"
            head = store.head(stream)
            line = next(endless_chain(head, f"{who} {number}"))
            try:
                store.append(stream, [line], head.seq)
            except SealedError as error:
                refusals.append(str(error))
                return
            acknowledged.add(line)
            written.release()

    threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        assert written.acquire(timeout=PATIENCE)
    target = homes[1].open()
    copy(homes[0].open(), target)
    for thread in threads:
        thread.join(PATIENCE)
    there = {line for stream in target.streams("users/u") for line in lines_of(target, stream)}
    assert there == acknowledged
    assert len(refusals) == 3
    assert contents(target) == contents(homes[0].open())


# Refused.


def test_a_home_without_memories_is_not_moved(files: tuple[Home, Home]) -> None:
    with pytest.raises(NotFoundError, match="holds no memories"):
        copy(files[0].open(), files[1].open())
    assert files[0].open().seal() is files[1].open().seal() is None


def test_a_target_with_memories_of_its_own_stays_as_it_is(files: tuple[Home, Home]) -> None:
    source, target = (home.open() for home in files)
    write(source)
    fill(target, "users/eve/ledger", chain(2))
    before = contents(target)
    with pytest.raises(ConflictError, match="has memories of its own, such as users/eve/ledger"):
        copy(source, target)
    assert contents(target) == before
    assert takes_changes(source)
    assert takes_changes(target)


def test_a_moved_or_incomplete_home_moves_nowhere_else(files: tuple[Home, Home], tmp_path: Path) -> None:
    source, target, third = (home.open() for home in (*files, Home(tmp_path / "c", OtherEngine)))
    write(source)
    target.set_seal(Seal("arriving", str(source)))
    fill(target, "ledger", chain(1))
    with pytest.raises(SealedError, match="incomplete copy of jsonl:"):
        copy(target, third)
    write(third)
    with pytest.raises(ConflictError, match=r"belongs to a copy of jsonl:.*, not of other:c"):
        copy(third, files[1].open())
    source.set_seal(Seal("moved", "other:far"))
    with pytest.raises(SealedError, match="has moved to other:far"):
        copy(source, target)


def test_a_damaged_source_is_refused_before_it_is_sealed(files: tuple[Home, Home]) -> None:
    source = files[0].open()
    write(source)
    path = files[0].folder / "users/ada/ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b"said", b"sold").replace(b"ledger 2", b"ledger 7"))
    with pytest.raises(CorruptLogError) as told:
        copy(files[0].open(), files[1].open())
    assert (told.value.kind, told.value.stream, told.value.line) == ("altered", "users/ada/ledger", 2)
    assert source.seal() is None


def test_a_line_cut_short_by_a_crash_is_left_behind(files: tuple[Home, Home]) -> None:
    source = files[0].open()
    write(source)
    lines = lines_of(source, "users/ada/ledger")
    with (files[0].folder / "users/ada/ledger.jsonl").open("ab") as file:
        file.write(b'{"v":1,"seq":4')
    target = files[1].open()
    copy(files[0].open(), target)
    assert lines_of(target, "users/ada/ledger") == lines


def test_an_engine_that_returns_other_lines_is_found_out(files: tuple[Home, Home], tmp_path: Path) -> None:
    class Forgetful(OtherEngine):
        def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
            return (Record(record.line.replace(b"said 2", b"said 3"), 0) for record in self.inner.read(stream, after))

    source = files[0].open()
    fill(source, "users/ada/ledger", chain(3))
    with pytest.raises(StoreError, match="returns other lines of users/ada/ledger after 0 than it was given"):
        copy(source, Forgetful(tmp_path / "b"))
    assert takes_changes(source)


def test_two_copies_at_once_are_one_too_many(files: tuple[Home, Home]) -> None:
    source, target = (home.open() for home in files)
    write(source)
    refused: list[str] = []

    def second(_done: int, _total: int) -> None:
        with pytest.raises(ConflictError, match="another process is copying to other:b just now") as told:
            copy(files[0].open(), files[1].open())
        refused.append(str(told.value))

    copy_streams(source, target, second)
    assert refused


# Given up.


def test_an_incomplete_copy_can_be_given_up(files: tuple[Home, Home]) -> None:
    source, target = (home.open() for home in files)
    write(source)
    with pytest.raises(ConflictError, match="nothing to cancel"):
        cancel_copy(source, target)

    def killed(name: str) -> None:
        if name == "set_key":
            raise KilledError

    with pytest.raises(KilledError):
        copy(source, files[1].open(killed))
    assert not takes_changes(source)
    cancel_copy(files[0].open(), files[1].open())
    assert not takes_changes(files[1].open())
    grow(source, "users/ada/ledger")
    copy(source, files[1].open())
    assert contents(files[1].open()) == contents(source)
    with pytest.raises(ConflictError, match="complete and may be in use"):
        cancel_copy(source, target)
    assert not takes_changes(source)


def test_a_seal_that_cannot_be_read_still_seals(files: tuple[Home, Home]) -> None:
    source = files[0].open()
    write(source)
    (files[0].folder / "sealed.json").write_bytes(b"{")
    with pytest.raises(StoreError, match="is damaged"):
        grow(source, "users/ada/ledger")
    assert head_of(lines_of(source, "users/ada/ledger")[-1]).seq == 3
