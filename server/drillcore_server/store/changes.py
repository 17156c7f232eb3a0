"""The feed of a tenant: which revision of which corpus was committed, in the order of the commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, CorpusNumber, Revision, TenantId
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Change:
    corpus: CorpusId
    number: CorpusNumber
    revision: Revision


class Place(NamedTuple):
    """Where a change stands: a restored store begins a new incarnation, whose versionstamps may be lower."""

    incarnation: int
    versionstamp: bytes


CHANGE = RecordKind(Change)


def append(tr: Transaction, keys: Keyspace, corpus: Corpus, revision: Revision, incarnation: int) -> None:
    """Names a revision, in the transaction that makes it the head."""
    told = CHANGE.encode(Change(corpus.id, corpus.number, revision))
    tr.set_versionstamped_key(keys.change_template(corpus.tenant_id, incarnation), told)


def after(
    tr: Reader, keys: Keyspace, tenant: TenantId, place: Place | None, limit: int
) -> Iterator[tuple[Place, Change]]:
    """The changes in a tenant after a place, in order; from the first on if there is no place."""
    begin, end = keys.changes(tenant)
    if place is not None:
        begin = keys.change(tenant, *place) + b"\0"
    for key, value in tr.range(*KeyRange(begin, end), limit=limit):
        yield Place(*keys.parse_change(key)), CHANGE.decode(value)


def at(tr: Reader, keys: Keyspace, tenant: TenantId, place: Place) -> Change | None:
    """The change of a tenant at a place, if it is there and the tenant's."""
    stored = tr.get(keys.change(tenant, *place))
    return None if stored is None else CHANGE.decode(stored)
