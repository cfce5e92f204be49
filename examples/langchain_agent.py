"""A LangChain agent with a memory: one line in its list of middlewares.

    python examples/langchain_agent.py                              offline: a stand-in plays the model
    python examples/langchain_agent.py --live --model gpt-5-mini    a real one answers, and keeps the memory

It needs `pip install 'backstory[langchain]'`, and `langchain-openai` for a real model.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import standin
import story
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.memory import InMemorySaver

from backstory import Backstory
from backstory.langchain import BackstoryMiddleware

INSTRUCTIONS = "You are a helpful assistant. Answer in one sentence, from what you remember about the user."


@dataclass
class Who:
    """What the host knows of each call; the middleware reads the user's id from it."""

    user_id: str


def model_for(*, live: bool, name: str) -> BaseChatModel:
    """Return a real model, or the stand-in."""
    if not live:
        return standin.chat_model()
    # A server of one's own may ask for no key; the client insists on one.
    os.environ["OPENAI_API_KEY"] = os.environ.get("OPENAI_API_KEY") or "none"
    try:
        return init_chat_model(name, model_provider="openai")
    except ImportError:
        print("--live needs one package more: pip install langchain-openai", file=sys.stderr)
        raise SystemExit(2) from None


def main() -> int:
    """Tell the story with a LangChain agent."""
    given = story.options(__doc__)
    model = model_for(live=given.live, name=given.model)
    # The model that answers also learns; it may be another one, or a name, an OpenAI client, a function.
    with story.home_in(given.home) as home, Backstory.open(home, model=model) as bs:
        agent = create_agent(
            model,
            system_prompt=INSTRUCTIONS,
            middleware=[BackstoryMiddleware(bs)],
            checkpointer=InMemorySaver(),
            context_schema=Who,
        )

        def say(thread: str, words: str) -> str:
            state = agent.invoke(
                {"messages": [{"role": "user", "content": words}]},
                config={"configurable": {"thread_id": thread}},
                context=Who(user_id=story.USER),
            )
            return str(state["messages"][-1].text)

        return story.play(bs.memory(user_id=story.USER), say)


if __name__ == "__main__":
    sys.exit(main())
