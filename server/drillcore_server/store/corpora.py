"""Corpora in the store, each below its tenant: a corpus of another tenant is not there."""

from __future__ import annotations

import secrets
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Unavailable
from drillcore_server.domain.ids import CorpusId, CorpusNumber, TenantId
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


def find(tr: Reader, keys: Keyspace, tenant: TenantId, corpus: CorpusId) -> Corpus | None:
    """As `get`, but None if it is not there, or deleted."""
    found = CORPUS.read(tr, keys.corpus(tenant, corpus))
    return None if found is None or found.deleted_at is not None else found


def kept(tr: Reader, keys: Keyspace, tenant: TenantId, corpus: CorpusId) -> Corpus:
    """As `get`, but also a deleted one, whose records are still there: what was erased from it must be purged."""
    found = CORPUS.read(tr, keys.corpus(tenant, corpus))
    return get(tr, keys, tenant, corpus) if found is None else found


def find_by_name(tr: Reader, keys: Keyspace, tenant: TenantId, name: str) -> CorpusId | None:
    stored = tr.get(keys.corpus_name(tenant, name))
    return None if stored is None else CorpusId(UUID(bytes=stored))


def any_in(tr: Reader, keys: Keyspace, tenant: TenantId) -> bool:
    """Whether the tenant has a corpus that is not deleted: each of those has a name."""
    return any(True for _ in tr.range(*keys.corpus_names(tenant), limit=1))


def new_numbers() -> list[CorpusNumber]:
    """Numbers to choose from, made before the transaction. Random, so that corpora made at once do not contend.

    Short ones first, as long as there are any: the number is part of nearly every key.
    """
    return [CorpusNumber(secrets.randbits(bits)) for bits in (8, 8, 16, 16, 32, 32, 32, 32)]


def take_number(tr: Transaction, keys: Keyspace, numbers: list[CorpusNumber], corpus: CorpusId) -> CorpusNumber:
    """The first of these that no corpus has or had; from now on it is this one's."""
    for number in numbers:
        if tr.get(keys.corpus_number(number)) is None:
            tr.set(keys.corpus_number(number), corpus.bytes)
            return number
    raise Unavailable(Reason.CONFLICT, "no free number was found for the corpus; try again")
