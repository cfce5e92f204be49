"""How much of what answers a question search finds: `python -m benchmarks.recall DATA [NAME ...] [--vectors]`.

DATA is a folder, with folders in it or without, of conversations and questions about them, one JSON object a line:

- `NAME.conversation.jsonl`: `{thread_id, id, role, content, at?, name?, user_id?}`, in the order they were said;
- `NAME.questions.jsonl`: `{question, evidence: [id], category?}`;
- `NAME.replies.jsonl`, where there is one: `{thread_id, reply}`, what a model answered when it learned from a thread.

Each conversation is recorded as one user's transcript through the public API, and each question is searched for as it
stands (`memory.search(question, within="turns")`). A question counts if any of its evidence is a turn of the
conversation. Recall at k is the mean share of a question's evidence among the first k turns, MRR the mean of one over
the rank of the first of them, 0 beyond the tenth; any hit is the share of questions with any of their evidence there,
and sessions the mean share of the threads that the evidence is in. Recall against tokens says what the first k turns
cost when they are put into a prompt. Where there are replies, their facts are learned then, and the questions are asked
again: the words of facts count for the turns that they cite. Facts are searched, too: a hit is a fact that cites any of
the evidence, of the questions for which there is one, but those of LoCoMo's category 5. An interval is that of 95 % of
2,000 samples of conversations, drawn with replacement. Without names every conversation that has questions is taken;
settings must not be chosen by figures of conversations that are to judge them.

The questions in Chinese stand beside this file, about `cn.conversation.jsonl`, where each user is a memory of its own;
recall at 5 is stated for them. With `--vectors` everything is embedded first, by the model that is configured or
packaged, which takes minutes; without, nothing is searched by meaning.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from backstory import Backstory
from backstory.ledger.extraction.models.recorded import read_replies
from backstory.memory import MemoryHandle
from backstory.projections.context.counting import ESTIMATE, Counter, load_vocabulary
from benchmarks.rows import Row, ms

__all__ = ["Question", "Turn", "main", "read_rows", "recall", "record_all", "spread"]

_OWN = Path(__file__).with_name("questions_cn.jsonl")
_OWN_CONVERSATION = "cn.conversation.jsonl"
_DEEP = 20
_DEPTHS = (1, 2, 3, 5, 10, 15, 20)
_SAMPLES = 2_000
_MOST_FACTS = 500
_FALSE = "5"
"""LoCoMo's questions whose premise is false, so that no fact answers them."""
_CHOSEN_ON = "LoCoMo 26, 30, 41; in sight of 42, 43, BEAM 1-7 and of the Chinese questions"

T = TypeVar("T")


class Turn(msgspec.Struct, frozen=True):
    """A line of a conversation."""

    thread_id: str
    id: str
    role: str
    content: str
    at: str = ""
    name: str | None = None
    user_id: str | None = None


class Question(msgspec.Struct, frozen=True):
    """A question about a conversation, and the turns that answer it."""

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
    sessions: float
    """The share of the threads of the evidence among those of the first ten turns."""

    def recall(self, k: int) -> float:
        return sum(rank <= k for rank in self.ranks) / self.wanted

    def any_hit(self) -> float:
        return float(any(rank <= 10 for rank in self.ranks))

    def reciprocal(self) -> float:
        return 1 / min(self.ranks) if self.ranks and min(self.ranks) <= 10 else 0.0


class _Measured(msgspec.Struct, frozen=True):
    """What the questions about one conversation found: turns, turns beside facts, and whether a fact among five."""

    turns: list[_Asked]
    with_facts: list[_Asked] = []
    facts: list[tuple[str, float]] = []
    """Of the questions that a fact answers the category, and 1 where such a fact is among five."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help="of conversations; all that have questions")
    parser.add_argument("--vectors", action="store_true", help="search by meaning, too")
    arguments = parser.parse_args()
    for row in recall(arguments.data, arguments.names, vectors=arguments.vectors):
        print(f"{row.what:<72} {row.figure:>24}  {row.target}")


def recall(data: Path, names: Sequence[str] = (), *, vectors: bool = False) -> Iterator[Row]:
    """Measure all of it; a conversation that is not there is an error."""
    how = "by words and meaning" if vectors else "by words"
    files = {path.name.removesuffix(".questions.jsonl"): path for path in sorted(data.rglob("*.questions.jsonl"))}
    yield Row("recall: its settings were chosen on", _CHOSEN_ON)
    measured: list[_Measured] = []
    for name in names or files:
        here = _conversation(files[name], vectors=vectors)
        yield Row(f"turns {how}, {name}: recall@10", f"{_mean(here.turns, 10):.3f}")
        measured.append(here)
    if measured:
        yield from _all(f"turns {how}", [one.turns for one in measured], "≥ 0.845" if vectors else "≥ 0.825")
    with_facts = [one.with_facts for one in measured if one.with_facts]
    if with_facts:
        yield from _all(f"turns {how}, beside facts", with_facts, "≥ 0.86" if vectors else "")
        yield from _found_facts(how, [one.facts for one in measured], "≥ 0.80" if vectors else "")
    for path in sorted(data.rglob(_OWN_CONVERSATION)):
        chinese = _chinese(path, vectors=vectors)
        asked = [one for user in chinese for one in user]
        figure = spread([[one.recall(5) for one in user] for user in chinese])
        yield Row(f"turns {how}, Chinese, {len(asked)} questions: recall@5", figure, "≥ 0.878")
        yield Row(f"turns {how}, Chinese: MRR", f"{_mrr(asked):.3f}")


def _all(what: str, by_conversation: Sequence[Sequence[_Asked]], target: str) -> Iterator[Row]:
    asked = [one for some in by_conversation for one in some]

    def figure(of: Callable[[_Asked], float], category: str | None = None) -> str:
        return spread([[of(one) for one in some if category in (None, one.category)] for some in by_conversation])

    yield Row(f"{what}, {len(asked)} questions: recall@10", figure(lambda one: one.recall(10)), target)
    yield Row(f"{what}: any hit in ten; sessions", f"{figure(_Asked.any_hit)}; {figure(lambda one: one.sessions)}")
    yield Row(f"{what}: MRR", f"{_mrr(asked):.3f}")
    yield Row(f"{what}: a search, p50", ms(statistics.median(one.seconds for one in asked)))
    for category in sorted({one.category for one in asked}):
        count = sum(one.category == category for one in asked)
        found = figure(lambda one: one.recall(10), category)
        yield Row(f"{what}, category {category}, {count} questions: recall@10", found)
    for k in _DEPTHS:
        tokens = statistics.mean(one.tokens[min(k, len(one.tokens)) - 1] if one.tokens else 0 for one in asked)
        yield Row(f"{what}: recall@{k}, and tokens of these turns", f"{_mean(asked, k):.3f}, {tokens:.0f}")


def _found_facts(how: str, by_conversation: Sequence[Sequence[tuple[str, float]]], target: str) -> Iterator[Row]:
    every = [[hit for _, hit in some] for some in by_conversation]
    true = [[hit for category, hit in some if category != _FALSE] for some in by_conversation]
    what = f"facts {how}: any hit in five, {{}} questions that a fact answers"
    yield Row(what.format(sum(map(len, true))), spread(true), target)
    if true != every:
        yield Row(f"  with those of category {_FALSE}, {sum(map(len, every))} questions", spread(every))


def spread(by_conversation: Sequence[Sequence[float]]) -> str:
    """Spell the mean over all questions, with its interval where there are several conversations."""
    groups = [group for group in by_conversation if group]
    mean = f"{statistics.mean(one for group in groups for one in group):.3f}"
    if len(groups) < 2:
        return mean
    chance = random.Random(0)
    sums = [(sum(group), len(group)) for group in groups]
    means = []
    for _ in range(_SAMPLES):
        totals, counts = zip(*chance.choices(sums, k=len(sums)), strict=True)
        means.append(sum(totals) / sum(counts))
    means.sort()
    low, high = (means[int(_SAMPLES * share)] for share in (0.025, 0.975))
    return f"{mean} ({low:.3f}-{high:.3f})"


def _conversation(questions: Path, *, vectors: bool) -> _Measured:
    turns = read_rows(questions.with_name(questions.name.replace(".questions.", ".conversation.")), Turn)
    replies = questions.with_name(questions.name.replace(".questions.", ".replies."))
    learned = replies.read_bytes().splitlines() if replies.exists() else ()
    return _ask(turns, read_rows(questions, Question), learned, vectors=vectors)


def _chinese(conversation: Path, *, vectors: bool) -> list[list[_Asked]]:
    """Each user's turns are searched alone: a question is about one person's memory."""
    users: dict[str, list[Turn]] = {}
    for turn in read_rows(conversation, Turn):
        users.setdefault(turn.user_id or "", []).append(turn)
    questions = read_rows(_OWN, Question)
    return [_ask(turns, questions, vectors=vectors).turns for turns in users.values()]


def _ask(
    turns: Sequence[Turn], questions: Iterable[Question], replies: Sequence[bytes] = (), *, vectors: bool
) -> _Measured:
    known = {turn.id: turn for turn in turns}
    counter = load_vocabulary(None) or ESTIMATE
    found = [
        (question, evidence)
        for question in questions
        if (evidence := {turn for turn in question.evidence if turn in known})
    ]
    settings: dict[str, object] = {"background": False, "max_facts": _MOST_FACTS}
    settings |= {} if vectors else {"embedding_model": "none"}
    with tempfile.TemporaryDirectory() as home, Backstory.open(home, **settings) as backstory:  # type: ignore[arg-type]
        memory = backstory.memory(user_id="measured")
        record_all(memory, turns)

        def ask() -> list[_Asked]:
            if vectors:
                memory.embed()
            memory.search("warm", within="turns")
            return [_one(memory, question, evidence, known, counter) for question, evidence in found]

        alone = ask()
        if not replies:
            return _Measured(alone)
        memory.extract(read_replies(replies))
        return _Measured(alone, ask(), list(_facts(memory, found)))


def record_all(memory: MemoryHandle, turns: Iterable[Turn]) -> None:
    """Record a conversation, each thread at once."""
    threads: dict[str, list[dict[str, object]]] = {}
    for turn in turns:
        threads.setdefault(turn.thread_id, []).append(msgspec.to_builtins(turn) | {"at": turn.at or None})
    for thread, messages in threads.items():
        memory.record(thread, messages)


def _facts(memory: MemoryHandle, questions: Iterable[tuple[Question, set[str]]]) -> Iterator[tuple[str, float]]:
    """Yield for each question that a fact answers its category, and 1 if one that cites its evidence is among five."""
    cites = {fact.id: set(fact.evidence) for fact in memory.facts()}
    cited = set[str]().union(*cites.values())
    for question, evidence in questions:
        if evidence & cited:
            hits = memory.search(question.question, top_k=5)
            yield str(question.category), float(any(evidence & cites[hit.id] for hit in hits))


def _one(
    memory: MemoryHandle, question: Question, evidence: set[str], known: dict[str, Turn], counter: Counter
) -> _Asked:
    began = time.perf_counter()
    found = [hit.id for hit in memory.search(question.question, within="turns", top_k=_DEEP)]
    seconds = time.perf_counter() - began
    tokens: list[int] = []
    for key in found:
        said = f"{known[key].name or known[key].role}: {known[key].content}\n"
        tokens.append((tokens[-1] if tokens else 0) + counter.count(said))
    ranks = tuple(rank for rank, key in enumerate(found, 1) if key in evidence)
    wanted = {known[key].thread_id for key in evidence}
    sessions = len(wanted & {known[key].thread_id for key in found[:10]}) / len(wanted)
    return _Asked(str(question.category), len(evidence), ranks, tuple(tokens), seconds, sessions)


def _mean(asked: Sequence[_Asked], k: int) -> float:
    return statistics.mean(one.recall(k) for one in asked)


def _mrr(asked: Sequence[_Asked]) -> float:
    return statistics.mean(one.reciprocal() for one in asked)


def read_rows(path: Path, kind: type[T]) -> list[T]:
    """Read a file of one JSON object a line."""
    return [msgspec.json.decode(line, type=kind) for line in path.read_bytes().splitlines()]


if __name__ == "__main__":
    main()
