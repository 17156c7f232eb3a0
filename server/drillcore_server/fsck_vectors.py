"""Proves that facts and their vectors are the same set, and that the indexes saved on the disk agree with the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog

from drillcore_fdb.errors import EngineError
from drillcore_server.derived.fact_index import FactVectors
from drillcore_server.derived.index_follower import VectorSource
from drillcore_server.derived.index_snapshots import IndexName, IndexSnapshots, SavedAt, UnusableError
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vector_index import Id, VectorIndex
from drillcore_server.derived.vectors import ChunkVectors
from drillcore_server.domain.facts import FactStatus
from drillcore_server.domain.ids import CorpusNumber, FactId
from drillcore_server.store import revisions
from drillcore_server.store.facts import FACT, fact_id
from drillcore_server.store.keyring import KeyErased, KeyLostError, Keyring
from drillcore_server.store.snapshot import Snapshot

_MODEL_BYTES = 1
_ID_BYTES = 16


def fact_vector_problems(snapshot: Snapshot) -> Iterator[str]:
    """Every fact that is not deleted has one vector of the current model, of its length.

    Others there are only of models that a migration is about, and only of such facts.
    """
    embeddings = snapshot.read(lambda view: view.embeddings())
    there = frozenset(_facts_with_vectors(snapshot))
    wanted = set(there)
    if embeddings is None:
        yield from (f"fact {one} is there, but no model that made its vector" for one in wanted)
        return
    dimensions = {one.number: one.dimensions for one in embeddings.models}
    for entry in snapshot.entries(snapshot.keys.all_fact_vectors()):
        fact, model = fact_id(entry.key), entry.key[-_ID_BYTES - _MODEL_BYTES]
        if model not in dimensions:
            yield f"a vector of fact {fact} is of model {model}, which is not the corpus's"
            continue
        if fact not in there:
            yield f"there is a vector, but no fact {fact}, or one that is deleted"
        if model == embeddings.current.number:
            wanted.discard(fact)
        try:
            if len(snapshot.sealed.opened(entry).value) != 2 * dimensions[model]:
                yield f"the vector of fact {fact} has another length"
        except EngineError as error:
            yield error.message
    yield from (f"fact {one} has no vector" for one in wanted)


def _facts_with_vectors(snapshot: Snapshot) -> Iterator[FactId]:
    """Facts that cannot be read are others' to tell of."""
    for entry in snapshot.entries(snapshot.keys.facts()):
        try:
            fact = FACT.decode(snapshot.sealed.opened(entry).value)
        except EngineError:
            continue
        if fact.status is not FactStatus.DELETED:
            yield fact.id


@dataclass(frozen=True, slots=True)
class SavedIndexes:
    """Where the servers of a store save their indexes, and how these are made."""

    folder: Path
    settings: VectorSettings

    def check(self, head: Snapshot, number: CorpusNumber, keyring: Keyring) -> SavedIndexCheck:
        return SavedIndexCheck(head, number, keyring, self.settings, self.folder)


class SavedIndexCheck:
    """The indexes of a corpus that were saved: brought up to the head, each has what the store has."""

    def __init__(
        self, snapshot: Snapshot, number: CorpusNumber, keyring: Keyring, settings: VectorSettings, folder: Path
    ) -> None:
        """`snapshot` is the corpus's head."""
        self._snapshot = snapshot
        self._number = number
        self._snapshots = IndexSnapshots(folder, keyring, settings, structlog.get_logger())
        self._settings = settings
        self.notes: list[str] = []
        """Of those that cannot be used: the next server that needs one makes it anew."""

    def problems(self) -> Iterator[str]:
        yield from self._of(FactVectors())
        yield from self._of(ChunkVectors())

    def _of(self, source: VectorSource[Id]) -> Iterator[str]:
        name = IndexName(self._number, source.kind, self._snapshot.read(source.model))
        try:
            saved: tuple[SavedAt, VectorIndex[Id]] | None = self._snapshots.read(name)
        except (UnusableError, KeyErased, KeyLostError) as error:
            self.notes.append(f"the saved index {name} cannot be used and will be made anew: {error}")
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
        for one, row in source.load(self._snapshot, name.model):
            left.discard(one)
            known = index.kept(one)
            if known is None:
                yield f"the saved index {name}, brought up to date, lacks {one}"
            elif not np.array_equal(known, row):
                yield f"the saved index {name}, brought up to date, has another vector of {one}"
        yield from (f"the saved index {name}, brought up to date, has {one}, which is not there" for one in left)
