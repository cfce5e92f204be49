"""Errors: all that this project raises on purpose, in one tree.

    BackstoryError
    ├── UsageError            wrong use: a bad name, option, range or input file       exit 2
    │   ├── ScopeError        a user id or agent name that is not valid
    │   ├── ConfigError       an unknown key or a value outside its range
    │   ├── InputError        a conversation, reply or document that cannot be read
    │   └── KeyReusedError    a key under which another change was requested before
    ├── RefusedError          the request is valid and was refused                    exit 1
    │   ├── NotFoundError     no such fact, thread, commit
    │   ├── DuplicateFactError  another live fact says the same
    │   ├── CapError          the memory is full and nothing in it may be evicted
    │   ├── ForbiddenError    the caller of a server lacks the right
    │   └── ConflictError     an undo that would overwrite later work
    ├── UnavailableError      unreachable, locked, unwritable or corrupt              exit 3
    │   ├── StoreError        the disk or the storage engine failed
    │   │   ├── SealedError   the home has moved, or is an incomplete copy
    │   │   └── UnknownOutcomeError  a write was sent and not answered: it may be there
    │   ├── LockTimeoutError  another process holds the stream's lock
    │   ├── CorruptLogError   damage other than a torn tail; names line and byte
    │   ├── WitnessError      the witness did not accept the heads
    │   └── NoModelError      no model is configured
    ├── WrongExpectedVersionError  another writer appended first; fold and decide again
    └── ModelError            the model gave no usable answer                         exit 1
        ├── ModelUnavailableError  may pass: rate limit, time-out, 5xx
        ├── ModelRejectedError     will not pass: bad key, unknown model, bad request
        └── ReplyError             the answer is not a valid reply

Each message says what went wrong, where, and what to do about it.
"""

from __future__ import annotations


class BackstoryError(Exception):
    """Root of the tree; `exit_code` is the exit code of the command line."""

    exit_code = 3


class UsageError(BackstoryError):
    """The caller asked for something that can never work."""

    exit_code = 2


class ScopeError(UsageError):
    """A user id or agent name is not valid."""


class ConfigError(UsageError):
    """A configuration key is unknown, or its value is outside its range."""


class InputError(UsageError):
    """A message, document or file that the caller passed in cannot be read as such."""


class KeyReusedError(UsageError):
    """Another change was requested under the same key; nothing is changed."""


class RefusedError(BackstoryError):
    """The request is valid and was refused; `rule` is the rule that the refusal is recorded with, or empty."""

    exit_code = 1

    def __init__(self, message: str, *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class NotFoundError(RefusedError):
    """The scope has no such fact, thread or commit."""


class DuplicateFactError(RefusedError):
    """The live fact `fact_id` says the same; `seq` is the commit that recorded the refusal."""

    def __init__(self, message: str, *, fact_id: str, seq: int) -> None:
        super().__init__(message, rule="duplicate")
        self.fact_id = fact_id
        self.seq = seq


class CapError(RefusedError):
    """Memory is full of facts that may not be evicted; `seq` is the commit that recorded the refusal, or 0."""

    def __init__(self, message: str, *, seq: int = 0) -> None:
        super().__init__(message, rule="cap")
        self.seq = seq


class ForbiddenError(RefusedError):
    """The caller of a server sees the memory and lacks the right to do this."""


class ConflictError(RefusedError):
    """An undo would overwrite later work; nothing was written."""


class UnavailableError(BackstoryError):
    """Something outside this program prevents the request for now."""


class StoreError(UnavailableError):
    """The disk or the storage engine failed."""


class SealedError(StoreError):
    """The home takes no changes: it has moved to another place, or is an incomplete copy."""


class UnknownOutcomeError(StoreError):
    """A write was sent and not answered, and the engine could not be asked again: it may be there or not."""


class LockTimeoutError(UnavailableError):
    """Another process held the lock for longer than `file_lock_timeout_seconds`."""


class CorruptLogError(UnavailableError):
    """A log line is not what was written; the stream takes no new lines until a person decides.

    `kind` is a problem kind of `verify`; `line` counts from 1, `byte` is the line's offset in the stream.
    """

    def __init__(self, message: str, *, kind: str, stream: str, line: int, byte: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.stream = stream
        self.line = line
        self.byte = byte


class WitnessError(UnavailableError):
    """The witness did not accept the heads; the commits are kept and the heads are sent again.

    `kind` is the class name of the underlying error. The message holds no secrets of an address or a command.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class NoModelError(UnavailableError):
    """An update needs a model and none is configured."""


class WrongExpectedVersionError(BackstoryError):
    """The stream has another head than the writer expected; `actual` is the head's seq."""

    def __init__(self, message: str, *, actual: int) -> None:
        super().__init__(message)
        self.actual = actual


class ModelError(BackstoryError):
    """The model gave no usable answer; `status` is the HTTP status that the server answered with, if any."""

    exit_code = 1

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelUnavailableError(ModelError):
    """A failure that may pass; `retry_after` is the delay in seconds that the server asked for, if any."""

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class ModelRejectedError(ModelError):
    """A failure that would repeat with the same request."""


class ReplyError(ModelError):
    """The model's answer is not a reply of the agreed shape."""
