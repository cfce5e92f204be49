"""Readers of command line input: files, conversations and KEY=VALUE settings.

Input that cannot be read is wrong use. The error names the file and the line.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from backstory.ledger.core.errors import ConfigError, InputError
from backstory.ledger.core.policy import PolicyKey, PolicyValue, policy_key, read_categories
from backstory.ledger.disk.files import BOM, read_given
from backstory.ledger.extraction.models.recorded import RecordedReply, read_replies
from backstory.ledger.messages.conversation_file import Conversation, conversation_in

_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _read(file: str) -> bytes:
    """Read a file, or with `-` standard input, without a byte order mark."""
    if file == "-":
        return sys.stdin.buffer.read().removeprefix(BOM)
    return read_given(Path(file), "name a file, or - for standard input")


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Have an error about the content of a file name the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


@contextmanager
def file_given(file: str) -> Iterator[str]:
    """Provide the path of a file; standard input, for `-`, is kept in a file of its own meanwhile.

    Raises:
        InputError: What is read cannot be imported, or standard input cannot be kept.
    """
    if file != "-":
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standard input"
        with path.open("wb") as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
        try:
            yield str(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), path.name)) from error


def read_text(file: str) -> str:
    """Read a text file; `-` is standard input.

    Raises:
        InputError: The file cannot be read, or is not UTF-8.
    """
    try:
        return _read(file).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}): name a text file") from error


def read_recorded_replies(file: str | None) -> Sequence[RecordedReply] | None:
    """Read a file of recorded replies; None without a file.

    Raises:
        InputError: The file cannot be read, or a line of it is not a reply.
    """
    if file is None:
        return None
    data = _read(file)
    with _naming(file):
        return read_replies(data.split(b"\n"))


def read_conversation(file: str, *, user: str | None, agent: str | None, thread: str | None) -> Conversation:
    """Read a JSON array or JSONL of messages.

    Args:
        file: The file; `-` is standard input.
        user: The user of the messages that name none.
        agent: The agent of the messages that name none.
        thread: The thread of the messages that name none.

    Raises:
        InputError: The file cannot be read, or is an array that cannot be parsed.
    """
    data = _read(file)
    with _naming(file):
        return conversation_in(data, user=user, agent=agent, thread=thread)


def policy_changes(settings: Iterable[str]) -> dict[str, PolicyValue]:
    """Read KEY=VALUE settings of the policy: numbers, names, true or false, texts, and comma-separated lists or JSON.

    Ranges are not checked here.

    Raises:
        ConfigError: A setting is not KEY=VALUE, the key is unknown, or the value has the wrong type.
    """
    from backstory.services.named import read_policy

    changes: dict[str, PolicyValue] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise ConfigError(f"a setting must be KEY=VALUE, such as max_facts=50, got {setting!r}")
        read_policy({key: value})
        changes[key] = _policy_value(policy_key(key), value)
    return changes


def check_policy_range(changes: Mapping[str, PolicyValue], max_facts_limit: int) -> None:
    """Check changes of the policy against the ranges of the configuration.

    Raises:
        ConfigError: A value is out of range.
    """
    from backstory.config.loading import load_settings
    from backstory.config.settings import WEIGHTS

    # The ledger checks the weights: it knows those in force, and all three must add up to 1.
    values = {key: value for key, value in changes.items() if key not in WEIGHTS}
    load_settings({"max_facts_limit": max_facts_limit}, values, {})


def _policy_value(known: PolicyKey, value: str) -> PolicyValue:
    key, kind = known.key, known.type
    if kind == "boolean":
        if value.casefold() not in _SWITCH:
            raise ConfigError(f"{key} must be true or false, got {value!r}")
        return _SWITCH[value.casefold()]
    if kind in ("integer", "number"):
        try:
            return int(value) if kind == "integer" else float(value)
        except ValueError as error:
            wanted = "a whole number" if kind == "integer" else "a number"
            raise ConfigError(f"{key} must be {wanted}, got {value!r}") from error
    if kind == "choice":
        return "hybrid" if key == "fact_eviction_policy" and value == "hybrid-v1" else value
    if kind == "text":
        return value
    if kind == "categories":
        return read_categories(value)
    return tuple(part.strip() for part in value.split(",") if part.strip())
