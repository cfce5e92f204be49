"""The state of a memory: no erasure, repair, removal or end forgets one of its read models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import exchange, open_home

from backstory import scope_state
from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.lifecycle.maintenance import repair_scope
from backstory.projections.read_model import ReadModel
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
