"""A plain chat loop with the OpenAI client, and a memory: one line before each call of the model, one after it.

    python examples/openai_loop.py                              offline: a stand-in plays the model
    python examples/openai_loop.py --live --model gpt-5-mini    a real one answers, and keeps the memory

It needs nothing but Backstory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import standin
import story
from openai import DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from backstory import Backstory, MemoryHandle

INSTRUCTIONS = "You are a helpful assistant. Answer in one sentence, from what you remember about the user."


class Chat:
    """Conversations with a model that remembers: each begins anew, the memory lasts."""

    def __init__(self, client: OpenAI, model: str, memory: MemoryHandle) -> None:
        self.client = client
        self.model = model
        self.memory = memory
        self.conversations: dict[str, list[ChatCompletionMessageParam]] = {}

    def say(self, thread: str, words: str) -> str:
        """Say something in a conversation; returns the answer."""
        messages = self.conversations.setdefault(thread, [])
        messages.append({"role": "user", "content": words})
        # Before: what stands goes into the system message, what these words find directly before them. No network, no
        # model, a few milliseconds.
        known = self.memory.context(messages, thread=thread)
        question = "\n\n".join(filter(None, (known.found, words)))
        completion = self.client.chat.completions.create(
            model=self.model,
            messages=[
                {"role": "system", "content": f"{INSTRUCTIONS}\n\n{known.standing}"},
                *messages[:-1],
                {"role": "user", "content": question},
            ],
        )
        answer = completion.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": answer})
        # After: the whole conversation, as it stands; what of it is new is on disk when this returns. The note lets
        # `why-said` tell what this answer was given.
        self.memory.record(thread, [*messages[:-1], {**messages[-1], "metadata": known.note()}])
        return answer


@contextlib.contextmanager
def client_for(*, live: bool) -> Iterator[OpenAI]:
    """Yield a client of a real server, or of the stand-in."""
    if live:
        # A server of one's own may ask for no key; the client insists on one.
        with OpenAI(api_key=os.environ.get("OPENAI_API_KEY") or "none") as client:
            yield client
        return
    # A proxy that the environment names is not for this machine.
    with (
        standin.server() as address,
        OpenAI(base_url=address, api_key="none", http_client=DefaultHttpxClient(trust_env=False)) as client,
    ):
        yield client


def main() -> int:
    """Tell the story with a plain loop."""
    given = story.options(__doc__)
    model = given.model if given.live else standin.NAME
    with (
        client_for(live=given.live) as client,
        story.home_in(given.home) as home,
        # The client that answers also learns; it may be another one, or a name, a LangChain model, a function.
        Backstory.open(home, model=client, model_name=model) as bs,
    ):
        memory = bs.memory(user_id=story.USER)
        return story.play(memory, Chat(client, model, memory).say)


if __name__ == "__main__":
    sys.exit(main())
