"""Lexical index: BM25 over the words of an entry and of its neighbours.

A turn is seldom understood alone: "Yes, last year, with the kids" answers a question that stands before it. So words of
the neighbouring turns count for an entry as well, as parts of its own word counts, the less the farther away they are
(BM25F with one saturation for all). So do the words of facts that were learned from a turn: they name what the turn
only hints at. Who spoke and on which day are fields of their own. A short question is seldom what is looked for.

The index can be added to and taken from at any time, and then answers exactly as if it had been built at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from backstory.projections.search.lexical.column_file import Columns
from backstory.projections.search.lexical.entry import Entry, Part, Scored, Worth
from backstory.projections.search.lexical.lazy_filter import LazyFilter, StoredFilter
from backstory.projections.search.lexical.neighbours import Neighbours, Weights
from backstory.projections.search.lexical.places import StoredPlaces
from backstory.projections.search.lexical.postings import NOWHERE, Growing, Postings, Slots, Tags
from backstory.projections.search.lexical.tokenizer import as_said, spellings, words_of, words_of_day

_SATURATION = 1.2
_LENGTH = 0.75
"""BM25's k1 and b, at their usual values."""
_SPEAKER = 2.0
_DAY = 1.0
"""What fields of few and short words count, where a word of the text counts 1 before saturation."""
_MISSPELLED = 0.5
_GUESSES = 8
"""Words of a query that are taken for misspelled at most: a long text in another language has hundreds."""
_SHORT = 15
_ASKED = 0.8
"""What the score of a short question counts, of fewer words than `_SHORT`. A speaker who mostly asks, as people ask an
assistant, loses nothing by it. Chosen on LoCoMo 26 and 30."""
_QUESTION_MARKS = ("?", "？", "؟")
_LARGE = 1000
_EVERYWHERE = 0.8
_MANY_DEAD = 1000
_FEW = 8
"""If this many times fewer entries are asked for than have hits, looking them up is faster than going by rank."""
_TRIED = 8
_WALK = 16
"""To gather all that is allowed takes as long as to go through this many times fewer hits by rank."""


class _Term(msgspec.Struct, frozen=True):
    """A word of a query that some entry has, itself or in its facts; `said` is how the query has it."""

    said: str
    number: int | None
    told: int | None
    within: int
    weight: float


class _Row(NamedTuple):
    """An entry as it is kept."""

    key: str
    rank: int
    words: list[str]
    told: list[str]
    asks: bool
    speaker: str
    group: str
    order: int
    day: str


class LexicalIndex:
    """One index over entries; not safe for threads.

    With `stored` it goes on from the entries in a file, of which only what a question needs is read.
    """

    def __init__(self, entries: Iterable[Entry] = (), stored: StoredPlaces | None = None) -> None:
        self._begin(stored)
        self.put(entries)

    def _begin(self, stored: StoredPlaces | None = None) -> None:
        self._stored = stored
        file = None if stored is None else stored.file
        self._postings = Postings(file, "own")
        self._told = Postings(file, "told")
        """The words of facts, by the slot of the turn that they were learned from."""
        self._asks = Growing(np.zeros(1, np.int32) if file is None else file.column("asks"))
        """Which slots are short questions."""
        self._counting: Weights | None = None
        self._nearby = Neighbours(stored)
        self._speakers = Tags(words_of, file, "speakers")
        self._days = Tags(words_of_day, file, "days")
        self._first = self._next = len(self._postings)
        """The first slot that is not stored."""
        self._slots: dict[str, int] = {}
        self._keys: list[str] = []
        """By slot the keys of those that are not stored."""
        self._ranks = Growing(np.arange(self._first))
        """Which entry came first, by slot: one that is replaced keeps its rank."""

    def __len__(self) -> int:
        return self._postings.entries

    @property
    def added(self) -> int:
        """How many entries were added since it was stored, or since it began; also those that are gone."""
        return len(self._postings) - self._first

    def _slot(self, key: str) -> int | None:
        slot = self._slots.get(key)
        if slot is None and self._stored is not None:
            slot = self._stored.slot(key)
            return slot if slot is not None and self._postings.is_alive(slot) else None
        return slot

    def _key(self, slot: int) -> str:
        if self._stored is not None and slot < self._first:
            return self._stored.key(slot)
        return self._keys[slot - self._first]

    def put(self, entries: Iterable[Entry]) -> None:
        """Add entries; one whose key is there already takes its place, and keeps it in the order of ties."""
        fresh = {entry.key: entry for entry in entries}
        if not fresh:
            return
        ranks = {key: int(self._ranks.now[slot]) for key in fresh if (slot := self._slot(key)) is not None}
        self.drop(ranks)
        if len(self._postings) > 2 * (len(self) + _MANY_DEAD):
            self._begin_anew()
        for key in fresh:
            if key not in ranks:
                ranks[key], self._next = self._next, self._next + 1
        self._add(_row(entry, ranks[key]) for key, entry in fresh.items())

    def _add(self, rows: Iterable[_Row]) -> None:
        added: list[_Row] = []

        def words() -> Iterator[list[str]]:
            for row in rows:
                added.append(row._replace(words=[]))
                yield row.words

        self._counting = None
        first = len(self._postings)
        lengths = self._postings.add(words())
        told = self._told.add(row.told for row in added)
        self._asks.extend([row.asks for row in added])
        self._ranks.extend([row.rank for row in added])
        for slot, (row, length, more) in enumerate(zip(added, lengths, told, strict=True), first):
            self._slots[row.key] = slot
            self._keys.append(row.key)
            self._nearby.put(slot, length, row.group, row.order, row.rank, told=more)
            self._speakers.put(slot, row.speaker)
            self._days.put(slot, row.day)

    def _begin_anew(self) -> None:
        """Leave the dead behind: their slots, and the words that no other entry has."""
        rows = [
            _Row(
                self._key(slot),
                int(self._ranks.now[slot]),
                self._postings.words(slot),
                self._told.words(slot),
                bool(self._asks.now[slot]),
                self._speakers.value(slot),
                *self._nearby.place(slot),
                self._days.value(slot),
            )
            for slot in self._postings.living().tolist()
        ]
        following = self._next
        self._begin()
        self._next = following
        self._add(rows)

    def drop(self, keys: Iterable[str]) -> None:
        """Take entries out; a key that is not there is nothing to do."""
        self._counting = None
        for key in list(keys):
            slot = self._slot(key)
            if slot is not None:
                self._slots.pop(key, None)
                self._postings.drop(slot)
                self._told.drop(slot)
                self._asks.now[slot] = 0
                self._nearby.drop(slot)
                self._speakers.drop(slot)
                self._days.drop(slot)
                if slot >= self._first:
                    self._keys[slot - self._first] = ""

    def ranked(
        self, query: str, k: int, keep: Collection[str] | None = None, worth: Worth | None = None
    ) -> list[Scored]:
        """Return the `k` best entries for a query, the best first; what has no word of it is not among them.

        With `keep` only entries of these keys are ranked. Of equal ones that of most `worth` comes first, given by its
        key, and then the newest.
        """
        if k < 1 or not len(self):
            return []
        scores = self._scores(query)
        hits = np.flatnonzero(scores > 0)
        if keep is None:
            found = list(islice(self._best_first(scores, hits, k, worth), k))
        else:
            found = self._among(keep, scores, hits, k, worth)
        return [Scored(self._key(slot), float(scores[slot])) for slot in found]

    def best(self, query: str, portion: int) -> Iterator[str]:
        """Yield the keys of all that `ranked` ranks for a query, the best first; `portion` of them are sorted first."""
        if len(self):
            scores = self._scores(query)
            yield from map(self._key, self._best_first(scores, np.flatnonzero(scores > 0), portion, None))

    def _among(self, keep: Collection[str], scores: Weights, hits: Slots, k: int, worth: Worth | None) -> list[int]:
        """The best slots whose keys are in `keep`."""
        if isinstance(keep, StoredFilter) and keep.stored is self._stored:
            return list(islice(self._best_first(scores, hits[self._allowed(keep, hits)], k, worth), k))
        known = keep.gathered if isinstance(keep, LazyFilter) else keep
        if known is not None and _FEW * len(known) <= len(hits):
            return self._of_few(known, scores, k, worth)
        lookup = keep if isinstance(keep, (AbstractSet, Mapping, LazyFilter)) else frozenset(keep)
        patience = max(_TRIED * k, len(self) // _WALK)
        found: list[int] = []
        for tried, slot in enumerate(self._best_first(scores, hits, _TRIED * k, worth)):
            if tried == patience and isinstance(keep, LazyFilter) and _FEW * len(keep.all()) <= len(hits):
                return self._of_few(keep.all(), scores, k, worth)
            if self._key(slot) in lookup:
                found.append(slot)
                if len(found) == k:
                    break
        return found

    def _allowed(self, keep: StoredFilter, hits: Slots) -> NDArray[np.bool_]:
        stored = hits < self._first
        allowed = stored.copy()
        allowed[stored] = keep.slots[hits[stored]]
        allowed[~stored] = [self._key(slot) in keep for slot in hits[~stored].tolist()]
        return allowed

    def _of_few(self, keys: Collection[str], scores: Weights, k: int, worth: Worth | None) -> list[int]:
        kept = {slot for key in keys if (slot := self._slot(key)) is not None and scores[slot] > 0}
        hits = np.array(sorted(kept), dtype=np.int64)
        return list(islice(self._best_first(scores, hits, k, worth), k))

    def _best_first(self, scores: Weights, hits: Slots, portion: int, worth: Worth | None) -> Iterator[int]:
        """All hits in order; sorted in portions, since mostly only the first few are asked for."""
        while len(hits):
            top = hits
            if portion < len(hits):
                values = scores[hits]
                least = np.partition(values, len(hits) - portion)[len(hits) - portion]
                top, hits = hits[values >= least], hits[values < least]
            else:
                hits = hits[:0]
            ranks = self._ranks.now[top]
            worths = np.zeros(len(top)) if worth is None else np.array([worth(self._key(int(slot))) for slot in top])
            yield from map(int, top[np.lexsort((-ranks, -worths, -scores[top]))])
            portion *= 8

    def _scores(self, query: str) -> Weights:
        """The score of every slot."""
        said = as_said(query)
        scores = np.zeros(len(self._postings))
        for term in self._terms(said):
            slots, total = self._totals(term)
            scores[slots] += self._saturated(term, slots, total)
        for tags, weight in ((self._speakers, _SPEAKER), (self._days, _DAY)):
            boost = tags.boost(said, lambda within: _rarity(within, len(self)))
            if boost is not None:
                scores += weight * boost
        return scores * self._factors()

    def _totals(self, term: _Term) -> tuple[Slots | slice, Weights]:
        own = NOWHERE if term.number is None else self._postings.column(term.number)
        told = NOWHERE if term.told is None else self._told.column(term.told)
        return self._nearby.totals(own, told, len(self._postings))

    def _factors(self) -> Weights:
        """What the score of each slot is multiplied by."""
        if self._counting is None:
            self._counting = np.ones(len(self._postings))
            asking = np.flatnonzero(self._asks.now)
            self._counting[asking[~self._speakers.mostly(asking)]] = _ASKED
        return self._counting

    def _terms(self, said: dict[str, str]) -> list[_Term]:
        """The words of a query that some entry has, in their order; for one that none has, what it may have meant.

        In a large index words that are nearly everywhere add nothing beside others, and would cost the most.
        """
        terms = list(self._known(said))
        if len(self) < _LARGE:
            return terms
        telling = [term for term in terms if term.within <= _EVERYWHERE * len(self)]
        return telling or terms

    def _known(self, said: dict[str, str]) -> Iterator[_Term]:
        guesses = _GUESSES
        for word, written in said.items():
            term = self._term(written, word)
            if term is not None:
                yield term
            elif guesses and not (self._speakers.within(word) or self._days.within(word)):
                guesses -= 1
                meant = [term for other in spellings(written) if (term := self._term(written, other)) is not None]
                if meant:
                    # The commonest one is the likeliest; of equals the first, so that it is always the same.
                    best = max(meant, key=lambda term: term.within)
                    yield msgspec.structs.replace(best, weight=_MISSPELLED * best.weight)

    def _term(self, written: str, word: str) -> _Term | None:
        """A word as it stands in entries and in facts, weighed by where it stands in more of them."""
        number, told = self._postings.number(word), self._told.number(word)
        if number is None and told is None:
            return None
        within = max(
            0 if number is None else self._postings.within(number), 0 if told is None else self._told.within(told)
        )
        return _Term(written, number, told, within, _rarity(within, len(self)))

    def _saturated(self, term: _Term, slots: Slots | slice, total: Weights) -> Weights:
        """What a term adds to slots that have it so often, in and around them."""
        width = self._nearby.relative_widths(len(self))[slots]
        return term.weight * (_SATURATION + 1) * total / (total + _SATURATION * (1 - _LENGTH + _LENGTH * width))

    def columns(self) -> tuple[Columns, list[str]]:
        """Return what a file holds of all entries, and their keys by the slots they have there, from 1.

        Each entry is in a group, and its key is that of its place, or none is.
        """
        slots = self._postings.living()
        slots = slots[np.argsort(self._ranks.now[slots], kind="stable")]
        columns = self._postings.columns("own", slots) | self._told.columns("told", slots)
        columns |= self._nearby.columns(slots)
        columns |= self._speakers.columns("speakers", slots) | self._days.columns("days", slots)
        columns["asks"] = np.concatenate(([0], self._asks.now[slots])).astype(np.uint8)
        return columns, [self._key(slot) for slot in slots.tolist()]

    def explain(self, query: str, key: str) -> tuple[Part, ...]:
        """Return what the score of an entry is made of; together the parts are the score."""
        slot = self._slot(key)
        return () if slot is None else tuple(self._counted(as_said(query), slot))

    def _counted(self, said: dict[str, str], slot: int) -> Iterator[Part]:
        parts = [part for part in self._parts(said, slot) if part.score > 0]
        yield from parts
        factor = float(self._factors()[slot])
        if parts and factor < 1:
            yield Part("?", "short question", (factor - 1) * sum(part.score for part in parts))

    def _parts(self, said: dict[str, str], slot: int) -> Iterator[Part]:
        for term in self._terms(said):
            every = np.zeros(len(self._postings))
            slots, total = self._totals(term)
            every[slots] = total
            if every[slot]:
                score = float(self._saturated(term, slice(slot, slot + 1), every[slot : slot + 1])[0])
                times = float(every[slot])
                own, told = self._postings.times(slot, term.number), self._told.times(slot, term.told)
                yield Part(term.said, "own words", score * own / times)
                yield Part(term.said, "nearby", score * (times - own - told) / times)
                yield Part(term.said, "facts", score * told / times)
        for tags, weight, where in ((self._speakers, _SPEAKER, "speaker"), (self._days, _DAY, "day")):
            for word in tags.words(slot):
                if word in said:
                    yield Part(said[word], where, weight * _rarity(tags.within(word), len(self)))


def _row(entry: Entry, rank: int) -> _Row:
    words = words_of(entry.text)
    asks = bool(entry.speaker) and len(words) < _SHORT and entry.text.rstrip().endswith(_QUESTION_MARKS)
    told = words_of("\n".join(entry.facts)) if entry.facts else []
    return _Row(entry.key, rank, words, told, asks, entry.speaker, entry.group, entry.order, entry.at[:10])


def _rarity(within: int, entries: int) -> float:
    """Weight of a word by how many of all entries have it (BM25's idf, never negative)."""
    return math.log1p((entries - within + 0.5) / (within + 0.5))
