"""How much of what answers a question search finds: `python -m benchmarks.recall DATA [NAME ...] [--vectors]`.

DATA is a folder, with folders in it or without, of conversations and questions about them, one JSON object a line:

- `NAME.conversation.jsonl`: `{thread_id, id, role, content, at?, name?, user_id?}`, in the order they were said;
- `NAME.questions.jsonl`: `{question, evidence: [id], category?}`.

Each conversation is recorded as one user's transcript through the public API, and each question is searched for as it
stands (`memory.search(question, within="turns")`). A question counts if any of its evidence is a turn of the
conversation. Recall at k is the mean share of a question's evidence among the first k turns, MRR the mean of one over
the rank of the first of them, 0 beyond the tenth. Recall against tokens says what the first k turns cost when they are
put into a prompt. Without names every conversation that has questions is taken; settings must not be chosen by figures
of conversations that are to judge them.

The questions in Chinese stand beside this file, about `cn.conversation.jsonl`, where each user is a memory of its own;
recall at 5 is stated for them. With `--vectors` everything is embedded first, by the model that is configured or
packaged, which takes minutes; without, nothing is searched by meaning.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from backstory import Backstory
from backstory.memory import MemoryHandle
from backstory.projections.context.counting import ESTIMATE, Counter
from backstory.projections.context.vocabulary import load_vocabulary
from benchmarks.rows import Row, ms

__all__ = ["main", "recall"]

_OWN = Path(__file__).with_name("questions_cn.jsonl")
_OWN_CONVERSATION = "cn.conversation.jsonl"
_DEEP = 20
_DEPTHS = (1, 2, 3, 5, 10, 15, 20)

T = TypeVar("T")


class _Turn(msgspec.Struct, frozen=True):
    thread_id: str
    id: str
    role: str
    content: str
    at: str = ""
    name: str | None = None
    user_id: str | None = None


class _Question(msgspec.Struct, frozen=True):
    question: str
    evidence: tuple[str, ...]
    category: int | str = "-"


class _Asked(msgspec.Struct, frozen=True):
    """A question, which of its evidence came at which rank (from 1), the tokens up to each rank, and the time."""

    category: str
    wanted: int
    ranks: tuple[int, ...]
    tokens: tuple[int, ...]
    seconds: float

    def recall(self, k: int) -> float:
        return sum(rank <= k for rank in self.ranks) / self.wanted

    def reciprocal(self) -> float:
        return 1 / min(self.ranks) if self.ranks and min(self.ranks) <= 10 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help="of conversations; all that have questions")
    parser.add_argument("--vectors", action="store_true", help="search by meaning, too")
    arguments = parser.parse_args()
    for row in recall(arguments.data, arguments.names, vectors=arguments.vectors):
        print(f"{row.what:<62} {row.figure:>24}  {row.target}")


def recall(data: Path, names: Sequence[str] = (), *, vectors: bool = False) -> Iterator[Row]:
    """Measure all of it; a conversation that is not there is an error."""
    how = "by words and meaning" if vectors else "by words"
    files = {path.name.removesuffix(".questions.jsonl"): path for path in sorted(data.rglob("*.questions.jsonl"))}
    asked: list[_Asked] = []
    for name in names or files:
        here = _conversation(files[name], vectors=vectors)
        yield Row(f"turns {how}, {name}: recall@10", f"{_mean(here, 10):.3f}")
        asked += here
    if asked:
        yield from _all(how, asked, "≥ 0.83" if vectors else "≥ 0.77")
    for path in sorted(data.rglob(_OWN_CONVERSATION)):
        chinese = _chinese(path, vectors=vectors)
        yield Row(f"turns {how}, Chinese, {len(chinese)} questions: recall@5", f"{_mean(chinese, 5):.3f}", "≥ 0.85")
        yield Row(f"turns {how}, Chinese: MRR", f"{_mrr(chinese):.3f}")


def _all(how: str, asked: Sequence[_Asked], target: str) -> Iterator[Row]:
    yield Row(f"turns {how}, {len(asked)} questions: recall@10", f"{_mean(asked, 10):.3f}", target)
    yield Row(f"turns {how}: MRR", f"{_mrr(asked):.3f}")
    yield Row(f"turns {how}: a search, p50", ms(statistics.median(one.seconds for one in asked)))
    for category in sorted({one.category for one in asked}):
        some = [one for one in asked if one.category == category]
        yield Row(f"turns {how}, category {category}, {len(some)} questions: recall@10", f"{_mean(some, 10):.3f}")
    for k in _DEPTHS:
        tokens = statistics.mean(one.tokens[min(k, len(one.tokens)) - 1] if one.tokens else 0 for one in asked)
        yield Row(f"turns {how}: recall@{k}, and tokens of these turns", f"{_mean(asked, k):.3f}, {tokens:.0f}")


def _conversation(questions: Path, *, vectors: bool) -> list[_Asked]:
    turns = _rows(questions.with_name(questions.name.replace(".questions.", ".conversation.")), _Turn)
    return _ask(turns, _rows(questions, _Question), vectors=vectors)


def _chinese(conversation: Path, *, vectors: bool) -> list[_Asked]:
    """Each user's turns are searched alone: a question is about one person's memory."""
    users: dict[str, list[_Turn]] = {}
    for turn in _rows(conversation, _Turn):
        users.setdefault(turn.user_id or "", []).append(turn)
    questions = _rows(_OWN, _Question)
    return [one for turns in users.values() for one in _ask(turns, questions, vectors=vectors)]


def _ask(turns: Sequence[_Turn], questions: Iterable[_Question], *, vectors: bool) -> list[_Asked]:
    known = {turn.id: turn for turn in turns}
    counter = load_vocabulary(None) or ESTIMATE
    threads: dict[str, list[dict[str, object]]] = {}
    for turn in turns:
        threads.setdefault(turn.thread_id, []).append(msgspec.to_builtins(turn) | {"at": turn.at or None})
    settings = {} if vectors else {"embedding_model": "none"}
    with tempfile.TemporaryDirectory() as home, Backstory.open(home, **settings) as backstory:
        memory = backstory.memory(user_id="measured")
        for thread, messages in threads.items():
            memory.record(thread, messages)
        if vectors:
            memory.embed()
        memory.search("warm", within="turns")
        return [
            _one(memory, question, evidence, known, counter)
            for question in questions
            if (evidence := {turn for turn in question.evidence if turn in known})
        ]


def _one(
    memory: MemoryHandle, question: _Question, evidence: set[str], known: dict[str, _Turn], counter: Counter
) -> _Asked:
    began = time.perf_counter()
    found = [hit.id for hit in memory.search(question.question, within="turns", top_k=_DEEP)]
    seconds = time.perf_counter() - began
    tokens: list[int] = []
    for key in found:
        said = f"{known[key].name or known[key].role}: {known[key].content}\n"
        tokens.append((tokens[-1] if tokens else 0) + counter.count(said))
    ranks = tuple(rank for rank, key in enumerate(found, 1) if key in evidence)
    return _Asked(str(question.category), len(evidence), ranks, tuple(tokens), seconds)


def _mean(asked: Sequence[_Asked], k: int) -> float:
    return statistics.mean(one.recall(k) for one in asked)


def _mrr(asked: Sequence[_Asked]) -> float:
    return statistics.mean(one.reciprocal() for one in asked)


def _rows(path: Path, kind: type[T]) -> list[T]:
    return [msgspec.json.decode(line, type=kind) for line in path.read_bytes().splitlines()]


if __name__ == "__main__":
    main()
