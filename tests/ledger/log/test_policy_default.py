"""A ledger that has an earlier default of the policy gets today's, by a commit that says so."""

from __future__ import annotations

from pathlib import Path

from fakes import open_home

from backstory.ledger.core.events import FactRemoved, PolicyChanged

TWICE = ("Likes tea", "Likes\u200b tea")


def older(home: Path) -> None:
    """A home as it was when `normalized` was the default, with a fact that is there twice."""
    with open_home(home, dedup_key="normalized") as bs:
        for content in TWICE:
            bs.memory("ada").add_fact(content)


def test_an_older_memory_gets_the_new_default_with_its_next_commit(tmp_path: Path) -> None:
    older(tmp_path)
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        assert memory.verify().ok
        assert memory.head().seq == 3
        memory.add_fact("Likes milk")
        changed, added = memory.log(limit=2)[::-1]
        assert (changed.cause.kind, changed.cause.actor, added.seq) == ("policy", "configuration", 5)
        assert any(isinstance(event, PolicyChanged) and event.after.dedup_key == "visible" for event in changed.events)
        assert memory.policy().policy.dedup_key == "visible"
        memory.remove_fact(memory.facts()[-1].id)
        assert memory.log(limit=1)[0].seq == 6
        assert memory.verify().ok
        same = memory.what_if()
        assert (same.added, same.removed, same.revised, same.sections) == ((), (), (), ())
        assert memory.reload() == memory.document()


def test_of_facts_that_say_the_same_now_a_model_s_goes(tmp_path: Path) -> None:
    with open_home(tmp_path, dedup_key="normalized") as bs:
        memory = bs.memory("ada").by("agent", by_model=True)
        for content in TWICE:
            memory.add_fact(content)
    with open_home(tmp_path) as bs:
        bs.memory("ada").add_fact("Likes milk")
        assert [fact.content for fact in bs.memory("ada").facts()].count(TWICE[0]) <= 1
        assert len(bs.memory("ada").facts()) == 2
        (removed,) = [event for event in bs.memory("ada").log()[1].events if isinstance(event, FactRemoved)]
        assert removed.reason == "duplicate"
        same = bs.memory("ada").what_if()
        assert (same.added, same.removed, same.revised) == ((), (), ())
        assert bs.memory("ada").verify().ok


def test_what_is_configured_or_was_set_by_hand_stays(tmp_path: Path) -> None:
    older(tmp_path / "configured")
    with open_home(tmp_path / "configured", dedup_key="normalized") as bs:
        bs.memory("ada").add_fact("Likes milk")
        assert bs.memory("ada").policy().policy.dedup_key == "normalized"
    older(tmp_path / "set")
    with open_home(tmp_path / "set", dedup_key="normalized") as bs:
        bs.memory("ada").set_policy(dedup_key="casefold")
    with open_home(tmp_path / "set") as bs:
        bs.memory("ada").add_fact("Likes milk")
        assert bs.memory("ada").policy().policy.dedup_key == "casefold"
    with open_home(tmp_path / "new") as bs:
        memory = bs.memory("ada")
        memory.add_fact("Likes tea")
        memory.set_policy(dedup_key="normalized")
        memory.add_fact("Likes milk")
        assert memory.policy().policy.dedup_key == "normalized"
