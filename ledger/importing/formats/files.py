"""Files to import, read in bounded memory: the elements of a JSON array, lines of JSON, lines of text.

A value of JSON is found by its brackets and parsed by itself, so a file may be larger than memory.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from backstory.ledger.core.errors import InputError
from backstory.ledger.text.json_text import parse_json

BytesRead = Callable[[int], None]
"""A callback that gets the number of bytes read since the last call."""

_CHUNK = 1 << 20
_LONGEST = 1 << 28
"""The most bytes of one JSON value or line."""
_MOST_UNPACKED = 1 << 34
_MOST_PACKED_IN_ONE = 200
"""How many bytes one byte of a zip file may unpack to; a bomb has a thousand."""
_HEAD = 1 << 16
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BLANK = re.compile(rb"[\s,]*")
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<closed>")?|(?P<opening>[\[{])|[\]}]', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]]+")
_LISTED = re.compile(
    rb'\s*+\{(?:\s*+"[^"]*+"\s*+:\s*+(?:"[^"]*+"\s*+|[^,"\[{]*+),)*+\s*+"(?:results|memories)"\s*+:\s*+(?=\[)'
)
"""The beginning of an object whose list is under a key, as an API answers."""
_CHATS = re.compile(r"conversations(-\d+)?\.json")
_SESSION = re.compile(r"(rollout-.+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl")
"""The names that Codex and Claude Code give to their session files."""
_TEXTS = (".json", ".jsonl", ".csv", ".tsv", ".md", ".txt")


class Broken(NamedTuple):
    """A value that could not be read, and why."""

    why: str


class File(NamedTuple):
    """A file, or a member of a zip file, that can be read several times."""

    path: Path
    member: str | None = None
    size: int = 0

    @property
    def name(self) -> str:
        """The name of the file itself."""
        return self.path.name if self.member is None else self.member

    def opened(self) -> IO[bytes]:
        """Open it behind its byte order mark."""
        stream = _member(self, self.member) if self.member is not None else self.path.open("rb")
        if _read(stream, len(_BOM)) != _BOM:
            stream.seek(0)
        return stream

    def head(self) -> bytes:
        """Return its beginning.

        Raises:
            InputError: It is no text in UTF-8.
        """
        with self.opened() as stream:
            head = _read(stream, _HEAD)
        if head.startswith(_UTF16) or b"\0" in head:
            what = "UTF-16" if head.startswith(_UTF16) else "no text"
            raise InputError(f"{self.name} is {what}: import a text in UTF-8")
        return head


def files_at(path: Path) -> list[File]:
    """Return a file, the members of a zip file that hold an export, or the files of a folder that do.

    Raises:
        InputError: It is no file, or the zip file is damaged, encrypted or too large, or holds no file of an export.
    """
    if path.is_dir():
        return files_in(path)
    if path.exists() and not path.is_file():
        # A pipe can be read only once.
        raise InputError("it is no file: to import from a pipe, give - and send it to standard input")
    with path.open("rb") as stream:
        if stream.read(4) != b"PK\x03\x04":
            return [File(path, None, path.stat().st_size)]
    try:
        with zipfile.ZipFile(path) as packed:
            members = [one for one in packed.infolist() if not one.filename.startswith("__MACOSX/")]
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"this zip file is damaged ({error}): export it again") from error
    chats = [one for one in members if _CHATS.fullmatch(Path(one.filename).name)]
    chosen = chats or [one for one in members if one.filename.endswith(_TEXTS)]
    if not chats and len(chosen) != 1:
        names = ", ".join(one.filename[:80] for one in (chosen or members)[:10])
        raise InputError(
            f"this zip file holds no conversations.json but {names or 'nothing'}: unpack it and name a file"
        )
    for one in chosen:
        if one.flag_bits & 1:
            raise InputError(f"{one.filename} is encrypted: unpack it and name the file")
        if one.file_size > min(_MOST_UNPACKED, _CHUNK + one.compress_size * _MOST_PACKED_IN_ONE):
            raise InputError(f"{one.filename} would unpack to {one.file_size:,} bytes: unpack it and name the file")
    return [File(path, one.filename, one.file_size) for one in sorted(chosen, key=lambda one: one.filename)]


def files_in(folder: Path) -> list[File]:
    """Return the files of a folder that hold an unpacked export, or the session files below it; none in another one."""
    chats = [one for one in folder.iterdir() if _CHATS.fullmatch(one.name)]
    found = chats or [one for one in folder.rglob("*.jsonl") if _SESSION.fullmatch(one.name)]
    return [File(one, None, one.stat().st_size) for one in sorted(found) if one.is_file()]


def _member(file: File, name: str) -> IO[bytes]:
    # The member keeps the file open for itself.
    with zipfile.ZipFile(file.path) as packed:
        return packed.open(name)


def _read(stream: IO[bytes], size: int) -> bytes:
    return _unzipped(lambda: stream.read(size))


def _unzipped(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"this zip file is damaged ({error}): export it again") from error


def json_values(file: File, step: BytesRead) -> Iterator[object]:
    """Yield the elements of the array in a file, or its lines of JSON, or its only value.

    A value that is no JSON is Broken.

    Raises:
        InputError: An array has no end, or a value has more than 256 MiB.
    """
    head = file.head()
    found = _LISTED.match(head)
    if head.lstrip().startswith(b"[") or found is not None:
        begin = found.end() if found is not None else head.index(b"[")
        yield from _elements(file, begin, step)
    elif _is_lines(file):
        for number, line in enumerate(_lines(file, step), 1):
            if line.strip():
                yield _parsed(line, f"line {number}")
    else:
        yield _parsed(b"".join(_whole(file, step)), file.name)


def text_lines(file: File, step: BytesRead) -> Iterator[str]:
    """Yield the lines of a text, with their ends.

    Raises:
        InputError: A line is no UTF-8, or has more than 256 MiB.
    """
    for number, line in enumerate(_lines(file, step), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"line {number} is no UTF-8 (byte {error.start}): save the file in UTF-8") from error


def _is_lines(file: File) -> bool:
    """Whether the first line of a file is an object by itself."""
    first = next((line for line in _lines(file, lambda _: None) if line.strip()), b"")
    return isinstance(_parsed(first, ""), dict)


def _whole(file: File, step: BytesRead) -> Iterator[bytes]:
    if file.size > _LONGEST:
        raise InputError(f"{file.name} is one object of {file.size:,} bytes; at most {_LONGEST:,} are read")
    with file.opened() as stream:
        while data := _read(stream, _CHUNK):
            step(len(data))
            yield data


def _lines(file: File, step: BytesRead) -> Iterator[bytes]:
    with file.opened() as stream:
        while line := _unzipped(lambda: stream.readline(_LONGEST + 1)):
            if len(line) > _LONGEST:
                raise InputError(f"a line of {file.name} has more than {_LONGEST:,} bytes")
            step(len(line))
            yield line


def _parsed(data: bytes, where: str) -> object:
    try:
        return parse_json(data.strip())
    except InputError as error:
        return Broken(f"{where}: {error}")


def _elements(file: File, begin: int, step: BytesRead) -> Iterator[object]:
    """Yield the elements of the array that begins at an offset."""
    with file.opened() as stream:
        _read(stream, begin + 1)
        buffer, at, number = b"", 0, 1
        while True:
            blank = _BLANK.match(buffer, at)
            at = blank.end() if blank is not None else at
            end = _end_of(buffer, at)
            if end is not None and buffer[at : at + 1] == b"]":
                return
            if end is not None:
                yield _parsed(buffer[at:end], f"element {number}")
                at, number = end, number + 1
                continue
            # Each turn reads as much again, so a long value is looked through a bounded number of times.
            more = _read(stream, max(_CHUNK, len(buffer) - at))
            step(len(more))
            buffer, at = buffer[at:] + more, 0
            if not more:
                raise InputError(f"{file.name} ends within element {number}: it was cut short, so export it again")
            if len(buffer) > _LONGEST + _CHUNK:
                raise InputError(f"element {number} has more than {_LONGEST:,} bytes")


def _end_of(buffer: bytes, begin: int) -> int | None:
    """Return where the value that begins at an offset ends; None if it goes on behind the buffer."""
    first = buffer[begin : begin + 1]
    if first not in (b"{", b"[", b'"'):
        if first == b"]":
            return begin + 1
        scalar = _SCALAR.match(buffer, begin)
        return scalar.end() if scalar is not None and scalar.end() < len(buffer) else None
    depth = 0
    for part in _PART.finditer(buffer, begin):
        if part["opening"]:
            depth += 1
        elif part[0][0] != ord('"'):
            depth -= 1
        elif part["closed"] is None:
            return None
        if depth <= 0:
            return part.end()
    return None
