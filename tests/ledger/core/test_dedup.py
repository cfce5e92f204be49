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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Likes tea", "Likes\u200b tea"),
        ("Likes tea", "\ufeffLikes te\u00ada\u2060."),
        ("Likes tea", "Likes te\u200da"),
        ("Likes tea", "Likes \u202etea\u202c"),
        ("Likes tea", "Likes tea\U000e0041\U000e0042"),
        ("I ❤ tea", "I ❤\ufe0f tea"),
        ("喜欢茶", "喜\u200b欢\u200c茶"),
        ("می\u200cخواهم", "می\u200c\u200c\u200bخواهم"),
    ],
)
def test_what_nobody_sees_makes_no_other_text(one: str, other: str) -> None:
    assert dedup_key(one, "visible") == dedup_key(other, "visible")
    assert dedup_key(one, "normalized") != dedup_key(other, "normalized")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("می\u200cخواهم", "میخواهم"),
        ("क्\u200dष", "क्ष"),
        ("ශ්\u200dරී", "ශ්රී"),
        ("Likes 👩🏽\u200d💻", "Likes 👩🏽💻"),
        ("From 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "From 🏴"),
    ],
)
def test_what_changes_how_a_text_reads_stays(one: str, other: str) -> None:
    assert dedup_key(one, "visible") != dedup_key(other, "visible")
