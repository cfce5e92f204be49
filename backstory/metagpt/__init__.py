"""MetaGPT's Memory over a transcript: `memory.turns`. May import the ledger, projections and `operations`."""
