"""Checks the facts of a corpus against their indexes, chunks, sources and vectors.

Also checks that the vector indexes saved on disk agree with the store.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import structlog

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.facts import store as facts
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.blocks import block_of
from drillcore_server.facts.index import FactVectors
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.state_hash import STATE, StoredState, component
from drillcore_server.facts.store import block_id, block_in, vectors_in
from drillcore_server.hierarchy.chunk_index import ChunkVectors
from drillcore_server.hierarchy.model import Chunk, Document
from drillcore_server.hierarchy.store import SOURCE
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.ids import BlockId, CorpusNumber, FactId, NodeId, SourceId
from drillcore_server.storage.keyring import KeyErased, KeyLostError, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.index_follower import VectorSource
from drillcore_server.vectors.index_snapshots import IndexName, IndexSnapshots, SavedAt, UnusableError
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.stored_vectors import size_bytes
from drillcore_server.vectors.vector_index import Id, VectorIndex

_NO_MODEL = 0
"""This check makes no vectors, so it needs no model."""


class FactCheck:
    """Checks one corpus at one revision. Holds the ids and index keys of facts in memory, not their content."""

    def __init__(self, snapshot: BatchedReads, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._keyspace = keys
        self._corpus = corpus
        self._writes = FactWrites(keys, corpus.tenant_id, corpus.number, keyring, _NO_MODEL)
        self._ids: list[FactId] = []
        self._leading: set[bytes] = set()
        self._counts: Counter[SourceId] = Counter()
        self._active = 0
        self._state = hashlib.sha256()

    def problems(self, documents: Mapping[UUID, Document], chunks: Mapping[NodeId, Chunk]) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.fact_blocks()):
            yield from [entry] if isinstance(entry, str) else self._block(entry, documents, chunks)
        yield from self._stored_state()
        yield from self._indexes()
        yield from self._locators()
        yield from self._sources()

    def _block(self, entry: Entry, documents: Mapping[UUID, Document], chunks: Mapping[NodeId, Chunk]) -> Iterator[str]:
        block = block_in(entry)
        self._leading.update(self._writes.index_keys(block))
        ids = [fact.id for fact in block.facts]
        if ids != sorted(set(ids)):
            yield f"the facts of block {block.id} are not in the order of their ids"
        for fact in block.facts:
            yield from self._fact(block.id, fact, documents, chunks)

    def _fact(
        self, block: BlockId, fact: Fact, documents: Mapping[UUID, Document], chunks: Mapping[NodeId, Chunk]
    ) -> Iterator[str]:
        self._ids.append(fact.id)
        self._counts[fact.source] += fact.status is not FactStatus.DELETED
        if fact.status is FactStatus.ACTIVE:
            self._state.update((b"|" if self._active else b"") + component(fact))
            self._active += 1
        if block not in {block_of(fact.id), fact.id}:
            yield f"fact {fact.id} is in block {block}, where no reader finds it"
        if fact.status is FactStatus.ACTIVE and fact.document in documents and not _is_held(fact, chunks):
            yield f"the chunk of fact {fact.id} is missing, or does not hold it"

    def _stored_state(self) -> Iterator[str]:
        """A stored state hash of this revision must match the facts."""
        stored = self._snapshot.read(lambda view: STATE.read(view.tr, view.keys.state_hash()))
        own = StoredState(self._snapshot.revision, self._state.hexdigest(), self._active)
        if stored is not None and stored.revision == own.revision and stored != own:
            yield "the stored state hash does not match the facts"

    def _indexes(self) -> Iterator[str]:
        keys = self._snapshot.keys
        there: set[bytes] = set()
        for index in (keys.all_source_blocks(), keys.all_chunk_blocks(), keys.all_fact_expiries()):
            there.update(entry.key for entry in self._snapshot.entries(index))
        yield from (f"the facts' indexes lack {key.hex()}" for key in self._leading - there)
        yield from (f"the facts' indexes have {key.hex()}, which leads nowhere" for key in there - self._leading)

    def _locators(self) -> Iterator[str]:
        found = self._snapshot.find(self._ids, self._located)
        for fact, number in zip(self._ids, found, strict=True):
            if number != self._corpus.number:
                yield f"the locator of fact {fact} does not lead to it"

    def _located(self, view: CorpusAtRevision, fact: FactId) -> int | None:
        return facts.locate(view.tr, self._keyspace, self._corpus.tenant_id, fact)

    def _sources(self) -> Iterator[str]:
        """Every source of a fact must be registered, with the right number of facts."""
        for entry in self._opened(self._snapshot.keys.sources()):
            if isinstance(entry, str):
                yield entry
                continue
            source = SOURCE.decode(entry.value)
            counted = self._counts.pop(source.id, 0)
            if source.fact_count != counted:
                yield f"a source counts {source.fact_count} facts, but there are {counted}: {entry.key.hex()}"
        if self._counts:
            yield f"{len(self._counts)} sources of facts are not registered"

    def _opened(self, keys: KeyRange) -> Iterator[Entry | str]:
        """The opened entries of a range. Yields a problem as text for a record that cannot be opened."""
        for entry in self._snapshot.entries(keys):
            try:
                yield self._snapshot.sealed.opened(entry)
            except EngineError as error:
                yield error.message


def _is_held(fact: Fact, chunks: Mapping[NodeId, Chunk]) -> bool:
    chunk = None if fact.chunk is None else chunks.get(fact.chunk)
    if chunk is None or chunk.document != fact.document:
        return False
    return fact.span is None or (chunk.span.start <= fact.span.start and fact.span.end <= chunk.span.end)


def fact_vector_problems(snapshot: BatchedReads) -> Iterator[str]:
    """Every fact that is not deleted must have one vector of the current model, with the model's length.

    Further vectors may only belong to such facts, and to models of a migration.
    """
    embeddings = snapshot.read(embeddings_of)
    there = frozenset(_facts_with_vectors(snapshot))
    wanted = set(there)
    if embeddings is None:
        yield from (f"there is fact {fact}, but no record of the model of its vector" for fact in wanted)
        return
    dimensions = {model.number: model.dimensions for model in embeddings.models}
    for entry in snapshot.entries(snapshot.keys.all_fact_vectors()):
        block, model = block_id(entry.key), entry.key[-_ID_BYTES - _MODEL_BYTES]
        if model not in dimensions:
            yield f"the vectors of block {block} are of model {model}, which the corpus does not have"
            continue
        try:
            vectors = vectors_in(snapshot.sealed.opened(entry))
        except EngineError as error:
            yield error.message
            continue
        yield from (f"there is a vector for {fact}, which is missing or deleted" for fact in vectors.keys() - there)
        size = size_bytes(dimensions[model])
        yield from (f"the vector of fact {fact} has the wrong length" for fact in vectors if len(vectors[fact]) != size)
        if model == embeddings.current.number:
            wanted.difference_update(vectors)
    yield from (f"fact {fact} has no vector" for fact in wanted)


_MODEL_BYTES = 1
_ID_BYTES = 16


def _facts_with_vectors(snapshot: BatchedReads) -> Iterator[FactId]:
    """The facts that need a vector. `FactCheck` reports facts that cannot be read."""
    for entry in snapshot.entries(snapshot.keys.fact_blocks()):
        try:
            block = block_in(snapshot.sealed.opened(entry))
        except EngineError:
            continue
        yield from (fact.id for fact in block.facts if fact.status is not FactStatus.DELETED)


@dataclass(frozen=True, slots=True)
class SavedIndexes:
    """Where the servers of a store save their indexes, and with which settings."""

    folder: Path
    settings: VectorSettings

    def check(self, head: BatchedReads, number: CorpusNumber, keyring: Keyring) -> SavedIndexCheck:
        return SavedIndexCheck(head, number, keyring, self.settings, self.folder)


class SavedIndexCheck:
    """Checks the saved indexes of a corpus. Brought up to the head, each must have the same vectors as the store."""

    def __init__(
        self, snapshot: BatchedReads, number: CorpusNumber, keyring: Keyring, settings: VectorSettings, folder: Path
    ) -> None:
        """`snapshot` is the corpus's head."""
        self._snapshot = snapshot
        self._number = number
        self._snapshots = IndexSnapshots(folder, keyring, settings, structlog.get_logger())
        self._settings = settings
        self.notes: list[str] = []
        """Saved indexes that cannot be used. The next server that needs one makes it again."""

    def problems(self) -> Iterator[str]:
        yield from self._index_problems(FactVectors())
        yield from self._index_problems(ChunkVectors())

    def _index_problems(self, source: VectorSource[Id]) -> Iterator[str]:
        name = IndexName(self._number, source.kind, self._snapshot.read(source.model))
        try:
            saved: tuple[SavedAt, VectorIndex[Id]] | None = self._snapshots.read(name)
        except (UnusableError, KeyErased, KeyLostError) as error:
            self.notes.append(f"the saved index {name} cannot be used and will be made again: {error}")
            return
        if saved is None:
            return
        at, index = saved
        record = self._snapshot.read(lambda view: revisions.get(view.tr, view.keys, at.revision))
        if record is None or record.audit_id != at.record:
            self.notes.append(f"the saved index {name} is of a revision {at.revision} that the store does not have")
            return
        changes = source.changes(index, at.revision, self._snapshot, name.model)
        yield from self._differences(name, index.changed(changes.rows), source)

    def _differences(self, name: IndexName, index: VectorIndex[Id], source: VectorSource[Id]) -> Iterator[str]:
        left = set(index.ids())
        for item, row in source.load(self._snapshot, name.model):
            left.discard(item)
            known = index.kept(item)
            if known is None:
                yield f"the saved index {name}, brought up to date, lacks {item}"
            elif not np.array_equal(known, row):
                yield f"the saved index {name}, brought up to date, has another vector for {item}"
        yield from (f"the saved index {name}, brought up to date, has {item}, which the store lacks" for item in left)
