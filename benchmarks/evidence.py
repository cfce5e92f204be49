"""How much of what answers a question is in the context block: `python -m benchmarks.evidence DATA [NAME ...]`.

DATA is a folder as for `benchmarks.recall`, with the replies of a model beside the conversations,
`NAME.replies.jsonl`: `{thread_id, reply}`. Each conversation is recorded as one user's, and what the replies state is
learned, without a cap that counts. For each question the context block is made, and the share of the question's
evidence is measured that is in the block: turns that are quoted there, or cited by facts there.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from backstory import Backstory
from backstory.ledger.extraction.models.recorded import read_replies
from benchmarks.recall import spread
from benchmarks.rows import Row

__all__ = ["evidence", "main"]

_TOKENS = 2_000
_TARGET = "≥ 0.90"


class _Question(msgspec.Struct, frozen=True):
    question: str
    evidence: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help="of conversations; all that have replies")
    parser.add_argument("--max-tokens", type=int, default=_TOKENS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the configuration")
    arguments = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    for row in evidence(arguments.data, arguments.names, max_tokens=arguments.max_tokens, **settings):
        print(f"{row.what:<72} {row.figure:>12}  {row.target}")


def evidence(data: Path, names: Sequence[str] = (), *, max_tokens: int = _TOKENS, **settings: str) -> Iterator[Row]:
    """Measure all conversations, each alone and all together."""
    files = {path.name.removesuffix(".replies.jsonl"): path for path in sorted(data.rglob("*.replies.jsonl"))}
    shares: list[list[float]] = []
    tokens: list[int] = []
    for name in names or files:
        here, sizes = _conversation(files[name], max_tokens, settings)
        yield Row(f"evidence in a block of {max_tokens:,} tokens, {name}", f"{statistics.mean(here):.3f}")
        shares.append(here)
        tokens += sizes
    if shares:
        what = f"evidence in a block of {max_tokens:,} tokens, {sum(map(len, shares))} questions"
        yield Row(what, spread(shares), _TARGET)
        yield Row("  tokens of a block, mean", f"{statistics.mean(tokens):.0f}")


def _conversation(replies: Path, max_tokens: int, settings: dict[str, str]) -> tuple[list[float], list[int]]:
    folder, name = replies.parent, replies.name.removesuffix(".replies.jsonl")
    turns = _lines(folder / f"{name}.conversation.jsonl")
    threads: dict[str, list[object]] = {}
    for line in turns:
        turn = msgspec.json.decode(line, type=dict[str, object])
        threads.setdefault(str(turn["thread_id"]), []).append(turn)
    known = {str(msgspec.json.decode(line, type=dict[str, object])["id"]) for line in turns}
    questions = [msgspec.json.decode(line, type=_Question) for line in _lines(folder / f"{name}.questions.jsonl")]
    opening = {"background": False, "embedding_model": "none", "max_facts": 500, **settings}
    with tempfile.TemporaryDirectory() as home, Backstory.open(home, **opening) as bs:  # type: ignore[arg-type]
        bs.warm()
        memory = bs.memory("measured")
        for thread, messages in threads.items():
            memory.record(thread, messages)
        memory.extract(read_replies(_lines(replies)))
        cited = {fact.id: set(fact.evidence) for fact in memory.facts()}
        shares, sizes = [], []
        for one in questions:
            wanted = set(one.evidence) & known
            if wanted:
                block = memory.context(one.question, max_tokens)
                there = {turn.id for turn in block.turns}.union(*(cited[fact_id] for fact_id in block.facts))
                shares.append(len(wanted & there) / len(wanted))
                sizes.append(block.tokens)
    return shares, sizes


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


if __name__ == "__main__":
    main()
