"""Corpora in the store, each below its tenant: a corpus of another tenant is not there."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.named import NamedRecords
from drillcore_server.store.records import RecordKind

CORPUS = RecordKind(Corpus)
CORPORA = NamedRecords(
    CORPUS,
    key=lambda keys, corpus: keys.corpus(corpus.tenant_id, corpus.id),
    name_key=lambda keys, corpus: keys.corpus_name(corpus.tenant_id, corpus.name),
    missing=Reason.CORPUS_NOT_FOUND,
    exists=Reason.CORPUS_EXISTS,
)


def get(tr: Reader, keys: Keyspace, tenant: TenantId, corpus: CorpusId) -> Corpus:
    return CORPORA.get(tr, keys.corpus(tenant, corpus), str(corpus))


def get_by_name(tr: Reader, keys: Keyspace, tenant: TenantId, name: str) -> Corpus:
    return get(tr, keys, tenant, CorpusId(CORPORA.id_of(tr, keys.corpus_name(tenant, name), name)))


def any_in(tr: Reader, keys: Keyspace, tenant: TenantId) -> bool:
    """Whether the tenant has a corpus that is not deleted: each of those has a name."""
    return any(True for _ in tr.range(*keys.corpus_names(tenant), limit=1))
