"""Files of this machine: written whole and durably, locked between threads and processes.

May import `core` and `concurrency`.
"""
