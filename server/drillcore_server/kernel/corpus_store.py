"""Tenants and corpora in the store, each corpus below its tenant, and an index of the corpora that tenants share.

Tenants choose the ids of their corpora, so two tenants may use the same id. A tenant's own corpus then comes first,
then one that is shared with it by name, then one that is shared with everyone.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import RangeRead, Reader, Streaming, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.corpus_model import Corpus, Sharing, Tenant
from drillcore_server.kernel.errors import Exists, Unavailable
from drillcore_server.kernel.named import NamedRecords
from drillcore_server.storage.ids import CorpusId, CorpusNumber, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

TENANT = RecordKind(Tenant)
TENANTS = NamedRecords(
    TENANT,
    key=lambda keys, tenant: keys.tenant(tenant.id),
    name_key=lambda keys, tenant: keys.tenant_name(tenant.name),
    missing=Reason.TENANT_NOT_FOUND,
    exists=Reason.TENANT_EXISTS,
)


def get_tenant(tr: Reader, keys: Keyspace, tenant: TenantId) -> Tenant:
    return TENANTS.get(tr, keys.tenant(tenant), str(tenant))


def get_tenant_by_name(tr: Reader, keys: Keyspace, name: str) -> Tenant:
    return get_tenant(tr, keys, TenantId(TENANTS.id_of(tr, keys.tenant_name(name), name)))


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
    """Same as `get`, but None if there is no such corpus or it is deleted."""
    found = CORPUS.read(tr, keys.corpus(tenant, corpus))
    return None if found is None or found.deleted_at is not None else found


def kept(tr: Reader, keys: Keyspace, tenant: TenantId, corpus: CorpusId) -> Corpus:
    """Same as `get`, but also finds a deleted corpus, whose records are still there.

    Erased bytes in it must be purged.
    """
    found = CORPUS.read(tr, keys.corpus(tenant, corpus))
    return get(tr, keys, tenant, corpus) if found is None else found


def find_by_name(tr: Reader, keys: Keyspace, tenant: TenantId, name: str) -> CorpusId | None:
    stored = tr.get(keys.corpus_name(tenant, name))
    return None if stored is None else CorpusId(UUID(bytes=stored))


def any_in(tr: Reader, keys: Keyspace, tenant: TenantId) -> bool:
    """Whether the tenant has a corpus that is not deleted. Looks at names: only deleted corpora have none."""
    return any(True for _ in tr.range(*keys.corpus_names(tenant), limit=1))


def new_numbers() -> list[CorpusNumber]:
    """Candidates for a corpus's number, made before the transaction. Shorter numbers come first.

    They are random, so that concurrent creations do not conflict. Short, because the number is part of nearly every
    key.
    """
    return [CorpusNumber(secrets.randbits(bits)) for bits in (8, 8, 16, 16, 32, 32, 32, 32)]


def take_number(tr: Transaction, keys: Keyspace, numbers: list[CorpusNumber], corpus: CorpusId) -> CorpusNumber:
    """Reserves the first of these numbers that no corpus has or had. Raises `Unavailable` if all are taken."""
    for number in numbers:
        if tr.get(keys.corpus_number(number)) is None:
            tr.set(keys.corpus_number(number), corpus.bytes)
            return number
    raise Unavailable(Reason.CONFLICT, "no free number was found for the corpus; try again")


EVERYONE: Final = UUID(int=0)


def owner_of(tr: Reader, keys: Keyspace, reader: TenantId, corpus: CorpusId) -> TenantId | None:
    """The tenant that shares a corpus of this id with the reader, if there is one."""
    named, for_all = tr.get_many(owner_keys(keys, reader, corpus))
    stored = named or for_all
    return None if stored is None else TenantId(UUID(bytes=stored))


def owner_keys(keys: Keyspace, reader: TenantId, corpus: CorpusId) -> list[bytes]:
    """The keys that `owner_of` reads."""
    return [keys.shared_corpus(reader, corpus), keys.shared_corpus(EVERYONE, corpus)]


def shared_with(
    tr: Reader, keys: Keyspace, reader: TenantId, after: CorpusId | None = None
) -> Iterator[tuple[CorpusId, TenantId]]:
    """The corpora that other tenants share with this one, and their owners. Sorted by the id of the corpus.

    Each is read when it is consumed, so a caller that stops early does not read the rest.
    """
    ranges = shared_ranges(keys, reader, after)
    tr.read_ahead([], [RangeRead(*of) for of in ranges])
    found = [tr.range(*of, streaming=Streaming.WANT_ALL) for of in ranges]
    entries = (((keys.parse_shared_corpus(key)[1], owner) for key, owner in shared) for shared in found)
    last = None
    for corpus, owner in heapq.merge(*entries, key=lambda entry: entry[0]):
        if corpus != last:
            yield corpus, TenantId(UUID(bytes=owner))
        last = corpus


def shared_ranges(keys: Keyspace, reader: TenantId, after: CorpusId | None = None) -> list[KeyRange]:
    """The ranges that `shared_with` reads."""
    return [keys.shared_corpora(tenant, after) for tenant in (reader, EVERYONE)]


def update(tr: Transaction, keys: Keyspace, old: Corpus, new: Corpus) -> None:
    """Updates the index after a change of a corpus. A deleted corpus is shared with nobody.

    Raises `Exists` if another corpus of the same id is already shared with a reader.
    """
    before = set() if old.sharing is None else readers(old.sharing)
    after = set() if new.sharing is None or new.deleted_at is not None else readers(new.sharing)
    tr.get_many([keys.shared_corpus(reader, new.id) for reader in after - before])
    for reader in before - after:
        tr.clear(keys.shared_corpus(reader, old.id))
    for reader in after - before:
        key = keys.shared_corpus(reader, new.id)
        if tr.get(key) is not None:
            raise Exists(Reason.CORPUS_EXISTS, f"another corpus with the id {new.id} is shared there already")
        tr.set(key, new.tenant_id.bytes)


def readers(sharing: Sharing) -> set[UUID]:
    return {EVERYONE} if sharing.everyone else set(sharing.tenants)
