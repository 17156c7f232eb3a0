"""Makes the writes of facts: whole blocks with their vectors, their index entries, and the feed of changes.

A revision writes a block once. Whoever changes facts therefore gives all changes of a revision that may concern the
same blocks in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

from drillcore_server.facts.blocks import FactBlock, block_of, encode_block, encode_vectors, gathered
from drillcore_server.facts.model import ChangedFact, Fact, FactChange, FactStatus
from drillcore_server.facts.store import FactReader, feed_value
from drillcore_server.hierarchy.model import chunk_of_raw
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.writes import Write, fact_locator
from drillcore_server.storage.ids import BlockId, CorpusNumber, FactId, NodeId, SourceId, TenantId
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.vectors.corpus_models import embeddings_write
from drillcore_server.vectors.model import Embeddings

_BLOCKS_AT_ONCE = 250
"""Blocks that are read together."""
Vectors = Mapping[FactId, bytes]


class FactWrites:
    def __init__(
        self,
        keys: Keyspace,
        tenant: TenantId,
        number: CorpusNumber,
        keyring: Keyring,
        model: int,
        others: Sequence[int] = (),
    ) -> None:
        """`model` is the number of the model that makes the vectors. `others` are models that may have vectors, too."""
        self._keyspace = keys
        self._keys = keys.of_corpus(number)
        self._tenant = tenant
        self._number = number
        self._keyring = keyring
        self._model = model
        self._others = others

    def set_embeddings(self, embeddings: Embeddings) -> Write:
        return embeddings_write(self._keys, embeddings)

    def add(
        self,
        facts: Iterable[tuple[Fact, bytes | None]],
        *,
        may_share: Callable[[BlockId], bool],
        has_chunk: Callable[[NodeId], bool],
    ) -> Iterator[Write]:
        """Writes new facts, which come in the order of ids, with all facts of a block together.

        A vector is None only for a deleted fact, which can come with an imported core. `may_share` tells whether a
        block is new, so that several facts may be in it; `has_chunk` whether the corpus will have a chunk.
        """
        vectors: dict[FactId, bytes | None] = {}

        def noted() -> Iterator[Fact]:
            for fact, vector in facts:
                vectors[fact.id] = vector
                yield fact

        for block in gathered(noted(), may_share):
            own = {fact.id: vectors.pop(fact.id) for fact in block.facts}
            made = {fact: vector for fact, vector in own.items() if vector is not None}
            yield from self._added(block, made, is_of_chunk=has_chunk(NodeId(block.id)))

    def change(
        self, snapshot: BatchedReads, changes: Sequence[ChangedFact], new_blocks: Container[BlockId] = ()
    ) -> Iterator[Write]:
        """Writes new and changed facts. `snapshot` is the revision before; `new_blocks` were made for the new facts.

        A fact that becomes deleted loses its vectors.
        """
        new = sorted((change for change in changes if change.before is None), key=lambda change: change.after.id)
        added = ((change.after, change.vector) for change in new)
        yield from self.add(added, may_share=lambda block: block in new_blocks, has_chunk=lambda _chunk: False)
        changed = {change.after.id: change for change in changes if change.before is not None}
        yield from self._change_in(snapshot, {block_of(fact) for fact in changed}, changed)
        yield from self._change_in(snapshot, set(map(BlockId, changed)), changed)  # what looked made from a block's id
        assert not changed, "a changed fact has a block"

    def _change_in(
        self, snapshot: BatchedReads, blocks: Collection[BlockId], changed: dict[FactId, ChangedFact]
    ) -> Iterator[Write]:
        """Writes the changes of facts that are in these blocks, and removes them from `changed`."""
        homes = sorted(blocks)
        for start in range(0, len(homes), _BLOCKS_AT_ONCE):
            for block, vectors in self._read(snapshot, homes[start : start + _BLOCKS_AT_ONCE]):
                own = {fact.id: changed.pop(fact.id) for fact in block.facts if fact.id in changed}
                if own:
                    yield from self._changed(block, own, vectors)

    def erase(self, blocks: Iterable[FactBlock]) -> Iterator[Write]:
        """Removes blocks with their vectors and index entries."""
        for block in blocks:
            models = (self._model, *self._others)
            vectors = (self._keys.block_vectors(model, block.id) for model in models)
            for key in (self._keys.fact_block(block.id), *vectors, *self.index_keys(block)):
                yield Write(key, None)
            erased = ((fact.id, FactChange.ERASED, FactStatus.DELETED) for fact in block.facts)
            yield self._feed_entry(block.id, erased)

    def index_keys(self, block: FactBlock) -> list[bytes]:
        """The index entries of a block: by source, by other chunks, and by expiry for each active fact in the index."""
        keys = [self._keys.source_block(self._keyring.hashed(block.source), block.id)]
        chunks = sorted({fact.chunk for fact in block.facts if fact.chunk is not None} - {NodeId(block.id)})
        keys += [self._keys.chunk_block(chunk, block.id) for chunk in chunks]
        for fact in block.facts:
            if fact.status is FactStatus.ACTIVE and fact.archived_at is None and fact.expires_at is not None:
                keys.append(self._keys.fact_expiry(fact.expires_at, fact.id))
        return keys

    def set_vectors(self, model: int, block: BlockId, source: SourceId, vectors: Vectors) -> Write:
        """Writes only vectors, without an entry in the feed: for a model that searches do not use yet."""
        key = self._keys.block_vectors(model, block)
        if not vectors:
            return Write(key, None)
        return Write(key, encode_vectors(vectors), self._key(source), is_dense=True)

    def _added(self, block: FactBlock, vectors: Vectors, *, is_of_chunk: bool) -> Iterator[Write]:
        yield self._record(block)
        if vectors:
            yield self.set_vectors(self._model, block.id, block.source, vectors)
        for key in self.index_keys(block):
            yield Write(key, b"")
        if not is_of_chunk:
            yield self._locator(block.id)
        yield self._feed_entry(block.id, ((fact.id, FactChange.ADDED, fact.status) for fact in block.facts))

    def _read(self, snapshot: BatchedReads, blocks: Sequence[BlockId]) -> list[tuple[FactBlock, Mapping[int, Vectors]]]:
        """The blocks that exist, each with the vectors of every model."""

        def read(reader: FactReader) -> list[tuple[FactBlock, Mapping[int, Vectors]]]:
            there = [block for block in reader.blocks(blocks) if block is not None]
            ids = [block.id for block in there]
            models = (self._model, *self._others)
            of_models = {model: reader.vectors_of_blocks(model, ids) for model in models}
            return [
                (block, {model: found[place] or {} for model, found in of_models.items()})
                for place, block in enumerate(there)
            ]

        return snapshot.read(lambda view: read(FactReader(view)))

    def _changed(
        self, before: FactBlock, changes: Mapping[FactId, ChangedFact], vectors: Mapping[int, Vectors]
    ) -> Iterator[Write]:
        after = before.changed({fact: change.after for fact, change in changes.items()})
        yield self._record(after)
        was, now = set(self.index_keys(before)), set(self.index_keys(after))
        yield from (Write(key, None) for key in sorted(was - now))
        yield from (Write(key, b"") for key in sorted(now - was))
        deleted = {fact for fact, change in changes.items() if change.after.status is FactStatus.DELETED}
        for model, known in vectors.items():
            fresh = {fact: vector for fact, vector in known.items() if fact not in deleted}
            if model == self._model:
                made = ((fact, change.vector) for fact, change in changes.items() if fact not in deleted)
                fresh |= {fact: vector for fact, vector in made if vector is not None}
            if fresh != known:
                yield self.set_vectors(model, after.id, after.source, fresh)
        yield self._feed_entry(after.id, ((fact, change.what, change.after.status) for fact, change in changes.items()))

    def _record(self, block: FactBlock) -> Write:
        return Write(self._keys.fact_block(block.id), encode_block(block), self._key(block.source))

    def _key(self, source: SourceId) -> KeyNumber:
        (number,) = self._keyring.numbers(self._number, [source])
        return number

    def _feed_entry(self, block: BlockId, changes: Iterable[tuple[FactId, FactChange, FactStatus]]) -> Write:
        return Write(self._keys.fact_changes(), feed_value(changes), feed=block.bytes)

    def _locator(self, block: BlockId) -> Write:
        """The locator of a block. The write fails if the block is a fact whose id, chosen by a caller, is taken.

        What the server numbers within a node has no locator of its own, so the locator of that node is checked.
        """
        owner, place = chunk_of_raw(NodeId(block))
        taken = self._keyspace.locator(self._tenant, owner) if place >= 0 else None
        key = self._keyspace.locator(self._tenant, NodeId(block))
        return Write(key, fact_locator(self._number), versioned=False, block=taken)
