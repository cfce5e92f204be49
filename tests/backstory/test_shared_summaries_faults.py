"""Sections that agents share, where logs are repaired, processes die, and erasures come between two commits."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeClock
from test_shared_summaries import bytes_below, events_of, learn, opened, section, work

from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.core.scope import Scope
from backstory.ledger.learning import sharing
from backstory.ledger.log.writer import Writer
from backstory.lifecycle.maintenance import repair_scope
from backstory.operations import forgetting

USERS, CODERS = Path("users/ada/ledger.jsonl"), Path("users/ada/agents/coder/ledger.jsonl")
FORGOTTEN = {"thread": {"thread_id": "t1"}, "matching": {"matching": "ferret"}, "all": {"everything": True}}
REQUESTS = pytest.mark.parametrize("request_", FORGOTTEN.values(), ids=FORGOTTEN)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def locked(*_: object) -> None:
    raise LockTimeoutError("somebody holds the lock")


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def damage(file: Path, line: int) -> None:
    """Change a line of a log, which no index may hide."""
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"at":"2', b'"at":"3', 1)
    file.write_bytes(b"".join(lines))
    for index in file.parent.rglob("index.sqlite*"):
        index.unlink()


def learn_all(folder: Path, clock: FakeClock, *texts: str, facts: int = 0) -> None:
    with opened(folder, clock=clock) as bs:
        for number in range(facts):
            bs.memory("ada").add_fact(f"Knows number {number}")
        for number, text in enumerate(texts):
            learn(bs.memory("ada", "coder"), section(text), thread=f"t{number}", words=f"I say {text}.")
            clock.advance(60)


@pytest.mark.parametrize("reopen", [True, False], ids=["reopened", "going on"])
@pytest.mark.parametrize("line", [0, 1, -1])
def test_what_an_agent_shares_after_a_repair_of_its_ledger_reaches_the_user(tmp_path, clock, line, reopen):
    learn_all(tmp_path, clock, "One", "Two", "Three")
    damage(tmp_path / CODERS, line)
    bs = opened(tmp_path, clock=clock)
    repair_scope(bs, Scope("ada", "coder"))
    if reopen:
        bs.close()
        bs = opened(tmp_path, clock=clock)
    with bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        assert work(user) == work(coder) == "Three"
        for text in ("Four", "Five", "Six"):
            learn(coder, section(text), thread=text, words=f"I say {text}.")
            clock.advance(60)
            assert work(user) == work(coder) == text
        assert [entry.summary for entry in user.log() if "cut off" in entry.summary]
        assert len(events_of(user, "share")) == 7
        coder.revert()
        assert work(user) == "Five"
        assert user.what_if().sections == ()
        assert user.verify().problems == coder.verify().problems == ()


@pytest.mark.parametrize("line", [0, 1, 2, -1])
@pytest.mark.parametrize("facts", [0, 9])
def test_a_share_that_a_repair_of_the_users_ledger_cut_off_is_delivered_again_once(tmp_path, clock, line, facts):
    learn_all(tmp_path, clock, "One", "Two", "Three", facts=facts)
    damage(tmp_path / USERS, line)
    with opened(tmp_path, clock=clock) as bs:
        repair_scope(bs, Scope("ada"))
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        assert work(user) == work(coder) == "Three"
        assert len(events_of(user, "share")) == 3
        learn(coder, section("Four"), thread="t4", words="I say four.")
        assert work(user) == work(coder) == "Four"
        assert user.verify().problems == coder.verify().problems == ()


@REQUESTS
def test_an_erasure_that_overtakes_a_delivery_leaves_nothing_to_deliver(tmp_path, clock, monkeypatch, request_):
    with opened(tmp_path, clock=clock) as bs, opened(tmp_path, clock=clock) as other:
        theirs, whole = other.memory("ada", "coder"), sharing._hand_over

        def late(*args: object) -> None:
            monkeypatch.setattr(sharing, "_hand_over", whole)
            with monkeypatch.context() as patch:
                patch.setattr(forgetting, "try_to_deliver", lambda *_, **__: None)
                theirs.forget(**request_)
            whole(*args)

        monkeypatch.setattr(sharing, "_hand_over", late)
        learn(bs.memory("ada", "coder"), section("Keeps a ferret"), words="I keep a ferret.")
        assert work(bs.memory("ada")) == work(theirs) == ""
    assert b"ferret" not in bytes_below(tmp_path).lower()


def test_a_removal_that_overtakes_a_delivery_leaves_nothing_to_deliver(tmp_path, clock, monkeypatch):
    with opened(tmp_path, clock=clock) as bs, opened(tmp_path, clock=clock) as other:
        whole = sharing._hand_over

        def late(*args: object) -> None:
            monkeypatch.setattr(sharing, "_hand_over", whole)
            other.forget_user("ada")
            whole(*args)

        monkeypatch.setattr(sharing, "_hand_over", late)
        learn(bs.memory("ada", "coder"), section("Keeps a ferret"), words="I keep a ferret.")
        assert work(bs.memory("ada")) == ""
    assert b"ferret" not in bytes_below(tmp_path).lower()


@pytest.mark.parametrize(
    ("owner", "request_"),
    # The user's memory has nothing else of it than what matches.
    [*(("coder", request) for request in FORGOTTEN.values()), (None, FORGOTTEN["matching"])],
    ids=[*FORGOTTEN, "matching, of the user"],
)
def test_a_delivery_in_the_middle_of_an_erasure_is_erased_too(tmp_path, clock, monkeypatch, request_, owner):
    with opened(tmp_path, clock=clock) as bs, opened(tmp_path, clock=clock) as other:
        with monkeypatch.context() as patch:
            patch.setattr(sharing, "_hand_over", locked)
            learn(other.memory("ada", "coder"), section("Keeps a ferret"), words="I keep a pet.")
            memory = bs.memory("ada", owner)
        whole, calls = forgetting._erase_elsewhere, []

        def late(*args: object, **kwargs: object) -> object:
            calls.append(1)
            if len(calls) > 1:
                return whole(*args, **kwargs)
            plans = [] if owner is None else whole(*args, **kwargs)
            sharing.deliver(other.memory("ada", "coder")._services.own)
            assert work(other.memory("ada")) == "Keeps a ferret"
            return whole(*args, **kwargs) if owner is None else plans

        with monkeypatch.context() as patch:
            patch.setattr(forgetting, "_erase_elsewhere", late)
            patch.setattr(forgetting, "try_to_deliver", lambda *_, **__: None)
            memory.forget(**request_)
        assert work(memory) == work(bs.memory("ada")) == work(other.memory("ada")) == ""
        assert bs.memory("ada").verify().ok
        assert bs.memory("ada", "coder").verify().ok
    assert b"ferret" not in bytes_below(tmp_path).lower()


def test_what_was_made_on_erased_sections_leaves_the_agent_although_the_delivery_is_interrupted(tmp_path, clock):
    with opened(tmp_path, clock=clock) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        learn(user, section("Lives in Oslo"), words="I live in Oslo.")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharing, "_hand_over", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learn(coder, section("Fjord city dweller"), words="Tea, please.")
            user.forget(matching="Oslo")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "forget", interrupted)
            with pytest.raises(KeyboardInterrupt):
                work(user)
    with opened(tmp_path, clock=clock) as bs:
        coder, user = bs.memory("ada", "coder"), bs.memory("ada")
        assert work(user) == work(coder) == ""
        assert user.log()[0].events[-1].reason == "basis"
        assert coder.verify().ok
        assert user.verify().ok
    assert b"fjord" not in bytes_below(tmp_path).lower()
