"""The port to a model: a prompt goes in, an answer or a ModelError comes out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from backstory.ledger.core.sanitize import Json

__all__ = ["Answer", "Model", "Prompt", "Usage"]


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
