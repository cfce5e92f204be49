"""Comparison of an index with what the logs say."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.projections.index.builder import IndexBuilder
from backstory.projections.index.kv import ChecksummedKV
from backstory.projections.index.schema import (
    NOTHING,
    IndexPosition,
    Table,
)

_CALLED = {
    Table.MEMORY: "facts and sections at its end",
    Table.LEDGER_MARKS: "places in the ledger",
    Table.TRANSCRIPT_MARKS: "places in the transcript",
    Table.TIMES: "times of commits",
    Table.CHECKPOINTS: "checkpoints of memory",
    Table.FACTS: "places of facts",
    Table.ENDED: "facts that ended",
    Table.SAYINGS: "what facts say",
    Table.RETURNED: "facts that came back",
    Table.THREADS: "states of threads",
    Table.LEARNED: "places of what was learned from threads",
    Table.SAID: "places of what was said",
    Table.ORDER: "places in the threads' order",
    Table.UNSETTLED: "the threads that are not covered",
    Table.REDACTED: "what is left of erased turns",
    Table.TIMELINE: "times and kinds of commits",
    Table.REFUSED: "words of what was refused or removed",
    Table.USAGE: "tokens by day and model",
}


def differences(store: EventStore, scope: Scope, kv: ChecksummedKV, tip: IndexPosition) -> list[str]:
    """Return what of an index differs from the logs, up to where it stands; of another version nothing is compared."""
    if tip.version != IndexPosition().version:
        return []
    if tip.scope != scope:
        return [f"it is that of {tip.scope}"]
    expected = ChecksummedKV.new(Table)
    intake = IndexBuilder(store, expected, IndexPosition(), NOTHING, by_parts=True)
    should = intake.run(scope, until=tip)
    for stand, is_at in ((should.ledger, tip.ledger), (should.transcript, tip.transcript)):
        if stand.head != is_at.head:
            return [f"it stands on a commit {is_at.head.seq} that is not in the log"]
    intake.finish(should)
    names = [space for space in Table if space is not Table.TIP]
    found = [f"{_CALLED[space]} differ from the log" for space in names if not _same(kv, expected, space)]
    here = msgspec.structs.replace(
        should,
        ledger=msgspec.structs.replace(should.ledger, edition=tip.ledger.edition),
        transcript=msgspec.structs.replace(should.transcript, edition=tip.transcript.edition),
    )
    return found if here == tip else [*found, "where it says that it stands differs from the log"]


def _same(a: ChecksummedKV, b: ChecksummedKV, space: Table) -> bool:
    ours, theirs = a.ascending(space), b.ascending(space)
    return all(entry == next(theirs, None) for entry in ours) and next(theirs, None) is None
