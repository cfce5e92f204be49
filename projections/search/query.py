"""Search of one scope: facts and turns, by words and by meaning at once.

What is found stands at the moment of asking: before each answer the index takes in what this or another process has
appended, dropped or erased since. Filters come before the cut. Meaning is looked up only where it is known already; to
embed what is new is the work of `background_embedding`, and a search does not wait for it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.forks import start_thread
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import TRANSCRIPT
from backstory.ledger.disk.files import translated
from backstory.ledger.log.served import ServedMemory
from backstory.ledger.log.writer import Writer
from backstory.projections.context.quotes import Said
from backstory.projections.history.replay import replay
from backstory.projections.read_model import ReadModel
from backstory.projections.search.cited_facts import CitedFacts
from backstory.projections.search.corpus import Change, Facts, Turns, fact_entry
from backstory.projections.search.fact_changes import FactChanges
from backstory.projections.search.filters import SearchFilters
from backstory.projections.search.fusion import Fused, fused
from backstory.projections.search.lexical.entry import Entry, Scored, Worth
from backstory.projections.search.results import Explanation, Found, Hit
from backstory.projections.search.similarity import Similarity
from backstory.projections.search.vectors.passages import Passage, passages
from backstory.projections.search.vectors.scope_vectors import erase_vectors
from backstory.projections.search.vectors.semantic import SemanticSearch
from backstory.projections.turns import TurnFollower, TurnView

if TYPE_CHECKING:
    from backstory.projections.search.lexical.index import LexicalIndex

_DEPTH = 100
"""Entries that each way ranks at least, before the ranks are fused."""

_SPARE_FILES = 16

_AT_ONCE = 2_000
"""Turns that are read before a prompt: that takes about as long as to load the vocabulary, 0.1 s."""

_FACTS_AT_ONCE = 2_000
"""Facts that a prompt takes in to be compared: that takes some 20 ms."""

_log = logging.getLogger(__name__)


class _Kept:
    """What is known of a scope, until something of it is erased; a caller holds the lock of the part it uses.

    The locks are separate, so that building a prompt does not wait until a long transcript is indexed.
    """

    def __init__(self, writer: Writer, follower: TurnFollower) -> None:
        self.locks = {"facts": threading.RLock(), "turns": threading.RLock()}
        self._store, self._scope = writer.store, writer.scope
        self._comparing = threading.RLock()
        self.facts = Facts()
        self._compared = Facts()
        self._likeness = Similarity()
        self.turns = Turns(self._store, self._scope, follower)
        self._cited = CitedFacts(self._store, self._scope)
        self._changes = FactChanges(self._store, self._scope)
        self._hidden = 0
        """Facts that had lapsed in the memory that was taken in last."""
        self._words: dict[str, LexicalIndex] = {}

    def words(self, within: str) -> LexicalIndex:
        """The index by words; made when it is first asked for, since comparing facts needs none."""
        index = self._words.get(within)
        if index is None:
            # Loaded late, for it loads numpy.
            from backstory.projections.search.lexical.index import LexicalIndex

            index = self._words[within] = LexicalIndex()
        return index

    def follow(self, served: tuple[ServedMemory, Head] | None) -> None:
        """Take in another memory with its head; None: the transcript, as far as it is durable."""
        if served is None:
            self._take("turns", self._with_facts)
        else:
            self._take("facts", lambda: self._facts_of(*served))

    def _facts_of(self, served: ServedMemory, head: Head) -> Change:
        """What is new of the facts."""
        events = self._changes.until(head)
        # No event states that a fact has lapsed.
        hidden, self._hidden = self._hidden or served.hidden, served.hidden
        return self.facts.follow(served.memory, None if hidden else events)

    def _with_facts(self) -> Change:
        """What is new of the turns that stand, and of the facts that were learned from them."""
        changed = self._cited.follow()
        change = self.turns.follow()
        fresh = {entry.key for entry in change.put}
        again = [entry for entry in self.turns.named(changed) if entry.key not in fresh]
        standing = self.turns.standing
        put = [
            msgspec.structs.replace(entry, facts=self._cited.of(entry.group, standing[entry.key].id))
            for entry in (*change.put, *again)
        ]
        return Change(put, change.drop, anew=change.anew)

    @property
    def cleared(self) -> int:
        """The commit of the transcript that memory was last cleared at."""
        return self._cited.cleared

    def likeness(self, memory: Memory, query: str, most: int | None) -> Mapping[str, float]:
        """How like the facts of a memory are to a text; at most that many are compared that were not before."""
        with self._comparing:
            self._likeness.take(self._compared.follow(memory), most)
            return self._likeness.of(query)

    def _take(self, within: str, follow: Callable[[], Change]) -> None:
        try:
            self._index(within, follow())
        except BaseException:
            # A part of it was taken in, and the rest would never come again.
            self._words.pop(within, None)
            if within == "facts":
                self.facts, self._changes = Facts(), FactChanges(self._store, self._scope)
            else:
                self.turns.start_over()
            raise

    def _index(self, within: str, change: Change) -> None:
        if change.anew:
            self._words.pop(within, None)
        if change.drop:
            self.words(within).drop(change.drop)
        if change.put:
            self.words(within).put(change.put)

    def standing(self, within: str) -> Mapping[str, Fact] | Mapping[str, TurnView]:
        """What can be found, by its key."""
        return self.facts.live if within == "facts" else self.turns.standing

    def keys(self, within: str, bounds: SearchFilters) -> Collection[str] | None:
        """What lies within bounds; None for everything."""
        return bounds.of_facts(self.facts) if within == "facts" else bounds.of_turns(self.turns)

    def worth(self, within: str) -> Worth | None:
        """What decides between equals: of facts how sure they are; of turns nothing but their order."""
        if within != "facts":
            return None
        live = self.facts.live
        return lambda key: live[key].confidence

    def said(self, query: str, most: int, now: str, leave_out: Callable[[TurnView], bool]) -> list[Said]:
        """The turns that are most like a text by their words, but for those that are to be left out."""
        standing, words, depth = self.turns.standing, self.words("turns"), most
        while True:
            ranked = words.ranked(query, depth)
            found = [turn for one in ranked if not leave_out(turn := standing[one.key])]
            if len(found) >= most or len(ranked) < depth:
                break
            depth *= 4
        return [
            Said(
                turn,
                None if (before := self.turns.before(turn)) is None or leave_out(before) else before,
                self._cited.changed(turn.thread, turn.id, now),
            )
            for turn in found[:most]
        ]

    def hits(self, within: str, query: str, ranked: Iterable[Fused], most: int, *, explain: bool) -> tuple[Hit, ...]:
        """Spell out the best of what was found, as far as it is still there."""
        words, standing = self.words(within), self.standing(within)
        still = ((one, standing[one.key]) for one in ranked if one.key in standing)
        return tuple(
            _hit(found, one, _why(one, words, query) if explain else None) for one, found in islice(still, most)
        )

    def entries(self, within: str) -> list[Entry]:
        """Everything, each thread whole and in order."""
        if within == "facts":
            return [fact_entry(fact) for fact in self.facts.live.values()]
        return list(self.turns.entries())


class Search(ReadModel):
    """Finds what a scope's memory and transcript hold; safe for threads and forks, up with other processes.

    `meaning` is None where nothing is searched by meaning. What that alone brings in has to be alike by
    `min_similarity`, a cosine, where a search states no other. Turns come from the `follower`. The scope's vectors lie
    at the path `vectors`, also those that an earlier process has made. With `background` no prompt waits until a long
    transcript is read.
    """

    def __init__(
        self,
        writer: Writer,
        meaning: SemanticSearch | None = None,
        *,
        min_similarity: float = 0.0,
        follower: TurnFollower,
        vectors: Path,
        background: bool = False,
    ) -> None:
        self._background = background
        self._catching_up: threading.Thread | None = None
        self.writer = self._writer = writer
        self.meaning = meaning
        self._vectors = vectors
        self._min_similarity = min_similarity
        self._follower = follower
        self._kept = _Kept(writer, self._follower)

    def find(
        self,
        query: str,
        top_k: int = 5,
        *,
        within: str = "facts",
        category: str | None = None,
        thread: str | None = None,
        since: str | None = None,
        until: str | None = None,
        tags: tuple[str, ...] = (),
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Found:
        """Return what is most like a query, the best first: live facts, or turns that stand.

        Of what is equally like it the surer fact comes first, then the newer one; of turns the newer one.
        Only what is of `category` and `thread`, from `since` on, before `until` and with all `tags` is ranked at all.

        Raises:
            UsageError: there is no such place to search in, no such category; a time is none; `top_k` is below 1.
            CorruptLogError, StoreError, LockTimeoutError: a log cannot be read.
        """
        bounds = SearchFilters.read(within, category=category, thread=thread, since=since, until=until, tags=tags)
        if top_k < 1:
            raise UsageError(f"top_k is {top_k}; it is at least 1")
        said = query if query.strip() else ""
        meaning = self.meaning
        depth = top_k if meaning is None else max(_DEPTH, 2 * top_k)
        with self._up_to_date(within) as kept:
            standing = kept.standing(within)
            total = len(standing)
            keep = kept.keys(within, bounds)
            by_words = kept.words(within).ranked(said, depth, keep, kept.worth(within)) if said else []
            if meaning is None:
                hits = kept.hits(within, said, _by_words_alone(by_words), top_k, explain=explain)
                return Found(hits, within, total)
        floor = self._min_similarity if min_similarity is None else min_similarity
        near = meaning.near(said, within, depth, standing=standing, keep=keep)
        ranked = _by_words_alone(by_words)
        if near.ranked:
            both = fused(by_words, near.ranked, near.missing, depth, within=within)
            ranked = [one for one in both if one.words_rank is not None or (one.meaning_score or 0.0) >= floor]
        # To read the query may have taken a model a while, and content may have been erased meanwhile.
        with self._up_to_date(within) as kept:
            hits = kept.hits(within, said, ranked, top_k, explain=explain)
        return Found(hits, within, total, near.model, min(near.embedded, total), near.trouble)

    def said(self, query: str, most: int, leave_out: Callable[[TurnView], bool]) -> Sequence[Said]:
        """Return the turns that are most like a text by their words, the best first, for a prompt.

        Those that `leave_out` names are left out, and those from before memory was cleared. A prompt waits for no long
        transcript: while one is read, in the background, nothing is found in it.

        Raises:
            CorruptLogError, StoreError, LockTimeoutError: a log cannot be read.
        """
        if not self._is_near():
            return ()
        now = spell_moment(self._writer.clock.now())
        with self._up_to_date("turns") as kept:
            return kept.said(query, most, now, _either(leave_out, self._is_cleared(kept.cleared)))

    def _is_near(self) -> bool:
        """Whether the turns were read, or are few; if not, a thread begins to read them."""
        if not self._background or self._kept.turns.are_read:
            return True
        with self._writer.reader.state() as state:
            if state.transcript.turn_count <= _AT_ONCE:
                return True
        if self._catching_up is None or not self._catching_up.is_alive():
            self._catching_up = start_thread("backstory-turns", self._catch_up)
        return False

    def _catch_up(self) -> None:
        try:
            with self._up_to_date("turns"):
                pass
        except BackstoryError as error:
            _log.warning("%s: no turn is quoted in prompts, for they cannot be read: %s", self._writer.scope, error)

    def _is_cleared(self, until: int) -> Callable[[TurnView], bool]:
        """Return what says of a turn whether it was recorded up to a commit of the transcript."""

        def recorded_before(turn: TurnView) -> bool:
            with self._writer.reader.state() as state:
                thread = state.transcript.threads.get(turn.thread)
                return thread is not None and turn.n <= len(thread.seqs) and thread.seqs[turn.n - 1] <= until

        return recorded_before if until else lambda _: False

    def likeness(self, memory: Memory, query: str) -> Mapping[str, float]:
        """Return how much each fact of a memory is like a text by its words, 0 to 1; what is not at all is left out.

        The memory is the caller's own, mostly the scope's newest. A model would have to read the text first, which
        takes longer than the caller can wait. With `background`, where calls follow each other, each call takes in a
        part of very many facts: the newest are compared from the first one on.
        """
        return self._kept.likeness(memory, query, _FACTS_AT_ONCE if self._background else None)

    def passages(self, within: str) -> Iterator[Passage]:
        """Yield everything as it is to be embedded; the logs are read when the first is asked for.

        Raises:
            CorruptLogError, StoreError, LockTimeoutError: a log cannot be read.
        """
        with self._up_to_date(within) as kept:
            entries = kept.entries(within)
        yield from passages(entries)

    @contextmanager
    def _up_to_date(self, within: str) -> Iterator[_Kept]:
        """Lend what is known, with what is in the logs by now.

        An erasure does not wait for this: so what is lent was known before the memory was asked for.
        """
        must_have_spare_files()
        kept = self._kept
        served = self._writer.served() if within == "facts" else None
        with kept.locks[within]:
            kept.follow(served)
            yield kept

    def start_over(self) -> None:
        """Drop all that is known by words, without waiting: the next search reads what is left."""
        self._follower.start_over()
        self._kept = _Kept(self._writer, self._follower)

    def purge(self) -> None:
        """Drop what is known, but for the meaning of what still stands when both logs have been read.

        The caller holds the locks of both. Of what a redaction names nothing is left then, in memory and on disk.

        Raises:
            StoreError: the vectors cannot be taken away. LockTimeoutError: another process keeps them.
        """
        self.start_over()
        if self.meaning is None:
            erase_vectors(self._vectors)
            return
        vectors = self.meaning.vectors
        try:
            vectors.purge(self._standing() if vectors.are_there else None)
        except CorruptLogError:
            vectors.purge(None)

    def _standing(self) -> dict[str, Iterable[Passage]]:
        """Return what both logs say when it is asked for, their redactions heeded, without a lock: both are held."""
        store, scope = self._writer.store, self._writer.scope
        turns = Turns(store, scope)
        turns.follow(store.head(scope.stream(TRANSCRIPT)))
        facts = map(fact_entry, replay(store, scope).facts.values())
        return {"facts": passages(facts), "turns": passages(turns.entries())}

    def close(self) -> None:
        """Let go of everything; the next look reads it again."""
        self.start_over()
        if self.meaning is not None:
            self.meaning.vectors.close()


def find_among(facts: Iterable[Fact], query: str, top_k: int, bounds: SearchFilters, *, explain: bool) -> Found:
    """Return which of some facts are most like a query by their words, the best first; as `Search.find`."""
    must_have_spare_files()
    from backstory.projections.search.lexical.index import LexicalIndex

    known = {fact.id: fact for fact in facts}
    words = LexicalIndex(fact_entry(fact) for fact in known.values() if bounds.holds(fact))
    ranked = words.ranked(query, top_k, None, lambda key: known[key].confidence) if query.strip() else []
    hits = (_hit(known[one.key], one, _why(one, words, query) if explain else None) for one in _by_words_alone(ranked))
    return Found(tuple(hits), "facts", len(known))


def must_have_spare_files() -> None:
    """Refuse to go on where what a search loads first might be loaded by half: numpy works no more after that.

    Raises:
        StoreError: this process has too many files open.
    """
    if "numpy" in sys.modules:
        return
    spare: list[int] = []
    try:
        with translated(Path(os.devnull), "open"):
            spare.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(_SPARE_FILES))
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _either(first: Callable[[TurnView], bool], second: Callable[[TurnView], bool]) -> Callable[[TurnView], bool]:
    return lambda turn: first(turn) or second(turn)


def _by_words_alone(ranked: Sequence[Scored]) -> list[Fused]:
    return [Fused(one.key, one.score, words_rank=rank, words_score=one.score) for rank, one in enumerate(ranked, 1)]


def _why(one: Fused, words: LexicalIndex, query: str) -> Explanation:
    parts = () if one.words_rank is None else words.explain(query, one.key)
    return Explanation(parts, one.words_rank, one.words_score, one.meaning_rank, one.meaning_score)


def _hit(found: Fact | TurnView, one: Fused, why: Explanation | None) -> Hit:
    if isinstance(found, Fact):
        return Hit(
            id=found.id,
            content=found.content,
            score=one.score,
            category=found.category,
            confidence=found.confidence,
            created_at=found.created_at,
            source=found.source,
            source_error=found.source_error,
            by_hand=found.by_hand,
            valid_from=found.valid_from,
            valid_until=found.valid_until,
            expires_at=found.expires_at,
            tags=found.tags,
            attributes=found.attributes,
            by_meaning=one.words_rank is None,
            why=why,
        )
    return Hit(
        id=found.id,
        content=found.content,
        score=one.score,
        thread=found.thread,
        n=found.n,
        role=found.role,
        at=found.at,
        name=found.name,
        by_meaning=one.words_rank is None,
        why=why,
    )
