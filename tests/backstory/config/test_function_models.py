"""Models that configuration makes: a function, what it gets and may return; a provider's model in a forked child."""

from __future__ import annotations

import functools
import json
import os

import pytest
from fakes import exchange, reply

from backstory import Backstory
from backstory.config.model_factory import ForeignModel, ProviderModel, as_model
from backstory.config.settings import Settings
from backstory.ledger.core.errors import ConfigError, ModelRejectedError
from backstory.ledger.extraction.models.model import Prompt

PROMPT = Prompt("the system", "the user", "", {})
CHANGES = {"newFacts": [{"content": "Ada lives in Åbo", "category": "context", "confidence": 0.9}]}


def asked(function: object) -> str:
    model = as_model(function, Settings(), {})
    assert model is not None
    return model.ask(PROMPT).text


def test_it_gets_the_two_messages_of_the_prompt() -> None:
    seen: list[list[dict[str, str]]] = []
    asked(lambda messages: seen.append(messages) or "{}")
    assert seen == [[{"role": "system", "content": "the system"}, {"role": "user", "content": "the user"}]]


def test_it_may_return_a_text_or_an_object() -> None:
    assert asked(lambda _: json.dumps(CHANGES)) == json.dumps(CHANGES)
    assert json.loads(asked(lambda _: CHANGES)) == CHANGES


def test_an_object_it_returns_is_learned_from(tmp_path) -> None:
    with Backstory.open(tmp_path, model=lambda _: CHANGES, background=False) as bs:
        memory = bs.memory(user_id="ada")
        memory.record("t", exchange("I live in Åbo"))
        assert memory.extract().failed == 0
        assert [fact.content for fact in memory.facts()] == ["Ada lives in Åbo"]


@pytest.mark.parametrize("answer", [None, 7, b"{}", [CHANGES]])
def test_any_other_answer_is_refused_and_not_asked_for_again(answer) -> None:
    def model(_):
        return answer

    with pytest.raises(ModelRejectedError, match=f"model returned {type(answer).__name__}: .* text .* or a dict"):
        asked(model)


def test_an_object_that_is_no_json_is_refused() -> None:
    with pytest.raises(ModelRejectedError, match="cannot be written as JSON"):
        asked(lambda _: {"newFacts": [object()]})


def test_what_it_raises_is_a_failed_update_with_its_words(tmp_path) -> None:
    def model(messages):
        raise KeyError("no such reply")

    with Backstory.open(tmp_path, model=model, background=False, max_attempts=1) as bs:
        memory = bs.memory(user_id="ada")
        memory.record("t", exchange("I live in Åbo"))
        assert memory.extract().failed == 1
        (parked,) = memory.status().parked
        assert "no such reply" in parked.detail


class Later:
    async def __call__(self, messages):
        return reply("Ada")


async def later(messages):
    return reply("Ada")


@pytest.mark.parametrize("function", [Later(), later, functools.partial(later)])
def test_an_asynchronous_one_is_told_at_once(function) -> None:
    with pytest.raises(ConfigError, match="asynchronous: give a plain function"):
        as_model(function, Settings(), {})


@pytest.mark.parametrize("function", [lambda: "{}", lambda system, user: "{}"])
def test_one_with_other_parameters_is_told_at_once(function) -> None:
    with pytest.raises(ConfigError, match="must take one argument, the list of messages"):
        as_model(function, Settings(), {})


def test_a_forked_child_creates_the_model_of_a_provider_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Chat:
        def invoke(self, messages: object) -> str:
            return f"model {len(made)}"

    monkeypatch.setattr("backstory.config.model_factory.make_chat_model", lambda _: made.append(Chat()) or made[-1])
    model = ProviderModel(ForeignModel("fake", "m"))
    assert [model.ask(PROMPT).text for _ in range(2)] == ["model 1", "model 1"]
    child = os.fork()
    if child == 0:
        # Whatever happens, the child must not go on with the tests.
        try:
            os._exit(0 if model.ask(PROMPT).text == "model 2" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.ask(PROMPT).text == "model 1"
