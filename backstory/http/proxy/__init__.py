"""OpenAI-protocol proxy: forwards requests to a model server, with memory in them, and records what is said.

`proxy` is the application to mount; docs/how-to/proxy.md describes it. It may import everything but the rest of the
server, of which only `access`, and the command line.
"""

from backstory.http.proxy.outcomes import AnswerOutcome, MemoryOutcome, Note
from backstory.http.proxy.proxy import PATH, Proxy
from backstory.http.proxy.recorder import ANSWER_HEADERS
from backstory.http.proxy.upstream import DEFAULT_UPSTREAM, upstream_of

__all__ = [
    "ANSWER_HEADERS",
    "DEFAULT_UPSTREAM",
    "PATH",
    "AnswerOutcome",
    "MemoryOutcome",
    "Note",
    "Proxy",
    "upstream_of",
]
