"""An agent with the official Anthropic client, to which the proxy of `backstory serve` gives a memory.

    backstory serve
    pip install anthropic
    python examples/proxy_anthropic.py --user ada

It is an agent as any other: nothing in it is about memory, but the base URL and whose words it sends. The key is the
model server's (ANTHROPIC_API_KEY).
"""

from __future__ import annotations

import argparse
import os
import sys

from anthropic import Anthropic
from anthropic.types import MessageParam

PROXY = "http://127.0.0.1:8765/proxy/anthropic"


def main() -> None:
    """Ask once for a whole answer, and once for a stream."""
    parser = argparse.ArgumentParser(description="Talk to a model through the proxy.")
    parser.add_argument("--user", default="ada", help="whose memory it is")
    parser.add_argument("--model", default="claude-haiku-4-5", help="the model that answers")
    options = parser.parse_args()
    # This is the one line that changes.
    with Anthropic(base_url=os.environ.get("PROXY_URL", PROXY)) as client:
        messages: list[MessageParam] = [{"role": "user", "content": "Where do I live?"}]
        message = client.messages.create(
            model=options.model, max_tokens=1_000, metadata={"user_id": options.user}, messages=messages
        )
        answer = "".join(block.text for block in message.content if block.type == "text")
        print(answer)

        # The conversation goes on: its thread is found by its words.
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "Say it again, word by word."},
        ]
        with client.messages.stream(
            model=options.model, max_tokens=1_000, metadata={"user_id": options.user}, messages=messages
        ) as stream:
            for text in stream.text_stream:
                sys.stdout.write(text)
        print()


if __name__ == "__main__":
    main()
