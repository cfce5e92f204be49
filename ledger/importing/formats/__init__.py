"""Formats of files that other tools write: their recognition by content, and a reader for each.

A reader yields what was said, as `Conversation`, or facts in the shape of a memory.json. May import `core`, `text`,
`messages`, and of `importing` the module `document`.

    files           a file as raw JSON values or lines of text, in bounded memory; members of a zip file
    recognising     which format a file has; otherwise the nearest one
    tally           what was left out and refused, by reason
    conversation    turns of one thread; the branch of a tree that stands
    facts           facts in JSON, JSONL and CSV, and mem0's
    others          one module per tool
"""
