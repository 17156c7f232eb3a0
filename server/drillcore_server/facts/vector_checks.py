"""Checks that every fact has its vector, and that the indexes saved on disk agree with the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog

from drillcore_fdb.errors import EngineError
from drillcore_server.facts.index import FactVectors
from drillcore_server.facts.model import FactStatus
from drillcore_server.facts.store import FACT, fact_id
from drillcore_server.hierarchy.chunk_index import ChunkVectors
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.storage.ids import CorpusNumber, FactId
from drillcore_server.storage.keyring import KeyErased, KeyLostError, Keyring
from drillcore_server.vectors.index_follower import VectorSource
from drillcore_server.vectors.index_snapshots import IndexName, IndexSnapshots, SavedAt, UnusableError
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.store import embeddings_of
from drillcore_server.vectors.vector_index import Id, VectorIndex

_MODEL_BYTES = 1
_ID_BYTES = 16


def fact_vector_problems(snapshot: BatchedReads) -> Iterator[str]:
    """Every fact that is not deleted has one vector of the current model, with the model's length.

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
        fact, model = fact_id(entry.key), entry.key[-_ID_BYTES - _MODEL_BYTES]
        if model not in dimensions:
            yield f"a vector of fact {fact} is of model {model}, which the corpus does not have"
            continue
        if fact not in there:
            yield f"there is a vector for {fact}, which is missing or deleted"
        if model == embeddings.current.number:
            wanted.discard(fact)
        try:
            if len(snapshot.sealed.opened(entry).value) != 2 * dimensions[model]:
                yield f"the vector of fact {fact} has the wrong length"
        except EngineError as error:
            yield error.message
    yield from (f"fact {fact} has no vector" for fact in wanted)


def _facts_with_vectors(snapshot: BatchedReads) -> Iterator[FactId]:
    """The facts that need a vector. `FactCheck` reports facts that cannot be read."""
    for entry in snapshot.entries(snapshot.keys.facts()):
        try:
            fact = FACT.decode(snapshot.sealed.opened(entry).value)
        except EngineError:
            continue
        if fact.status is not FactStatus.DELETED:
            yield fact.id


@dataclass(frozen=True, slots=True)
class SavedIndexes:
    """Where the servers of a store save their indexes, and with which settings."""

    folder: Path
    settings: VectorSettings

    def check(self, head: BatchedReads, number: CorpusNumber, keyring: Keyring) -> SavedIndexCheck:
        return SavedIndexCheck(head, number, keyring, self.settings, self.folder)


class SavedIndexCheck:
    """Checks the saved indexes of a corpus: brought up to the head, each must have what the store has."""

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
        yield from self._of(FactVectors())
        yield from self._of(ChunkVectors())

    def _of(self, source: VectorSource[Id]) -> Iterator[str]:
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
