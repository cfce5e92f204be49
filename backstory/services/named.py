"""Names that a caller gives: threads, facts and policy keys, each found or refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import cast

from backstory import checks
from backstory.ledger.core.errors import ConfigError, NotFoundError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import POLICY_KEYS, PolicyValue, read_categories
from backstory.ledger.log.writer import Writer

COMPLETE_ID = re.compile(r"fact_\d+_\d+", re.ASCII)
"""An id as the ledger gives it. `fact_2_1` is complete: it never stands for `fact_2_11`."""


def must_know(writer: Writer, thread: str) -> None:
    """Refuse a thread that a scope does not have.

    Raises:
        NotFoundError: There is no such thread.
        UsageError: It is no text.
    """
    checks.text("thread", thread)
    with writer.reader.state() as state:
        if thread not in state.transcript.threads:
            raise NotFoundError(f"there is no thread {thread} in the memory of {writer.scope}: see `threads`")


def live_fact(memory: Memory, fact_id: str) -> Fact:
    """Return a live fact by its whole id, which every change has to give.

    Raises:
        NotFoundError: There is no live fact with this id.
    """
    if fact_id not in memory.facts:
        raise NotFoundError(
            f"there is no live fact {fact_id}: give its id in full, as `fact list` shows it; `why` explains one "
            "that is gone"
        )
    return memory.facts[fact_id]


def begun_fact(memory: Memory, fact_id: str) -> Fact:
    """Return a live fact by its id or a unique beginning of it. A complete id never counts as a beginning.

    Raises:
        NotFoundError: No live fact's id begins so.
        UsageError: Several do.
    """
    if fact_id in memory.facts or COMPLETE_ID.fullmatch(fact_id):
        return live_fact(memory, fact_id)
    found = [fact for fact in memory.facts.values() if fact_id and fact.id.startswith(fact_id)]
    if len(found) > 1:
        raise UsageError(f"{fact_id} begins the ids of {len(found)} facts: say more")
    return found[0] if found else live_fact(memory, fact_id)


def read_policy(changes: Mapping[str, object]) -> dict[str, PolicyValue]:
    """Read changes of the policy; values other than `categories` are taken as they are, and checked with the policy.

    Raises:
        ConfigError: A key is unknown; the message names the nearest key, or all keys. Or `categories` cannot be read.
    """
    for key in sorted(set(changes) - set(POLICY_KEYS)):
        near = get_close_matches(key, POLICY_KEYS, 1, 0.5)
        meant = f"the nearest is {near[0]}" if near else f"they are {', '.join(POLICY_KEYS)}"
        raise ConfigError(f"{key} is no policy key; {meant}")
    read = cast("dict[str, PolicyValue]", dict(changes))
    if "categories" in read:
        read["categories"] = read_categories(read["categories"])
    return read
