"""Ledger: the write side. It decides what may happen to memory and logs what did. Imports nothing else of backstory.

    concurrency  renewal of locks after a fork, background jobs, bounded mappings, the clock
    core         events, commands, commits, memory and policy, as values
    disk         files of this machine: written whole, locked between processes
    text         recognisers over plain text: uploads, injected blocks, acknowledgements
    messages     which messages of a conversation are kept
    rules        what each command does to a memory; `decide` first
    erasure      which content has to go when something is forgotten
    threads      turns of a transcript: which are new, covered, due
    engines      durable streams: the port, files, PostgreSQL, NATS
    log          the streams of a scope: `writer` (read, fold, decide, append, retry), `reader`
    extraction   prompts, the port to a model, and the reading of its answers
    importing    memories of other systems, read into candidates
    learning     when a model is asked, and what becomes of its answer

Each folder may import those above it in this list.
"""

if __name__ != "backstory.ledger":
    raise ImportError(f"{__name__} is a folder of backstory: import backstory.ledger instead")
