"""Token estimate: works without any model's vocabulary."""

from __future__ import annotations

import re
from functools import cache


@cache
def _dense() -> re.Pattern[str]:
    """Chinese, Japanese and Korean with their punctuation, and emoji: about one token per character."""
    return re.compile(
        "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
        "\U0001f000-\U0001faff\U00020000-\U0003ffff]+"
    )


def estimate_tokens(text: str) -> int:
    """Estimate a text's tokens, rounded up: one per CJK character, one per 3.5 other characters.

    The estimate of joined texts is at most the sum of their estimates.
    """
    dense = sum(map(len, _dense().findall(text)))
    return dense + -((len(text) - dense) * -2 // 7)
