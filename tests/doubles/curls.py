"""Commands of curl that a page shows, with the answer that it shows below each."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

_SHOWN = re.compile(r"^\$ (curl (?:.*\\\n)*.*)\n(.*)$", re.MULTILINE)


class Curl(NamedTuple):
    path: str
    body: object
    answer: str

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    def answers(self, text: str) -> bool:
        """Whether a text is the answer that is shown, in which … stands for anything."""
        return re.fullmatch(".*".join(map(re.escape, self.answer.split("…"))), text) is not None


def curls(page: Path) -> list[Curl]:
    """The requests of a page, in order."""
    found = []
    for command, answer in _SHOWN.findall(page.read_text(encoding="utf-8")):
        words = shlex.split(command.replace("\\\n", ""))
        (address,) = (word for word in words if "localhost:" in word or "127.0.0.1:" in word)
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        found.append(Curl(re.sub(r"^(?:http://)?[^/]*", "", address), body, answer))
    return found
