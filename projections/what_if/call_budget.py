"""Call budget: a model wrapper that counts calls and tokens and enforces a limit."""

from __future__ import annotations

from backstory.ledger.extraction.models.model import Answer, Model, Prompt, usage_of
from backstory.ledger.text.tokens import estimate_tokens


class BudgetExceededError(BaseException):
    """The budget is used up; like KeyboardInterrupt it ends the run, because the updater retries model errors."""


class BudgetedModel(Model):
    """A model that counts its calls and tokens, failed calls included, and refuses calls that exceed a limit.

    Tokens are counted by the server, or estimated where it reports none. A failed call counts the tokens of its prompt.
    """

    def __init__(self, model: Model, *, max_calls: int | None = None, max_tokens: int | None = None) -> None:
        self._model = model
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self.calls = self.tokens_in = self.tokens_out = 0
        self.last_error = ""
        """The message of the last failed call."""

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt with one call.

        Raises:
            BudgetExceededError: no calls are left, or the prompt alone exceeds the tokens that are left.
            ModelUnavailableError, ModelRejectedError: as the model.
        """
        size = estimate_tokens(prompt.system) + estimate_tokens(prompt.user)
        if self._max_calls is not None and self.calls >= self._max_calls:
            raise BudgetExceededError
        if self._max_tokens is not None and self.tokens_in + self.tokens_out + size > self._max_tokens:
            raise BudgetExceededError
        self.calls += 1
        self.tokens_in += size
        try:
            answer = self._model.ask(prompt)
        except Exception as error:
            self.last_error = str(error)
            raise
        # The model caller rejects a result of another type.
        if isinstance(answer, Answer) and isinstance(answer.text, str):
            usage = usage_of(answer)
            self.tokens_in += 0 if usage.input is None else usage.input - size
            self.tokens_out += estimate_tokens(answer.text) if usage.output is None else usage.output
        return answer
