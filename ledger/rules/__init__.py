"""Rules: which events each command leads to; `decide` comes first. Pure; may import `core` and `text`."""
