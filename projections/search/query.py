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
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from backstory.ledger.concurrency.forks import start_thread
from backstory.ledger.core.errors import (
    BackstoryError,
    CorruptLogError,
    ModelError,
    StoreError,
    UnavailableError,
    UsageError,
)
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.ledger.disk.files import translated
from backstory.ledger.engines.port import EventStore, states_of
from backstory.ledger.log.writer import Writer
from backstory.projections.context.given import FoundTurn
from backstory.projections.derived_files import DamagedError, delete_derived
from backstory.projections.history.moment import replay
from backstory.projections.read_model import ReadModel
from backstory.projections.search.corpus import StandingTurns, fact_entry
from backstory.projections.search.filters import SearchFilters
from backstory.projections.search.known import AT_ONCE, WORDS, Known, hit_of, why_found
from backstory.projections.search.lexical.entry import Scored
from backstory.projections.search.lexical.tokenizer import words_of
from backstory.projections.search.results import Found, by_words_and_cited, fused
from backstory.projections.search.vectors.embedder import Passage, passages
from backstory.projections.search.vectors.scope_vectors import Vectors
from backstory.projections.search.vectors.vector_file import VectorFile
from backstory.projections.turns import TurnFollower, TurnView

_DEPTH = 100
"""Entries that each way ranks at least, before the ranks are fused."""

_CITED_TURNS = 20
"""Turns whose facts come first by them. To look up a hundred takes longer, and finds no more."""

_SPARE_FILES = 16
"""Files that can still be opened before numpy is loaded, which opens one at a time.

A process at its limit opens and closes files all the time, in other threads. Where they run out in the midst of the
import, at numpy.exceptions for one, numpy says "cannot load module more than once per process" until the process ends.
"""

_TRIES = 3

_T = TypeVar("_T")

_FACTS_AT_ONCE = 2_000
"""Facts that a prompt takes in to be compared: that takes some 20 ms."""

_MORE = 4
"""How many times more are asked for where too few of the nearest still stand."""

_log = logging.getLogger(__name__)


def _all(key: str) -> bool:  # noqa: ARG001 nothing is known of any key
    return True


class Near(msgspec.Struct, frozen=True):
    """What is near a query, the best first, and how far meaning is known; see `Found`.

    `missing` says of a key whether it is not embedded yet.
    """

    ranked: list[Scored] = []
    missing: Callable[[str], bool] = _all
    model: str | None = None
    embedded: int = 0
    trouble: str | None = None


class SemanticSearch:
    """What is known of meanings in one scope; safe for threads.

    `wanted` is called whenever that may be behind; None where nothing embeds in the background.
    """

    def __init__(self, vectors: Vectors, wanted: Callable[[], None] | None) -> None:
        self.vectors = vectors
        self._wanted = wanted
        self._warned = False

    def near(
        self,
        query: str,
        within: str,
        depth: int,
        *,
        standing: Collection[str] | None = None,
        keep: Collection[str] | None = None,
    ) -> Near:
        """Rank what stands by its meaning, as far as that is known; None: all that is known.

        Where the query cannot be read the answer says so, and is empty. A query without a word is near nothing: a model
        would find something near it all the same.
        """
        if self._wanted is not None:
            self._wanted()
        model, embedded = self.vectors.embedder.name, 0
        try:
            embedded = self.vectors.count(within)
            ranked = self._nearest(query, within, depth, standing, keep) if embedded and words_of(query) else []
        except (ModelError, UnavailableError) as error:
            # Logged as a warning once: a host may search all the time.
            _log.log(logging.DEBUG if self._warned else logging.WARNING, "search goes on by words alone: %s", error)
            self._warned = True
            return Near(model=model, embedded=embedded, trouble=str(error))
        self._warned = False
        return Near(ranked, lambda key: not self.vectors.has(within, key), model, embedded)

    def _nearest(
        self, query: str, within: str, depth: int, standing: Collection[str] | None, keep: Collection[str] | None
    ) -> list[Scored]:
        """What is known of meanings may lag: what does not stand any more must not take the place of what does."""
        asked = depth
        while True:
            ranked = self.vectors.nearest(within, query, asked, keep)
            found = [scored for scored in ranked if standing is None or scored.key in standing]
            if len(found) >= depth or len(ranked) < asked:
                return found[:depth]
            asked *= _MORE


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
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._background = background
        self._catching_up: threading.Thread | None = None
        self.writer = self._writer = writer
        self.meaning = meaning
        self._vectors = vectors
        self._min_similarity = min_similarity
        self._follower = follower
        self._written = written
        self._warned = False
        self._known: Known | None = None

    @property
    def _kept(self) -> Known:
        """What is known by words; after an erasure that begins with nothing."""
        known = self._known
        if known is None:
            known = self._known = Known(self._writer, self._follower, self._vectors.parent, self._written)
        return known

    def find(
        self,
        query: str,
        top_k: int = 5,
        filters: SearchFilters = SearchFilters(),  # noqa: B008 it cannot be changed
        *,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Found:
        """Return what is most like a query, the best first: live facts, or turns that stand.

        Of what is equally like it the surer fact comes first, then the newer one; of turns the newer one.
        Only what lies within the filters is ranked at all.

        Raises:
            UsageError: `top_k` is below 1.
            CorruptLogError, StoreError, LockTimeoutError: A log cannot be read.
        """
        if top_k < 1:
            raise UsageError(f"top_k is {top_k}; it is at least 1")
        floor = self._min_similarity if min_similarity is None else min_similarity
        return self._answered(lambda: self._found(query, top_k, filters, floor, explain=explain))

    def _found(self, query: str, top_k: int, filters: SearchFilters, floor: float, *, explain: bool) -> Found:
        within = filters.within
        said = query if query.strip() else ""
        meaning = self.meaning
        depth = top_k if meaning is None and within == "turns" else max(_DEPTH, 2 * top_k)
        with self._up_to_date(within) as kept:
            standing = kept.standing(within)
            total = len(standing)
            keep = kept.keys(filters)
            by_words = kept.words(within).ranked(said, depth, keep, kept.worth(within)) if said else []
        near = Near() if meaning is None else meaning.near(said, within, depth, standing=standing, keep=keep)
        # In their order, by which equals stand.
        found = dict.fromkeys(one.key for one in (*by_words, *near.ranked))
        by_cited: Sequence[Scored] = ()
        citing: Collection[str] = found
        if within == "facts":
            citing = {key for key in found if isinstance(one := standing.get(key), Fact) and one.evidence}
            by_cited = self._by_turns(said, citing)
        elif meaning is not None and near.ranked:
            by_cited = self._by_facts(meaning, said, found)
        ranked = by_words_and_cited(by_words, by_cited, citing)
        if near.ranked:
            both = fused(by_words, near.ranked, near.missing, depth, within=within, by_cited=by_cited, citing=citing)
            ranked = [one for one in both if one.why.words_rank is not None or (one.why.similarity or 0.0) >= floor]
        # To read the query may have taken a model a while, and content may have been erased meanwhile.
        with self._up_to_date(within) as kept:
            hits = kept.hits(within, said, ranked, top_k, explain=explain)
        return Found(hits, within, total, near.model, min(near.embedded, total), near.trouble)

    def _by_turns(self, query: str, citing: Collection[str]) -> list[Scored]:
        """Rank facts by the turns that they cite, if any does.

        A long transcript is not waited for, and facts are found, too, where it cannot be read.
        """
        if not citing or not self._is_near():
            return []
        try:
            with self._up_to_date("turns") as kept:
                return kept.by_turns(query, _CITED_TURNS, citing)
        except BackstoryError as error:
            # Logged as a warning once: a host may search all the time.
            level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
            _log.log(level, "%s: facts are not ordered by the turns that they cite: %s", self._writer.scope, error)
            return []

    def _by_facts(self, meaning: SemanticSearch, query: str, found: Collection[str]) -> list[Scored]:
        """Rank the turns found by the meaning of the facts that cite them."""
        near = meaning.near(query, "facts", _DEPTH)
        with self._up_to_date("turns") as kept:
            return kept.by_facts(near.ranked, found)

    def said(self, query: str, most: int, leave_out: Callable[[TurnView], bool]) -> Sequence[FoundTurn]:
        """Return the turns that are most like a text by their words, the best first, for a prompt.

        Those that `leave_out` names are left out, and those from before memory was cleared. A prompt waits for no long
        transcript: while one is read, in the background, nothing is found in it.

        Raises:
            CorruptLogError, StoreError, LockTimeoutError: A log cannot be read.
        """
        if not self._is_near():
            return ()
        now = spell_moment(self._writer.clock.now())

        def said() -> Sequence[FoundTurn]:
            with self._up_to_date("turns") as kept:
                return kept.said(query, most, now, _either(leave_out, self._is_cleared(kept.cleared)))

        return self._answered(said)

    def _answered(self, ask: Callable[[], _T]) -> _T:
        """Answer from the file, and anew where it turns out that it or the log is not what it was."""
        for _ in range(_TRIES):
            try:
                return ask()
            except DamagedError as error:
                _log.warning("an index by words is not used any more: %s", error)
                self.start_over()
        raise StoreError(f"the indexes by words in {self._vectors.parent} cannot be read: run `verify`, and try again")

    def _is_near(self) -> bool:
        """Whether the turns were read, or are few; if not, a thread begins to read them."""
        kept = self._kept
        if not self._background or kept.turns_are_read:
            return True
        with self._writer.reader.state() as state:
            count = state.transcript.turn_count
        if count <= AT_ONCE or count - kept.known_turns() <= AT_ONCE:
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
            CorruptLogError, StoreError, LockTimeoutError: A log cannot be read.
        """
        with self._up_to_date(within) as kept:
            entries = kept.entries(within)
        yield from passages(entries)

    @contextmanager
    def _up_to_date(self, within: str) -> Iterator[Known]:
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
        self._known = None

    def purge(self) -> None:
        """Drop what is known, but for the meaning of what still stands when both logs have been read.

        The caller holds the locks of both. Of what a redaction names nothing is left then, in memory and on disk.

        Raises:
            StoreError: A file cannot be taken away.
            LockTimeoutError: Another process keeps it.
        """
        self.start_over()
        for name in WORDS.values():
            delete_derived(self._vectors.with_name(name))
        if self.meaning is None:
            VectorFile(self._vectors, "").erase()
            return
        vectors = self.meaning.vectors
        try:
            vectors.purge(self._standing() if vectors.are_there else None)
        except CorruptLogError:
            vectors.purge(None)

    def _standing(self) -> dict[str, Iterable[Passage]]:
        """Return what both logs say when it is asked for, their redactions heeded, without a lock: both are held."""
        store, scope = self._writer.store, self._writer.scope
        turns = StandingTurns(store, scope)
        turns.follow(store.head(scope.stream(TRANSCRIPT)))
        facts = map(fact_entry, replay(store, scope).facts.values())
        return {"facts": passages(facts), "turns": passages(turns.entries())}

    def close(self) -> None:
        """Let go of everything; the next look reads it again."""
        self.start_over()
        if self.meaning is not None:
            self.meaning.vectors.close()


def stored_as(writer: Writer) -> int:
    """Return what stands for both logs of a scope as they are stored: another number once something was erased.

    Raises:
        StoreError: A log cannot be read.
    """
    states = states_of(writer.store, (writer.ledger, writer.transcript_stream))
    return zlib.crc32(" ".join(state.edition for state in states).encode()) % (1 << 31) or 1


def delete_stale_words(store: EventStore, scope: Scope, folder: Path) -> None:
    """Delete the indexes by words that are not of these logs: they may hold what another machine has erased.

    Raises:
        StoreError: A log cannot be read.
    """
    for path in map(folder.joinpath, WORDS.values()):
        if path.exists():
            must_have_spare_files()
            from backstory.projections.search.on_disk.words_file import WordsFile

            WordsFile(store, scope, path).read()


def find_among(facts: Iterable[Fact], query: str, top_k: int, filters: SearchFilters, *, explain: bool) -> Found:
    """Return which of some facts are most like a query by their words, the best first; as `Search.find`."""
    must_have_spare_files()
    from backstory.projections.search.lexical.index import LexicalIndex

    known = {fact.id: fact for fact in facts}
    words = LexicalIndex(fact_entry(fact) for fact in known.values() if filters.holds(fact))
    ranked = words.ranked(query, top_k, None, lambda key: known[key].confidence) if query.strip() else []
    hits = (
        hit_of(known[one.key], one, why_found(one, words, query) if explain else None)
        for one in by_words_and_cited(ranked)
    )
    return Found(tuple(hits), "facts", len(known))


def must_have_spare_files() -> None:
    """Refuse to go on where what a search loads first might be loaded by half: numpy works no more after that.

    Raises:
        StoreError: This process has too many files open.
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
