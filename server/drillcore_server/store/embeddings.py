"""Which model made a corpus's vectors, by revision; and how far a change to another one is."""

from __future__ import annotations

from collections.abc import Iterator

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.embeddings import Embeddings, Migration
from drillcore_server.domain.ids import Revision
from drillcore_server.store import versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.writes import Write

EMBEDDINGS = RecordKind(Embeddings)
MIGRATION = RecordKind(Migration)


def get(tr: Reader, keys: CorpusKeys, revision: Revision) -> Embeddings | None:
    """As a reader at the revision has it; None before there are vectors."""
    entry = versioned.get(tr, keys.embeddings(), revision)
    return None if entry is None else EMBEDDINGS.decode(entry.value)


def written(keys: CorpusKeys, embeddings: Embeddings) -> Write:
    return Write(keys.embeddings(), EMBEDDINGS.encode(embeddings))


def migration(tr: Reader, keys: CorpusKeys) -> Migration | None:
    """The last one that was begun."""
    return MIGRATION.read(tr, keys.migration())


def put_migration(tr: Transaction, keys: CorpusKeys, now: Migration) -> None:
    MIGRATION.write(tr, keys.migration(), now)


def migrations(tr: Reader, keyspace: Keyspace) -> Iterator[Migration]:
    """The last one of every corpus that had one."""
    for _, stored in codec.scan(tr, *keyspace.migrations()):
        yield MIGRATION.decode(stored)
