"""Read model: what is kept of one memory beside its logs, in this process and on its disk, and can be dropped."""

from __future__ import annotations


class ReadModel:
    """A read model of one memory. What a model does not need stays as it is here.

    The state of the memory holds it, and reaches it with each erasure, repair, removal and at the end.
    """

    def follow(self) -> object:
        """Read what is new in the logs; most models do so when they are asked."""

    def start_over(self) -> None:
        """Drop what is held in memory, without waiting, because the logs may be others than those that were read."""

    def renew(self) -> None:
        """Begin anew in a forked child, where no thread of the parent runs."""

    def purge(self) -> None:
        """Drop what is held in memory and delete what is on disk, before content is erased.

        The caller holds the locks of both logs.

        Raises:
            StoreError: A file cannot be removed.
            LockTimeoutError: Another process keeps it.
        """
        self.start_over()

    def close(self) -> None:
        """Drop what is held and close what is open; nothing is asked any more."""
        self.start_over()
