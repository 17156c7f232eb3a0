"""A corpus at one revision: every read of a corpus goes through this, in one transaction or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Final, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Engine, RangeRead, Reader, Reads, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.pages import LISTED_BYTES_MAX, LISTED_KEYS_MAX
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Unit
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, CorpusNumber, Revision, TenantId
from drillcore_server.storage.keyring import KeyErased, KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords, keys_of
from drillcore_server.storage.versioned import Entry

T = TypeVar("T")
Id = TypeVar("Id")
Owner = TypeVar("Owner")
KeyOf = Callable[[CorpusKeys, Id], bytes]
"""The key that a record with an id has in a corpus."""
_RECORDS_MAX: Final = 500
"""How many records one transaction reads one by one: well within five seconds."""
_KEYS_MAX: Final = 2_000
"""How many keys one transaction scans, whether the revision sees them or not."""
_IN_CALLERS_MAX: Final = 8
"""How many reads `BatchedReads.following` makes in its caller's transaction. Each takes a part of its five seconds."""


def unless_erased(get: Callable[[Id], T | None], id_: Id) -> T | None:
    """What `get` returns for the id, or None if that was erased."""
    try:
        return get(id_)
    except KeyErased:
        return None


@dataclass(frozen=True, slots=True)
class AsOf:
    """The moment to read a corpus at: a revision or a time. Without either, now."""

    revision: Revision | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class CorpusAtRevision:
    """One corpus as it is at one revision, read in one transaction.

    Each capability reads its own records through it: `HierarchyReader(view)`, `FactReader(view)` and so on.
    """

    tr: Reader
    corpus: Corpus
    keys: CorpusKeys
    sealed: SealedRecords
    revision: Revision

    def at(self, revision: Revision) -> CorpusAtRevision:
        """The same corpus at another revision."""
        return replace(self, revision=revision)

    def read_ahead(
        self, records: Sequence[bytes], ranges: Sequence[RangeRead] = (), keys: Sequence[bytes] = ()
    ) -> None:
        """Reads records of several kinds, ranges and plain keys in one round trip.

        Whoever reads one of them later finds it here.
        """
        versioned.read_ahead(self.tr, [(key, self.revision) for key in records], ranges, keys)

    def opened(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Records that must be there, opened, read together. None for those that were erased.

        Raises `StoreCorruptError` if one is missing: the store is damaged, or the revision was trimmed.
        """
        found = versioned.get_many(self.tr, keys, self.revision)
        for key, entry in zip(keys, found, strict=True):
            if entry is None:
                message = f"revision {self.revision} of the corpus must have a record with the key {key.hex()}"
                raise StoreCorruptError(f"{message}, but the store has none; run `drillcore fsck`")
        return [None if entry is None else unless_erased(self.sealed.opened, entry) for entry in found]

    def record(self, kind: RecordKind[T], key: bytes) -> T | None:
        """The record of a key. Raises `KeyErased` if it was erased."""
        entry = self.sealed.get(self.tr, key, self.revision)
        return None if entry is None else kind.decode(entry.value)

    def sealed_by(self, key: bytes) -> tuple[KeyNumber, ...]:
        """The encryption keys of a record, which must be there."""
        entry = versioned.get(self.tr, key, self.revision)
        assert entry is not None
        return keys_of(entry.value)

    def was_erased(self, key: bytes) -> bool:
        """Whether the last record of a key up to this revision was erased. A later revision may have removed it."""
        there = versioned.last_there(self.tr, key, self.revision)
        try:
            return there is not None and self.sealed.get(self.tr, key, there) is None
        except KeyErased:
            return True


@dataclass(slots=True)
class BoundedScan:
    """What a revision has in a range, for a page of a listing: in order, opened, and without erased records.

    It stops after as many stored keys as one transaction reads in time, whether the revision sees them or not.
    """

    view: CorpusAtRevision
    keys: KeyRange
    cut_at: bytes | None = None
    """The logical key behind which to go on, if it stopped early. Read it once the entries are consumed."""

    def entries(self) -> Iterator[Entry]:
        scan = versioned.ScanOfPart(self.view.tr, *self.keys, self.view.revision, LISTED_KEYS_MAX, LISTED_BYTES_MAX)
        yield from self.view.sealed.opened_all(scan.entries())
        self.cut_at = scan.cut_at


@dataclass(slots=True)
class _CallersTransaction:
    """A transaction of the caller, in which only a few reads are made: it must not grow too old."""

    tr: Reader
    reads_left: int = _IN_CALLERS_MAX
    was_left: bool = False
    """Whether more reads were needed, in transactions of their own."""

    def takes_another(self) -> bool:
        self.was_left = self.was_left or not self.reads_left
        self.reads_left -= not self.was_left
        return not self.was_left


@dataclass(frozen=True, slots=True)
class BatchedReads:
    """Reads one revision in as many transactions as it takes: a revision does not change."""

    engine: Engine
    corpus: Corpus
    keys: CorpusKeys
    sealed: SealedRecords
    revision: Revision
    callers: _CallersTransaction | None = None
    """Where the first reads are made, if the reads follow a caller."""
    shared: Reads | None = None
    """Where all reads are made, if those of a plan share transactions."""

    @classmethod
    def of(cls, engine: Engine, view: CorpusAtRevision, shared: Reads | None = None) -> BatchedReads:
        return cls(engine, view.corpus, view.keys, view.sealed, view.revision, shared=shared)

    @classmethod
    def following(cls, engine: Engine, view: CorpusAtRevision) -> BatchedReads:
        """Same as `of`, for data in memory that is brought up to a view.

        The first reads are made in the view's own transaction, without conflicts: they are enough for a small change,
        which then costs no further transaction. Call `check_kept` at the end.
        """
        tr = view.tr.snapshot if isinstance(view.tr, Transaction) else view.tr
        return replace(cls.of(engine, view), callers=_CallersTransaction(tr))

    def at(self, revision: Revision) -> BatchedReads:
        """The same corpus at another revision."""
        return replace(self, revision=revision)

    def each_anew(self) -> BatchedReads:
        """The same, but each read has a new transaction: it sees what was staged just before it."""
        return replace(self, callers=None, shared=None)

    def read(self, work: Callable[[CorpusAtRevision], T]) -> T:
        """Runs `work` in one transaction."""

        def read(tr: Reader) -> T:
            self.sealed.follow_erasures(tr, self.keys)
            return work(CorpusAtRevision(tr, self.corpus, self.keys, self.sealed, self.revision))

        if self.callers is not None and self.callers.takes_another():
            return read(self.callers.tr)
        if self.shared is not None:
            return self.shared.run(read)
        return self.engine.run(lambda tr: read(tr.snapshot))

    def check_kept(self) -> None:
        """Raises `Missing` if a trim may have removed records of the revision before they were read."""
        if self.callers is not None and not self.callers.was_left:
            retention.check_kept(self.callers.tr, self.keys, self.revision)
        else:
            self.engine.run(lambda tr: retention.check_kept(tr, self.keys, self.revision))

    def together(
        self, ids: Sequence[Id], get_many: Callable[[CorpusAtRevision, Sequence[Id]], Sequence[T]]
    ) -> Iterator[T]:
        """What `get_many` returns for the ids, in order. Gives it as many of them at once as one transaction reads."""
        for start in range(0, len(ids), _RECORDS_MAX):
            batch = ids[start : start + _RECORDS_MAX]
            yield from self.read(lambda view, b=batch: get_many(view, b))  # type: ignore[misc]

    def find(
        self, ids: Sequence[Id], get: Callable[[CorpusAtRevision, Id], T], key: KeyOf[Id] | None = None
    ) -> Iterator[T]:
        """What `get` returns for each id, in order. `key` tells what it reads, which is then read together."""

        def read(view: CorpusAtRevision, batch: Sequence[Id]) -> list[T]:
            if key is not None:
                view.read_ahead([key(view.keys, id_) for id_ in batch])
            return [get(view, id_) for id_ in batch]

        return self.together(ids, read)

    def each(
        self, ids: Sequence[Id], get: Callable[[CorpusAtRevision, Id], T | None], key: KeyOf[Id] | None = None
    ) -> Iterator[T]:
        """Same as `find`, for records that must be there."""
        for id_, record in zip(ids, self.find(ids, get, key), strict=True):
            if record is None:
                raise StoreCorruptError(f"{id_} is named at revision {self.revision} but is not there")
            yield record

    def each_unless_erased(
        self, ids: Sequence[Id], get: Callable[[CorpusAtRevision, Id], T | None], key: KeyOf[Id] | None = None
    ) -> Iterator[T]:
        """Same as `each`, without records that were erased."""

        def get_or_skip(view: CorpusAtRevision, id_: Id) -> tuple[T] | tuple[()] | None:
            try:
                found = get(view, id_)
            except KeyErased:
                return ()
            return None if found is None else (found,)

        for found in self.each(ids, get_or_skip, key):
            yield from found

    def first_pages_ahead(self, ranges: Iterable[KeyRange]) -> None:
        """Reads the first page of each range in one round trip. `entries` then finds them here."""
        pages = [RangeRead(*keys, limit=_KEYS_MAX) for keys in ranges]
        self.read(lambda view: view.read_ahead([], pages))

    def of_each(
        self,
        owners: Iterable[Owner],
        ids_of: Callable[[Owner], Sequence[Id]],
        get_many: Callable[[CorpusAtRevision, Sequence[Id]], Sequence[T]],
        at_once: int,
    ) -> Iterator[tuple[Owner, Iterable[T]]]:
        """Each owner with what `get_many` returns for its ids. Those of several small owners are read together."""

        def read(ids: Sequence[Id]) -> Sequence[T]:
            return self.read(lambda view: get_many(view, ids)) if ids else ()

        for group in _groups(owners, lambda owner: len(ids_of(owner)), at_once):
            ids = [id_ for owner in group for id_ in ids_of(owner)]
            if len(ids) > at_once:
                starts = range(0, len(ids), at_once)
                yield group[0], chain.from_iterable(read(ids[start : start + at_once]) for start in starts)
            else:
                found = iter(read(ids))
                yield from [(owner, list(islice(found, len(ids_of(owner))))) for owner in group]

    def entries_of_each(self, ranges: Sequence[KeyRange], keys_max: int) -> Iterator[Iterator[Entry]]:
        """What `entries` gives for each of several ranges. The first `keys_max` stored keys of each are read together.

        Consume the entries of a range before you go on to the next.
        """
        pages = self.read(lambda view: versioned.pages(view.tr, ranges, view.revision, keys_max))
        for keys, (found, following) in zip(ranges, pages, strict=True):
            rest = iter(()) if following is None else self.entries(KeyRange(following, keys.end))
            yield chain(found, rest)

    def entries(self, keys: KeyRange, keys_max: int = _KEYS_MAX) -> Iterator[Entry]:
        """What the revision has in a range, in order, as it is stored. Holds at most `keys_max` stored keys at once."""
        begin: bytes | None = keys.begin
        while begin is not None:
            page, begin = self.read(
                lambda view, b=begin: versioned.page(view.tr, b, keys.end, self.revision, keys_max)  # type: ignore[misc]
            )
            yield from page


def _groups(items: Iterable[Owner], weight: Callable[[Owner], int], weight_max: int) -> Iterator[list[Owner]]:
    """Cuts items into lists that weigh no more than this together. An item that is heavier is alone in its list."""
    group: list[Owner] = []
    total = 0
    for item in items:
        if group and total + weight(item) > weight_max:
            yield group
            group, total = [], 0
        group.append(item)
        total += weight(item)
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class CorpusReads:
    """What calls that read a corpus use: the unit of work, and the records that the keyring opens."""

    unit: Unit
    sealed: SealedRecords
    keyring: Keyring

    def at(self, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId, as_of: AsOf) -> CorpusAtRevision:
        """The corpus at a moment. Raises `Missing` if the corpus or the revision is not there, or no longer."""
        trail.touch_corpus(corpus)
        return self.opened(tr, trail, granted.corpus(tr, self.unit.keys, corpus), as_of)

    def opened(self, tr: Reader, trail: Trail, corpus: Corpus, as_of: AsOf) -> CorpusAtRevision:
        """Same as `at`, for a corpus that the caller was already admitted to."""
        self.unit.read_ahead.remember(corpus)
        keys = self.unit.keys.of_corpus(corpus.number)
        head = revision = revisions.head(tr, keys)
        if as_of.revision is not None:
            revision = as_of.revision
        elif as_of.time is not None:
            revision = revisions.at_time(tr, keys, as_of.time)
        if revision > head:
            raise Missing(Reason.REVISION_NOT_FOUND, f"the corpus is at revision {head}, there is no {revision} yet")
        if revision != head:
            retention.check_kept(tr, keys, revision)
        trail.touch_corpus(corpus.id, revision)
        return CorpusAtRevision(tr, corpus, keys, self.sealed, revision)

    def numbered(
        self,
        tr: Reader,
        granted: InTenant,
        owner: TenantId,
        number: CorpusNumber,
        ranges: Sequence[RangeRead] = (),
    ) -> Corpus | None:
        """A tenant's corpus by its number; None if the caller does not have that corpus under its id.

        `ranges` will be read next, whatever the revision: they are read ahead.
        """
        self.unit.read_ahead.read_numbered(tr, number, ranges)
        stored = tr.get(self.unit.keys.corpus_number(number))
        corpus = None if stored is None else granted.find(tr, self.unit.keys, CorpusId(UUID(bytes=stored)))
        return corpus if corpus is not None and corpus.tenant_id == owner else None
