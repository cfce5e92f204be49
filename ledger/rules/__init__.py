"""Rules: what each command does to a memory, `decide` first. Pure; may import `core` and `text`."""
