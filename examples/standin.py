"""A model that costs nothing: it answers by a few rules, so that the examples run without a key and without a network.

It has no script. As an assistant it knows the facts in the `<memory>` block it is given, and nothing else; as the
keeper of memory it reads the conversation it is shown, and carelessly: it takes each person who has moved for the user.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

NAME = "stand-in"

_READINGS = {
    # The careless one: it does not ask who lives there, or who has moved.
    re.compile(r"\b(?:live in|moved to) ([A-Z]\w+)"): "User lives in {}",
    re.compile(r"\bplay the (\w+)"): "User plays the {}",
}
_BLOCK = re.compile(r"<memory>\n(.*?)</memory>", re.DOTALL)
_IN_BLOCK = re.compile(r"^- \[[^\]]* \| [\d.]+\] (.+)$", re.MULTILINE)
_REMEMBERED = re.compile(r"^- (fact_\w+) \[[^\]]*\] (.+)$", re.MULTILINE)
_SAID = re.compile(r"^\[(\d+)\] user(?:, \w+ \S+ \S+ \S+)?: (.+)$", re.MULTILINE)


def answer(messages: Sequence[Mapping[str, str]]) -> str:
    """Answer chat messages of `role` and `content`, as an assistant or as the keeper of memory."""
    last = messages[-1]["content"]
    if "<current_memory>" in last:
        return json.dumps(_changes(last))
    if not last.rstrip().endswith("?"):
        return "Thank you for telling me."
    block = _BLOCK.search("\n".join(message["content"] for message in messages if message["role"] == "system"))
    known = _IN_BLOCK.findall(block[1]) if block else []
    fitting = [fact for fact in known if _words(fact) & _words(_BLOCK.sub("", last))]
    return f"I remember this: {'; '.join(fitting)}." if fitting else "You have not told me yet."


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]{4,}", text.lower())}


def _changes(prompt: str) -> dict[str, object]:
    """What changes in memory, in the form that the prompt asks for."""
    remembered = {text: fact_id for fact_id, text in _REMEMBERED.findall(prompt)}
    new: list[dict[str, object]] = []
    removed: list[dict[str, object]] = []
    for turn, words in _SAID.findall(prompt):
        for pattern, form in _READINGS.items():
            found = pattern.search(words)
            if found is None or form.format(found[1]) in remembered:
                continue
            removed += [
                {"id": fact_id, "reason": "it has changed", "replacementFactIndex": len(new)}
                for text, fact_id in remembered.items()
                if text.startswith(form.format(""))
            ]
            fact = {"content": form.format(found[1]), "category": "context", "confidence": 0.95}
            new.append({**fact, "evidence": [int(turn)]})
    return {"newFacts": new, "factsToRemove": removed}


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Serve the stand-in on this machine as an OpenAI-compatible server does; yields the base URL."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Completions)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


class _Completions(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice = {"index": 0, "message": {"role": "assistant", "content": answer(asked["messages"])}}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": NAME, "choices": [choice]}
        reply["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal for the story."""


def chat_model() -> BaseChatModel:
    """Return the stand-in as a LangChain chat model."""
    from langchain_core.language_models import SimpleChatModel
    from langchain_core.messages import BaseMessage

    class StandIn(SimpleChatModel):
        model_name: str = NAME

        @property
        def _llm_type(self) -> str:
            return NAME

        def _call(self, messages: list[BaseMessage], *_: object, **__: object) -> str:
            return answer([{"role": message.type, "content": message.text} for message in messages])

    return StandIn()
