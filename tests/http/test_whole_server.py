"""All doors of one `backstory serve`: an agent learns through the proxy, and what it learned is seen through each."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest
from mcp import Client
from test_http_examples import server

pytestmark = pytest.mark.slow  # processes

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


@contextmanager
def model() -> Iterator[str]:
    """The examples' stand-in: it answers as the agent, and keeps memory."""
    spec = importlib.util.spec_from_file_location("standin", ROOT / "examples" / "standin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.server() as url:
        yield url


def ask(url: str, question: str) -> str:
    """Ask as an agent does that knows nothing of memory: the base URL is all that it was given."""
    with openai.OpenAI(base_url=f"{url}/proxy/v1", api_key="sk-agent", max_retries=0) as agent:
        completion = agent.chat.completions.create(model="stand-in", messages=[{"role": "user", "content": question}])
    return completion.choices[0].message.content or ""


def wait_for_a_fact(url: str) -> dict[str, object]:
    end = time.monotonic() + PATIENCE
    tag: str | None = None
    while time.monotonic() < end:
        answer = httpx.get(f"{url}/v1/facts", headers={} if tag is None else {"If-None-Match": tag})
        if answer.status_code == 200 and answer.json()["items"]:
            return answer.json()["items"][0]
        tag = answer.headers["etag"]
    raise AssertionError("nothing was learned")


async def undo(url: str, seq: int) -> str:
    """Undo a commit through MCP, as an assistant that shows the person what would change."""
    async with Client(f"{url}/mcp") as assistant:
        preview = await assistant.call_tool("memory_revert", {"seq": seq})
        code = preview.structured_content["confirm"]
        done = await assistant.call_tool("memory_revert", {"seq": seq, "confirm": code})
        return str(done.structured_content["status"])


def test_an_agent_gets_a_memory_by_its_base_url_and_every_door_shows_it(tmp_path: Path) -> None:
    with model() as upstream:
        config = tmp_path / "backstory.yaml"
        config.write_text("memory:\n  debounce_seconds: 0\n  min_seconds_between_calls: 0\n  model_name: stand-in\n")
        env = {"OPENAI_BASE_URL": upstream, "OPENAI_API_KEY": "sk-server"}
        with server(tmp_path / "home", user="ada", config=config, env=env) as url:
            assert ask(url, "Where do I live?") == "You have not told me yet."
            assert ask(url, "I live in Bergen.") == "Thank you for telling me."
            fact = wait_for_a_fact(url)
            assert ask(url, "And where do I live?") == "I remember this: User lives in Bergen."

            why = httpx.get(f"{url}/v1/facts/{fact['id']}/why").json()
            assert "I live in Bergen." in [turn["content"] for turn in why["evidence"]]
            assert httpx.get(f"{url}/api/memory").json()["facts"][0]["content"] == "User lives in Bergen"
            metrics = httpx.get(f"{url}/metrics").text
            assert 'backstory_proxy_requests_total{about="memory",outcome="used"} 3.0' in metrics

            assert asyncio.run(undo(url, why["added"]["seq"])) == "reverted"
            assert ask(url, "So where do I live?") == "You have not told me yet."
            kinds = [commit["cause"]["kind"] for commit in httpx.get(f"{url}/v1/log").json()["items"]]
            assert kinds.count("revert") == 1
            assert httpx.get(f"{url}/v1/verify").json()["ok"]
