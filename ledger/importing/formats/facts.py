"""Readers of facts: JSON and JSONL of texts or objects, CSV, mem0's memories and the memory file of the MCP server."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping

from backstory.ledger.core.errors import InputError
from backstory.ledger.importing.document import FACT_KEYS
from backstory.ledger.importing.formats.files import Broken
from backstory.ledger.importing.formats.tally import Tally, text

FactDict = dict[str, object]
"""A fact in the shape of a memory.json."""

_ALSO = {
    "memory": "content",
    "metadata": "attributes",
    "text": "content",
    "fact": "content",
    "categories": "category",
    "created_at": "createdAt",
    "valid_from": "validFrom",
    "valid_until": "validUntil",
    "expires_at": "expiresAt",
    "expiration_date": "expiresAt",
    "expirationDate": "expiresAt",
}
"""Other names for the keys of a fact."""
_USERS = ("user_id", "userId")
CONTENTS = ("content", "memory", "text", "fact")


def read(items: Iterable[object], tally: Tally, source: str | None = None) -> Iterator[FactDict]:
    """Yield the facts of a list; a text is one, too."""
    for item in items:
        if isinstance(item, str):
            yield {"content": item}
        elif not isinstance(item, Mapping):
            tally.refuse(item.why if isinstance(item, Broken) else "it is neither a text nor an object")
        elif tally.takes(next(filter(None, map(item.get, _USERS)), None)):
            yield _fact(item, tally, source)


def read_mem0(items: Iterable[object], tally: Tally) -> Iterator[FactDict]:
    """Yield the memories of mem0."""
    return read(items, tally, "mem0")


def _fact(item: Mapping[str, object], tally: Tally, source: str | None) -> FactDict:
    fact: FactDict = {} if source is None else {"source": source}
    for key, value in item.items():
        name = _ALSO.get(key, key)
        if value in (None, "", [], {}) or key in _USERS:
            continue
        if isinstance(value, list) and name == "category":
            # A fact has one category; the others would be lost.
            fact.setdefault("tags", value)
        if isinstance(value, str) and name == "tags":
            value = re.split("[,;|]", value)  # noqa: PLW2901 the value as it is read
        if name not in FACT_KEYS or name in fact:
            tally.leave_unread(key)
        else:
            fact[name] = value
    return fact


def read_csv(lines: Iterable[str], tally: Tally) -> Iterator[FactDict]:
    """Yield the facts of a table whose first line names its columns."""
    lines = iter(lines)
    header = next(lines, "")
    columns = {column.casefold(): column for column in FACT_KEYS}
    try:
        rows = csv.reader(lines, delimiter=delimiter_of(header))
        names = [columns.get(name.casefold(), name.casefold()) for name in columns_of(header)]
        yield from read((dict(zip(names, row, strict=False)) for row in rows if any(row)), tally)
    except csv.Error as error:
        raise InputError(f"this is no CSV: {error}") from error


def delimiter_of(header: str) -> str:
    """Return what separates the columns of a table."""
    return max(",;\t", key=header.count)


def columns_of(header: str) -> list[str]:
    """Return the names of the columns of a table."""
    return [name.strip() for name in next(csv.reader([header], delimiter=delimiter_of(header)), [])]


def read_mcp_memory(items: Iterable[object], tally: Tally) -> Iterator[FactDict]:
    """Yield each observation of an entity, behind its name, and each relation, as a fact."""
    for item in tally.objects(items):
        kind, observations = item.get("type"), item.get("observations")
        name = text(item.get("name")).replace("_", " ")
        if kind == "entity" and name and isinstance(observations, list):
            for observation in observations:
                if isinstance(observation, str) and observation.strip():
                    yield {"content": f"{name}: {observation.strip()}", "source": "mcp-memory"}
                else:
                    tally.refuse("an observation is no text")
            if text(item.get("entityType")):
                tally.leave_unread("entityType")
        elif kind == "relation" and all(text(item.get(end)) for end in ("from", "relationType", "to")):
            ends = (text(item.get(end)).replace("_", " ") for end in ("from", "relationType", "to"))
            yield {"content": " ".join(ends), "source": "mcp-memory"}
        else:
            tally.refuse("it is neither an entity with observations nor a relation")
