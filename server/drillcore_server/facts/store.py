"""Facts in the store: reads at one revision, the feed of their changes, and accesses.

Accesses (how often and when a fact was read) are not part of a revision: reading a fact does not change it. The store
adds them up itself, so readers never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Atomic, Reader, Streaming, Transaction
from drillcore_server.facts.blocks import FactBlock, block_of, decode_block, decode_vectors
from drillcore_server.facts.model import Fact, FactChange, FactStatus
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.unit import Notes
from drillcore_server.kernel.writes import FACT_MARK, LOCATOR_BYTES, is_ingested_chunk
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    BlockId,
    CorpusNumber,
    FactId,
    NodeId,
    Revision,
    SourceId,
    TenantId,
    from_microseconds,
    to_microseconds,
)
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import Embeddings

T = TypeVar("T")
FACT = RecordKind(Fact)
"""A fact alone, as knowledge cores have it."""
_BLOCKS_AT_ONCE: Final = 250
"""Blocks that are read together."""


@dataclass(frozen=True, slots=True)
class FactReader:
    """Reads of the facts of one corpus at one revision."""

    view: CorpusAtRevision

    def embeddings(self) -> Embeddings | None:
        """The embedding models of the corpus. None before it has vectors."""
        return embeddings_of(self.view)

    def fact(self, fact: FactId) -> Fact | None:
        """The fact, or None if it does not exist. Raises `KeyErased` if it was erased."""
        (found,) = self.facts_by_id([fact])
        return found

    def facts_by_id(self, facts: Sequence[FactId]) -> list[Fact | None]:
        """Each of the facts, read together. Raises `KeyErased` if one of them was erased."""
        return self._facts(facts, self.blocks)

    def fact_unless_erased(self, fact: FactId) -> Fact | None:
        """The fact, or None if it does not exist or was erased."""
        (found,) = self.facts_unless_erased([fact])
        return found

    def facts_unless_erased(self, facts: Sequence[FactId]) -> list[Fact | None]:
        """Each of the facts, or None if it does not exist or was erased. Reads all of them together."""
        return self._facts(facts, self.blocks_unless_erased)

    def facts(self, after: FactId | None = None) -> Iterator[Fact]:
        """All facts behind `after`, in the order of ids."""
        first = None if after is None else block_of(after)
        keys = self.view.keys.fact_blocks(first)
        for entry in self.view.sealed.scan(self.view.tr, *keys, self.view.revision, Streaming.WANT_ALL):
            yield from (fact for fact in block_in(entry).facts if after is None or fact.id > after)

    def blocks(self, blocks: Sequence[BlockId]) -> list[FactBlock | None]:
        """Each of the blocks, or None if it does not exist. Raises `KeyErased` if one was erased."""
        found = self.view.sealed.get_many(self.view.tr, self._keys(blocks), self.view.revision)
        return [None if entry is None else block_in(entry) for entry in found]

    def blocks_unless_erased(self, blocks: Sequence[BlockId]) -> list[FactBlock | None]:
        found = self.view.sealed.get_many_unless_erased(self.view.tr, self._keys(blocks), self.view.revision)
        return [None if entry is None else block_in(entry) for entry in found]

    def vectors_unless_erased(self, model: int, facts: Sequence[FactId]) -> list[bytes | None]:
        """The vectors that the model of this number made, or None. Reads all of them together."""

        def read(blocks: Sequence[BlockId]) -> list[Mapping[FactId, bytes] | None]:
            return self.vectors_of_blocks(model, blocks)

        return _in_their_blocks(facts, read, lambda vectors, fact: vectors.get(fact))

    def facts_with_vectors(self, model: int, facts: Sequence[FactId]) -> list[tuple[Fact, bytes | None] | None]:
        """Each of the facts with its vector of a model, read together. None if it does not exist or was erased."""

        def read(blocks: Sequence[BlockId]) -> list[tuple[FactBlock, Mapping[FactId, bytes]] | None]:
            keys = [*self._keys(blocks), *(self.view.keys.block_vectors(model, block) for block in blocks)]
            found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
            pairs = zip(found[: len(blocks)], found[len(blocks) :], strict=True)
            return [
                None if block is None else (block_in(block), {} if vectors is None else vectors_in(vectors))
                for block, vectors in pairs
            ]

        def find(there: tuple[FactBlock, Mapping[FactId, bytes]], id_: FactId) -> tuple[Fact, bytes | None] | None:
            block, vectors = there
            fact = block.fact(id_)
            return None if fact is None else (fact, vectors.get(id_))

        return _in_their_blocks(facts, read, find)

    def vectors_of_blocks(self, model: int, blocks: Sequence[BlockId]) -> list[Mapping[FactId, bytes] | None]:
        """The vectors of the facts of each block; None if it has none of this model, or was erased."""
        keys = [self.view.keys.block_vectors(model, block) for block in blocks]
        found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
        return [None if entry is None else vectors_in(entry) for entry in found]

    def vector(self, model: int, fact: FactId) -> bytes | None:
        (found,) = self.vectors_unless_erased(model, [fact])
        return found

    def stored(self, fact: FactId) -> tuple[Entry, Fact] | None:
        """The fact and the record of its block, as it is stored. None if there is no such fact.

        Raises `KeyErased` if it was erased.
        """
        for entry in self._homes(fact):
            found = block_in(self.view.sealed.opened(entry)).fact(fact)
            if found is not None:
                return entry, found
        return None

    def was_erased(self, fact: FactId) -> bool:
        """Whether a fact of this id may have been erased. A later revision may have removed it."""
        return any(self.view.was_erased(key) for key in self._keys(_homes(fact)))

    def of_chunks(self, chunks: Sequence[NodeId]) -> list[Fact]:
        """The facts that were drawn from these chunks or put into them, by id, unless they were erased."""
        wanted, found = frozenset(chunks), self._facts_in([*map(BlockId, chunks), *self.blocks_of_chunks(chunks)])
        return [fact for fact in found if fact.chunk in wanted]

    def blocks_of_chunks(self, chunks: Sequence[NodeId]) -> list[BlockId]:
        """The blocks, other than the chunks' own, that have facts of these chunks."""
        indexed = versioned.scan_many(self.view.tr, list(map(self.view.keys.chunk_blocks, chunks)), self.view.revision)
        return [block_id(entry.key) for entries in indexed for entry in entries]

    def of_sources(self, sources: Sequence[SourceId]) -> list[Fact]:
        """The facts of these sources, in the order of ids, unless they were erased."""
        ranges = [self.view.keys.source_blocks(self.view.sealed.hashed(source)) for source in sources]
        indexed = versioned.scan_many(self.view.tr, ranges, self.view.revision)
        return list(self._facts_in([block_id(entry.key) for entries in indexed for entry in entries]))

    def _facts_in(self, blocks: Iterable[BlockId]) -> Iterator[Fact]:
        ordered = sorted(set(blocks))
        for start in range(0, len(ordered), _BLOCKS_AT_ONCE):
            found = self.blocks_unless_erased(ordered[start : start + _BLOCKS_AT_ONCE])
            yield from (fact for block in found if block is not None for fact in block.facts)

    def _facts(
        self, facts: Sequence[FactId], read: Callable[[Sequence[BlockId]], Sequence[FactBlock | None]]
    ) -> list[Fact | None]:
        return _in_their_blocks(facts, read, lambda block, fact: block.fact(fact))

    def keys_of(self, facts: Iterable[FactId]) -> list[bytes]:
        """The keys that facts are read from, to be read ahead."""
        return self._keys(dict.fromkeys(map(block_of, facts)))

    def vector_keys_of(self, model: int, facts: Iterable[FactId]) -> list[bytes]:
        """The keys that vectors of facts are read from, to be read ahead."""
        return [self.view.keys.block_vectors(model, block) for block in dict.fromkeys(map(block_of, facts))]

    def _homes(self, fact: FactId) -> list[Entry]:
        found = versioned.get_many(self.view.tr, self._keys(_homes(fact)), self.view.revision)
        return [entry for entry in found if entry is not None]

    def _keys(self, blocks: Iterable[BlockId]) -> list[bytes]:
        return [self.view.keys.fact_block(block) for block in blocks]


def _homes(fact: FactId) -> list[BlockId]:
    """The blocks that a fact may be in. A caller may choose an id that looks as if it was made from a block's."""
    return list(dict.fromkeys((block_of(fact), BlockId(fact))))


B = TypeVar("B")


def _in_their_blocks(
    facts: Sequence[FactId],
    read: Callable[[Sequence[BlockId]], Sequence[B | None]],
    find: Callable[[B, FactId], T | None],
) -> list[T | None]:
    """What `find` finds for each fact in its block. Reads again only for ids that only look made from a block's."""

    def found_in(home: Mapping[FactId, BlockId]) -> dict[FactId, T | None]:
        wanted = list(dict.fromkeys(home.values()))
        blocks = dict(zip(wanted, read(wanted), strict=True)) if wanted else {}
        return {fact: None if (there := blocks[block]) is None else find(there, fact) for fact, block in home.items()}

    found = found_in({fact: block_of(fact) for fact in facts})
    alone = {fact: BlockId(fact) for fact, there in found.items() if there is None and block_of(fact) != fact}
    found |= found_in(alone)
    return [found[fact] for fact in facts]


def block_id(key: bytes) -> BlockId:
    """The id of a block that a key ends with."""
    return BlockId(UUID(bytes=key[-16:]))


def block_in(entry: Entry) -> FactBlock:
    """The block in an opened record."""
    return decode_block(block_id(entry.key), entry.value)


def vectors_in(entry: Entry) -> dict[FactId, bytes]:
    """The vectors in an opened record."""
    return decode_vectors(block_id(entry.key), entry.value)


def stored_facts(snapshot: BatchedReads) -> Iterator[Fact]:
    """All facts of a revision that were not erased, in the order of their ids, in as many transactions as it takes."""
    return chain.from_iterable(block.facts for block in stored_blocks(snapshot))


def stored_blocks(snapshot: BatchedReads) -> Iterator[FactBlock]:
    entries = snapshot.entries(snapshot.keys.fact_blocks(), _BLOCKS_AT_ONCE)
    return map(block_in, snapshot.sealed.opened_all(entries))


def stored_vectors(snapshot: BatchedReads, model: int) -> Iterator[tuple[FactId, bytes]]:
    """The vectors that the model of this number made, of facts that were not erased, in the order of their ids."""
    entries = snapshot.entries(snapshot.keys.fact_vectors(model), _BLOCKS_AT_ONCE)
    for entry in snapshot.sealed.opened_all(entries):
        yield from vectors_in(entry).items()


def stored_facts_with_vectors(snapshot: BatchedReads, model: int) -> Iterator[tuple[Fact, bytes | None]]:
    """Same as `stored_facts`, each with its vector; None if it has none of this model."""
    vectors = stored_vectors(snapshot, model)
    vector = next(vectors, None)
    for fact in stored_facts(snapshot):
        while vector is not None and vector[0] < fact.id:
            vector = next(vectors, None)
        yield fact, vector[1] if vector is not None and vector[0] == fact.id else None


def blocks_of_source(snapshot: BatchedReads, source: SourceId) -> Iterator[FactBlock]:
    """The blocks of a source, in the order of ids, in as many transactions as it takes. Raises `KeyErased`."""
    keys = snapshot.keys.source_blocks(snapshot.sealed.hashed(source))
    ids = [block_id(entry.key) for entry in snapshot.entries(keys)]
    for start in range(0, len(ids), _BLOCKS_AT_ONCE):
        some = ids[start : start + _BLOCKS_AT_ONCE]
        found = snapshot.read(lambda view, wanted=some: FactReader(view).blocks(wanted))  # type: ignore[misc]
        yield from (block for block in found if block is not None)


class Changed(NamedTuple):
    """How a revision changed a fact, and the status of the fact after it."""

    revision: Revision
    fact: FactId
    change: FactChange
    status: FactStatus


_CHANGE_BYTES: Final = 4
"""The last two bytes of a fact's id, its change, its status."""


def feed_value(changes: Iterable[tuple[FactId, FactChange, FactStatus]]) -> bytes:
    """An entry of the feed of changes: what a revision did to the facts of a block."""
    return b"".join(fact.bytes[-2:] + bytes([what, status]) for fact, what, status in sorted(changes))


def feed_changes(key: bytes, value: bytes) -> Iterator[Changed]:
    """The changes that an entry of the feed tells of, in the order of ids."""
    revision, block = CorpusKeys.parse_fact_change(key)
    for at in range(0, len(value), _CHANGE_BYTES):
        last, what, status = value[at : at + 2], value[at + 2], value[at + 3]
        yield Changed(revision, FactId(UUID(bytes=block.bytes[:-2] + last)), FactChange(what), FactStatus(status))


def changes(tr: Reader, keys: CorpusKeys, after: Revision, up_to: Revision, limit: int = 0) -> Iterator[Changed]:
    """The changes to facts by the revisions behind `after`, up to and including `up_to`. In order."""
    for key, value in tr.range(*keys.fact_changes_between(after, up_to), limit=limit):
        yield from feed_changes(key, value)


def changes_of(tr: Reader, keys: CorpusKeys, revision: Revision, after: FactId | None, limit: int) -> Iterator[Changed]:
    """The changes that one revision made to the facts behind `after`, in the order of ids.

    Yields all changes of at most `limit` blocks (0: of all), and nothing at the end.
    """
    begin, end = keys.fact_changes_of(revision, None if after is None else BlockId(after))
    if after is not None and block_of(after) != after:  # other facts of its block may follow it
        shared = keys.fact_change(revision, block_of(after))
        yield from (changed for changed in feed_changes(shared, tr.get(shared) or b"") if changed.fact > after)
    for key, value in tr.range(begin, end, limit=limit + 1 if limit else 0):
        yield from (changed for changed in feed_changes(key, value) if after is None or changed.fact > after)


def feed_page(snapshot: BatchedReads, begin: bytes, end: bytes, blocks_max: int) -> tuple[list[Changed], bytes | None]:
    """The changes in the next entries of the feed, and where to continue; None at the end."""
    page = snapshot.read(lambda view: list(view.tr.range(begin, end, limit=blocks_max)))
    found = [changed for key, value in page for changed in feed_changes(key, value)]
    return found, page[-1][0] + b"\0" if len(page) == blocks_max else None


def all_changes(snapshot: BatchedReads, after: Revision) -> Iterator[Changed]:
    """The changes by the revisions behind `after`, up to the snapshot's, in as many transactions as it takes."""
    begin, end = snapshot.keys.fact_changes_between(after, snapshot.revision)
    following: bytes | None = begin
    while following is not None:
        page, following = feed_page(snapshot, following, end, _FEED_ENTRIES)
        yield from page


_FEED_ENTRIES: Final = 5_000
"""Entries of the feed that one transaction reads."""


def page(view: CorpusAtRevision, after: BlockId | None, keys_max: int) -> tuple[list[FactBlock], BlockId | None]:
    """The blocks behind `after` among the next stored keys, and the last one that was looked at; None at the end."""
    begin, end = view.keys.fact_blocks()
    if after is not None:
        begin = versioned.behind(view.keys.fact_block(after))
    entries, following = versioned.page(view.tr, begin, end, view.revision, keys_max)
    found = [block_in(entry) for entry in view.sealed.opened_all(entries)]
    return found, None if following is None else block_id(versioned.before(following))


def locate(tr: Reader, keys: Keyspace, tenant: TenantId, fact: FactId) -> CorpusNumber | None:
    """The corpus that has, or had, a fact of the tenant. None if there can be no such fact."""
    (found,) = locate_each(tr, keys, tenant, [fact])
    return found


def locate_each(tr: Reader, keys: Keyspace, tenant: TenantId, facts: Sequence[FactId]) -> list[CorpusNumber | None]:
    """Same as `locate` for several facts, read together.

    A fact whose id was made from a block's has no locator: that of the block, or of the block's chunk, is used.
    """
    places = locators(keys, tenant, facts)
    stored = dict(zip(places, tr.get_many(places), strict=True))

    def located(fact: FactId) -> CorpusNumber | None:
        for home in _homes(fact):
            found = stored[keys.locator(tenant, NodeId(home))]
            if found is not None and (found[:1] == FACT_MARK or (home != fact and is_ingested_chunk(found))):
                return CorpusNumber(int.from_bytes(found[1:LOCATOR_BYTES], "big"))
        return None

    return [located(fact) for fact in facts]


def locators(keys: Keyspace, tenant: TenantId, facts: Iterable[FactId]) -> list[bytes]:
    """The keys of all locators that may lead to these facts."""
    homes = dict.fromkeys(home for fact in facts for home in _homes(fact))
    return [keys.locator(tenant, NodeId(home)) for home in homes]


_COUNT: Final = b"c"
_TIME: Final = b"t"


@dataclass(frozen=True, slots=True)
class Access:
    """How often a fact was read, and when last."""

    count: int = 0
    last_at: datetime | None = None


def note_accesses(tr: Transaction, keys: CorpusKeys, facts: Iterable[FactId], at: datetime) -> None:
    """Counts one access of each fact. Makes no conflicts. Each run counts again."""
    moment = max(to_microseconds(at), 0).to_bytes(8, "little")
    for fact in facts:
        key = keys.fact_access(fact)
        tr.add(key + _COUNT, 1)
        tr.atomic(Atomic.MAX, key + _TIME, moment)


def note_accesses_later(notes: Notes, keys: CorpusKeys, facts: Iterable[FactId], at: datetime) -> None:
    """Counts one access of each fact in the transaction that records the call. So each call counts once."""
    ids = sorted(set(facts))
    notes.add(lambda tr: note_accesses(tr, keys, ids, at))


def read_accesses(tr: Reader, keys: CorpusKeys, facts: Sequence[FactId]) -> list[Access]:
    """The accesses of each fact, in order."""
    stored = tr.get_many(access_keys(keys, facts))
    return [_access(count, last) for count, last in zip(stored[::2], stored[1::2], strict=True)]


def access_keys(keys: CorpusKeys, facts: Sequence[FactId]) -> list[bytes]:
    """What `read_accesses` reads."""
    return [keys.fact_access(fact) + part for fact in facts for part in (_COUNT, _TIME)]


def forget_accesses(tr: Transaction, keys: CorpusKeys, facts: Iterable[FactId]) -> None:
    for fact in facts:
        key = keys.fact_access(fact)
        tr.clear_range(key, key + b"\xff")


def _access(count: bytes | None, last: bytes | None) -> Access:
    if count is None or last is None:
        return Access()
    return Access(int.from_bytes(count, "little"), from_microseconds(int.from_bytes(last, "little")))
