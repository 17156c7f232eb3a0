"""One revision of a corpus, read in as many transactions as it takes: a revision does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.domain.ids import Revision
from drillcore_server.store import versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.versioned import Entry

T = TypeVar("T")
Id = TypeVar("Id")
_RECORDS_MAX: Final = 500
"""Read one by one in a transaction: well within five seconds."""
_KEYS_MAX: Final = 2_000
"""Read by a scan in a transaction, whether this revision sees what is there or not."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    engine: Engine
    keys: CorpusKeys
    sealed: SealedRecords
    revision: Revision

    def at(self, revision: Revision) -> Snapshot:
        return replace(self, revision=revision)

    def read(self, work: Callable[[CorpusView], T]) -> T:
        """What `work` finds, in one transaction."""

        def read(tr: Transaction) -> T:
            self.sealed.follow_erasures(tr.snapshot, self.keys)
            return work(CorpusView(tr.snapshot, self.keys, self.sealed, self.revision))

        return self.engine.run(read)

    def find(self, ids: Sequence[Id], get: Callable[[CorpusView, Id], T]) -> Iterator[T]:
        """What `get` finds for each id."""
        for start in range(0, len(ids), _RECORDS_MAX):
            batch = ids[start : start + _RECORDS_MAX]
            yield from self.read(lambda view, b=batch: [get(view, one) for one in b])  # type: ignore[misc]

    def each(self, ids: Sequence[Id], get: Callable[[CorpusView, Id], T | None]) -> Iterator[T]:
        """The same for records that must be there."""
        for one, record in zip(ids, self.find(ids, get), strict=True):
            if record is None:
                raise StoreCorruptError(f"{one} is named at revision {self.revision} but is not there")
            yield record

    def each_left(self, ids: Sequence[Id], get: Callable[[CorpusView, Id], T | None]) -> Iterator[T]:
        """Likewise, but what was erased since is left out."""

        def unless_erased(view: CorpusView, one: Id) -> tuple[T] | tuple[()] | None:
            try:
                found = get(view, one)
            except KeyErased:
                return ()
            return None if found is None else (found,)

        for found in self.each(ids, unless_erased):
            yield from found

    def entries(self, keys: KeyRange, keys_max: int = _KEYS_MAX) -> Iterator[Entry]:
        """What the revision has of a range, in order, as it is stored. So many stored keys are held at once."""
        begin: bytes | None = keys.begin
        while begin is not None:
            page, begin = self.read(
                lambda view, b=begin: versioned.page(view.tr, b, keys.end, self.revision, keys_max)  # type: ignore[misc]
            )
            yield from page
