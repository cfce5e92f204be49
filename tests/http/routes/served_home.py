"""A server in this process around one home, and a client that holds each response against the OpenAPI document."""

from __future__ import annotations

import functools
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes import FakeClock, open_home
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from referencing.exceptions import Unresolvable
from starlette.testclient import TestClient

from backstory.home import Backstory
from backstory.http.app import ServerOptions, create_app

STORED = Path(__file__).parents[2] / "stored_home" / "home"
"""A home with the demo's story and more, for a user with an agent."""

Json = Any

_SHORT = 20_000


def copied(folder: Path) -> Path:
    """A copy of the stored home."""
    shutil.copytree(STORED, folder)
    return folder


class Server:
    """A server and its home."""

    def __init__(self, path: Path, model: object = None, options: ServerOptions | None = None, **settings: object):
        self.clock = settings.pop("clock", None) or FakeClock()
        self.path = path
        opened = functools.partial(open_home, path, model, clock=self.clock, **settings)
        self.app: FastAPI = create_app(opened, options, environ={})
        self.home: Backstory = self.app.state.home

    def other(self) -> Backstory:
        """The same home as another process has it open."""
        return open_home(self.path, clock=self.clock)

    def client(self, **headers: str) -> CheckedClient:
        """A client; at the end of its block the server has ended and closed its home."""
        return CheckedClient(self.app, headers)


class Contract:
    """The OpenAPI document of an app, as a judge of responses."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._described: set[tuple[str, int, str, bytes]] = set()
        self._paths = [
            (re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(path))), path)
            # Where two templates match, the longer one is meant: `/facts/{id}/why`.
            for path in sorted(document["paths"], key=len, reverse=True)
        ]

    def operation(self, method: str, path: str) -> Mapping[str, Any] | None:
        for pattern, template in self._paths:
            if pattern.fullmatch(path) and method.lower() in self.document["paths"][template]:
                return self.document["paths"][template][method.lower()]  # type: ignore[no-any-return]
        return None

    def validate(self, schema: Mapping[str, Any], value: Json) -> None:
        whole = {**schema, "components": self.document["components"]}
        try:
            error = next(Draft202012Validator(whole).iter_errors(value), None)
        except Unresolvable as missing:
            # Without the whole document, which the exception holds.
            raise AssertionError(f"{missing.ref} is no schema") from None
        assert error is None, f"{error.json_path}: {error.message[:500]}"

    def check(self, method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Fail if a response is not one that the document describes."""
        operation = self.operation(method, path)
        judged = (operation["operationId"], status, headers.get("content-type", ""), body) if operation else None
        if operation is None or judged in self._described:
            return
        where = f"{method} {path}: {status}"
        assert status < 500 or status == 503, f"{where} {body[:500]!r}"
        assert str(status) in operation["responses"], f"{where} is not in the document: {body[:300]!r}"
        content = operation["responses"][str(status)].get("content", {})
        if not content:
            assert body == b"", where
            return
        kind = headers["content-type"].partition(";")[0]
        assert kind in content, f"{where} is {kind}"
        if kind.endswith("json"):
            self.validate(content[kind].get("schema", {}), json.loads(body))
        if len(body) < _SHORT:
            # To judge an answer takes longer than to give it, and many are given again and again.
            self._described.add(judged)


@functools.cache
def _contract() -> Contract:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "home")
        server.home.close()
        return Contract(server.app.openapi())


def contract_of(app: FastAPI) -> Contract:
    """The document, which all apps have in common."""
    found = _contract()
    assert app.openapi() is found.document
    return found


class CheckedClient(TestClient):
    """A client on this machine; each response has to be one that the document describes."""

    def __init__(self, app: FastAPI, headers: Mapping[str, str]) -> None:
        super().__init__(app, base_url="http://127.0.0.1:8765", headers=dict(headers), raise_server_exceptions=False)
        self.contract = contract_of(app)

    def request(self, method: str, url: Any, **more: Any) -> Any:
        response = super().request(method, url, **more)
        path = response.request.url.path
        self.contract.check(method, path, response.status_code, response.headers, response.content)
        return response

    def get_json(self, url: str, **params: object) -> Json:
        response = self.get(url, params={key: value for key, value in params.items() if value is not None})
        assert response.status_code == 200, response.text
        return response.json()


def user(name: str, agent: str | None = None) -> dict[str, str]:
    """The parameters that name a memory."""
    return {"user": name} if agent is None else {"user": name, "agent": agent}
