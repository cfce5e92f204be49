"""Proxy of model servers: forwards requests, with memory in them, and records what is said.

`proxy` is the application to mount, once for each protocol: `openai/` and `anthropic/`. docs/how-to/proxy.md describes
it. It may import everything but the rest of the server, of which only `access`, and the command line.
"""

from backstory.http.proxy.anthropic.protocol import ANTHROPIC
from backstory.http.proxy.openai.protocol import OPENAI
from backstory.http.proxy.proxy import Proxy
from backstory.http.proxy.recorder import ANSWER_HEADERS

__all__ = ["ANSWER_HEADERS", "PROTOCOLS", "Proxy"]

PROTOCOLS = (OPENAI, ANTHROPIC)
"""The protocols that a server speaks, each at a path of its own."""
