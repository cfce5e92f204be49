"""Blocks in tags that are not speech: what hosts put into messages, and reasoning that begins an agent's answer.

Reasoning is known as `<think>…</think>`, `<thinking>…</thinking>`, `◁think▷…◁/think▷`, and the channel `analysis` of
`<|channel|>analysis<|message|>…<|end|>`. Only blocks of it at the beginning of a text count: a tag in the middle is
part of what is said.
"""

from __future__ import annotations

import re

import msgspec

# `[^<>]*` ends at the next tag, so that a text full of unclosed tags is scanned only once.
_UPLOAD_TAG = re.compile(r"<(/?)(uploaded_files|current_uploads)(?:\s[^<>]*)?>", re.IGNORECASE | re.ASCII)
_MEMORY_TAG = re.compile(r"<(/?)(memory)(?:\s[^<>]*)?>", re.IGNORECASE | re.ASCII)
_LINE_BREAKS = re.compile(r"[\r\n]*")


def strip_upload_blocks(text: str) -> str:
    """Return a text without the blocks in which a host lists the files of a session.

    A block is `<uploaded_files>…</uploaded_files>` or `<current_uploads>…</current_uploads>`, in any letter case, over
    any number of lines, with or without attributes, and the line breaks after it. A closing tag matches the nearest
    opening tag of its name before it, so nested blocks are cut as one. An opening tag without a closing tag stays,
    because the message may be about the tag.

    Returns:
        The same text if it has no block; otherwise the rest of the text, stripped.
    """
    return _cut_blocks(text, _UPLOAD_TAG)


def strip_memory_blocks(text: str) -> str:
    """Return a text without the `<memory>…</memory>` blocks that we inject, by the rules of `strip_upload_blocks`.

    Otherwise what is in memory would be learned again.
    """
    return _cut_blocks(text, _MEMORY_TAG)


def _cut_blocks(text: str, tag: re.Pattern[str]) -> str:
    # Without a closing tag nothing is cut, however many opening tags there are.
    end = text.rfind("</")
    first = tag.search(text, 0, end) if end >= 0 else None
    if first is None:
        return text
    opened: dict[str, list[int]] = {}
    blocks: list[tuple[int, int]] = []
    for found in tag.finditer(text, first.start()):
        starts = opened.setdefault(found[2].lower(), [])
        if not found[1]:
            # `<memory />` opens no block. Otherwise it would match a later closing tag and the text between would go.
            if not found[0].endswith("/>"):
                starts.append(found.start())
        elif starts:
            start = starts.pop()
            while blocks and blocks[-1][0] > start:
                blocks.pop()
            blocks.append((start, found.end()))
    if not blocks:
        return text
    kept: list[str] = []
    at = 0
    for start, end in blocks:
        kept.append(text[at:start])
        breaks = _LINE_BREAKS.match(text, end)
        at = max(at, breaks.end() if breaks else end)
    kept.append(text[at:])
    return "".join(kept).strip()


_OPENING = re.compile(
    r"\s*(?:<(?P<tag>think|thinking)>|(?P<kimi>◁think▷)|(?:<\|start\|>assistant)?<\|channel\|>(?P<channel>analysis)\b)",
    re.IGNORECASE,
)
_CLOSINGS = {
    "tag": "</{}>",
    "kimi": "◁/think▷",
    "channel": r"<\|end\|>|(?=(?:<\|start\|>assistant)?<\|channel\|>final\b)",
}
_MOST_BLOCKS = 64
"""Blocks that are left out of one text at most, so that reading it takes a time that is linear in its length."""
_FENCE = r"^[ \t]*(?P<fence>```+|~~~+)"
_FINAL = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]*<\|message\|>")
_END = re.compile(r"(?:<\|return\|>|<\|end\|>)\s*\Z")


class SpokenText(msgspec.Struct, frozen=True, gc=False):
    """What is said in a text.

    Attributes:
        text: The text without its leading reasoning; the same object where it has none.
        is_open: Whether the text begins with reasoning that has no end, which is left in it.
    """

    text: str
    is_open: bool


def spoken(text: str) -> SpokenText:
    """Return a text of an agent without the reasoning at its beginning.

    A closing tag in a code fence does not count where another one follows outside of fences.
    """
    at, in_channels = 0, False
    for _ in range(_MOST_BLOCKS):
        opened = _OPENING.match(text, at)
        if opened is None:
            break
        kind = opened.lastgroup or "tag"
        end = _end(text, opened.end(), _CLOSINGS[kind].format(opened[kind]))
        if end is None:
            return SpokenText(text[at:].lstrip() if at else text, is_open=True)
        at, in_channels = end, in_channels or kind == "channel"
    if not at:
        return SpokenText(text, is_open=False)
    rest = text[at:].lstrip()
    if in_channels and (final := _FINAL.match(rest)) is not None:
        rest = _END.sub("", rest[final.end() :])
    return SpokenText(rest, is_open=False)


def _end(text: str, start: int, closing: str) -> int | None:
    """Return where a block ends: after the first closing tag outside of code fences, or else the first one."""
    first: int | None = None
    fence = ""
    marks = re.compile(rf"{_FENCE}|{closing}", re.IGNORECASE | re.MULTILINE)
    for found in marks.finditer(text, start):
        mark = found["fence"]
        if mark is None:
            if not fence:
                return found.end()
            first = found.end() if first is None else first
        elif not fence:
            fence = mark
        elif mark.startswith(fence):
            fence = ""
    return first
