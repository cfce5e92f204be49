"""Which texts say the same, by each mode."""

from __future__ import annotations

import pytest

from backstory.ledger.core.dedup import dedup_key


@pytest.mark.parametrize(
    ("one", "other", "modes"),
    [
        ("Likes tea", " Likes tea\n", {"exact", "casefold", "normalized"}),
        ("Likes tea", "LIKES TEA", {"casefold", "normalized"}),
        ("Likes tea", "  LIKES TEA ", {"casefold", "normalized"}),
        ("Likes tea", "Likes  tea.", {"normalized"}),
        ("Likes tea", "Ｌikes tea！", {"normalized"}),
        ("!!!", "???", set()),
        ("!!!", "! ! !", set()),
    ],
)
def test_two_texts_say_the_same(one: str, other: str, modes: set[str]) -> None:
    same = {mode for mode in ("exact", "casefold", "normalized") if dedup_key(one, mode) == dedup_key(other, mode)}
    assert same == modes
