"""A graph of LangGraph with a memory: one node before the model, one after it.

    python examples/langgraph_nodes.py                              offline: a stand-in plays the model
    python examples/langgraph_nodes.py --live --model gpt-5-mini    a real one answers, and keeps the memory

It needs `pip install 'backstory[langchain]'`, and `langchain-openai` for --live.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import story
from langchain_agent import model_for
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph

from backstory import Backstory
from backstory.langchain import MemoryNodes, MemoryState

INSTRUCTIONS = "You are a helpful assistant. Answer in one sentence, from what you remember about the user."


@dataclass
class Who:
    """What the host knows of each call; the nodes read the user's id from it."""

    user_id: str


def main() -> int:
    """Tell the story with a graph."""
    given = story.options(__doc__)
    model = model_for(live=given.live, name=given.model)

    def answer(state: MemoryState) -> dict[str, list[AnyMessage]]:
        # `before` has put what is known into the state: what stands goes to the system message, what was found for this
        # question directly before it.
        return {"messages": [model.invoke(nodes.prompt(state, INSTRUCTIONS))]}

    with story.home_in(given.home) as home, Backstory.open(home, model=model) as bs:
        nodes = MemoryNodes(bs)
        graph = StateGraph(MemoryState, context_schema=Who)
        graph.add_sequence([("before", nodes.before), ("answer", answer), ("after", nodes.after)])
        graph.set_entry_point("before")
        agent = graph.compile(checkpointer=InMemorySaver())

        def say(thread: str, words: str) -> str:
            state = agent.invoke(
                {"messages": [HumanMessage(words)]},
                config={"configurable": {"thread_id": thread}},
                context=Who(user_id=story.USER),
            )
            return str(state["messages"][-1].text)

        return story.play(bs.memory(user_id=story.USER), say)


if __name__ == "__main__":
    sys.exit(main())
