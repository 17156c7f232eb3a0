"""Makes revisions look days old, without waiting for days."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from drillcore_fdb.engine import Engine, Transaction
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.servers.running import ACME_ID, Running


def keyspace(server: Running) -> Keyspace:
    return Keyspace(open_store(server.engine)[0])


def keys_of(server: Running, corpus: str, tenant: UUID = ACME_ID) -> CorpusKeys:
    return keys_in(server.engine, corpus, tenant)


def keys_in(engine: Engine, corpus: str, tenant: UUID = ACME_ID) -> CorpusKeys:
    """As `keys_of`, for a store that no server has open."""
    return Keyspace(open_store(engine)[0]).of_corpus(corpus_in(engine, corpus, tenant).number)


def corpus_in(engine: Engine, corpus: str, tenant: UUID = ACME_ID) -> Corpus:
    keys = Keyspace(open_store(engine)[0])
    return engine.run(lambda tr: corpora.get(tr, keys, TenantId(tenant), CorpusId(UUID(corpus))))


def age(server: Running, corpus: str, days: float, tenant: UUID = ACME_ID) -> None:
    """Makes every revision of the corpus this many days older."""
    keys = keys_of(server, corpus, tenant)

    def work(tr: Transaction) -> None:
        for record in revisions.between(tr, keys, Revision(0), revisions.head(tr, keys)):
            older = replace(record, at=record.at - timedelta(days=days))
            tr.clear(keys.revision_time(record.at, record.revision))
            tr.set(keys.revision_time(older.at, older.revision), b"")
            revisions.REVISION.write(tr, keys.revision(record.revision), older)

    server.engine.run(work)
