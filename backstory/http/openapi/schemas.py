"""Schemas of answers for the OpenAPI document, made from the types that the Python API returns, and examples of them.

The examples are what a server answers about the first conversation of the demo: `make docs` records them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from backstory.http.access.refusals import PROBLEM, Problem

__all__ = ["EXAMPLES", "Responses", "add_examples", "add_refusals", "components", "problem", "returns"]

EXAMPLES: Mapping[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_bytes())
"""An example of each type, by its name."""


Responses = dict[int | str, dict[str, Any]]
"""What FastAPI takes as the responses of a route."""

_REF = "#/components/schemas/{name}"
_PROBLEMS = {
    400: "A value cannot be one of its kind.",
    401: "There is no token, or it is unknown.",
    403: "The token lacks the right, or the host or the origin is not allowed.",
    404: "There is no such thing, or the token does not cover it.",
    408: "The body took too long.",
    409: "It was refused; `rule` names the rule.",
    412: "The memory has changed since it was seen.",
    413: "The body is too large.",
    422: "The request is not valid, or its key was used for another one.",
    502: "The model gave no usable answer.",
    503: "The memory cannot be used now: it is locked, damaged or unwritable, or there are too many requests.",
}

_types: dict[str, type] = {"Problem": Problem}


def returns(kind: type, *problems: int, status: int = 200, cached: bool = False) -> Responses:
    """Return the responses of a route.

    Args:
        kind: The type of the answer.
        problems: The statuses of its errors, beside those that every route has.
        status: The status of the answer.
        cached: Whether it has an ETag, so that 304 is an answer, too.
    """
    _types[kind.__name__] = kind
    content: dict[str, Any] = {"schema": {"$ref": _REF.format(name=kind.__name__)}}
    found: Responses = {
        status: {
            "description": (kind.__doc__ or "").partition("\n")[0],
            "content": {"application/json": content},
            "headers": {"ETag": {"schema": {"type": "string"}}} if cached else {},
        }
    }
    if cached:
        found[304] = {"description": "The answer is still the one with this ETag."}
    for status_of_problem in sorted({400, 403, 404, 422, 503, *problems}):
        found[status_of_problem] = problem(status_of_problem)
    return found


def problem(status: int) -> dict[str, Any]:
    """Return the response that describes a problem."""
    return {
        "description": _PROBLEMS[status],
        "content": {PROBLEM: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }


def add_refusals(document: Mapping[str, Any]) -> None:
    """Add to an OpenAPI document what is answered before any route: no token, a wrong host, a limit."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            refused = {401, 403, 503} | ({408, 413} if "requestBody" in operation else set())
            for status in sorted(refused):
                answer = problem(status)
                if path.startswith("/api/memory"):
                    # DeerFlow's clients read the detail alone.
                    detail = {"type": "object", "required": ["detail"], "properties": {"detail": {"type": "string"}}}
                    answer["content"] = {"application/json": {"schema": detail}}
                operation["responses"].setdefault(str(status), answer)


def add_examples(document: Mapping[str, Any]) -> None:
    """Add an example to each answer that there is one of. FastAPI would leave out what is null in it."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                for content in answer.get("content", {}).values():
                    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
                    if name in EXAMPLES:
                        content["example"] = EXAMPLES[name]


def components() -> Mapping[str, Any]:
    """Return the schemas of all types that routes return, with those that they are made of."""
    stated = tuple(_types.values())
    refs, found = msgspec.json.schema_components(stated, schema_hook=_anything, ref_template=_REF)
    # Where a type inside of another has the same name, both are listed by their full names.
    names = {
        ref["$ref"].removeprefix(_REF.format(name="")): kind.__name__ for kind, ref in zip(stated, refs, strict=True)
    }
    return _renamed(found, {name: names.get(name, _in_one_word(name)) for name in found})


def _renamed(found: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the schemas under other names; generators of clients name a class after the title."""
    text = msgspec.json.encode(found)
    for old, new in names.items():
        text = text.replace(b'"%s"' % _REF.format(name=old).encode(), b'"%s"' % _REF.format(name=new).encode())
    renamed: dict[str, dict[str, Any]] = msgspec.json.decode(text)
    return {names[name]: {**schema, "title": names[name]} for name, schema in renamed.items()}


def _in_one_word(name: str) -> str:
    """Return `history.Change` as `HistoryChange`: a full name is no name of a class."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[._]", ".".join(name.split(".")[-2:])))


def _anything(kind: type) -> dict[str, Any]:
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(f"{kind} has no schema")
