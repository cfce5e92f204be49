"""What is known of one scope's facts and turns for a search by words, brought up to date before each answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import filterfalse, islice, starmap
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.log.reader import ServedMemory
from backstory.ledger.log.writer import Writer
from backstory.projections.context.given import FoundTurn
from backstory.projections.derived_files import DamagedError
from backstory.projections.search.cited_facts import CitedFacts
from backstory.projections.search.corpus import FactChanges, IndexChange, LiveFacts, StandingTurns, fact_entry
from backstory.projections.search.filters import SearchFilters
from backstory.projections.search.lexical.entry import Entry, Scored, Worth
from backstory.projections.search.results import Explanation, Fused, Hit
from backstory.projections.search.similarity import Similarity
from backstory.projections.turns import TurnFollower, TurnView

if TYPE_CHECKING:
    from backstory.projections.search.lexical.column_file import ColumnFile, Columns
    from backstory.projections.search.lexical.index import LexicalIndex

AT_ONCE = 2_000
"""Turns that are read before a prompt: that takes about as long as to load the vocabulary, 0.1 s."""

WORDS = {"facts": "facts.index", "turns": "words.index"}
"""What the files of the indexes by words are called, beside memory.json."""

_TAIL = 50
"""A file is written again when one entry in this many is not in it."""


class Known:
    """What is known of a scope, until something of it is erased; a caller holds the lock of the part it uses.

    The locks are separate, so that building a prompt does not wait until a long transcript is indexed.
    """

    def __init__(
        self,
        writer: Writer,
        follower: TurnFollower,
        folder: Path,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with what the files in a folder hold, where they are to be believed.

        `written` is called when the turns are in the file, and are not asked of the follower any more.
        """
        self.locks = {"facts": threading.RLock(), "turns": threading.RLock()}
        self._store, self._scope = writer.store, writer.scope
        self._comparing = threading.RLock()
        self.facts = LiveFacts()
        self._compared = LiveFacts()
        self._likeness = Similarity()
        self._follower = follower
        self._paths = {within: folder / name for within, name in WORDS.items()}
        self._written = written
        self._opened: set[str] = set()
        self._files: dict[str, ColumnFile] = {}
        """Those that are gone on from."""
        self.turns_are_read = False
        """Whether the transcript was read once."""
        self._put_off = dict.fromkeys(WORDS, AT_ONCE)
        """How many entries have to come before a file is written."""
        self.turns = StandingTurns(self._store, self._scope, follower)
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
        within = "turns" if served is None else "facts"

        def news() -> IndexChange:
            return self._with_facts() if served is None else self._facts_of(*served)

        self._open(within)
        self._take(within, news)
        self.turns_are_read = self.turns_are_read or served is None
        if self._write(within):
            self._take(within, news)

    def known_turns(self) -> int:
        """How many turns are in the file; 0 while it is in use."""
        if not self.locks["turns"].acquire(blocking=False):
            return 0
        try:
            self._open("turns")
            return 0 if self.turns.stored is None else self.turns.stored.count
        finally:
            self.locks["turns"].release()

    def _open(self, within: str) -> None:
        """Begin with the file, if nothing is known yet."""
        if within not in self._opened and self._paths[within].exists():
            self._read_file(within)
        self._opened.add(within)
        file = self._files.get(within)
        if file is not None and not file.is_untouched():
            raise DamagedError(f"{file.path} was written to while it was open")

    def _read_file(self, within: str) -> bool:
        from backstory.projections.search.lexical.index import LexicalIndex
        from backstory.projections.search.lexical.places import StoredKeys
        from backstory.projections.search.on_disk.stored_cited import StoredCited
        from backstory.projections.search.on_disk.stored_turns import StoredTurns
        from backstory.projections.search.on_disk.words_file import WordsFile

        file = WordsFile(self._store, self._scope, self._paths[within]).read()
        if file is None:
            return False
        if within == "facts":
            keys = StoredKeys(file)
            self.facts = LiveFacts(dict(zip(keys.keys, file.texts("contents"), strict=True)))
            self._words[within] = LexicalIndex(stored=keys)
        else:
            turns = StoredTurns(file)
            self.turns = StandingTurns(self._store, self._scope, self._follower, turns)
            self._cited = CitedFacts(self._store, self._scope, StoredCited(file))
            self._words[within] = LexicalIndex(stored=turns.places)
        self._files[within] = file
        return True

    def _write(self, within: str) -> bool:
        """Write the file where a later process would have much to read; return whether this goes on from it."""
        words = self._words.get(within)
        if words is None or words.added <= max(self._put_off[within], len(words) // _TAIL):
            return False
        if not (self._write_facts(words) if within == "facts" else self._write_turns(words)):
            self._put_off[within] = 2 * words.added
            return False
        self._put_off[within] = AT_ONCE
        if not self._read_file(within):
            return False
        if within == "turns":
            self._written()
        return True

    def _write_facts(self, words: LexicalIndex) -> bool:
        from backstory.projections.search.on_disk.words_file import Stand, WordsFile

        def columns() -> Columns:
            found, keys = words.columns()
            return found | {"keys": keys, "contents": [self.facts.live[key].content for key in keys]}

        stand = Stand(self._store.state(self._scope.stream(LEDGER)).edition, self._changes.head)
        return WordsFile(self._store, self._scope, self._paths["facts"]).write({LEDGER: stand}, columns)

    def _write_turns(self, words: LexicalIndex) -> bool:
        from backstory.projections.search.on_disk.stored_cited import cited_columns
        from backstory.projections.search.on_disk.stored_turns import turn_columns
        from backstory.projections.search.on_disk.words_file import Stand, WordsFile

        origin, cited = self.turns.origin(), self._cited.state()
        if origin is None or origin.learned.head != cited.head:
            return False
        stands = {LEDGER: Stand(cited.edition, cited.head), TRANSCRIPT: Stand(origin.edition, origin.said.head)}
        return WordsFile(self._store, self._scope, self._paths["turns"]).write(
            stands, lambda: turn_columns(self.turns.standing, origin, words) | cited_columns(self._cited)
        )

    def _facts_of(self, served: ServedMemory, head: Head) -> IndexChange:
        """What is new of the facts."""
        events = self._changes.until(head)
        # No event states that a fact has lapsed.
        hidden, self._hidden = self._hidden or served.hidden, served.hidden
        return self.facts.follow(served.memory, None if hidden else events)

    def _with_facts(self) -> IndexChange:
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
        return IndexChange(put, change.drop, anew=change.anew)

    @property
    def cleared(self) -> int:
        """The commit of the transcript that memory was last cleared at."""
        return self._cited.cleared

    def likeness(self, memory: Memory, query: str, most: int | None) -> Mapping[str, float]:
        """How like the facts of a memory are to a text; at most that many are compared that were not before."""
        with self._comparing:
            self._likeness.take(self._compared.follow(memory), most)
            return self._likeness.of(query)

    def _take(self, within: str, follow: Callable[[], IndexChange]) -> None:
        try:
            self._index(within, follow())
        except BaseException:
            # A part of it was taken in, and the rest would never come again.
            self._drop(within)
            if within == "facts":
                self.facts, self._changes = LiveFacts(), FactChanges(self._store, self._scope)
            else:
                self.turns.start_over()
            raise

    def _drop(self, within: str) -> None:
        self._words.pop(within, None)
        self._files.pop(within, None)

    def _index(self, within: str, change: IndexChange) -> None:
        if change.anew:
            self._drop(within)
        if change.drop:
            self.words(within).drop(change.drop)
        if change.put:
            self.words(within).put(change.put)

    def standing(self, within: str) -> Mapping[str, Fact] | Mapping[str, TurnView]:
        """What can be found, by its key."""
        return self.facts.live if within == "facts" else self.turns.standing

    def keys(self, filters: SearchFilters) -> Collection[str] | None:
        """What lies within filters; None for everything."""
        return filters.of_facts(self.facts) if filters.within == "facts" else filters.of_turns(self.turns)

    def worth(self, within: str) -> Worth | None:
        """What decides between equals: of facts how sure they are; of turns nothing but their order."""
        if within != "facts":
            return None
        live = self.facts.live
        return lambda key: live[key].confidence

    def by_turns(self, query: str, depth: int, among: Collection[str]) -> list[Scored]:
        """Those facts whose turns are most like a text by their words, each as its best turn, the best first."""
        standing, best = self.turns.standing, dict[str, float]()
        for one in self.words("turns").ranked(query, depth):
            turn = standing[one.key]
            for key in self._cited.ids(turn.thread, turn.id):
                if key in among:
                    best.setdefault(key, one.score)
        return list(starmap(Scored, best.items()))

    def by_facts(self, facts: Sequence[Scored], among: Collection[str]) -> list[Scored]:
        """Those turns that facts cite, each as the best of these facts, the best first."""
        standing, scores = self.turns.standing, {one.key: one.score for one in facts}
        best: list[Scored] = []
        for key in among:
            turn = standing.get(key)
            cited = () if turn is None else self._cited.ids(turn.thread, turn.id)
            if found := [scores[fact] for fact in cited if fact in scores]:
                best.append(Scored(key, max(found)))
        return sorted(best, key=lambda one: -one.score)

    def said(self, query: str, most: int, now: str, leave_out: Callable[[TurnView], bool]) -> list[FoundTurn]:
        """The turns that are most like a text by their words, but for those that are to be left out."""
        ranked = map(self.turns.standing.__getitem__, self.words("turns").best(query, most))
        return [
            FoundTurn(
                turn,
                None if (before := self.turns.before(turn)) is None or leave_out(before) else before,
                self._cited.changed(turn.thread, turn.id, now),
            )
            for turn in islice(filterfalse(leave_out, ranked), most)
        ]

    def hits(self, within: str, query: str, ranked: Iterable[Fused], most: int, *, explain: bool) -> tuple[Hit, ...]:
        """Spell out the best of what was found, as far as it is still there."""
        words, standing = self.words(within), self.standing(within)
        still = ((one, standing[one.key]) for one in ranked if one.key in standing)
        return tuple(
            hit_of(found, one, why_found(one, words, query) if explain else None) for one, found in islice(still, most)
        )

    def entries(self, within: str) -> list[Entry]:
        """Everything, each thread whole and in order."""
        if within == "facts":
            return [fact_entry(fact) for fact in self.facts.live.values()]
        return list(self.turns.entries())


def why_found(one: Fused, words: LexicalIndex, query: str) -> Explanation:
    """Say why something was found."""
    if one.why.words_rank is None:
        return one.why
    return msgspec.structs.replace(one.why, words=words.explain(query, one.key))


def hit_of(found: Fact | TurnView, one: Fused, why: Explanation | None) -> Hit:
    """Spell out what was found."""
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
            by_meaning=one.why.words_rank is None,
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
        by_meaning=one.why.words_rank is None,
        why=why,
    )
