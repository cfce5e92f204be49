"""The logs as docs/reference/log-format.md states them, read with json and hashlib, not by the code under test."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "log-format.md"

Place = tuple[str, int]
"""A turn: its thread and its ordinal in it."""


def _verifier() -> Callable[[bytes], tuple[int, str]]:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    page: dict[str, object] = {"__name__": "page"}
    exec(code, page)  # noqa: S102 the page's own verifier, which its readers are told to run
    return page["verify"]  # type: ignore[return-value]


verify_bytes = _verifier()
"""Return seq and hash of the last whole line; ValueError at the first that is not what was written."""


class Log:
    """One stream: its whole lines, decoded, once their chain has been found to hold, and what is torn behind them."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes() if file.exists() else b""
        self.seq, self.hash = verify_bytes(data)
        *lines, self.torn = data.split(b"\n")
        self.commits = [json.loads(line) for line in lines]

    def events(self, *types: str) -> Iterator[dict]:
        for commit in self.commits:
            yield from (event for event in commit["events"] if event["type"] in types)


class Scope:
    """Both streams of one scope and its memory.json, as they lie in its folder now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # First what names, then what is named: a transcript read later is never behind its ledger.
        self.ledger = Log(folder / "ledger.jsonl")
        self.transcript = Log(folder / "transcript.jsonl")

    def turns(self) -> dict[Place, str]:
        """What was said, by thread and ordinal; each ordinal once, and none left out."""
        said: dict[Place, str] = {}
        for commit in self.transcript.commits:
            thread = commit["cause"]["thread"]
            numbers = []
            for event in commit["events"]:
                if event["type"] == "TurnRecorded":
                    place = (thread, event["turn"]["n"])
                    assert place not in said, f"{place} was recorded twice"
                    said[place] = event["turn"]["content"]
                    numbers.append(event["turn"]["n"])
            stated = commit["cause"]["turns"]
            assert numbers == list(range(stated["first"], stated["last"] + 1)), "a delivery is there in part"
        for thread, last in Counter(thread for thread, _ in said).items():
            assert all((thread, n) in said for n in range(1, last + 1)), f"an ordinal of {thread} is missing"
        return said

    def added(self) -> Counter[str]:
        """How often each text became a fact."""
        return Counter(event["fact"]["content"] for event in self.ledger.events("FactAdded"))

    def covered(self) -> Counter[Place]:
        """How often each turn was learned from or given up."""
        ranges = [(c["cause"]["thread"], c["cause"]["turns"]) for c in self.ledger.commits if "turns" in c["cause"]]
        return Counter((thread, n) for thread, turns in ranges for n in range(turns["first"], turns["last"] + 1))

    def document(self) -> list[str]:
        """The facts that memory.json states, in its order."""
        stated = json.loads((self.folder / "memory.json").read_text(encoding="utf-8"))
        return [fact["content"] for fact in stated["facts"]]
