"""A LangChain chat model that learning asks: its text, whatever its shape, and its bill."""

from __future__ import annotations

from typing import ClassVar

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from backstory.config.model_factory import as_model
from backstory.config.settings import Settings
from backstory.ledger.core.errors import ModelUnavailableError
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, Usage

PROMPT = Prompt("rules", "words", "0" * 64, {})
BILL = {"input_tokens": 30, "output_tokens": 2, "total_tokens": 32}


def asked(*answers: AIMessage | str) -> Model:
    model = as_model(GenericFakeChatModel(messages=iter(answers)), Settings())
    assert model is not None
    return model


@pytest.mark.parametrize(
    "content", ["{}", [{"type": "text", "text": "{}"}], [{"type": "reasoning", "reasoning": "hm"}, "{}"]]
)
def test_its_answer_is_the_text_alone(content):
    assert asked(AIMessage(content)).ask(PROMPT).text == "{}"


def test_its_bill_is_what_the_message_says():
    answer = asked(AIMessage("{}", usage_metadata=BILL)).ask(PROMPT)
    assert answer == Answer("{}", "GenericFakeChatModel", Usage(30, 2))
    assert asked(AIMessage("{}")).ask(PROMPT).usage is None


def test_a_model_that_raises_was_out_of_reach():
    with pytest.raises(ModelUnavailableError, match="GenericFakeChatModel failed"):
        asked().ask(PROMPT)


def test_a_model_of_an_older_make_is_asked_for_its_text():
    class Message:
        usage_metadata: ClassVar = {"input_tokens": -1, "output_tokens": "many"}

        def text(self) -> str:
            return "{}"

    class Older:
        model_name = "older-1"

        def invoke(self, messages: list[tuple[str, str]]) -> Message:
            assert messages == [("system", "rules"), ("human", "words")]
            return Message()

    model = as_model(Older(), Settings())
    assert model is not None
    assert model.ask(PROMPT) == Answer("{}", "older-1", None)
