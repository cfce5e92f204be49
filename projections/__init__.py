"""Projections: the read side, derived from the log. Deleting all of it loses nothing. May import `ledger`.

    history      the log, differences, any moment, why a fact is there
    document     memory.json, and which facts were used of late
    context      the block of memory that is put before a model
    turns        the turns that stand, with the operations of MetaGPT's Memory
    index        where in the logs what stands
    search       facts and turns by words and by meaning
    what_if      the same history under another policy, model or prompt
    integrity    verify, doctor, repair
    graph        the graph of memory

Each folder may import those above it in this list.
"""

if __name__ != "backstory.projections":
    raise ImportError(f"{__name__} is a folder of backstory: import backstory.projections instead")
