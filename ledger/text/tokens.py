"""Token estimates that need no model's vocabulary."""

from __future__ import annotations

import re

__all__ = ["estimate_tokens"]

_DENSE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U0001f000-\U0001faff\U00020000-\U0003ffff]+"
)
"""Chinese, Japanese and Korean with their punctuation, and emoji: each character is a token, more or less."""


def estimate_tokens(text: str) -> int:
    """Estimate a text's tokens, rounded up: one per CJK character, one per three and a half other characters.

    Texts joined come to no more than their estimates together.
    """
    dense = sum(map(len, _DENSE.findall(text)))
    return dense + -((len(text) - dense) * -2 // 7)
