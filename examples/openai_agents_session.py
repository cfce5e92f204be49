"""An agent of the OpenAI Agents SDK with a memory: its session records, and each call of the model gets what is known.

    python examples/openai_agents_session.py                              offline: a stand-in plays the model
    python examples/openai_agents_session.py --live --model gpt-5-mini    a real one answers, and keeps the memory

It needs `pip install 'backstory[openai-agents]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import standin
import story
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, SQLiteSession
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from backstory import Backstory
from backstory.openai_agents import BackstorySession

INSTRUCTIONS = "You are a helpful assistant. Answer in one sentence, from what you remember about the user."


def main() -> int:
    """Tell the story with an agent of the OpenAI Agents SDK."""
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
        agent = Agent("assistant", INSTRUCTIONS, model=OpenAIChatCompletionsModel(name, answering))

        async def run(thread: str, words: str) -> str:
            history = SQLiteSession(thread)  # keeps the conversation: in RAM, or in a file of its own
            session = BackstorySession(history, bs, user_id=story.USER)
            config = RunConfig(call_model_input_filter=session.add_memory, tracing_disabled=True)
            result = await Runner.run(agent, words, session=session, run_config=config)
            history.close()
            return str(result.final_output)

        return story.play(bs.memory(user_id=story.USER), lambda thread, words: loop.run(run(thread, words)))


if __name__ == "__main__":
    sys.exit(main())
