"""Labels that all pages share: times, counts, sizes, scopes, authors and causes."""

from __future__ import annotations

import math
import re
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.ledger.core.commit import Cause

_KIBI = 1024
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z\b|\+00:00)", re.ASCII)
_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"))


_local: ContextVar[bool] = ContextVar("backstory_cli_local_times", default=False)


def show_local_times(*, local: bool) -> None:
    """Choose whether times are shown in the zone of this machine, with its offset, or in UTC."""
    _local.set(local)


def moment(at: str) -> str:
    """Spell an ISO time in UTC to the second, in the chosen zone; `--at` takes what it returns."""
    if not at:
        return ""
    if _local.get():
        here = datetime.fromisoformat(at).astimezone()
        if here.utcoffset():
            return here.isoformat(" ", "seconds")
    return f"{at[:19].replace('T', ' ')}Z"


def in_seconds(sentence: str) -> str:
    """Spell the UTC times in a sentence to the second, as `moment` does."""
    return _MOMENT.sub(lambda found: moment(found[0]), sentence)


def duration(seconds: float) -> str:
    """Spell a duration in the unit that fits, rounded up, such as `12 s` or `3 min`."""
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{math.ceil(seconds / unit)} {name}"
    return f"{math.ceil(seconds)} s"


def counted(count: int, one: str, many: str = "") -> str:
    """Spell a count with its noun, such as `2 facts`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count: int) -> str:
    """Spell a number of bytes, such as `1.5 KiB`."""
    if count < _KIBI:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= _KIBI
        if amount < _KIBI:
            return f"{amount:.1f} {unit}"
    return f"{amount / _KIBI:.1f} TiB"


def whose(user: str | None, agent: str | None) -> str:
    """Name the memory of a scope."""
    from backstory.ledger.core.scope import Scope

    return "the global memory" if user is None and agent is None else f"the memory of {Scope(user, agent)}"


def author(cause: Cause) -> str:
    """Name the author of a commit: a model, a recorded reply, or a person."""
    from backstory.ledger.extraction.models.recorded import RECORDED

    if cause.model == RECORDED:
        return "a recorded reply"
    return cause.model or cause.actor or ""
