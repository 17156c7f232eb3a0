"""Stores which model made a corpus's vectors, by revision, and the progress of a migration."""

from __future__ import annotations

from collections.abc import Iterator

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.model import Embeddings, Migration

EMBEDDINGS = RecordKind(Embeddings)
MIGRATION = RecordKind(Migration)


def embeddings_of(view: CorpusAtRevision) -> Embeddings | None:
    """The models of the corpus's vectors; None before it has any."""
    return get(view.tr, view.keys, view.revision)


def get(tr: Reader, keys: CorpusKeys, revision: Revision) -> Embeddings | None:
    """Returns the embeddings at the revision; None before there are vectors."""
    entry = versioned.get(tr, keys.embeddings(), revision)
    return None if entry is None else EMBEDDINGS.decode(entry.value)


def written(keys: CorpusKeys, embeddings: Embeddings) -> Write:
    return Write(keys.embeddings(), EMBEDDINGS.encode(embeddings))


def migration(tr: Reader, keys: CorpusKeys) -> Migration | None:
    """Returns the migration begun last."""
    return MIGRATION.read(tr, keys.migration())


def put_migration(tr: Transaction, keys: CorpusKeys, now: Migration) -> None:
    MIGRATION.write(tr, keys.migration(), now)


def migrations(tr: Reader, keyspace: Keyspace) -> Iterator[Migration]:
    """Yields the last migration of every corpus that had one."""
    for _, stored in codec.scan(tr, *keyspace.migrations()):
        yield MIGRATION.decode(stored)
