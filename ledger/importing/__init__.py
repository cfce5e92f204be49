"""Importing: reads memories of other programs. May import `core`, `text` and `messages`.

`document` reads parsed values, and says what a host changed in a document; `json_file` reads JSON from disk, `deerflow`
(with `deerflow_paths`) the folders of DeerFlow, and `formats` the files of other tools.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import Candidate
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing.deerflow import read_home, read_home_if_any
from backstory.ledger.importing.document import changes_since, is_document, read_document, without_empty_sections
from backstory.ledger.importing.formats.recognising import unknown
from backstory.ledger.importing.json_file import PATH_HINT, read_json_file

__all__ = ["changes_since", "read_document", "read_home_if_any", "read_import", "without_empty_sections"]

_log = logging.getLogger(__name__)


def read_import(given: object, scope: Scope) -> tuple[Candidate, ...]:
    """Read a memory into candidates; an item that cannot be read becomes an Unread candidate.

    Args:
        given: a document, a list of texts or facts, or the path of a file or folder; a text is a path.
        scope: whose part of a DeerFlow home to read.

    Raises:
        InputError: `given` is not a memory, or holds nothing of the scope.
    """
    if not isinstance(given, str | os.PathLike):
        return _read(given)
    if not str(given):
        raise InputError(f"the path to import is empty: {PATH_HINT}")
    path = Path(given).expanduser()
    try:
        return read_home(path, scope) if path.is_dir() else _read_file(path)
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {PATH_HINT}") from error
    except (ValueError, RuntimeError) as error:
        raise InputError(f"cannot read the path {str(given)[:80]!r}: {error}") from error


def _read_file(path: Path) -> tuple[Candidate, ...]:
    given = read_json_file(path)
    if isinstance(given, Mapping) and "facts" not in given and (path.parent / "agents").is_dir():
        _log.warning("%s holds no facts; DeerFlow 2 keeps them in the folder, so import %s", path, path.parent)
    return _read(given)


def _read(given: object) -> tuple[Candidate, ...]:
    try:
        return read_document(given)
    except InputError as error:
        if is_document(given) or not isinstance(given, list | tuple | Mapping):
            raise
        raise InputError(f"{error}; {unknown(given if isinstance(given, list | tuple) else [given])}") from error
