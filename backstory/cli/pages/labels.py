"""How things are called on every page."""

from __future__ import annotations

from backstory.ledger.core.commit import Cause
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.recorded import RECORDED

__all__ = ["author", "cause_in_words", "counted", "moment", "size", "whose"]

_KIBI = 1024


def moment(at: str) -> str:
    """Spell a time for people: to the second, UTC."""
    return f"{at[:19].replace('T', ' ')}Z" if at else ""


def counted(count: int, one: str, many: str = "") -> str:
    """Spell a number of things."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count: int) -> str:
    """Spell a number of bytes."""
    if count < _KIBI:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= _KIBI
        if amount < _KIBI:
            return f"{amount:.1f} {unit}"
    return f"{amount / _KIBI:.1f} TiB"


def whose(user: str | None, agent: str | None) -> str:
    """Say whose memory it is."""
    return "the global memory" if user is None and agent is None else f"the memory of {Scope(user, agent)}"


def author(cause: Cause) -> str:
    """Say who made a commit: a model, a recorded reply, a person."""
    if cause.model == RECORDED:
        return "a recorded reply"
    return cause.model or cause.actor or ""


def cause_in_words(cause: Cause) -> str:
    """Say what kind of commit it is, and what it was about."""
    match cause.kind:
        case "manual":
            return f"by hand: {cause.action or 'change'}"
        case "import" if cause.action == "save":
            return "saved document"
        case "import" if cause.action == "home":
            return f"taken over from {cause.origin}" if cause.origin else "taken over"
        case "revert":
            return f"revert of {cause.target}"
        case "rollback":
            return f"rollback to {cause.target}"
        case "summary" if cause.summarized is not None:
            return f"summary of {cause.summarized.first}-{cause.summarized.last}"
        case _:
            return cause.kind
