"""Upload sentences, kept out of memory: a file lives as long as its session, so a memory of its upload misleads later.

A sentence that only says that a file was uploaded, in English or Chinese, is taken out of a summary. (`blocks` cuts
what a host writes into a message about files.)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_MAX_SENTENCE = 400
"""A longer sentence says more than that a file came; the bound also keeps every pattern cheap."""

_ENDERS = ".!?。！？"
_CLOSERS = "\"'”’»)]}」』）】》*_"
_LEADING = re.compile(r"(?:\d{1,3}[.)]\s+|[\W_])*+")
"""List numbers and marks before a sentence."""
_MARK = rf"[\s{re.escape(_ENDERS + _CLOSERS)}…]"
_TRAILING = re.compile(rf"(?<!{_MARK}){_MARK}++\Z")

# The look-behind lets a run of full stops be tried once, not once from each of its marks.
_END = re.compile(rf"(?<![{_ENDERS}])(?P<marks>[{_ENDERS}]++[{re.escape(_CLOSERS)}]*+)(?P<space>\s*)")
_WIDE_ENDERS = frozenset("。！？")
_LINE_START = re.compile(r"\s*(?:[-*+•]\s+|\d{1,3}[.)]\s+)?")
_LAST_WORD = re.compile(r"(?<![^\s(\[\"'])[^\s(\[\"']+$")
_ABBREVIATIONS = frozenset({"e.g", "i.e", "vs", "mr", "mrs", "ms", "dr", "prof", "st", "fig", "cf", "al", "approx"})
_LONGEST_ABBREVIATION = 8
_CHINESE = ("上传", "上傳", "附", "了")
_SIGNS = ("upload", "attach", "shared", "provided", "sent", *_CHINESE, "分享", "提供", "发送")
"""One of them is in every upload sentence, and in few others."""


def is_upload_event(sentence: str) -> bool:
    """Say whether the point of a sentence is that a file was uploaded or attached in this session.

    Four shapes count, in English and in Chinese: the user brought a file ("User uploaded two PDFs", "用户上传了文件"),
    a file was brought ("A file named x.txt was uploaded", "文件已上传"), a list of files ("Uploaded files: a.csv"), and
    what an uploaded file holds ("The uploaded document contains…"). "Shared", "provided" and "sent" count only with an
    attachment or a file name.

    The whole sentence has to fit: a lost fact cannot be had back, a stray upload can be undone. So it is *no* event as
    soon as it says something else as well: a second clause ("… and works at Acme"), a possession outside the file
    itself ("a photo of her dog"), a destination outside the session ("to YouTube", "到博客"), a time or a habit
    ("last year", "nightly", "每天"), a crowd of files ("4 million photos"), a person other than the user (a name,
    "users"), or a service, a script or a module that deals with uploads. Present tense is taken for a habit. Marks and
    list numbers before the sentence, and closing marks after it, do not matter.
    """
    core = _core(sentence)
    if not core or len(core) > _MAX_SENTENCE or "\n" in core or sum(1 for _ in _sentences(core)) > 1:
        return False
    plain = unicodedata.normalize("NFKC", core).casefold()
    if not any(sign in plain for sign in _SIGNS):
        return False
    # The word lists are loaded with the first such sentence, so an import does not wait for them.
    from backstory.ledger.text.upload_patterns import is_chinese_event, is_english_event

    if any(sign in plain for sign in _CHINESE):
        return is_chinese_event(plain.replace("上傳", "上传"))
    return is_english_event(plain)


def scrub_uploads(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a summary without the sentences that are upload events, and those sentences in order.

    A sentence ends at `.`, `!` or `?` before a space, at `。`, `！` or `？`, and with its line; `report.pdf`, `v1.2`,
    "e.g." and an initial do not end one. What is taken out takes the space behind it along, and a line that is left
    empty goes whole, with its bullet; everything else keeps its own bytes. Without an upload event the text comes back
    unchanged to the byte.
    """
    removed: list[str] = []
    kept: list[str] = []
    gap = False
    for line in text.split("\n"):
        rest, events = _scrub_line(line)
        removed += events
        gone = bool(events) and not rest
        # A line that goes from between two blank ones would leave two blank lines in a row.
        if gone or (gap and not rest.strip() and not "".join(kept[-1:]).strip()):
            gap = True
            continue
        gap = False
        kept.append(rest)
    if not removed:
        return text, ()
    if gone:
        while kept and not kept[-1].strip():
            kept.pop()
        kept[-1:] = [line.removesuffix("\r") for line in kept[-1:]]
    return "\n".join(kept).lstrip(" \t"), tuple(removed)


def _core(sentence: str) -> str:
    """Return the sentence from its first word to its last.

    `scrub_uploads` relies on a sentence being judged the same whatever marks stand around it: taking a sentence out may
    move a mark from one neighbour to the other.
    """
    return _TRAILING.sub("", _LEADING.sub("", sentence, count=1))


def _scrub_line(line: str) -> tuple[str, list[str]]:
    """Return the line without its upload events, "" when nothing else was in it; and those events."""
    body = _LINE_START.sub("", line, count=1)
    sentences = [(sentence, space, is_upload_event(sentence)) for sentence, space in _sentences(body)]
    removed = [sentence for sentence, _, is_event in sentences if is_event]
    if not removed:
        return line, removed
    kept = "".join(sentence + space for sentence, space, is_event in sentences if not is_event)
    rest = line.removesuffix(body) + kept if kept else ""
    if rest and sentences[-1][2]:
        rest = rest.rstrip() + ("\r" if line.endswith("\r") else "")
    return rest, removed


def _sentences(body: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences of one line, each with the space behind it."""
    at = 0
    for found in _END.finditer(body):
        marks, space, end = found["marks"], found["space"], found.end()
        within = not space and end < len(body)
        if _WIDE_ENDERS.isdisjoint(marks) and (within or _abbreviates(body, found.start(), marks)):
            continue
        yield body[at : found.end("marks")], space
        at = end
    if at < len(body):
        rest = body[at:].rstrip()
        yield rest, body[at + len(rest) :]


def _abbreviates(body: str, stop: int, marks: str) -> bool:
    """Say whether a full stop only ends an abbreviation or an initial."""
    word = _LAST_WORD.search(body[max(0, stop - _LONGEST_ABBREVIATION) : stop])
    if marks != "." or word is None:
        return False
    return word[0].casefold() in _ABBREVIATIONS or (len(word[0]) == 1 and word[0].isascii() and word[0].isalpha())
