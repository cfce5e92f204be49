"""What asking a model costs, and a cap on it."""

from __future__ import annotations

from backstory.ledger.extraction.model import Answer, Model, Prompt
from backstory.ledger.learning.observing import usage_of
from backstory.ledger.text.tokens import estimate_tokens

__all__ = ["BudgetedModel", "SpentError"]


class SpentError(BaseException):
    """No more may be spent.

    No failure of the model's, which whoever asks it would record or try again: like Ctrl-C, it ends the work.
    """


class BudgetedModel(Model):
    """A model that counts its calls and tokens, failed calls included, and makes none that would exceed a cap.

    Tokens are as the server counts them, and estimated where it does not say: of a call that failed, those of the
    prompt, which was sent all the same.
    """

    def __init__(self, model: Model, *, max_calls: int | None = None, max_tokens: int | None = None) -> None:
        self._model = model
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self.calls = self.tokens_in = self.tokens_out = 0
        self.said = ""
        """What the last call that failed said."""

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return self._model.name

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt, once.

        Raises:
            SpentError: the calls are used up, or the prompt alone would exceed the tokens that are left.
            ModelUnavailableError, ModelRejectedError: as the model.
        """
        size = estimate_tokens(prompt.system) + estimate_tokens(prompt.user)
        if self._max_calls is not None and self.calls >= self._max_calls:
            raise SpentError
        if self._max_tokens is not None and self.tokens_in + self.tokens_out + size > self._max_tokens:
            raise SpentError
        self.calls += 1
        self.tokens_in += size
        try:
            answer = self._model.ask(prompt)
        except Exception as error:
            self.said = str(error)
            raise
        # What is no answer is for whoever asked to refuse.
        if isinstance(answer, Answer) and isinstance(answer.text, str):
            usage = usage_of(answer)
            self.tokens_in += 0 if usage.input is None else usage.input - size
            self.tokens_out += estimate_tokens(answer.text) if usage.output is None else usage.output
        return answer
