"""PostgreSQL engine: streams as rows, for many processes on many machines.

Nothing here is imported before a `postgresql://` address is opened: psycopg is the extra `backstory[postgres]`.
It may import what the other engines may: the core, the port and the clock.
"""
