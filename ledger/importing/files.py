"""Files of JSON, read strictly first and then as Python's own parser would, with an error that says where."""

from __future__ import annotations

import json
from pathlib import Path

import orjson

from ledger.errors import InputError

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
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        # Orjson refuses NaN and huge integers, which DeerFlow's own files may hold.
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"it is no UTF-8 (byte {error.start}: 0x{data[error.start]:02x})") from error
    except json.JSONDecodeError as error:
        raise InputError(f"line {error.lineno}: it is no JSON: {error.msg} at column {error.colno}") from error
    except RecursionError:
        raise InputError("it is nested too deep") from None
    except ValueError as error:
        raise InputError(f"it is no JSON: {error}") from error
