"""An agent with the official OpenAI client, to which the proxy of `backstory serve` gives a memory.

    backstory serve
    python examples/proxy_openai.py --user ada --model gpt-5-mini

It is an agent as any other: nothing in it is about memory, but the base URL and whose words it sends. The key is the
model server's (OPENAI_API_KEY).
"""

from __future__ import annotations

import argparse
import os
import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

PROXY = "http://127.0.0.1:8765/proxy/v1"


def main() -> None:
    """Ask once for a whole answer, once for a stream, and once with the Responses API."""
    parser = argparse.ArgumentParser(description="Talk to a model through the proxy.")
    parser.add_argument("--user", default="ada", help="whose memory it is")
    parser.add_argument("--model", default="gpt-5-mini", help="the model that answers")
    options = parser.parse_args()
    # This is the one line that changes.
    with OpenAI(base_url=os.environ.get("PROXY_URL", PROXY), api_key=os.environ["OPENAI_API_KEY"]) as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Where do I live?"}]
        completion = client.chat.completions.create(model=options.model, user=options.user, messages=messages)
        answer = completion.choices[0].message.content or ""
        print(answer)

        # The conversation goes on: its thread is found by its words.
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "Say it again, word by word."},
        ]
        chunks = client.chat.completions.create(model=options.model, user=options.user, messages=messages, stream=True)
        for chunk in chunks:
            sys.stdout.write(chunk.choices[0].delta.content or "" if chunk.choices else "")
        print()

        # Another conversation. The header says whose it is as well as the field, for clients that cannot set it.
        response = client.responses.create(
            model=options.model, input="Where do I live?", extra_headers={"X-Backstory-User": options.user}
        )
        print(response.output_text)
        events = client.responses.create(
            model=options.model,
            input="Say it again, word by word.",
            previous_response_id=response.id,
            stream=True,
            extra_headers={"X-Backstory-User": options.user},
        )
        for event in events:
            if event.type == "response.output_text.delta":
                sys.stdout.write(event.delta)
        print()


if __name__ == "__main__":
    main()
