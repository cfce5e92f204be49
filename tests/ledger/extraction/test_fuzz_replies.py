"""Whatever a model says, nothing breaks, nothing is lost, and what was learnt before is safe.

What is checked after each reply stands in `hearing.py`. The short form runs with every test run; TORTURE=1 makes it
100,000 replies, SEED=n repeats those that were spoiled at random.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random as Seeded

import msgspec
import pytest
from fakes import exchange, open_home
from hearing import ALLOWING, BROKEN, KNOWN, READ, TURNS, Listener, any_policy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutating import SPOILERS, spoiled
from sizes import PATIENT, chance, examples, sized
from ugly import HEALTHY, UGLY, Ugly

from backstory.ledger.core.errors import ReplyError
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Unread
from backstory.ledger.core.policy import CATEGORIES, Policy
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.extraction.reply import read_reply

pytestmark = PATIENT

SPOILED = sized(2_700, 80_000)
STRUCTURED = sized(examples(2), 20_000)
PER_MEMORY = 100
LEAST_OF_EACH = 0.3
CORPUS = [*(ugly.text for ugly in UGLY), *HEALTHY * (len(UGLY) // len(HEALTHY))]
"""As many healthy ones as ugly ones."""
each_ugly_reply = pytest.mark.parametrize("ugly", UGLY, ids=[ugly.name for ugly in UGLY])


# The corpus


@each_ugly_reply
def test_of_an_ugly_reply_that_is_read_which_can_be_and_nothing_is_guessed(ugly: Ugly) -> None:
    if ugly.places is None:
        with pytest.raises(ReplyError):
            read_reply(ugly.text, TURNS)
    else:
        found = read_reply(ugly.text, TURNS).candidates
        assert tuple(candidate.place for candidate in found) == ugly.places
        assert {candidate.place for candidate in found if isinstance(candidate, Unread)} == ugly.unread


@pytest.mark.parametrize("policy", [Policy(), ALLOWING], ids=["default", "allowing"])
@each_ugly_reply
def test_an_ugly_reply_hurts_no_rule_of_memory(ugly: Ugly, policy: Policy) -> None:
    heard = Listener.of(policy).hears(ugly.text)
    assert heard == (BROKEN if ugly.places is None else READ)


def test_all_ugly_replies_to_one_memory_on_disk_leave_it_whole(tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        memory = bs.memory(user_id="ada")
        memory.add_fact("Ada is a person's own words", confidence=0.2)
        for ugly in UGLY:
            memory.record(ugly.name, exchange("tea"))
            before = memory.document()
            done = memory.extract([RecordedReply(ugly.name, ugly.text)])
            assert (done.updates, done.failed) == (1, int(ugly.places is None)), ugly.name
            if ugly.places is None:
                assert memory.document() == before, ugly.name
        status = memory.status()
        assert [parked.thread for parked in status.parked] == [ugly.name for ugly in UGLY if ugly.places is None]
        assert status.pending == ()
        assert memory.verify().ok
        document = memory.document()
    with open_home(tmp_path) as bs:
        memory = bs.memory(user_id="ada")
        assert memory.document() == document
        assert memory.verify().problems == ()


# The corpus, spoiled further


@pytest.mark.slow
def test_replies_spoiled_at_random_hurt_nothing() -> None:
    heard: Counter[str] = Counter()
    random_ = chance(20)
    for number in range(SPOILED):
        if number % PER_MEMORY == 0:
            listener = Listener.of(any_policy(random_))
        if random_.random() < 0.05:
            listener.goes_on(random_)
        ids = tuple(listener.story.memory.facts)
        text = spoiled(random_, CORPUS, ids)
        shown = ids[: random_.randrange(8)] if random_.random() < 0.2 else None
        late, covered = random_.choice([0, 0, 0, 3]), random_.random() < 0.02
        try:
            heard[listener.hears(text, late=late, shown=shown, covered=covered, prompted=random_.random() < 0.8)] += 1
        except Exception as error:
            error.add_note(f"reply {number}, on {msgspec.json.encode(listener.story.memory.policy)!r}:\n{text!r}")
            raise
    # Else it would be one side of the promise only that was tried.
    assert min(heard[BROKEN], heard[READ]) > LEAST_OF_EACH * SPOILED, heard


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_every_way_to_spoil_a_reply_changes_it_and_a_seed_repeats_it(spoil) -> None:
    texts = [text for text in CORPUS[: len(UGLY) + len(HEALTHY)] if len(text) > 100]
    once, again = ([spoil(Seeded(n), text, CORPUS) for n, text in enumerate(texts)] for _ in range(2))  # noqa: S311
    assert once == again
    assert sum(a != b for a, b in zip(once, texts, strict=True)) > len(texts) // 2


# Replies in something like the agreed shape, made from nothing

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_anything = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
_ids = st.sampled_from([*(f"fact_2_{n}" for n in range(len(KNOWN))), "fact_3_0", "fact_4_0", "fact_9_9", " fact_2_0 "])
_text = st.sampled_from([*(text for text, _ in KNOWN), "ADA RUNS。", "Ada uploaded a file.", "", " "]) | st.text(
    max_size=30
)
_sure = st.sampled_from([0.49, 0.69, 0.7, 0.8, 0.9, 1, 1.0]) | st.floats()
_labels = {
    "scope": st.sampled_from(["user", "User ", "task"]),
    "durability": st.sampled_from(["durable", "transient"]),
    "authority": st.sampled_from(["descriptive", "directive"]),
}


def _or_anything(usual: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.integers(0, 11).flatmap(lambda n: _anything if n == 0 else usual)


def _items(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    item = st.fixed_dictionaries({}, optional={name: _or_anything(value) for name, value in fields.items()})
    return _or_anything(st.lists(_or_anything(item), max_size=4))


_reason = {"reason": _text}
_references = _or_anything(st.lists(_or_anything(_ids), max_size=4))
_removals = _items(id=_ids, replacementFactIndex=st.integers(0, 4), **_reason, **_labels) | _references
_sections = _or_anything(
    st.dictionaries(
        st.sampled_from([name.partition(".")[2] for name in DOCUMENT_SECTIONS]),
        _or_anything(st.fixed_dictionaries({"summary": _text, "shouldUpdate": st.booleans()}, optional=dict(_labels))),
        max_size=3,
    )
)
_merged = st.fixed_dictionaries({"content": _text}, optional={"confidence": _sure, **_labels})
replies = st.fixed_dictionaries(
    {},
    optional={
        "user": _sections,
        "history": _sections,
        "newFacts": _items(
            content=_text,
            category=st.sampled_from([*CATEGORIES, "hobby"]),
            confidence=_sure,
            evidence=st.lists(st.integers(0, 9), max_size=2),
            expectedValidDays=st.integers(),
            sourceError=_text,
            **_labels,
        ),
        "factsToRemove": _removals,
        "factsToReinforce": _items(id=_ids, **_labels) | _references,
        "staleFactsToRemove": _removals,
        "staleFactsToExtend": _items(id=_ids, extendByDays=st.integers(0, 10**6), **_reason, **_labels),
        "factsToConsolidate": _items(sourceIds=st.lists(_ids, max_size=4), consolidated=_or_anything(_merged)),
        "notes": _anything,
    },
)


@pytest.mark.slow
@settings(
    max_examples=STRUCTURED,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(replies, min_size=1, max_size=2), st.integers(0, 2**32), st.booleans())
def test_replies_of_any_values_in_the_agreed_shape_hurt_nothing(said, seed, ascii_only) -> None:
    listener = Listener.of(any_policy(Seeded(seed)))  # noqa: S311 a seed, so that it can be repeated
    for reply in said:
        assert listener.hears(json.dumps(reply, ensure_ascii=ascii_only)) == (
            READ if set(reply) - {"notes"} else BROKEN
        )
