"""The packages themselves, each in an environment of its own: a conversation through the proxy is one thread.

`make torture` installs them from the package index.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from packages import python_with, run
from served import Served
from sizes import PATIENT
from upstreams import Answer, Request, StandIn, document, message, response

QUESTIONS = ("I live in Bergen, by the harbour", "Where do I live, then?", "ok", "Which town is it?")

_LANGCHAIN = """
from langchain_openai import ChatOpenAI
model, history = ChatOpenAI(model="m", model_kwargs={"user": "ada"}), []
for question in QUESTIONS:
    history += [("user", question), model.invoke([*history, ("user", question)])]
"""
_OPENAI = """
import openai
client, history = openai.OpenAI(), []
for question in QUESTIONS:
    history.append({"role": "user", "content": question})
    answer = client.chat.completions.create(model="m", user="ada", messages=history)
    history.append({"role": "assistant", "content": answer.choices[0].message.content.strip()})
"""
_LITELLM = """
import litellm
history = []
for question in QUESTIONS:
    history.append({"role": "user", "content": question})
    answer = litellm.completion(model="openai/m", extra_headers={"X-Backstory-User": "ada"}, messages=history)
    history.append(answer.choices[0].message)
"""
_PYDANTIC = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
agent, history = Agent(OpenAIChatModel("m"), instructions="Be brief."), None
for question in QUESTIONS:
    run = agent.run_sync(question, message_history=history, model_settings={"openai_user": "ada"})
    history = run.all_messages()
"""
_AGENTS = """
import openai
from agents import Agent, Runner, set_default_openai_client, set_tracing_disabled
set_tracing_disabled(True)
client = openai.AsyncOpenAI(default_headers={"X-Backstory-User": "ada"})
set_default_openai_client(client, use_for_tracing=False)
agent, items = Agent(name="a", instructions="Be brief.", model="m"), []
for question in QUESTIONS:
    items = Runner.run_sync(agent, [*items, {"role": "user", "content": question}]).to_input_list()
"""
_SMOLAGENTS = """
import os
from smolagents import CodeAgent, OpenAIServerModel
model = OpenAIServerModel("m", api_base=os.environ["OPENAI_BASE_URL"], api_key="sk-example", user="ada")
agent = CodeAgent(tools=[], model=model, max_steps=2)
for n, question in enumerate(QUESTIONS):
    agent.run(question, reset=n == 0)
"""
_ANTHROPIC = """
import anthropic
client, history = anthropic.Anthropic(), []
for question in QUESTIONS:
    history.append({"role": "user", "content": question})
    answer = client.messages.create(model="m", max_tokens=99, metadata={"user_id": "ada"}, messages=history)
    history.append({"role": "assistant", "content": answer.content})
"""
_LANGCHAIN_ANTHROPIC = """
from langchain_anthropic import ChatAnthropic
model, history = ChatAnthropic(model="m", default_headers={"X-Backstory-User": "ada"}), []
for question in QUESTIONS:
    history += [("user", question), model.invoke([("system", "Be brief."), *history, ("user", question)])]
"""
_PYDANTIC_ANTHROPIC = """
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
agent, history = Agent(AnthropicModel("m"), instructions="Be brief."), None
settings = {"anthropic_metadata": {"user_id": "ada"}, "anthropic_cache_instructions": True}
for question in QUESTIONS:
    run = agent.run_sync(question, message_history=history, model_settings=settings)
    history = run.all_messages()
"""


@dataclass(frozen=True)
class Package:
    """A package of the index, a conversation with it, and how a model has to answer it."""

    name: str
    script: str
    answer: str = " It is {}.\n"
    speaks: str = "OPENAI"


PACKAGES = (
    Package("anthropic==2.14.0", _ANTHROPIC, speaks="ANTHROPIC"),
    Package("langchain-anthropic==1.7.10", _LANGCHAIN_ANTHROPIC, speaks="ANTHROPIC"),
    Package("langchain-openai==1.7.4", _LANGCHAIN),
    Package("litellm==1.110.2", _LITELLM),
    Package("openai==3.57.0", _OPENAI),
    Package("openai-agents==0.24.0", _AGENTS),
    Package("pydantic-ai-slim[anthropic]==2.66.0", _PYDANTIC_ANTHROPIC, speaks="ANTHROPIC"),
    Package("pydantic-ai-slim[openai]==2.66.0", _PYDANTIC),
    Package("smolagents[openai]==1.26.0", _SMOLAGENTS, "Thought: I know.\n<code>\nfinal_answer('It is {}.')\n</code>"),
)


@pytest.mark.slow
@PATIENT
@pytest.mark.torture
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_conversation_with_a_package_is_one_thread(
    request: pytest.FixtureRequest, upstream: StandIn, tmp_path: Path, package: Package
) -> None:
    proxy: Served = request.getfixturevalue("claude" if package.speaks == "ANTHROPIC" else "proxy")
    python = python_with(package.name, tmp_path)
    answers = iter(range(100))

    def answer(request: Request) -> Answer:
        text = package.answer.format(next(answers))
        if request.path.endswith("/responses"):
            return document(response(text))
        if request.path.startswith("/v1/messages"):
            return message(text)
        said = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "c1", "object": "chat.completion", "created": 0, "model": "m", "choices": [said]}
        return document({**whole, "usage": usage})

    upstream.then(answer)
    script = f"QUESTIONS = {QUESTIONS!r}\n{package.script}"
    env = {f"{package.speaks}_BASE_URL": proxy.url, f"{package.speaks}_API_KEY": "sk-example"}
    told = run(python, "-c", script, seconds=300, **env)
    assert told.returncode == 0, told.stderr[-2000:]
    [turns] = proxy.turns().values()
    assert turns == [text for n, said in enumerate(QUESTIONS) for text in (said, package.answer.format(n))]
