"""Which models made the vectors of a corpus, as stored by revision; and which model embeds what comes in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.embedding.embedders import Embedder, Embedders
from drillcore_server.vectors.model import Embeddings, Migration, Model, first, replaced

EMBEDDINGS = RecordKind(Embeddings)
MIGRATION = RecordKind(Migration)


def embeddings_of(view: CorpusAtRevision) -> Embeddings | None:
    """Returns the models of the corpus's vectors; None before it has any vectors."""
    return embeddings_at(view.tr, view.keys, view.revision)


def embeddings_at(tr: Reader, keys: CorpusKeys, revision: Revision) -> Embeddings | None:
    """The same without a view."""
    entry = versioned.get(tr, keys.embeddings(), revision)
    return None if entry is None else EMBEDDINGS.decode(entry.value)


def embeddings_write(keys: CorpusKeys, embeddings: Embeddings) -> Write:
    return Write(keys.embeddings(), EMBEDDINGS.encode(embeddings))


def migration_of(tr: Reader, keys: CorpusKeys) -> Migration | None:
    """Returns the last migration of the corpus, finished or not."""
    return MIGRATION.read(tr, keys.migration())


def put_migration(tr: Transaction, keys: CorpusKeys, migration: Migration) -> None:
    MIGRATION.write(tr, keys.migration(), migration)


def all_migrations(tr: Reader, keyspace: Keyspace) -> Iterator[Migration]:
    """Yields the last migration of every corpus that ever had one."""
    for _, stored in codec.scan(tr, *keyspace.migrations()):
        yield MIGRATION.decode(stored)


@dataclass(frozen=True, slots=True)
class CorpusModels:
    """Chooses the model for new vectors. A corpus without vectors takes any model; one with vectors keeps its model."""

    snapshot: BatchedReads
    embedders: Embedders

    def now(self) -> Embeddings | None:
        return self.snapshot.read(embeddings_of)

    def embedder(self) -> Embedder:
        """Returns the embedder for new texts. Raises `NotReady` if this server lacks the corpus's model."""
        now = self.now()
        if now is None or self.embedders.find(now.current.model) is self.embedders.own or self.is_empty(now):
            return self.embedders.own
        return self.embedders.of(now.current.model)

    def after(self, made_with: Model, *, was_current: bool = False) -> Embeddings:
        """Returns the corpus's models once vectors made with a model are added.

        Raises `Refused` if the corpus has vectors of another model: `Unavailable` with `was_current`, which says that
        the model was the corpus's when the vectors were made, so that a retry helps; else `NotReady`.
        """
        now = self.now()
        if now is None:
            return first(made_with)
        if now.current.model == made_with:
            return now
        if self.is_empty(now):
            return replaced(now, made_with)
        if was_current:
            message = "the embedding model of the corpus changed meanwhile; nothing was written, send everything again"
            raise Unavailable(Reason.CONFLICT, message)
        now.check(*made_with)
        return now

    def replacing_embedder(self) -> Embedder:
        """Returns the embedder for a hierarchy that replaces everything except facts."""
        now = self.now()
        return self.embedders.of(now.current.model) if now is not None and self._has_facts(now) else self.embedders.own

    def after_replacing(self, made_with: Model) -> Embeddings:
        """Returns the corpus's models once a hierarchy with vectors of a model replaces the present one.

        Facts stay, so a corpus with facts keeps their model. Raises `NotReady` if the hierarchy has another model.
        """
        now = self.now()
        if now is None:
            return first(made_with)
        if now.current.model == made_with:
            return now
        if self._has_facts(now):
            now.check(*made_with)
        return replaced(now, made_with)

    def is_empty(self, now: Embeddings) -> bool:
        """Tells whether neither a chunk nor a fact has a vector."""
        return not self._has(self.snapshot.keys.vectors(now.current.number)) and not self._has_facts(now)

    def _has_facts(self, now: Embeddings) -> bool:
        return self._has(self.snapshot.keys.fact_vectors(now.current.number))

    def _has(self, space: KeyRange) -> bool:
        return next(self.snapshot.entries(space), None) is not None
