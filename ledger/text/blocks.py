"""Blocks in tags that hosts put into messages; they are cut out before a turn is recorded."""

from __future__ import annotations

import re

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
