"""Reader of a session file of Claude Code: JSONL of messages, tool calls and notes of the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.importing.formats.conversation import FILES, ImportedConversation, Talk
from backstory.ledger.importing.formats.tally import Tally, fields, members, text

_NO_WORDS = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")
"""Marks of lines that no person said and that are no answer: the program's, an inner agent's, a summary's."""
_NOTES = ("[Request interrupted by user", "<command-message>", "Caveat: The messages below were generated")


def read(items: Iterable[object], tally: Tally) -> Iterator[ImportedConversation]:
    """Yield what people said and the final answers, in the order of the file."""
    talk: Talk | None = None
    thread = ""
    for line in tally.objects(items):
        session, role = text(line.get("sessionId")), text(line.get("type"))
        if role not in ("user", "assistant") or not session or any(line.get(mark) for mark in _NO_WORDS):
            continue
        if talk is None or session != thread:
            yield from talk.end() if talk is not None else ()
            talk, thread = Talk(tally, session, in_harness=True), session
        yield from _say(talk, role, line, tally)
    yield from talk.end() if talk is not None else ()


def _say(talk: Talk, role: str, line: Mapping[str, object], tally: Tally) -> Iterator[ImportedConversation]:
    content = fields(line.get("message")).get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*map(fields, members(content))]
    kinds = [block.get("type") for block in blocks]
    tally.pass_over(FILES, kinds.count("image") + kinds.count("document"))
    words = "\n".join(text(block.get("text")) for block in blocks if block.get("type") == "text")
    if "tool_result" in kinds or "tool_use" in kinds:
        talk.call()
    elif words.strip() and not (role == "user" and words.lstrip().startswith(_NOTES)):
        yield from talk.say(role, words, line.get("uuid"), line.get("timestamp"))
