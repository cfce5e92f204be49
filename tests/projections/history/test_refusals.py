"""What was refused or removed is found by its words, without reading the ledger."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from fakes import exchange, open_home, reply
from hypothesis import given
from hypothesis import strategies as st

from backstory import MemoryHandle
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import FactRemoved
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.projections.history.refusals import RefusalBlock, resembling, statement_of, terms_of
from backstory.projections.index import builder

WORDS = ("tea", "Tea.", "rain", "Oslo", "绿茶", "喜欢绿茶", "the", "…", "2026-03-12", "Åse", "naïve")
texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)


def scores(statements: list[str], text: str) -> list[float]:
    """The score of each statement, by reading all of them."""
    wanted = sorted(terms_of(text))
    terms = [terms_of(statement) for statement in statements]
    weight = {term: math.log(1 + (len(statements) + 1) / (sum(term in one for one in terms) + 0.5)) for term in wanted}
    total = sum(weight.values())
    return [
        1.0
        if dedup_key(statement) == dedup_key(text)
        else 0.99 * sum(weight[term] for term in wanted if term in found) / (total or 1.0)
        for statement, found in zip(statements, terms, strict=True)
    ]


@given(st.lists(texts, max_size=12), texts, st.integers(1, 5))
def test_words_in_blocks_give_the_scores_of_reading_all_statements(statements: list[str], text: str, size: int) -> None:
    blocks = []
    for start in range(0, len(statements), size):
        blocks.append(RefusalBlock([], {}))
        for place, statement in enumerate(statements[start : start + size], start):
            blocks[-1].add(place + 1, place % 2, statement)
    expected = [(score, place + 1, place % 2) for place, score in enumerate(scores(statements, text)) if score >= 0.4]
    found = resembling(blocks, text)
    assert sorted((seq, index) for _, seq, index in found) == [(seq, index) for _, seq, index in expected]
    assert [score for score, _, _ in found] == pytest.approx(sorted((score for score, _, _ in expected), reverse=True))


def refused_by_reading(memory: MemoryHandle, text: str) -> set[tuple[str, int, float]]:
    """What `why_not` is to find, by reading all commits."""
    services = memory._services
    live = services.writer.memory().facts
    events = [(commit, event) for commit in services.commits(services.writer) for event in commit.events]
    stated = [(commit, event, statement) for commit, event in events if (statement := statement_of(event)) is not None]
    found = zip(stated, scores([statement for _, _, statement in stated], text), strict=True)
    return {
        (statement, commit.seq, round(score, 3))
        for (commit, event, statement), score in found
        if score >= 0.4 and not (isinstance(event, FactRemoved) and event.fact.id in live)
    }


def test_why_not_finds_what_reading_the_ledger_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "REFUSALS", 4)
    chance = random.Random(7)  # noqa: S311 the same words in every run
    vocabulary = ("ada", "likes", "green", "tea", "black", "rain", "walks", "woods", "oslo", "night", "trains")
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        for n in range(25):
            memory.record("t", exchange(f"matter {n}", n))
            facts = [f"{' '.join(chance.sample(vocabulary, 3))} {n}" for _ in range(3)]
            memory.extract([RecordedReply("t", reply(*facts, confidence=chance.choice((0.3, 0.9))))])
            if n % 3 == 0 and memory.facts():
                memory.remove_fact(chance.choice(memory.facts()).id)
            if n % 7 == 5:
                # Another question meanwhile: the index goes on from where it stands.
                memory.why_not("tea")
        memory.revert(next(entry.seq for entry in memory.log() if entry.cause.kind == "manual"))
        for text in ("green tea", "ada walks", "night trains 3", "likes", "ADA", "unheard of"):
            found = memory.why_not(text)
            assert {(one.content, one.seq, round(one.score, 3)) for one in found} == refused_by_reading(memory, text)
            assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_an_erased_refusal_is_not_found_by_its_words(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea", 1))
        memory.extract([RecordedReply("t", reply("Ada hides a purple submarine", confidence=0.3))])
        assert memory.why_not("purple submarine")
        memory.forget(matching="purple submarine")
        assert memory.why_not("purple submarine") == ()
