"""Every error this project raises on purpose, in one tree.

    BackstoryError
    ├── UsageError            wrong use: a bad name, option, range or input file       exit 2
    │   ├── ScopeError        a user id or agent name that cannot be a scope
    │   ├── ConfigError       an unknown key or a value outside its range
    │   └── InputError        a broken conversation, reply or document file
    ├── RefusedError          the answer is no, and the ledger is as it was or says why  exit 1
    │   ├── NotFoundError     no such fact, thread, commit
    │   ├── DuplicateFactError  another live fact says the same
    │   ├── CapError          the memory is full and nothing in it may be evicted
    │   └── ConflictError     an undo that would overwrite later work
    ├── UnavailableError      cannot: unreachable, locked, unwritable, corrupt          exit 3
    │   ├── StoreError        the disk or engine refuses
    │   ├── LockTimeoutError  another process holds the stream's lock
    │   ├── CorruptLogError   damage that is no torn tail; names line and byte
    │   ├── WitnessError      the witness of heads did not take what it was given
    │   └── NoModelError      nothing to ask: no model is configured
    ├── WrongExpectedVersionError  somebody else appended first; fold and decide again
    └── ModelError            the model gave no usable answer
        ├── ModelUnavailableError  worth another try: rate limit, time-out, 5xx
        ├── ModelRejectedError     not worth one: bad key, unknown model, bad request
        └── ReplyError             an answer came, but it is no valid reply

Each message says what went wrong, where, and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "BackstoryError",
    "CapError",
    "ConfigError",
    "ConflictError",
    "CorruptLogError",
    "DuplicateFactError",
    "InputError",
    "LockTimeoutError",
    "ModelError",
    "ModelRejectedError",
    "ModelUnavailableError",
    "NoModelError",
    "NotFoundError",
    "RefusedError",
    "ReplyError",
    "ScopeError",
    "StoreError",
    "UnavailableError",
    "UsageError",
    "WitnessError",
    "WrongExpectedVersionError",
]


class BackstoryError(Exception):
    """Root of the tree; `exit_code` is what the command line returns for it."""

    exit_code = 3


class UsageError(BackstoryError):
    """The caller asked for something that can never work."""

    exit_code = 2


class ScopeError(UsageError):
    """A user id or agent name that cannot name a memory."""


class ConfigError(UsageError):
    """A configuration key or value that is not understood."""


class InputError(UsageError):
    """A file that was handed in and cannot be read as what it should be."""


class RefusedError(BackstoryError):
    """The request was understood and the answer is no."""

    exit_code = 1


class NotFoundError(RefusedError):
    """Nothing by that name in this scope."""


class DuplicateFactError(RefusedError):
    """A live fact already says this; `fact_id` names it, `seq` the commit that recorded the refusal."""

    def __init__(self, message: str, *, fact_id: str, seq: int) -> None:
        super().__init__(message)
        self.fact_id = fact_id
        self.seq = seq


class CapError(RefusedError):
    """The memory is full of facts that may not be evicted; `seq` is the commit that recorded the refusal, or 0."""

    def __init__(self, message: str, *, seq: int = 0) -> None:
        super().__init__(message)
        self.seq = seq


class ConflictError(RefusedError):
    """An undo would overwrite later work; nothing was written."""


class UnavailableError(BackstoryError):
    """The surroundings do not allow it now."""


class StoreError(UnavailableError):
    """The disk or engine that keeps the log refused."""


class LockTimeoutError(UnavailableError):
    """Another process kept the lock longer than `file_lock_timeout_seconds`."""


class CorruptLogError(UnavailableError):
    """A log line that is not what was written; nothing is written until a person decides.

    `kind` is one of the problem kinds of `verify`; `line` counts from 1, `byte` is the line's offset in the stream.
    """

    def __init__(self, message: str, *, kind: str, stream: str, line: int, byte: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.stream = stream
        self.line = line
        self.byte = byte


class WitnessError(UnavailableError):
    """The witness did not take the heads it was given; the commits stand, and it is tried again.

    `kind` is the class of what went wrong beneath. The message holds no secrets of an address or a command.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class NoModelError(UnavailableError):
    """An update was asked for and no model is configured."""


class WrongExpectedVersionError(BackstoryError):
    """The stream is not where the writer thought; `actual` is its head's seq."""

    def __init__(self, message: str, *, actual: int) -> None:
        super().__init__(message)
        self.actual = actual


class ModelError(BackstoryError):
    """The model gave no usable answer."""

    exit_code = 1


class ModelUnavailableError(ModelError):
    """A failure that may pass; `retry_after` is the server's own wish in seconds, where it stated one."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRejectedError(ModelError):
    """A failure that the same request will meet again."""


class ReplyError(ModelError):
    """The model answered, but not with a reply in the agreed shape."""
