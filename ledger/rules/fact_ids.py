"""Ids of facts: `fact_SEQ_PLACE`, from the commit that added the fact and the fact's place in its proposal.

An import keeps the ids of its document, and one of them may name a commit that is still to come. Every commit up to the
highest one named so (event IdsReserved) gives its facts second ids, `fact_SEQ_PLACE_2`, which no import may bring. So
no id is given twice. This depends on the document alone, not on what of it is refused: under another policy a fact has
the same id.
"""

from __future__ import annotations

import re

_GIVEN = re.compile(r"fact_(\d{1,12})_.+", re.ASCII | re.DOTALL)
"""Ids that name a commit. No ledger has commits with more than twelve digits."""
_SECOND = re.compile(r"fact_\d{1,12}_\d+_2", re.ASCII)


def given_id(seq: int, place: int, *, second: bool = False) -> str:
    """Return the id that commit `seq` gives the fact at a place of its proposal."""
    return f"fact_{seq}_{place}_2" if second else f"fact_{seq}_{place}"


def commit_named(fact_id: str) -> int:
    """Return the commit that an id names, 0 if it names none."""
    found = _GIVEN.fullmatch(fact_id)
    return 0 if found is None else int(found[1])


def is_reserved(fact_id: str, seq: int) -> bool:
    """Whether a commit after `seq` may give this id, so that no import may bring it."""
    return commit_named(fact_id) > seq and _SECOND.fullmatch(fact_id) is not None
