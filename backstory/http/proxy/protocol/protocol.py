"""Protocol of a model server, as the proxy sees it: its paths, how requests and answers are read, its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from backstory.config.settings import Settings
from backstory.http.proxy.answers import AnswerForm
from backstory.http.proxy.protocol.asked import Asked
from backstory.ledger.text.scaffolding import Scaffolding

ErrorShape = Callable[[int, str, str], Response]
"""Makes an error of the proxy itself of a status, a code and a message, in the shape that the clients know."""


@dataclass(frozen=True)
class Endpoint:
    """A path of conversations.

    Attributes:
        read: Reads a request: its body as plain JSON, and the value of a header by its name, empty where there is none.
            It raises UnreadableRequestError.
        answers: How its answers are read.
    """

    read: Callable[[bytes, Callable[[str], str], Scaffolding], Asked]
    answers: AnswerForm


@dataclass(frozen=True)
class Protocol:
    """A protocol that the proxy speaks.

    Attributes:
        name: Its name, for messages.
        path: The path under which its proxy is mounted.
        usual: The path below that most clients use.
        endpoint: Finds the conversations of a path below; None where it has none.
        error: The shape of its errors.
        upstream_key: The key of the configuration for its model server.
        upstream: Returns the base URL of that server, by the configuration and the environment.
    """

    name: str
    path: str
    usual: str
    endpoint: Callable[[str], Endpoint | None]
    error: ErrorShape
    upstream_key: str
    upstream: Callable[[Settings, Mapping[str, str]], str]
