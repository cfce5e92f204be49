"""Hooks of coding agents: memory before the model, and a record of what was said. May import what a door may.

`hosts` knows the agents and their files and changes their settings, and `running` answers a call. What runs before an
answer imports little: the agent waits for it.
"""
