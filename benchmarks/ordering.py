"""A learned order of turns, to compare with the order of search: `python -m benchmarks.ordering DATA [NAME ...]`.

DATA is a folder as for `benchmarks.recall`. Each question is searched for by words and by meaning, and a weight is
learned for each feature of the first hundred hits, from all conversations but one. The questions of that one are then
ordered by these weights, and recall is printed beside that of the order as it is. The weights of all conversations
together are printed last. None are packaged: no licence of the conversations at hand allows it (see
docs/explanation/search.md).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from backstory import Backstory, Hit, MemoryHandle
from benchmarks.recall import Question, Turn, read_rows, record_all, spread

__all__ = ["FEATURES", "Case", "learned", "main"]

_HITS = 100
_AMONG = 10
_CALM = 3
_STEPS = 400
_RATE = 0.5
_HELD_BACK = 1e-3
"""How much large weights cost."""

FEATURES = (
    "words rank",
    "words score",
    "own words",
    "nearby",
    "facts",
    "meaning rank",
    "meaning score",
    "length",
    "asks",
    "speaker named",
    "first of its thread",
    "user",
)

_Floats: TypeAlias = npt.NDArray[np.float64]


class Case(msgspec.Struct, frozen=True):
    """A question: the features of its hits, a row each, which of them are evidence, and how many evidence has."""

    features: _Floats
    right: npt.NDArray[np.bool_]
    wanted: int

    def recall(self, scores: _Floats) -> float:
        """Return the share of the evidence among the ten hits with the highest scores."""
        best = np.argsort(-scores, kind="stable")[:_AMONG]
        return float(self.right[best].sum()) / self.wanted


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ordering", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help="of conversations; all that have questions")
    arguments = parser.parse_args()
    files = {path.name.removesuffix(".questions.jsonl"): path for path in arguments.data.rglob("*.questions.jsonl")}
    cases = {name: list(_cases(files[name])) for name in arguments.names or sorted(files)}
    before: list[list[float]] = []
    after: list[list[float]] = []
    for name, held_out in cases.items():
        weights = learned([case for other, some in cases.items() if other != name for case in some])
        before.append([case.recall(-np.arange(len(case.features), dtype=float)) for case in held_out])
        after.append([case.recall(case.features @ weights) for case in held_out])
        print(f"{name:<24} as it is {spread(before[-1:])}, learned from the others {spread(after[-1:])}")
    print(f"all                      as it is {spread(before)}, learned from the others {spread(after)}")
    for feature, weight in zip(FEATURES, learned([case for some in cases.values() for case in some]), strict=True):
        print(f"  {feature:<22} {weight:6.2f}")


def _cases(questions: Path) -> Iterator[Case]:
    turns = read_rows(questions.with_name(questions.name.replace(".questions.", ".conversation.")), Turn)
    known = {turn.id: turn for turn in turns}
    with tempfile.TemporaryDirectory() as home, Backstory.open(home, background=False) as backstory:
        memory = backstory.memory(user_id="measured")
        record_all(memory, turns)
        memory.embed()
        for question in read_rows(questions, Question):
            evidence = {turn for turn in question.evidence if turn in known}
            if evidence:
                yield _case(memory, question.question, evidence, known)


def _case(memory: MemoryHandle, question: str, evidence: set[str], known: dict[str, Turn]) -> Case:
    hits = memory.search(question, within="turns", top_k=_HITS, explain=True)
    most = max((hit.why.words_score or 0.0 for hit in hits if hit.why is not None), default=0.0) or 1.0
    rows = [_features(hit, question.casefold(), most, known[hit.id]) for hit in hits]
    return Case(
        np.array(rows, dtype=float).reshape(len(rows), len(FEATURES)),
        np.array([hit.id in evidence for hit in hits], dtype=bool),
        len(evidence),
    )


def _features(hit: Hit, question: str, most: float, turn: Turn) -> tuple[float, ...]:
    why = hit.why
    assert why is not None
    parts = {where: sum(part.score for part in why.words if part.where == where) / most for where in _PLACES}
    return (
        _reciprocal(why.words_rank),
        (why.words_score or 0.0) / most,
        *parts.values(),
        _reciprocal(why.meaning_rank),
        5 * max(0.0, (why.similarity or 0.0) - 0.7),
        math.log1p(len(turn.content.split())) / 5,
        float(turn.content.rstrip().endswith(("?", "？"))),
        float((turn.name or turn.role).casefold() in question),
        float(hit.n == 1),
        float(turn.role == "user"),
    )


_PLACES = ("own words", "nearby", "facts")


def _reciprocal(rank: int | None) -> float:
    return 0.0 if rank is None else (_CALM + 1) / (_CALM + rank)


def learned(cases: Sequence[Case]) -> _Floats:
    """Learn weights under which evidence gets most of the softmax of its question's hits, by plain ascent."""
    weights = np.zeros(len(FEATURES))
    known = [case for case in cases if case.right.any()]
    for _ in range(_STEPS if known else 0):
        slope = np.zeros(len(FEATURES))
        for case in known:
            odds = _softmax(case.features @ weights)
            right = odds * case.right
            slope += case.features.T @ (right / right.sum() - odds)
        weights += _RATE * (slope / len(known) - _HELD_BACK * weights)
    return weights


def _softmax(scores: _Floats) -> _Floats:
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum(), dtype=float)


if __name__ == "__main__":
    main()
