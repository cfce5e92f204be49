"""The write side: what may happen to memory, and the log of what did.

Where to read first: `events` (what can have happened), `memory` (what it leads to), `decide` (every rule), `commit`
(the bytes), `store` (where they are kept), `writer` (the loop), `producer` (when to learn).
"""
