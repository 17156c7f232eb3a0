"""Which corpora of others a tenant may read: an index of what the corpora's own records say.

A corpus's id is its tenant's own choice, so another tenant may have a corpus of the same id: to each, its own comes
first, then one that is shared with it by name, then one that is shared with everyone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Exists
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.sharing import Sharing
from drillcore_server.store.keyspace import Keyspace

EVERYONE: Final = UUID(int=0)


def owner_of(tr: Reader, keys: Keyspace, reader: TenantId, corpus: CorpusId) -> TenantId | None:
    """Whose corpus it is that the reader finds by this id, if one is shared with it."""
    named, for_all = tr.get_many([keys.shared_corpus(reader, corpus), keys.shared_corpus(EVERYONE, corpus)])
    stored = named or for_all
    return None if stored is None else TenantId(UUID(bytes=stored))


def shared_with(
    tr: Reader, keys: Keyspace, reader: TenantId, after: CorpusId | None = None
) -> Iterator[tuple[CorpusId, TenantId]]:
    """The corpora that are shared with a tenant, by id, each with the tenant it belongs to."""
    ranges = (tr.range(*keys.shared_corpora(one, after)) for one in (reader, EVERYONE))
    entries = (((keys.parse_shared_corpus(key)[1], owner) for key, owner in found) for found in ranges)
    last = None
    for corpus, owner in heapq.merge(*entries, key=lambda entry: entry[0]):
        if corpus != last:
            yield corpus, TenantId(UUID(bytes=owner))
        last = corpus


def update(tr: Transaction, keys: Keyspace, old: Corpus, new: Corpus) -> None:
    """Follows a change of a corpus. A deleted one is shared with nobody.

    Raises `Exists` if a reader has another corpus of the same id shared with it.
    """
    before = set() if old.sharing is None else readers(old.sharing)
    after = set() if new.sharing is None or new.deleted_at is not None else readers(new.sharing)
    for reader in before - after:
        tr.clear(keys.shared_corpus(reader, old.id))
    for reader in after - before:
        key = keys.shared_corpus(reader, new.id)
        if tr.get(key) is not None:
            raise Exists(Reason.CORPUS_EXISTS, f"another corpus with the id {new.id} is shared there already")
        tr.set(key, new.tenant_id.bytes)


def readers(sharing: Sharing) -> set[UUID]:
    return {EVERYONE} if sharing.everyone else set(sharing.tenants)
