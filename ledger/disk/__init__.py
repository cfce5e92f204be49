"""Files of this machine: written whole and durably, locked between processes. May import `core` and `concurrency`."""
