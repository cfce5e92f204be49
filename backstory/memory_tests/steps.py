"""Steps of a replay: which turns make one update, in which order; from files of conversations or from a home."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import Cause
from backstory.ledger.core.errors import InputError, NotFoundError
from backstory.ledger.core.scope import Scope
from backstory.ledger.disk.files import read_given
from backstory.ledger.messages import read_message
from backstory.ledger.messages.conversation_file import messages_in
from backstory.memory import MemoryHandle
from backstory.memory_tests.file import HomePart, MemoryTest
from backstory.projections.turns.rows import TurnView

MessageFields = dict[str, object]


class Step(msgspec.Struct, frozen=True):
    """One update: turns of a thread that are recorded and then learned from."""

    thread: str
    messages: tuple[MessageFields, ...]

    @property
    def digest(self) -> str:
        """The sha256 of who says what in it."""
        said = [(message.role, message.content) for message in map(read_message, self.messages)]
        return hashlib.sha256(msgspec.json.encode([self.thread, said])).hexdigest()

    @property
    def ends(self) -> str:
        """When the last turn was said, as the logs spell it; empty if no turn has a time."""
        return max((read_message(message).at or "" for message in self.messages), default="")


def steps_of_files(test: MemoryTest, folder: Path) -> tuple[Scope, list[Step]]:
    """Read the conversations of a test: whose they are, and the updates.

    Lines of one thread that follow each other in a file make one update. A line without a thread belongs to one named
    after the file.

    Raises:
        InputError: A file cannot be read, a line is broken, or there are messages of several memories.
    """
    files = [list(_lines(folder / name)) for name in test.conversations or ()]
    scopes = {scope for lines in files for scope, _, _ in lines}
    if len(scopes) > 1:
        named = ", ".join(sorted(map(str, scopes)))
        raise InputError(f"the conversations belong to several memories ({named}): make a test for each of them")
    if not scopes:
        raise InputError(f"there is no message in {', '.join(test.conversations or ())}: name files with conversations")
    steps = [
        Step(thread, tuple(message for _, _, message in lines))
        for file in files
        for thread, lines in groupby(file, lambda one: one[1])
    ]
    return scopes.pop(), steps


def _lines(path: Path) -> Iterator[tuple[Scope, str, MessageFields]]:
    """Yield the messages of a file, each with its scope and thread."""
    data = read_given(path, "name a file of messages, relative to the test's file")
    try:
        placed = list(messages_in(data, user=None, agent=None, thread=path.stem))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    for where, group, message, broken in placed:
        if group is None:
            raise InputError(f"{path}: {where}: {broken}")
        yield group.scope, group.thread, message


def steps_of_home(memory: MemoryHandle, part: HomePart) -> list[Step]:
    """Return the updates that a memory has made, by the turns of each; turns without an update come last.

    Raises:
        NotFoundError: There is no such thread, or nothing of it lies within `since` and `until`.
        UsageError: `since` or `until` is neither a commit nor a time.
    """
    threads = part.threads or [known.thread for known in memory.threads()]
    turns = {thread: {turn.n: turn for turn in memory.transcript(thread)} for thread in threads}
    steps = []
    for thread, ns in _runs(memory, part, turns):
        standing = [turns[thread].pop(n) for n in ns if n in turns[thread]]
        if standing:
            steps.append(Step(thread, tuple(map(message_of, standing))))
    if part.until is None and part.since is None:
        steps += [Step(thread, tuple(map(message_of, left.values()))) for thread, left in turns.items() if left]
    if not steps:
        raise NotFoundError(f"the memory of {memory.scope} has no conversation as the test's home names it: see `log`")
    return steps


def _runs(memory: MemoryHandle, part: HomePart, threads: Collection[str | None]) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the thread and the turns of each update within `since` and `until`, the oldest first."""
    first = 0 if part.since is None else min((one.seq for one in memory.log(since=part.since)), default=1 << 62)
    last = None if part.until is None else memory.moment(part.until).seq
    for one in reversed(memory.log()):
        cause = one.cause
        if cause.kind != "extraction" or cause.thread not in threads or cause.turns is None:
            continue
        if first <= one.seq and (last is None or one.seq <= last):
            yield cause.thread or "", range(cause.turns.first, cause.turns.last + 1)


def turns_of(memory: MemoryHandle, cause: Cause) -> list[TurnView]:
    """Return the turns that an update covers, as far as they stand."""
    covered = cause.turns
    if covered is None:
        return []
    return [turn for turn in memory.transcript(cause.thread or "") if covered.first <= turn.n <= covered.last]


def message_of(turn: TurnView) -> MessageFields:
    """Return a turn as a line of a conversation file."""
    message: MessageFields = {"thread_id": turn.thread, "id": turn.id, "role": turn.role, "at": turn.at}
    message |= {"name": turn.name} if turn.name else {}
    message |= {"tags": turn.tags} if turn.tags else {}
    return message | {"content": turn.content}
