"""Erased turns that are sent again: known by a keyed digest, whose key is kept outside the log."""

from __future__ import annotations

import hashlib
import hmac
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from fakes import FakeClock, ScriptedModel, open_home, reply

from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.erasure.digest import sealing
from backstory.memory import MemoryHandle

SECRET = {"role": "user", "content": "my PIN is 1234"}
TALK = [
    {"role": "user", "content": "I am Ada"},
    {"role": "assistant", "content": "Hello"},
    SECRET,
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "I like tea"},
    {"role": "assistant", "content": "Good."},
]
NEXT = [{"role": "user", "content": "I live with Bo"}, {"role": "assistant", "content": "Who is Bo?"}]
LEFT = ["I am Ada", "Hello", "Noted.", "I like tea", "Good."]


def standing(memory: MemoryHandle, thread: str = "t") -> list[str]:
    return [turn.content for turn in memory.transcript(thread)]


def redactions(home: Path) -> list[dict[str, object]]:
    lines = (home / "users" / "ada" / "ledger.jsonl").read_bytes().splitlines()
    return [event for line in lines for event in orjson.loads(line)["events"] if event["type"] == "Redacted"]


@pytest.mark.parametrize("reopened", [False, True])
def test_what_is_new_after_an_erasure_is_recorded_and_the_whole_is_known(tmp_path: Path, reopened: bool) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.forget(matching="1234")
        if not reopened:
            assert memory.record("t", NEXT).turns == 2
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert memory.record("t", NEXT).turns == (2 if reopened else 0)
        assert memory.record("t", [*TALK, *NEXT]).turns == 0
        assert memory.record("t", [SECRET, {"role": "assistant", "content": "Sure."}]).turns == 1
        assert standing(memory) == [*LEFT, "I live with Bo", "Who is Bo?", "Sure."]
        assert memory.verify().ok


def test_pairs_after_an_early_erasure_stand_complete(tmp_path: Path) -> None:
    """Of a conversation of real lengths many turns are as long as the erased one."""
    words = ["tea", "Bo", "Oslo", "rain", "a cat", "music", "trains", "snow"]
    said = [
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"{('I like', 'So you like')[n % 2]} {words[n // 2 % 8]}, {n:03}",
        }
        for n in range(400)
    ]
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        for n in range(0, 400, 2):
            memory.record("t", said[n : n + 2])
            if n == 6:
                memory.forget(matching=str(said[4]["content"]))
        assert standing(memory) == [m["content"] for m in said if m is not said[4]]
        assert memory.record("t", said).turns == 0


@pytest.mark.slow
def test_pairs_under_retention_stand_complete(tmp_path: Path) -> None:
    clock, model = FakeClock(), ScriptedModel(*[reply("nothing")] * 200)
    said = [f"This is what I say, number {n:03}" for n in range(120)]
    with open_home(tmp_path, clock=clock, model=model, transcript_retention_days=2) as bs:
        memory = bs.memory("ada")
        for n in range(0, 120, 2):
            pair = [{"role": "user", "content": said[n]}, {"role": "assistant", "content": said[n + 1]}]
            assert memory.record("t", pair).turns == 2
            memory.extract()
            clock.advance(timedelta(hours=6).total_seconds())
        left = standing(memory)
        assert 8 <= len(left) < 30
        assert left == said[-len(left) :]
        whole = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
        assert memory.record("t", whole).turns == 0
        assert memory.record("t", whole[-40:]).turns == 0
        assert memory.verify().ok


def test_who_holds_the_log_alone_can_test_no_guess(tmp_path: Path) -> None:
    """Two homes in which the same was erased have nothing in common; a guess needs the key."""
    digests = set()
    for name in ("one", "other"):
        home = tmp_path / name
        with open_home(home) as bs:
            memory = bs.memory("ada")
            memory.record("t", TALK)
            assert not list(home.rglob("*.key"))
            memory.forget(matching="1234", dry_run=True)
            assert not list(home.rglob("*.key"))
            memory.forget(matching="1234")
        (redacted,) = [event for event in redactions(home) if event["what"] == "turn"]
        digest = str(redacted["digest"])
        digests.add(digest)
        (file,) = home.rglob("*.key")
        key = file.read_bytes()
        assert (file.name, file.stat().st_mode & 0o777, len(key)) == ("transcript.key", 0o600, 32)
        # As the page on the log's format states it.
        assert hmac.new(key, b"user\0my pin is 1234", hashlib.sha256).hexdigest() == digest
        for path in home.rglob("*"):
            if path.is_file() and path != file:
                assert key not in path.read_bytes()
                assert key.hex().encode() not in path.read_bytes()
    assert len(digests) == 2


def test_texts_that_differ_in_case_and_space_alone_share_a_digest_and_speakers_do_not() -> None:
    seal = sealing(b"k" * 32)
    assert seal("user", "My  PIN\nis 1234 ") == seal("user", "my pin is 1234") == seal("user", "ｍｙ pin is 1234")
    assert seal("user", "my pin is 1234") != seal("assistant", "my pin is 1234")
    assert seal("user", "my pin is 1234") != seal("user", "my pin is 1235")
    assert seal("user", "\ud800") != seal("user", "")


def test_to_forget_everything_destroys_the_key(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.forget(matching="1234")
        assert list(tmp_path.rglob("*.key"))
        memory.forget(everything=True)
        assert not list(tmp_path.rglob("*.key"))
        assert [event.get("digest") for event in redactions(tmp_path)[1:]] == [None] * 5
        with pytest.raises(NotFoundError):
            memory.forget(everything=True)
        # Nothing tells these words from new ones: what is uncertain is recorded.
        assert memory.record("t", NEXT).turns == 2
        memory.forget(matching="Bo")
        assert memory.record("t", NEXT).turns == 0
        assert memory.verify().ok


def test_no_copy_of_a_key_outlives_it(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.forget(matching="1234")
        (file,) = tmp_path.rglob("*.key")
        # As a process leaves it that is killed between the two names of a key.
        file.with_name(".transcript.key.123-456").hardlink_to(file)
        memory.forget(everything=True)
        assert [path for path in tmp_path.rglob("*") if ".key" in path.name] == []


def test_messages_with_ids_stay_out_also_after_everything_was_forgotten(tmp_path: Path) -> None:
    named = [{**message, "id": str(n)} for n, message in enumerate(TALK)]
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", named)
        memory.forget(everything=True)
        assert memory.record("t", named).turns == 0


def test_after_everything_was_forgotten_an_id_may_name_something_else(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", [{"role": "user", "content": "I like tea", "id": "1"}])
        memory.forget(everything=True)
        assert memory.record("t", [{"role": "user", "content": "My dog is called Rex", "id": "1"}]).turns == 1
        assert standing(memory) == ["My dog is called Rex"]


def test_a_replacement_takes_no_message_for_an_erased_turn_by_its_length(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.forget(matching="1234")
        next(tmp_path.rglob("*.key")).unlink()
        told = [*TALK[:2], {"role": "user", "content": "my cat is Rex!"}, *TALK[3:]]
        assert len(str(told[2]["content"])) == len(SECRET["content"])
        memory.record("t", told, mode="replace")
        assert standing(memory) == [message["content"] for message in told]


def test_a_home_that_was_copied_without_its_key_goes_by_the_neighbours(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.forget(matching="1234")
    next(tmp_path.rglob("*.key")).unlink()
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert memory.record("t", NEXT).turns == 2
        assert memory.record("t", [*TALK, *NEXT]).turns == 0
        assert standing(memory) == [*LEFT, "I live with Bo", "Who is Bo?"]


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 40])
def test_a_damaged_key_recognises_nothing_and_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", TALK)
        memory.forget(matching="1234")
        (file,) = tmp_path.rglob("*.key")
        file.write_bytes(damage)
        assert memory.record("t", NEXT).turns == 2
        memory.forget(matching="Bo")
        assert len(file.read_bytes()) == 32
        assert memory.record("t", NEXT).turns == 0
        assert memory.verify().ok


def test_two_processes_that_erase_share_one_key(tmp_path: Path) -> None:
    with open_home(tmp_path) as one, open_home(tmp_path) as other:
        one.memory("ada").record("t", TALK)
        one.memory("ada").forget(matching="1234")
        other.memory("ada").forget(matching="I like tea")
        for bs in (one, other):
            assert bs.memory("ada").record("t", TALK).turns == 0
    assert len({event["digest"] for event in redactions(tmp_path)}) == 2
