"""NATS engine: streams as subjects of JetStream, on a cluster of nats-server.

Nothing here is imported before a `nats://` address is opened: nats-py is the extra `backstory[nats]`.
It may import what the other engines may: the core, the port and the clock.
"""
