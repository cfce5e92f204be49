"""Models of `llm` with a memory: the plug-in records what is said, and each prompt gets what is known.

    python examples/llm_plugin.py                              offline: a stand-in plays the model
    python examples/llm_plugin.py --live --model gpt-5-mini    a real one answers, and keeps the memory

At a terminal it is `llm -m memory/gpt-5-mini "I live in Bergen."`. It needs `pip install 'backstory[llm]'`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import llm
import standin
import story
from openai import DefaultHttpxClient, OpenAI

from backstory import Backstory
from backstory.llm import plugin


def main() -> int:
    """Tell the story with a model of `llm`."""
    given = story.options(__doc__)
    name = given.model if given.live else standin.NAME
    key = os.environ.get("OPENAI_API_KEY") or "none"
    with contextlib.ExitStack() as stack:
        address = None if given.live else stack.enter_context(standin.server())
        learning = OpenAI(base_url=address, api_key=key, http_client=DefaultHttpxClient(trust_env=given.live))
        home = stack.enter_context(story.home_in(given.home))
        # As a terminal would have it: whose memory it is, and where `llm` keeps its own files.
        os.environ |= {"BACKSTORY_HOME": str(home), "BACKSTORY_USER": story.USER}
        os.environ["LLM_USER_PATH"] = theirs = stack.enter_context(tempfile.TemporaryDirectory())
        # `llm` reads from this file which servers of OpenAI's protocol there are beside OpenAI's own.
        server = f"- model_id: {name}\n  model_name: {name}\n  api_base: {address or learning.base_url}\n"
        Path(theirs, "extra-openai-models.yaml").write_text(server, encoding="utf-8")
        bs = stack.enter_context(Backstory.open(home, model=stack.enter_context(learning), model_name=name))
        stack.callback(plugin.close)
        memory = bs.memory(user_id=story.USER)
        model = llm.get_model(f"memory/{name}")

        def say(thread: str, words: str) -> str:
            conversation = model.conversation()
            conversation.id = thread
            answer = conversation.prompt(words, key=key, stream=False).text()
            memory.extract()  # as `backstory extract`, or a worker, does
            return answer

        return story.play(memory, say)


if __name__ == "__main__":
    sys.exit(main())
