"""Core: events, commands, commits, memory and policy as values. Pure; imports nothing else of the ledger."""
