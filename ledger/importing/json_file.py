"""Reader of JSON files, whose errors name the path or the line."""

from __future__ import annotations

from pathlib import Path

from backstory.ledger.core.errors import InputError
from backstory.ledger.text.json_text import parse_json

PATH_HINT = "name a memory.json or a DeerFlow folder"

_BOM = b"\xef\xbb\xbf"


def read_json_file(path: Path) -> object:
    """Read a file of one JSON value.

    Raises:
        InputError: The file cannot be read, or is not JSON.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"cannot read {path}: it is no file; {PATH_HINT}")
        data = path.read_bytes().removeprefix(_BOM)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {PATH_HINT}") from error
    return parse_json(data)
