"""Blocks in tags that hosts put into messages: cut out before a turn is kept (rows D2 and D3)."""

from __future__ import annotations

import re

__all__ = ["strip_memory_blocks", "strip_upload_blocks"]

# `[^<>]*` ends at the next tag, so a text full of half-open tags is still read once.
_UPLOAD_TAG = re.compile(r"<(/?)(uploaded_files|current_uploads)(?:\s[^<>]*)?>", re.IGNORECASE | re.ASCII)
_MEMORY_TAG = re.compile(r"<(/?)(memory)(?:\s[^<>]*)?>", re.IGNORECASE | re.ASCII)
_LINE_BREAKS = re.compile(r"[\r\n]*")


def strip_upload_blocks(text: str) -> str:
    """Return the text without the blocks in which a host lists the files of a session.

    A block is `<uploaded_files>…</uploaded_files>` or `<current_uploads>…</current_uploads>`, in any letter case, over
    any number of lines, with attributes or without; the line breaks behind it go with it. A closing tag belongs to the
    nearest opening tag of its name before it, so nested blocks go as one, and an opening tag that is never closed stays
    (somebody may be asking about the tag). Without a block the text comes back unchanged to the byte; with one, the
    rest is stripped of whitespace at both ends.
    """
    return _cut_blocks(text, _UPLOAD_TAG)


def strip_memory_blocks(text: str) -> str:
    """Return the text without the `<memory>…</memory>` blocks we inject, so that no memory is learned twice.

    The rules are those of `strip_upload_blocks`.
    """
    return _cut_blocks(text, _MEMORY_TAG)


def _cut_blocks(text: str, tag: re.Pattern[str]) -> str:
    # Where nothing is closed nothing is cut: told at once, however many tags are opened.
    end = text.rfind("</")
    first = tag.search(text, 0, end) if end >= 0 else None
    if first is None:
        return text
    opened: dict[str, list[int]] = {}
    blocks: list[tuple[int, int]] = []
    for found in tag.finditer(text, first.start()):
        starts = opened.setdefault(found[2].lower(), [])
        if not found[1]:
            # `<memory />` opens nothing; taken for an opening tag it would eat the text up to a stray closing one.
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
