"""What a person hands over to be remembered, read into candidates: a document, a list, a file, a DeerFlow home.

`document` reads what is parsed already, `files` reads JSON from disk, `deerflow` the folders that DeerFlow 2 keeps;
`changes` tells what of a document its holder changed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import Candidate
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing.changes import changes_since
from backstory.ledger.importing.deerflow import read_home, read_home_if_any
from backstory.ledger.importing.document import read_document
from backstory.ledger.importing.json_file import read_json_file

__all__ = ["changes_since", "read_document", "read_home_if_any", "read_import"]

_log = logging.getLogger(__name__)

_HINT = "name a memory.json or a DeerFlow folder"


def read_import(given: object, scope: Scope) -> tuple[Candidate, ...]:
    """Read a document, a list, or the file or folder at a path; an item that cannot be read is an Unread candidate.

    A text is taken for a path. Of a DeerFlow home with several users and agents the scope's part is read.

    Raises:
        InputError: it is no memory at all, or nothing of the scope is there.
    """
    if not isinstance(given, str | os.PathLike):
        return read_document(given)
    if not str(given):
        raise InputError("the path to import is empty: name a memory.json or a DeerFlow folder")
    path = Path(given).expanduser()
    try:
        return read_home(path, scope) if path.is_dir() else _read_file(path)
    except InputError as error:
        told = str(error)
        raise InputError(told if str(path) in told else f"{path}: {told}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {_HINT}") from error
    except (ValueError, RuntimeError) as error:
        raise InputError(f"cannot read {str(given)[:80]!r}: {error}; a text is taken for a path") from error


def _read_file(path: Path) -> tuple[Candidate, ...]:
    given = read_json_file(path)
    if isinstance(given, Mapping) and "facts" not in given and (path.parent / "agents").is_dir():
        _log.warning("%s holds no facts: DeerFlow 2 keeps them beside it, so import %s", path, path.parent)
    return read_document(given)
