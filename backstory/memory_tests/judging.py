"""Judge: which expectations hold after a replay, and why the others do not.

Texts are alike by their words and, where an embedding model is at hand, by their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import InputError, NotFoundError, UsageError
from backstory.ledger.core.events import Candidate, CandidateRejected, Fact, FactAdded, FactRemoved, FactRevised
from backstory.ledger.core.policy import same_category
from backstory.ledger.erasure.content import folded
from backstory.ledger.text.content_words import shared_words
from backstory.memory_tests.file import KINDS, Context, Count, Expectation, Match, Refused
from backstory.memory_tests.replay import Replay
from backstory.memory_tests.steps import turns_of
from backstory.projections.history.refusals import content_of
from backstory.projections.search.vectors.embedder import Embedder, passages_by, query_by

_SHARE = 0.6
"""A text is like another that has this share of its content words, as `said_again_share` counts them."""
_COSINE = 0.83
"""Or if the cosine of their meanings is at least this.

Of 504 pairs of a question and a fact, 21 of which belong together, the packaged model gives it to 11 of these and to
11 others. With 0.8 it would be 17 and 50.
"""


class Likeness:
    """Says whether a text is like another.

    Args:
        embedder: The embedding model; without one words alone are compared.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        self.name = None if embedder is None else embedder.name
        """The embedding model; None where words alone are compared."""
        self._cosine = None if embedder is None else _cosine_by(embedder)

    def alike(self, wanted: str, text: str) -> bool:
        """Whether a text is like the wanted one.

        Raises:
            ModelError: The embedding model gave no usable answer.
        """
        words, meaning = self.scores(wanted, text)
        return words >= _SHARE or meaning >= _COSINE

    def scores(self, wanted: str, text: str) -> tuple[float, float]:
        """Return how like a text is, each 0 to 1: in words and, where the words are not enough, in meaning.

        Raises:
            ModelError: The embedding model gave no usable answer.
        """
        words = shared_words(wanted, text)
        if self._cosine is None or words >= _SHARE:
            return words, 0.0
        return words, self._cosine(wanted, text)


def _cosine_by(embedder: Embedder) -> Callable[[str, str], float]:
    """Return the function that compares the meaning of a wanted text with that of another."""
    asked = lru_cache(256)(partial(query_by, embedder))
    kept = lru_cache(65_536)(lambda text: passages_by(embedder, [text])[0])
    return lambda wanted, text: float(asked(wanted) @ kept(text))


_MOST_NAMED = 3


class Judgement(msgspec.Struct, frozen=True):
    """One expectation, and whether it holds.

    Attributes:
        expect: The expectation in words.
        ok: Whether it holds, in each run.
        held: In how many runs it holds.
        runs: How many runs there were.
        why: Why it does not hold, in the first run where it does not.
        fact: The fact that shows it, if there is one.
        commit: The commit that shows it.
        thread: The thread of that commit.
        rule: The rule that refused what was expected.
        words: The turns that the fact or the commit was learned from.
    """

    expect: str
    ok: bool
    held: int = 1
    runs: int = 1
    why: str = ""
    fact: str | None = None
    commit: int | None = None
    thread: str | None = None
    rule: str | None = None
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The expectation, and why it does not hold."""
        return "\n    ".join((self.expect, *(() if self.ok else (self.why, *(f"| {said}" for said in self.words)))))


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Why an expectation does not hold: in words, and what shows it."""

    why: str
    fact: str | None = None
    commit: Commit | None = None
    rule: str | None = None


def in_words(expected: Expectation) -> str:
    """Return an expectation as one line."""
    kind = next(kind for kind in KINDS if getattr(expected, kind) is not None)
    keys = getattr(expected, kind).model_dump(by_alias=True, exclude_none=True)
    if keys.keys() == {"holds"}:
        said = _spelled(keys["holds"])
    else:
        said = ", ".join(f"{key}: {_spelled(value)}" for key, value in keys.items())
    return f"{kind} {said}" + ("" if expected.at is None else f" at {expected.at}")


def _spelled(value: object) -> str:
    if isinstance(value, dict):
        if value.keys() == {"max", "min"} and value["max"] == value["min"]:
            return str(value["max"])
        return ", ".join(f"{key} {_spelled(inner)}" for key, inner in value.items())
    return f'"{value}"' if isinstance(value, str) else str(value)


def seq_of(at: str | int | None, replay: Replay) -> int:
    """Return the commit at which an expectation is judged.

    Raises:
        InputError: `at` is neither a thread, a commit nor a time of the replay.
    """
    if at is None:
        return replay.seq
    if isinstance(at, str) and at in replay.ends:
        return replay.ends[at]
    try:
        return replay.memory.moment(at, limit=0).seq
    except (NotFoundError, UsageError) as error:
        threads = ", ".join(list(replay.ends)[:_MOST_NAMED])
        raise InputError(f"at: {at} is no thread of the conversations ({threads}, …) and no moment: {error}") from error


class Judge:
    """Judges expectations on what a replay has made up to a commit.

    Args:
        replay: The replay.
        seq: The commit.
        likeness: Which texts are alike.
    """

    def __init__(self, replay: Replay, seq: int, likeness: Likeness) -> None:
        self._memory = replay.memory
        self._seq = seq
        self._likeness = likeness
        self._commits = [commit for commit in replay.commits if commit.seq <= seq]
        self._facts = replay.memory.facts(seq, joined=False)

    def verdict(self, expected: Expectation) -> Judgement:
        """Judge one expectation.

        Raises:
            ModelError: The embedding model gave no usable answer.
        """
        finding = self._finding(expected)
        said = in_words(expected)
        if finding is None:
            return Judgement(said, ok=True)
        commit = finding.commit
        return Judgement(
            said,
            ok=False,
            held=0,
            why=finding.why,
            fact=finding.fact,
            commit=None if commit is None else commit.seq,
            thread=None if commit is None else commit.cause.thread,
            rule=finding.rule,
            words=tuple(self._words(finding)),
        )

    def _finding(self, expected: Expectation) -> Finding | None:
        if expected.remembers is not None:
            return self._remembers(expected.remembers)
        if expected.never is not None:
            return self._never(expected.never)
        if expected.forgets is not None:
            return self._forgets(expected.forgets)
        if expected.count is not None:
            return self._count(expected.count)
        if expected.refused is not None:
            return self._refused(expected.refused)
        return self._context(expected.context or Context())

    def _words(self, finding: Finding) -> Iterator[str]:
        """Yield the turns that a finding was learned from: those that the fact cites, else those of the commit."""
        if finding.fact is not None:
            yield from (turn.content for turn in self._memory.why(finding.fact).evidence)
        elif finding.commit is not None:
            yield from (turn.content for turn in turns_of(self._memory, finding.commit.cause))

    # What each kind asks.

    def _remembers(self, match: Match) -> Finding | None:
        if any(self._fits(match, fact) for fact in self._facts):
            return None
        return self._gone(match) or self._turned_down(match) or Finding(why=self._nothing_like_it("proposed"))

    def _never(self, match: Match) -> Finding | None:
        for commit, fact in self._learned():
            if self._fits(match, fact):
                return Finding(why=f'{_place(commit)} learned "{fact.content}"', fact=fact.id, commit=commit)
        return None

    def _forgets(self, match: Match) -> Finding | None:
        known = {fact.id: commit for commit, fact in self._learned() if self._fits(match, fact)}
        if not known:
            return Finding(why=self._nothing_like_it("known"))
        for fact in self._facts:
            if self._fits(match, fact):
                why = f'it is still there: "{fact.content}"'
                return Finding(why=why, fact=fact.id, commit=known.get(fact.id))
        return None

    def _count(self, count: Count) -> Finding | None:
        found = [fact for fact in self._facts if self._fits(count, fact)]
        most, least = count.bounds.max, count.bounds.min
        if (most is None or len(found) <= most) and (least is None or len(found) >= least):
            return None
        shown = "; ".join(f'"{fact.content}"' for fact in found[:_MOST_NAMED])
        more = "; …" if len(found) > _MOST_NAMED else ""
        return Finding(why=f"there are {len(found)}" + (f": {shown}{more}" if shown else ""))

    def _refused(self, wanted: Refused) -> Finding | None:
        fitting = [one for one in self._rejections() if self._fits(wanted, one[1].candidate)]
        if any(wanted.rule in (None, rejected.rule) for _, rejected in fitting):
            return None
        # A rule alone names nothing that could have been accepted, or refused otherwise.
        named = bool(wanted.model_dump(exclude_none=True, exclude={"rule"}))
        accepted = [one for one in self._learned() if named and self._fits(wanted, one[1])]
        if accepted:
            like = wanted.like or ""
            commit, fact = max(
                accepted, key=lambda one: self._likeness.scores(like, one[1].content) if like else (0, 0)
            )
            return Finding(why=f'{_place(commit)} accepted "{fact.content}"', fact=fact.id, commit=commit)
        for commit, rejected in fitting if named else ():
            return Finding(
                why=f"another rule refused it: {_refusal(commit, rejected)}", commit=commit, rule=rejected.rule
            )
        return Finding(why=self._nothing_like_it("refused"))

    def _context(self, wanted: Context) -> Finding | None:
        block = self._memory.context(wanted.for_)
        shown = {fact.id: fact for fact in self._facts if fact.id in block.facts}
        if wanted.lacks is not None and folded(wanted.lacks) in folded(block.text):
            fact = next((one for one in shown.values() if folded(wanted.lacks or "") in folded(one.content)), None)
            return Finding(why=f'the block has "{wanted.lacks}"', fact=None if fact is None else fact.id)
        for key, holds in (
            ("holds", wanted.holds is None or folded(wanted.holds) in folded(block.text)),
            ("matches", wanted.matches is None or re.search(wanted.matches, block.text) is not None),
            ("like", wanted.like is None or any(self._alike(wanted.like, fact.content) for fact in shown.values())),
        ):
            if not holds:
                match = Match.model_validate({key: getattr(wanted, key)})
                left = next((fact for fact in self._facts if self._fits(match, fact)), None)
                if left is not None:
                    return Finding(why=f'the fact is in memory and not in the block: "{left.content}"', fact=left.id)
                facts = f"{len(shown)} of {len(self._facts)} facts are in the block"
                return self._gone(match) or self._turned_down(match) or Finding(why=f"no fact has it; {facts}")
        return None

    # What the replay has.

    def _learned(self) -> Iterator[tuple[Commit, Fact]]:
        for commit in self._commits:
            for event in commit.events:
                if isinstance(event, FactAdded):
                    yield commit, event.fact
                elif isinstance(event, FactRevised):
                    yield commit, event.after

    def _rejections(self) -> Iterator[tuple[Commit, CandidateRejected]]:
        for commit in self._commits:
            for event in commit.events:
                if isinstance(event, CandidateRejected):
                    yield commit, event

    def _gone(self, match: Match) -> Finding | None:
        """Find the last removal of a fact that fits."""
        for commit in reversed(self._commits):
            for event in commit.events:
                if isinstance(event, FactRemoved) and self._fits(match, event.fact):
                    why = ", ".join(filter(None, (event.reason, event.note, event.detail)))
                    gone = f'{_place(commit)} removed "{event.fact.content}" ({why})'
                    return Finding(why=gone, commit=commit)
        return None

    def _turned_down(self, match: Match) -> Finding | None:
        """Find a refusal of what fits."""
        for commit, rejected in self._rejections():
            if self._fits(match, rejected.candidate):
                return Finding(why=_refusal(commit, rejected), commit=commit, rule=rejected.rule)
        return None

    def _nothing_like_it(self, what: str) -> str:
        return f"nothing of the kind was {what} up to commit {self._seq}; facts in memory: {len(self._facts)}"

    # Which facts are meant.

    def _fits(self, match: Match | Count, one: Fact | Candidate) -> bool:
        content = one.content if isinstance(one, Fact) else content_of(one)
        if match.category is not None and not same_category(getattr(one, "category", None) or "", match.category):
            return False
        if match.tag is not None and match.tag not in (getattr(one, "tags", None) or ()):
            return False
        if match.holds is not None and folded(match.holds) not in folded(content):
            return False
        if match.matches is not None and re.search(match.matches, content) is None:
            return False
        return match.like is None or self._alike(match.like, content)

    def _alike(self, wanted: str, content: str) -> bool:
        return self._likeness.alike(wanted, content)


def _place(commit: Commit) -> str:
    thread = f" of thread {commit.cause.thread}" if commit.cause.thread else ""
    return f"commit {commit.seq}{thread}"


def _refusal(commit: Commit, rejected: CandidateRejected) -> str:
    return f'{_place(commit)} refused "{content_of(rejected.candidate)}": {rejected.rule}, {rejected.detail}'


def merged(runs: Sequence[Sequence[Judgement]]) -> tuple[Judgement, ...]:
    """Return the verdicts of several runs as one verdict for each expectation."""
    found = []
    for verdicts in zip(*runs, strict=True):
        shown = next((one for one in verdicts if not one.ok), verdicts[0])
        held = sum(one.ok for one in verdicts)
        found.append(msgspec.structs.replace(shown, held=held, runs=len(verdicts)))
    return tuple(found)
