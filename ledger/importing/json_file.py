"""Files of JSON, read strictly first and then as Python's own parser would, with an error that says where."""

from __future__ import annotations

from pathlib import Path

from backstory.ledger.core.errors import InputError
from backstory.ledger.text.json_text import parse_json

__all__ = ["read_json_file"]

_BOM = b"\xef\xbb\xbf"


def read_json_file(path: Path) -> object:
    """Read a file of one JSON value.

    Raises:
        InputError: it cannot be read, or it is no JSON.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"cannot read {path}: it is no file; name a memory.json or a DeerFlow folder")
        data = path.read_bytes().removeprefix(_BOM)
    except OSError as error:
        hint = "name a memory.json or a DeerFlow folder"
        raise InputError(f"cannot read {path}: {error.strerror or error}; {hint}") from error
    return parse_json(data)
