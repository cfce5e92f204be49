"""What of DeerFlow a memory plugs into, in our own words: enough for the type checker and for tests without it."""
