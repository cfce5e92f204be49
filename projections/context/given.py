"""Note of what an answer was given to read: ids and a digest in the metadata of its turn, and no text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from backstory.ledger.core.commit import Head

NOTED = "context"
"""The key of `metadata` under which a turn says what its answer was given."""


class GivenTurn(msgspec.Struct, frozen=True):
    """A turn that was put into a block."""

    thread: str
    id: str


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer was given to read, as its turn notes it.

    Attributes:
        seq: the commit that memory stood at.
        facts: the ids of the facts, in order.
        turns: the turns.
        digest: a digest of that commit and of these ids.
        of_user: whether the memory was that of the agent's user.
        users_seq: where the agent reads its user's facts beside its own, the commit that the user's memory stood at.
    """

    seq: int
    digest: str
    facts: tuple[str, ...]
    turns: tuple[GivenTurn, ...]
    of_user: bool = False
    users_seq: int = 0

    def noted(self) -> dict[str, object]:
        """Return the metadata of a turn that notes this."""
        return {NOTED: msgspec.to_builtins(self)}

    @classmethod
    def within(cls, metadata: Mapping[str, object]) -> Given | None:
        """Return what a turn notes; None where it notes nothing, or a host has put something else there."""
        try:
            return msgspec.convert(metadata[NOTED], cls)
        except (KeyError, msgspec.ValidationError):
            return None


def given_digest(heads: Iterable[Head], facts: Iterable[str], turns: Iterable[GivenTurn]) -> str:
    """Return the digest of what was given.

    The hashes of the commits stand for all content: they are made of salted digests, and the salts go with the content.
    A digest of the text itself would let an erased text be guessed.
    """
    ids = [*facts, "", *(f"{turn.thread}\0{turn.id}" for turn in turns)]
    return hashlib.sha256(
        "\n".join((*(head.hash for head in heads), *ids)).encode("utf-8", "surrogatepass")
    ).hexdigest()
