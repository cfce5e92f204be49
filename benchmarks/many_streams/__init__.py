"""A million streams on each engine: bytes, memory, restarts and lookups; `python -m benchmarks.many_streams --help`."""
