"""Model port: takes a prompt, returns an answer or raises a ModelError that never shows the key."""

from __future__ import annotations

from typing import Protocol

import msgspec

from backstory.ledger.core.sanitize import Json, clip

__all__ = ["Answer", "Model", "Prompt", "Usage", "redacted", "showable"]


class Prompt(msgspec.Struct, frozen=True):
    """A request to a model.

    Attributes:
        system: the system message.
        user: the user message.
        digest: the sha256 of the template files it was built from, as 64 hex digits.
        schema: the JSON schema of the wanted reply, for servers that enforce one.
    """

    system: str
    user: str
    digest: str
    schema: dict[str, Json]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts as the server reports them; None where it reports none."""

    input: int | None = None
    output: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """A model's answer.

    Attributes:
        text: the raw text.
        model: the model named in the answer.
        usage: the token counts, where the server reports them.
        prompted: false for a recorded answer: its prompt was never sent, and no cause may claim it was.
    """

    text: str
    model: str
    usage: Usage | None = None
    prompted: bool = True


class Model(Protocol):
    """The interface of a model."""

    @property
    def name(self) -> str:
        """The requested model; recorded in the cause of every commit."""

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt with one request; the caller retries.

        Raises:
            ModelUnavailableError: a retry may succeed.
            ModelRejectedError: a retry is pointless.
        """


def redacted(text: str, key: str | None, at_most: int) -> str:
    """Return a text as one line of so many characters at most, without the key."""
    # The key goes first: clipping could leave a part of it that no longer matches.
    hidden = text.replace(key, "***") if key else text
    return clip(" ".join(hidden.split()), at_most)


def showable(error: BaseException, key: str | None) -> BaseException | None:
    """Return an error as the cause to show in a traceback, or None where its own text would show the key."""
    link: BaseException | None = error
    while link is not None and key:
        if key in str(link):
            return None
        link = link.__cause__ or link.__context__
    return error
