"""Port to a model: a prompt goes in, an answer or a ModelError comes out that never shows the key."""

from __future__ import annotations

from typing import Protocol

import msgspec

from backstory.ledger.core.sanitize import Json, clip

__all__ = ["Answer", "Model", "Prompt", "Usage", "redacted", "showable"]


class Prompt(msgspec.Struct, frozen=True):
    """What a model is asked.

    `digest` is the sha256 of the template files it was built from (64 hex digits), `schema` the JSON schema of the
    wanted reply, to be offered to servers that can hold a model to one.
    """

    system: str
    user: str
    digest: str
    schema: dict[str, Json]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, as the server counted them; None where it did not say."""

    input: int | None = None
    output: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a model said: the raw text, the model that says it said it, and the bill.

    `prompted` is false where the prompt was never sent (a recorded answer), so that no cause claims it was.
    """

    text: str
    model: str
    usage: Usage | None = None
    prompted: bool = True


class Model(Protocol):
    """Anything that can answer a prompt."""

    @property
    def name(self) -> str:
        """The model asked for; goes into the cause of every commit."""

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt, once; retries are the caller's.

        Raises:
            ModelUnavailableError: worth another try.
            ModelRejectedError: not worth one.
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
