"""A link in a home: what it points at would outlive an erasure, so nothing is erased, and the link is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import exchange, open_home

from backstory.home import Backstory
from backstory.ledger.core.errors import StoreError
from backstory.lifecycle.maintenance import doctor


def linked(path: Path, away: Path) -> None:
    """Move a file or a folder away, and leave a link in its place."""
    path.rename(away)
    path.symlink_to(away)


def filled(home: Path) -> Backstory:
    bs = open_home(home)
    for user in ("ada", "bob"):
        memory = bs.memory(user)
        memory.record("t", exchange("tea"))
        memory.add_fact("Likes tea")
    return bs


def links(home: Path) -> str:
    (check,) = [check for check in doctor(home, environ={"OPENAI_API_KEY": "none"}) if check.check == "links"]
    return "" if check.ok else check.hint


@pytest.mark.parametrize("name", ["ledger.jsonl", "transcript.jsonl", "transcript.key"])
@pytest.mark.parametrize("everything", [False, True])
def test_in_a_log_that_is_a_link_nothing_is_erased(tmp_path: Path, name: str, *, everything: bool) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    with filled(home) as bs:
        if name == "transcript.key":
            bs.memory("ada").forget(thread_id="t")
    linked(home / "users" / "ada" / name, away)
    before = away.read_bytes()
    with open_home(home) as bs:
        memory = bs.memory("ada")
        head = memory.head()
        with pytest.raises(StoreError, match=rf"{name} is a link to .*so nothing was erased: move"):
            memory.forget(everything=True) if everything else memory.forget(matching="tea")
        assert (memory.head(), away.read_bytes()) == (head, before)
    if name.endswith(".jsonl"):
        assert f"users/ada/{name}" in links(home)
    (home / "users" / "ada" / name).unlink()
    away.rename(home / "users" / "ada" / name)
    with open_home(home) as bs:
        assert bs.memory("ada").forget(everything=True).commit
        assert b"tea" not in (home / "users" / "ada" / "ledger.jsonl").read_bytes()
    assert links(home) == ""


@pytest.mark.parametrize("place", ["users/ada", "users/ada/ledger.jsonl"])
def test_a_user_behind_a_link_is_not_removed_and_others_can_be(tmp_path: Path, place: str) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    filled(home).close()
    linked(home / place, away)
    assert place in links(home)
    with open_home(home) as bs:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"is a link to .*so nothing was removed"):
                bs.forget_user("ada")
        assert len(bs.memory("ada").facts()) == 1
        bs.forget_user("bob")
        assert not (home / "users" / "bob").exists()
        (home / place).unlink()
        away.rename(home / place)
        bs.forget_user("ada")
    assert not (home / "users" / "ada").exists()


def test_a_link_that_an_older_version_moved_stops_no_removal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with filled(home) as bs:
        (home / "removed").mkdir()
        (home / "removed" / "0123456789abcdef.gone").symlink_to(tmp_path)
        bs.forget_user("ada")
        assert not (home / "users" / "ada").exists()
        assert tmp_path.is_dir()
