"""Repair mends by moving aside and never deletes; what it leaves is intact, and killed half-way it loses nothing."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from fakes import CountingSalts, FakeClock, open_home
from small_home import LEDGER, SCOPE, TRANSCRIPT, USER, Home, redacted, resealed

from backstory.ledger.core.commit import FORMAT, Cause, Head, head_of, inspect
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.core.events import PolicyChanged
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.projections.document.document import render
from backstory.projections.history.moment import replay
from backstory.projections.integrity.remedies import Check
from backstory.projections.integrity.repair import repair
from backstory.testing.lines import as_file, by_hand, erase, sealed


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("repair") / "home")


@pytest.fixture
def home(template: Home, tmp_path: Path) -> Iterator[Home]:
    """A copy of the memory."""
    kept, template.path = template.path, Path(shutil.copytree(template.path, tmp_path / "home"))
    yield template
    template.path = kept


STREAMS = pytest.mark.parametrize("stream", [LEDGER, TRANSCRIPT])


def lines_of(home: Home, stream: str) -> list[bytes]:
    return list(home.ledger if stream == LEDGER else home.transcript)


def mend(home: Home, *, dry_run: bool = False) -> dict[str, Check]:
    store = JsonlStore(home.path, clock=FakeClock())
    checks = repair(store, SCOPE, document=home.document, dry_run=dry_run)
    assert all("\n" not in check.hint for check in checks)
    return {check.check: check for check in checks}


def files(home: Home) -> dict[str, bytes]:
    folder = home.document.parent
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock" and path.is_file()}


def go_on(home: Home) -> None:
    """The next write works, and what it leaves is right."""
    with open_home(home.path) as bs:
        memory = bs.memory(USER)
        memory.record("t9", [{"role": "user", "content": "I sing.", "id": "s1"}])
        memory.add_fact("sings")
    assert home.document.read_bytes() == render(replay(JsonlStore(home.path), SCOPE))


def test_nothing_is_wrong(home: Home) -> None:
    before = files(home)
    found = mend(home)
    assert [(check.check, check.ok) for check in found.values()] == [
        (LEDGER, True),
        (TRANSCRIPT, True),
        ("users/ada/memory.json", True),
    ]
    assert "6 commits, nothing to mend" in found[LEDGER].hint
    assert files(home) == before


def test_nothing_is_there(tmp_path: Path) -> None:
    found = repair(JsonlStore(tmp_path), SCOPE, document=tmp_path / "users/ada/memory.json")
    assert all(check.ok for check in found)
    assert list(tmp_path.iterdir()) == []


@STREAMS
def test_a_torn_tail_is_moved_to_its_sidecar(home: Home, stream: str) -> None:
    lines = lines_of(home, stream)
    home.file(stream).write_bytes(as_file(lines) + b'{"v":1,"se')
    shown = mend(home, dry_run=True)[stream]
    assert not shown.ok
    assert "10 bytes" in shown.hint
    assert home.file(stream).read_bytes() == as_file(lines) + b'{"v":1,"se'
    found = mend(home)[stream]
    assert found.ok
    assert "torn-1" in found.hint
    assert home.file(stream).read_bytes() == as_file(lines)
    aside = home.file(stream).with_name(f"{home.file(stream).stem}.torn-1")
    assert aside.read_bytes() == b'{"v":1,"se'
    assert aside.stat().st_mode & 0o777 == 0o600
    assert home.verify().ok
    go_on(home)


@STREAMS
@pytest.mark.parametrize("how", ["reversed", "doubled", "garbage between", "doubled and reversed"])
def test_lines_that_make_an_intact_chain_are_put_in_order_and_nothing_is_lost(
    home: Home, stream: str, how: str
) -> None:
    lines = lines_of(home, stream)
    damaged = {
        "reversed": lines[::-1],
        "doubled": [line for line in lines for _ in range(2)],
        "garbage between": [lines[0], b"", b"{}", *lines[1:]],
        "doubled and reversed": [*lines[::-1], *lines],
    }[how]
    home.put(stream, damaged)
    assert not mend(home, dry_run=True)[stream].ok
    assert home.file(stream).read_bytes() == as_file(damaged)
    found = mend(home)
    assert found[stream].ok
    assert f"{len(lines)} commits" in found[stream].hint
    assert ("nothing is lost" in found[stream].hint) == (how != "garbage between")
    assert home.file(stream).read_bytes() == as_file(lines)
    aside = home.file(stream).with_name(f"{home.file(stream).stem}.damaged-1")
    assert aside.read_bytes() == as_file(damaged)
    assert home.file(stream).stat().st_mode & 0o777 == 0o600
    assert home.verify().ok
    go_on(home)


@pytest.mark.parametrize("damage", ["altered", "missing", "broken_prev"])
def test_of_a_ledger_with_a_hole_the_commits_before_it_are_kept_and_the_file_is_moved_aside(
    home: Home, damage: str
) -> None:
    lines = list(home.ledger)
    if damage == "altered":
        lines[3] = lines[3].replace(b"tea", b"gin")
    elif damage == "missing":
        del lines[3]
    else:
        lines[3] = resealed(lines[3], prev="ab" * 32)
    home.put(LEDGER, lines)
    assert home.verify().problems[0].kind == damage
    shown = mend(home, dry_run=True)
    assert "ledger.damaged-1" in shown[LEDGER].hint
    assert not home.document.with_name("ledger.damaged-1").exists()
    found = mend(home)
    lost = {"altered": "2 whole commits", "missing": "2 whole commits", "broken_prev": "3 whole commits"}[damage]
    assert lost in found[LEDGER].hint
    assert ("1 line that is no commit" in found[LEDGER].hint) == (damage == "altered")
    assert "no longer in force" in found[LEDGER].hint
    assert home.file(LEDGER).read_bytes() == as_file(home.ledger[:3])
    assert home.document.with_name("ledger.damaged-1").read_bytes() == as_file(lines)
    assert "memory.json.edited-1" in found["users/ada/memory.json"].hint
    assert home.verify().ok
    go_on(home)


@STREAMS
def test_of_a_stream_whose_first_line_is_damaged_nothing_is_kept_in_force(home: Home, stream: str) -> None:
    lines = [lines_of(home, stream)[0][:-1], *lines_of(home, stream)[1:]]
    home.put(stream, lines)
    found = mend(home)
    assert "0 commits" in found[stream].hint
    assert home.file(stream).read_bytes() == b""
    assert home.file(stream).with_name(f"{home.file(stream).stem}.damaged-1").read_bytes() == as_file(lines)
    go_on(home)


def test_a_line_that_nobody_can_read_is_not_kept_in_force(home: Home) -> None:
    unknown = by_hand([b'{"kind":"policy"}', b'{"type":"FactDreamt"}'], after=head_of(home.ledger[-1]))
    home.put(LEDGER, [*home.ledger, unknown])
    assert "1 line that is no commit" in mend(home)[LEDGER].hint
    assert home.file(LEDGER).read_bytes() == as_file(home.ledger)


def test_of_two_branches_the_longer_is_kept(home: Home) -> None:
    rival = sealed(PolicyChanged(None, Policy()), after=head_of(home.ledger[2]), cause=Cause(kind="policy"))
    for lines in (
        [*home.ledger[:3], rival, *home.ledger[3:]],
        [*home.ledger[:4], rival, *home.ledger[4:]],
        [rival, *home.ledger],
    ):
        home.put(LEDGER, lines)
        assert "in force: 1 whole commit;" in mend(home)[LEDGER].hint
        assert home.file(LEDGER).read_bytes() == as_file(home.ledger)
    kept = sorted(path.name for path in home.document.parent.glob("*.damaged-*"))
    assert kept == ["ledger.damaged-1", "ledger.damaged-2", "ledger.damaged-3"]


@pytest.mark.parametrize("place", ["before", "behind", "out of order"])
def test_what_was_erased_does_not_come_back_from_a_line_that_is_there_twice(home: Home, place: str) -> None:
    bare, whole = erase(home.ledger[3], 0), home.ledger[3]
    explained = redacted(home, LEDGER, 4, 0)[-1]
    lines = [*home.ledger[:3], bare, *home.ledger[4:], explained]
    damaged = {
        "before": [*lines[:3], whole, *lines[3:]],
        "behind": [*lines, whole],
        "out of order": [whole, *lines[::-1], whole],
    }[place]
    home.put(LEDGER, damaged)
    assert mend(home)[LEDGER].ok
    assert home.file(LEDGER).read_bytes() == as_file(lines)


def test_of_two_copies_of_the_last_commit_the_one_with_more_erased_is_kept(home: Home) -> None:
    bare = erase(home.ledger[-1], 0)
    home.put(LEDGER, [*home.ledger, bare])
    assert mend(home)[LEDGER].ok
    assert home.file(LEDGER).read_bytes() == as_file([*home.ledger[:-1], bare])


def test_a_document_that_a_person_edited_is_moved_aside_and_written_anew(home: Home) -> None:
    right = home.document.read_bytes()
    edited = right.replace(b"tea", b"gin")
    home.document.write_bytes(edited)
    assert not mend(home, dry_run=True)["users/ada/memory.json"].ok
    assert home.document.read_bytes() == edited
    found = mend(home)["users/ada/memory.json"]
    assert found.ok
    assert "memory.json.edited-1" in found.hint
    assert home.document.read_bytes() == right
    assert home.document.with_name("memory.json.edited-1").read_bytes() == edited


def test_a_document_that_lags_behind_is_written_anew_and_nothing_is_moved_aside(home: Home) -> None:
    older = home.document.read_bytes()
    go_on(home)
    newer = home.document.read_bytes()
    home.document.write_bytes(older)
    assert mend(home)["users/ada/memory.json"].ok
    assert home.document.read_bytes() == newer
    assert not list(home.document.parent.glob("*.edited-*"))


def test_a_missing_document_is_left_to_the_next_commit(home: Home) -> None:
    home.document.unlink()
    assert mend(home)["users/ada/memory.json"].ok
    assert not home.document.exists()


def test_a_document_that_cannot_be_mended_is_told(home: Home) -> None:
    home.document.unlink()
    home.document.mkdir()
    assert not mend(home)["users/ada/memory.json"].ok


class Index:
    """An index that differs until it is built anew."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def differs(self) -> list[str]:
        return [] if self.done else ["places of facts differ from the log"]

    def purge(self) -> None:
        self.done.append("deleted")

    def follow(self) -> None:
        self.done.append("built")


def test_an_index_that_differs_is_built_anew(home: Home) -> None:
    index = Index()
    store = JsonlStore(home.path)
    for dry_run in (True, False, False):
        *_, told = repair(store, SCOPE, document=home.document, index=index, dry_run=dry_run)
        assert told.check == "users/ada/index.sqlite"
        assert told.ok == (not dry_run)
        assert index.done == ([] if dry_run else ["deleted", "built"])


# What only a person can mend.


def test_an_erasure_that_nobody_explains_remains(home: Home) -> None:
    home.put(LEDGER, [*home.ledger[:3], erase(home.ledger[3], 0), *home.ledger[4:]])
    home.document.unlink()
    for dry_run in (True, False):
        found = mend(home, dry_run=dry_run)
        assert found[LEDGER].ok
        assert not found["unexplained_redaction"].ok
        assert "restore" in found["unexplained_redaction"].hint


def test_a_transcript_that_was_cut_behind_the_ledgers_back_remains(home: Home) -> None:
    home.put(TRANSCRIPT, home.transcript[:1])
    found = mend(home)
    assert found[TRANSCRIPT].ok
    assert not found["missing"].ok
    assert home.file(TRANSCRIPT).read_bytes() == as_file(home.transcript[:1])


@pytest.mark.parametrize("how", ["another's", "exchanged"])
def test_a_file_that_belongs_elsewhere_is_left_where_it_is(home: Home, tmp_path: Path, how: str) -> None:
    damaged = as_file(home.transcript[::-1] if how == "exchanged" else home.ledger[::-1])
    scope, path = (
        (SCOPE, home.file(LEDGER)) if how == "exchanged" else (Scope("bob"), tmp_path / "users/bob/ledger.jsonl")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(damaged)
    store = JsonlStore(home.path if how == "exchanged" else tmp_path)
    told = repair(store, scope, document=path.with_name("memory.json"))[0]
    assert not told.ok
    assert "put back the right file" in told.hint
    assert path.read_bytes() == damaged


def test_a_newer_format_is_not_mended_away(home: Home) -> None:
    newer = by_hand([b'{"kind":"policy"}', b'{"type":"FactDreamt"}'], v=FORMAT + 1, after=head_of(home.ledger[-1]))
    home.put(LEDGER, [*home.ledger, newer])
    with pytest.raises(StoreError, match="newer backstory"):
        mend(home)
    assert home.file(LEDGER).read_bytes() == as_file([*home.ledger, newer])


def test_while_another_keeps_the_lock_nothing_is_done(home: Home) -> None:
    home.put(LEDGER, home.ledger[::-1])
    before = files(home)
    with JsonlStore(home.path).locked(TRANSCRIPT), pytest.raises(LockTimeoutError):
        repair(JsonlStore(home.path, lock_timeout=0, clock=FakeClock()), SCOPE, document=home.document)
    assert files(home) == before


# Killed half-way.


class Killed(BaseException):
    """The process is no more."""


class Fuse:
    """Lets so many steps of the file system pass, and then kills whoever takes the next one."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, act: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **more: object) -> object:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return act(*arguments, **more)

        return step


def mend_killed_after(home: Home, steps: int) -> bool:
    """Whether it came to its end."""
    fuse = Fuse(steps)
    with pytest.MonkeyPatch.context() as planted:
        for owner, name in ((os, "open"), (os, "fsync"), (os, "write"), (Path, "hardlink_to"), (Path, "replace")):
            planted.setattr(owner, name, fuse(getattr(owner, name)))
        try:
            mend(home)
        except Killed:
            return False
    return True


@pytest.mark.parametrize("hard_links", [True, False])
@STREAMS
def test_killed_at_any_step_it_is_as_it_was_or_mended(
    home: Home, monkeypatch: pytest.MonkeyPatch, stream: str, hard_links: bool
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(95, "no links here")

    if not hard_links:
        monkeypatch.setattr(Path, "hardlink_to", no_link)
    damaged, right = as_file(lines_of(home, stream)[::-1]), as_file(lines_of(home, stream))
    file = home.file(stream)
    done, steps = False, 0
    while not done:
        file.write_bytes(damaged)
        for path in file.parent.glob("*.damaged-*"):
            path.unlink()
        done = mend_killed_after(home, steps)
        assert file.read_bytes() in (damaged, right)
        if file.read_bytes() == right:
            assert file.with_name(f"{file.stem}.damaged-1").read_bytes() == damaged
        assert mend(home)[stream].ok
        assert file.read_bytes() == right
        kept = [path.read_bytes() for path in file.parent.glob("*.damaged-*")]
        assert kept.count(damaged) == len(kept)
        assert len(kept) in ((1,) if hard_links else (1, 2))
        assert not [path for path in file.parent.iterdir() if path.name.startswith(".")]
        steps += 1
    assert steps > 5


def test_a_full_disk_leaves_it_as_it_was(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.put(LEDGER, home.ledger[::-1])
    before = files(home)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="free some space"):
        mend(home)
    assert files(home) == before


# Damage at random.


@pytest.mark.slow
def test_after_any_damage_what_is_kept_is_intact_and_nothing_is_deleted(home: Home) -> None:
    chance = random.Random(20261121)  # noqa: S311 damage is no secret
    folder = home.document.parent
    for _ in range(150):
        for path in folder.iterdir():
            path.unlink()
        home.put(LEDGER, home.ledger)
        home.put(TRANSCRIPT, home.transcript)
        stream = chance.choice([LEDGER, TRANSCRIPT])
        damaged = damage(chance, home.file(stream).read_bytes())
        home.file(stream).write_bytes(damaged)
        mend(home)
        kept = home.file(stream).read_bytes()
        assert longest(lines_of(home, stream), damaged) == kept
        if kept != damaged:
            assert damaged in (kept + data for data in files(home).values()) or damaged in files(home).values()
        again = files(home)
        mend(home)
        assert files(home) == again


def damage(chance: random.Random, data: bytes) -> bytes:
    a, b = sorted(chance.sample(range(len(data)), 2))
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    flipped = data[:a] + bytes([data[a] ^ chance.randrange(1, 256)]) + data[a + 1 :]
    return chance.choice([data[:a] + data[b:], data[:b] + data[a:], b"".join(lines), flipped, data[:b], data[a:]])


def longest(lines: Iterable[bytes], damaged: bytes) -> bytes:
    """As many of the true lines, from the first, as the damage has left."""
    whole = set(damaged[: damaged.rfind(b"\n") + 1].split(b"\n"))
    kept = []
    for line in lines:
        if line not in whole:
            break
        kept.append(line)
    return as_file(kept)


def test_the_longest_chain_in_any_order(home: Home) -> None:
    """Forks of forks: the longest branch that begins at the beginning is kept, wherever its lines stand."""
    chance = random.Random(5)  # noqa: S311 damage is no secret
    salts = CountingSalts()
    for _ in range(60):
        nodes: list[bytes] = [home.ledger[0]]
        for _ in range(chance.randrange(1, 12)):
            parent = head_of(chance.choice(nodes))
            nodes.append(by_hand([b'{"kind":"policy"}'], after=Head(parent.seq, parent.hash), salts=[salts()]))
        deepest = max(inspect(line).seq for line in nodes)
        chance.shuffle(nodes)
        home.put(LEDGER, nodes)
        mend(home)
        lines = home.file(LEDGER).read_bytes().splitlines()
        assert [inspect(line).seq for line in lines] == list(range(1, deepest + 1))
        assert all(inspect(b).prev == inspect(a).hash for a, b in itertools.pairwise(lines))
