"""Generator of docs/reference/rest.md: every route, from the OpenAPI document that the server itself answers with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backstory.http.app import _document

PAGE = Path(__file__).parent.parent / "docs/reference/rest.md"

INTRODUCTION = """# REST

`make docs` writes this page from the OpenAPI document, and a test compares them. A server shows it with examples at
`/docs`, and answers with the document itself at `/openapi.json`, from which clients can be generated.
[Server](../how-to/server.md) begins with a first request, tokens and limits.

Answers and errors are JSON; an error is a problem document (RFC 9457) with `detail` in one sentence.
"""
COMMON = ("user", "agent", "if-match", "if-none-match", "idempotency-key")
"""Parameters that most routes take; they are described once."""


def page() -> str:
    document = _document()
    routes = list(_routes(document))
    parts = [INTRODUCTION, *_common(routes), *_errors(routes)]
    tag = None
    for path, method, route in routes:
        if route["tags"][0] != tag:
            tag = route["tags"][0]
            parts.append(f"## {'DeerFlow' if tag == 'deerflow' else tag}\n")
        parts += _route(path, method, route, document["components"]["schemas"])
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _routes(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    found = [
        (path, method.upper(), route)
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    ]
    tags = list(dict.fromkeys(route["tags"][0] for _, _, route in found))
    yield from sorted(found, key=lambda one: tags.index(one[2]["tags"][0]))


def _common(routes: list[tuple[str, str, dict[str, Any]]]) -> Iterator[str]:
    yield "Most routes take these; an asterisk marks what a request must have:\n"
    yield "| parameter | in | what |\n|---|---|---|"
    for name in COMMON:
        known = (one for _, _, route in routes for one in route.get("parameters", ()) if one["name"] == name)
        yield _row(f"`{name}`", next(known)["in"], next(known)["description"])
    yield ""


def _errors(routes: list[tuple[str, str, dict[str, Any]]]) -> Iterator[str]:
    told = {
        code: answer["description"]
        for _, _, route in routes
        if route["tags"][0] != "deerflow"
        for code, answer in route["responses"].items()
        if code.startswith(("3", "4", "5"))
    }
    yield "| status | when |\n|---|---|"
    yield from (_row(code, told[code]) for code in sorted(told))
    yield ""


def _route(path: str, method: str, route: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}\n"
    yield f"{route.get('description') or route['summary']}\n"
    rows = [
        _row(f"`{one['name']}`", one["in"], one.get("description", ""))
        for one in route.get("parameters", ())
        if one["name"] not in COMMON
    ]
    body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows += [
        _row(f"`{name}`{' *' if name in schema.get('required', ()) else ''}", "body", _described(field))
        for schema in _named(body, schemas)
        for name, field in schema.get("properties", {}).items()
    ]
    if rows:
        yield "\n".join(["| parameter | in | what |", "|---|---|---|", *rows, ""])
    answers = {one["description"] for code, one in route["responses"].items() if code.startswith("2")}
    yield from (f"Answer: {one}\n" for one in answers - {"Successful Response"})


def _named(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in (body, *body.get("anyOf", ())):
        if "$ref" in one:
            yield schemas[one["$ref"].rpartition("/")[2]]


def _described(field: Mapping[str, Any]) -> str:
    choices = [field, *field.get("anyOf", ())]
    return next((one["description"] for one in choices if "description" in one), "")


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
