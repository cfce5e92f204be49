"""Vectors of one scope: those of its facts and turns, in memory and in a file.

A vector is made once for each text and known by its digest. What another process has added or erased is seen with the
next question. No vector of an erased text outlives the erasure: `bring` notes the epoch before it asks for the first
passage, and what it has embedded is thrown away if that is over by then. So passages have to be read while they are
asked for, from what honours every erasure that the ledger states by then.

Where the folder is not there or cannot be written, vectors are kept in this process only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import ModelError, ModelUnavailableError, StoreError
from backstory.projections.derived_files import UnusableError
from backstory.projections.search.lexical.entry import Scored
from backstory.projections.search.vectors.embedder import Embedder, Floats, Passage, packed, passages_by, query_by
from backstory.projections.search.vectors.vector_file import KeptRows, Made, Stamp, VectorFile, VectorRow

if TYPE_CHECKING:
    from backstory.projections.search.vectors.vector_space import Ident, VectorSpace

_log = logging.getLogger(__name__)

VECTORS = "vectors.sqlite"
"""What the file is called, beside memory.json."""

_BATCH = 16
"""Texts embedded before `stop` is asked again: half a second for a local model."""

_FAR_BATCH = 64
_CLOSING_SECONDS = 1.0
"""How long closing waits for a write, which another process may hold up."""

_QUERIES = 64

Bringing = Callable[[int, int], None]
"""Called with how many passages are embedded, and their total."""


class _Moment(msgspec.Struct, frozen=True):
    """When passages were read: before an erasure or after it, here, in another process or on another machine."""

    epoch: str
    purged: int
    stored: int


class _Lack(msgspec.Struct, frozen=True):
    """A text that is not embedded, and what for."""

    text: str
    idents: list[Ident]


class Vectors:
    """The vectors of one scope, in named spaces; safe for threads and processes. A forked child makes others.

    `stored` returns what stands for the logs as they are stored: another number once something of them was erased.
    """

    def __init__(self, path: Path, embedder: Embedder, stored: Callable[[], int] = lambda: 0) -> None:
        self.embedder = embedder
        self._stored = stored
        self._file = VectorFile(path, embedder.name)
        self._mutex = threading.RLock()
        self._queries: Recent[str, Floats] = Recent(_QUERIES)
        self._purged = 0
        self._alone = False
        """Whether nothing can be written here."""
        self._unreadable = False
        self._epoch = ""
        self._drop()

    def _drop(self) -> None:
        """Let go of every vector."""
        self._queries.clear()
        self._spaces: dict[str, VectorSpace] = {}
        self._numbers: dict[str, dict[Ident, int]] = {}
        """The rows' numbers in the file."""
        self._dimensions = 0
        self._made: Made | None = None
        self._stamp: Stamp | None = None
        self._last = 0

    @property
    def are_there(self) -> bool:
        """Whether there are any vectors, here or in the file."""
        return bool(self._spaces) or self._file.path.exists()

    # Asking.

    def nearest(self, space: str, query: str, k: int, keep: Collection[str] | None = None) -> list[Scored]:
        """Return the keys nearest to a query, the best first, with the cosine; `keep` says which may be found at all.

        Of what is equally near the lesser key comes first. An empty query is near nothing.

        Raises:
            ModelUnavailableError, ModelRejectedError: The query cannot be embedded.
        """
        vector = self._query(query)
        if vector is None:
            return []
        try:
            self._check_size(len(vector), lambda: passages_by(self.embedder, [query]).shape[1])
        except ModelError:
            with self._mutex:
                self._queries.pop(query, None)
            raise
        with self._mutex:
            known = self._known(space, len(vector))
            return [] if known is None else [Scored(key, score) for key, score in known.nearest(vector, k, keep)]

    def embedded(self, space: str, passages: Iterable[Passage]) -> int:
        """Return how many of these passages are embedded as they are."""
        asked = [(passage.key, passage.digest) for passage in passages]
        with self._mutex:
            known = self._known(space)
            return 0 if known is None else sum(ident in known for ident in asked)

    def count(self, space: str) -> int:
        """Return of how many keys something is known."""
        with self._mutex:
            known = self._known(space)
            return 0 if known is None else known.count()

    def has(self, space: str, key: str) -> bool:
        """Whether something is known of a key; what other processes have done since the last question is not seen."""
        with self._mutex:
            known = self._spaces.get(space)
            return known is not None and known.knows(key)

    def ready(self, space: str) -> bool:
        """Whether a space is in memory, so that nothing has to be read to ask it."""
        return space in self._spaces

    def _query(self, text: str) -> Floats | None:
        """The vector of a query, mostly the same few again and again; None where it says nothing."""
        if not text.strip():
            return None
        with self._mutex:
            purged = self._purged
            vector = self._queries.use(text)
            if vector is not None:
                return vector
        vector = query_by(self.embedder, text)
        with self._mutex:
            if purged == self._purged:
                self._queries.put(text, vector)
        return vector if vector.any() else None

    def _check_size(self, size: int, other: Callable[[], int]) -> None:
        """Raise for a fault of the embedder, not for another model under its name, whose vectors all have another size.

        Args:
            size: of a vector that it made just now.
            other: makes a vector the other way, as a passage or as a query, and returns its size.

        Raises:
            ModelUnavailableError: It makes vectors of several sizes.
            ModelRejectedError: As the port.
        """
        with self._mutex:
            self._bring_up()
            before = self._dimensions
        if before not in (0, size) and other() != size:
            raise ModelUnavailableError(
                f"{self.embedder.name} answered with a vector of {size} numbers, and its others have {before}: check "
                "the embedder"
            )

    def _query_size(self, text: str) -> int:
        return len(query_by(self.embedder, text))

    def _known(self, space: str, dimensions: int | None = None) -> VectorSpace | None:
        self._bring_up()
        known = self._spaces.get(space)
        if known is not None and dimensions not in (None, self._dimensions):
            self._begin_anew(dimensions)
            return None
        return known

    # Following the file; the mutex is held.

    def _bring_up(self) -> None:
        """Take in what others have added, and let go of everything where others have erased."""
        epoch = self._file.epoch()
        if epoch != self._epoch:
            self._drop()
            self._epoch = epoch
        while not self._unreadable and self._file.stamp() != self._stamp and self._read_on():
            pass

    def _read_on(self) -> bool:
        """Take in the next rows of the file; False where it has none."""
        try:
            kept = self._file.read(self._last)
            if self._stamp is None or kept is None or not self._goes_on(kept):
                partial, homeless = self._last, self._homeless()
                self._drop()
                if kept is not None and partial:
                    kept = self._file.read()
                homeless = [row for row in homeless if kept is None or len(row.data) == 2 * kept.made.dimensions]
                self._put(homeless)
        except UnusableError as error:
            self._unreadable = True
            self._go_alone(str(error))
            return False
        if kept is None:
            return False
        self._take(kept)
        return True

    def _homeless(self) -> list[VectorRow]:
        """What could not be written; nothing of that was erased since."""
        return [
            VectorRow(name, *ident, space.data(ident))
            for name, space in self._spaces.items()
            for ident in space.idents() - self._numbers.get(name, {}).keys()
        ]

    def _goes_on(self, kept: KeptRows) -> bool:
        return kept.made == self._made and self._stamp is not None and kept.stamp[0] == self._stamp[0]

    def _take(self, kept: KeptRows) -> None:
        self._made, self._stamp = kept.made, kept.stamp
        for number, row in kept.rows.items():
            self._numbers.setdefault(row.space, {})[row.key, row.digest] = number
            self._last = max(self._last, number)
        self._put(kept.rows.values())

    def _put(self, rows: Iterable[VectorRow]) -> None:
        by_space: dict[str, list[tuple[Ident, bytes]]] = {}
        for row in rows:
            by_space.setdefault(row.space, []).append(((row.key, row.digest), row.data))
        for name, fresh in by_space.items():
            if name not in self._spaces:
                # Loaded late, for it loads numpy and FAISS.
                from backstory.projections.search.vectors.vector_space import VectorSpace

                self._dimensions = len(fresh[0][1]) // 2
                self._spaces[name] = VectorSpace(self._dimensions)
            self._spaces[name].put(fresh)

    def _go_alone(self, reason: str) -> None:
        if not self._alone:
            _log.warning("%s cannot be used (%s): vectors are kept in this process only", self._file.path, reason)
        self._alone = True

    # Embedding.

    def bring(
        self,
        space: str,
        passages: Iterable[Passage],
        *,
        stop: Callable[[], bool] = lambda: False,
        left: Callable[[], float | None] = lambda: None,
        progress: Bringing | None = None,
    ) -> int:
        """Embed the passages that are not, and let go of what is none of them any more; return how many were embedded.

        `stop` is asked before each batch, and `left` how many seconds a model may take for it; a batch that is not done
        by then is left for another time. A thread or process that brings the same space meanwhile does its share.

        Raises:
            ModelUnavailableError, ModelRejectedError: Something cannot be embedded; what was is kept, unless the model
                makes vectors of another size by now: then everything is begun anew.
            LockTimeoutError: Another process keeps the file. What the passages raise.
        """
        begun, known = self._begin_bringing(space)
        wanted: set[Ident] = set()
        lacking: dict[bytes, _Lack] = {}
        for passage in passages:
            ident = (passage.key, passage.digest)
            if ident not in wanted and ident not in known:
                lacking.setdefault(passage.digest, _Lack(passage.text, [])).idents.append(ident)
            wanted.add(ident)
        self._settle(begun, space, known, wanted, lacking)
        lacks = list(lacking.values())
        with self._file.alone() as first:
            # Two who embed the same scope meet in the middle.
            order = lacks if first else lacks[::-1]
            return self._embed(begun, space, order, stop=stop, left=left, progress=progress, total=len(wanted))

    def _begin_bringing(self, space: str) -> tuple[_Moment, set[Ident]]:
        stored = self._stored()
        with self._mutex:
            if not self._alone and self._file.path.parent.is_dir() and not self._file.open_to_erasures():
                self._go_alone("its folder cannot be written")
            self._bring_up()
            known = self._spaces.get(space)
            return _Moment(self._epoch, self._purged, stored), set() if known is None else set(known.idents())

    def _settle(
        self, begun: _Moment, space: str, known: set[Ident], wanted: set[Ident], lacking: dict[bytes, _Lack]
    ) -> None:
        """Do what needs no model: let go of what is gone, and use a vector again whose text has another key now."""
        with self._mutex:
            here = self._spaces.get(space)
            if here is None:
                return
            numbers = self._numbers.get(space, {})
            unkept = known & wanted & here.idents() - numbers.keys() if self._keeps_a_file() else ()
            rows = [VectorRow(space, *ident, here.data(ident)) for ident in unkept]
            holders = {ident[1]: ident for ident in known if ident[1] in lacking and ident in here}
            for digest, holder in holders.items():
                rows += [VectorRow(space, *ident, here.data(holder)) for ident in lacking[digest].idents]
            gone = known - wanted
            if (rows or gone) and self._keep(begun, space, rows, gone):
                for digest in holders:
                    del lacking[digest]

    def _embed(
        self,
        begun: _Moment,
        space: str,
        lacks: list[_Lack],
        *,
        stop: Callable[[], bool],
        left: Callable[[], float | None],
        progress: Bringing | None,
        total: int,
    ) -> int:
        done, lacking = 0, _size(lacks)
        batch_size = _BATCH if self.embedder.local else _FAR_BATCH
        for start in range(0, len(lacks), batch_size):
            if progress is not None:
                progress(total - lacking, total)
            if stop():
                return done
            batch = lacks[start : start + batch_size]
            lacking -= _size(batch)
            if batch := self._still_lacking(space, batch):
                vectors = self._read([lack.text for lack in batch], left(), stop)
                if vectors is None:
                    return done
                self._check_size(vectors.shape[1], partial(self._query_size, batch[0].text))
                made = zip(batch, packed(vectors), strict=True)
                rows = [VectorRow(space, *ident, data) for lack, data in made for ident in lack.idents]
                if not self._keep(begun, space, rows, ()):
                    return done
                done += len(rows)
        if progress is not None:
            progress(total - lacking, total)
        return done

    def _read(self, texts: list[str], left: float | None, stop: Callable[[], bool]) -> Floats | None:
        """Have the model read a batch; None where it was not done in the time that was left."""
        try:
            return passages_by(self.embedder, texts, left)
        except ModelUnavailableError as error:
            if left is None or not stop():
                raise
            _log.warning("the time was up before a batch was read: %s", error)
            return None

    def _still_lacking(self, space: str, lacks: list[_Lack]) -> list[_Lack]:
        with self._mutex:
            known = self._known(space)
            return lacks if known is None else [lack for lack in lacks if not all(one in known for one in lack.idents)]

    def _keeps_a_file(self) -> bool:
        return not self._alone and self._file.path.parent.is_dir()

    def _keep(self, begun: _Moment, space: str, rows: list[VectorRow], gone: Collection[Ident]) -> bool:
        """Keep rows and let go of others; False where something was erased since the moment their texts were read."""
        with self._mutex:
            if begun.purged != self._purged or self._file.is_closed():
                return False
            self._must_agree(rows)
            if self._keeps_a_file():
                try:
                    with self._file.locked():
                        return self._keep_in_file(begun, space, rows, gone)
                except (UnusableError, StoreError) as error:
                    if self._file.is_closed():
                        return False
                    self._go_alone(str(error))
            if self._file.epoch() != begun.epoch:
                return False
            self._keep_here(space, rows, gone)
            return True

    def _keep_in_file(self, begun: _Moment, space: str, rows: list[VectorRow], gone: Collection[Ident]) -> bool:
        self._bring_up()
        if self._unreadable:
            raise UnusableError("what is in it cannot be read")
        if self._epoch != begun.epoch:
            return False
        dimensions = len(rows[0].data) // 2 if rows else self._dimensions
        known, numbers = self._spaces.get(space), self._numbers.setdefault(space, {})
        fresh = [row for row in rows if (row.key, row.digest) not in numbers]
        dropped = [numbers[ident] for ident in gone if ident in numbers]
        made = self._made or Made(self.embedder.name, dimensions, self._epoch, stored=begun.stored)
        if made.stored != begun.stored:
            made = msgspec.structs.replace(made, stored=0)
        if fresh or dropped:
            added = self._file.write(made, fresh, dropped)
            self._made = msgspec.structs.replace(made, dropped=made.dropped + bool(dropped))
            for number, row in added.items():
                numbers[row.key, row.digest] = number
                self._last = max(self._last, number)
            self._stamp = self._file.stamp()
        if known is not None or rows:
            self._keep_here(space, rows, gone)
        return True

    def _must_agree(self, rows: list[VectorRow]) -> None:
        self._bring_up()
        before, now = self._dimensions, len(rows[0].data) // 2 if rows else self._dimensions
        if before not in (0, now):
            self._begin_anew(now)
            raise ModelUnavailableError(
                f"{self.embedder.name} makes vectors of {now} numbers, and made some of {before}: try again"
            )

    def _begin_anew(self, dimensions: int | None) -> None:
        """Let go of vectors that are not the model's own: its server has another one under the same name since."""
        message = "%s is begun anew: %s makes vectors of %s numbers, and made some of %d"
        if self._file.is_closed():
            return
        _log.warning(message, self._file.path, self.embedder.name, dimensions, self._dimensions)
        self._file.erase()
        self._drop()

    def _keep_here(self, space: str, rows: list[VectorRow], gone: Collection[Ident]) -> None:
        self._put(rows)
        known, numbers = self._spaces.get(space), self._numbers.get(space, {})
        if known is not None:
            known.drop(gone)
        for ident in gone:
            numbers.pop(ident, None)

    # Erasing.

    def purge(self, standing: Mapping[str, Iterable[Passage]] | None) -> None:
        """Let go of everything but the vectors of texts that stand, by space; None: of everything.

        What is being embedded meanwhile is not kept, in any process. The caller holds the ledger's lock.

        Raises:
            StoreError, LockTimeoutError: The file cannot be taken away, or another process keeps it.
        """
        stand = {
            (space, passage.key, passage.digest) for space, passages in (standing or {}).items() for passage in passages
        }
        with self._mutex:
            self._purged += 1
            if not self._file.path.parent.is_dir():
                self._replace(self._rows_of(stand), "")
                return
            if stand:
                self._bring_up()
            rows = self._rows_of(stand)
            epoch = self._file.erase(self._dimensions, () if self._alone else rows, self._stored())
            self._replace(rows, epoch)

    def _rows_of(self, stand: set[tuple[str, str, bytes]]) -> list[VectorRow]:
        return [
            VectorRow(space, key, digest, self._spaces[space].data((key, digest)))
            for space, key, digest in sorted(stand)
            if space in self._spaces and (key, digest) in self._spaces[space]
        ]

    def _replace(self, rows: list[VectorRow], epoch: str) -> None:
        self._drop()
        self._epoch = epoch
        if not self._keeps_a_file():
            self._put(rows)

    def close(self) -> None:
        """Let go of what is in memory and of the lock files; nothing is written any more.

        A model that is embedding is not waited for: its vectors are not kept.
        """
        self._file.close()
        if self._mutex.acquire(timeout=_CLOSING_SECONDS):
            try:
                self._drop()
            finally:
                self._mutex.release()


def _size(lacks: Iterable[_Lack]) -> int:
    return sum(len(lack.idents) for lack in lacks)
