"""An agent of Pydantic AI with a memory: a capability records its runs, and each call of the model gets what is known.

    python examples/pydantic_ai_agent.py                              offline: a stand-in plays the model
    python examples/pydantic_ai_agent.py --live --model gpt-5-mini    a real one answers, and keeps the memory

It needs `pip install 'backstory[pydantic-ai]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import standin
import story
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from backstory import Backstory
from backstory.pydantic_ai import BackstoryMemory

INSTRUCTIONS = "You are a helpful assistant. Answer in one sentence, from what you remember about the user."


def main() -> int:
    """Tell the story with an agent of Pydantic AI."""
    given = story.options(__doc__)
    name = given.model if given.live else standin.NAME
    # A server of one's own may ask for no key; the client insists on one.
    key = os.environ.get("OPENAI_API_KEY") or "none"
    with contextlib.ExitStack() as stack:
        address = None if given.live else stack.enter_context(standin.server())
        # A proxy that the environment names is not for this machine.
        answering = AsyncOpenAI(
            base_url=address, api_key=key, http_client=DefaultAsyncHttpxClient(trust_env=given.live)
        )
        learning = OpenAI(base_url=address, api_key=key, http_client=DefaultHttpxClient(trust_env=given.live))
        loop = stack.enter_context(asyncio.Runner())
        stack.callback(lambda: loop.run(answering.close()))
        home = stack.enter_context(story.home_in(given.home))
        bs = stack.enter_context(Backstory.open(home, model=stack.enter_context(learning), model_name=name))
        model = OpenAIChatModel(name, provider=OpenAIProvider(openai_client=answering))
        agent = Agent(model, instructions=INSTRUCTIONS, capabilities=[BackstoryMemory(bs)])

        async def run(thread: str, words: str) -> str:
            result = await agent.run(words, conversation_id=thread, metadata={"user_id": story.USER})
            return result.output

        return story.play(bs.memory(user_id=story.USER), lambda thread, words: loop.run(run(thread, words)))


if __name__ == "__main__":
    sys.exit(main())
