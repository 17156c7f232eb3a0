"""The events of a tenant: its feed of changes, and those of the tenants that share corpora with it, told in full.

The order is that of the commits, over all feeds: versionstamps are the store's own. A transaction sees every commit
below its read version, and a later commit has a higher versionstamp. So who goes on behind the last place it has read
leaves none out, whatever is committed meanwhile and whichever server it asks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.domain.events import (
    VERSIONSTAMP_BYTES,
    Cursor,
    Event,
    EventKind,
    Stage,
    document_position,
    fact_at,
    kind_of,
    next_document,
)
from drillcore_server.domain.facts import FactStatus
from drillcore_server.domain.ids import DocumentId, FactId, TenantId
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store import audit_records, changes, facts, revisions
from drillcore_server.store.changes import Change, Place
from drillcore_server.store.keyspace import Keyspace

_VERSION_BYTES: Final = 8
"""Of a versionstamp: the version of the commit. The rest is its place among those of the same version."""
Told = tuple[Event | None, Cursor]
"""An event and where it is; or only how far it goes, where there is nothing to tell."""


def newest(tr: Reader, keys: Keyspace) -> Cursor:
    """Behind everything that there is now, also of corpora that are shared with the tenant only later."""
    version = tr.read_version().to_bytes(_VERSION_BYTES, "big")
    return Cursor(audit_records.state(tr, keys).incarnation, version + b"\xff" * (VERSIONSTAMP_BYTES - _VERSION_BYTES))


def after(
    tr: Reader,
    keys: Keyspace,
    tenants: Iterable[TenantId],
    cursor: Cursor,
    wanted: Callable[[Change], bool],
    changes_max: int,
) -> Iterator[Told]:
    """What follows in at most so many revisions, told as it is consumed. A revision that is not wanted is passed by."""
    for place, change in islice(_changes(tr, keys, list(tenants), cursor, changes_max), changes_max):
        if wanted(change):
            inside = cursor if place == _place(cursor) else None
            yield from _events(tr, keys, place, change, inside)
        yield None, _told(place)


def _changes(
    tr: Reader, keys: Keyspace, tenants: list[TenantId], cursor: Cursor, limit: int
) -> Iterator[tuple[Place, Change]]:
    place = _place(cursor)
    if cursor.stage is not Stage.STATE:
        for tenant in tenants:
            found = changes.at(tr, keys, tenant, place)
            if found is not None:
                yield place, found
    yield from heapq.merge(*(changes.after(tr, keys, tenant, place, limit) for tenant in tenants))


def _events(tr: Reader, keys: Keyspace, place: Place, change: Change, inside: Cursor | None) -> Iterator[Told]:
    """The events of a revision, after one of them if `inside` says which."""
    of_corpus = keys.of_corpus(change.number)
    record = revisions.get(tr, of_corpus, change.revision)
    if record is None:
        raise StoreCorruptError(f"revision {change.revision} of corpus {change.corpus} is named in the feed, but gone")
    stage = Stage.SOURCES if inside is None else inside.stage
    if stage is Stage.SOURCES:
        first = 0 if inside is None else next_document(inside.position)
        for number, document in islice(enumerate(_documents(record)), first, None):
            cursor = Cursor(*place, Stage.SOURCES, document_position(number))
            yield _event(EventKind.SOURCE_CHANGED, change, record, cursor, document=document), cursor
    if stage <= Stage.FACTS:
        last = fact_at(inside.position) if inside is not None and stage is Stage.FACTS else None
        for one in facts.changes_of(tr, of_corpus, change.revision, last, limit=0):
            cursor = Cursor(*place, Stage.FACTS, one.fact.bytes)
            kind = kind_of(one.change, one.status)
            told = None if kind is None else _event(kind, change, record, cursor, fact=one.fact, status=one.status)
            yield told, cursor
    if stage < Stage.COMMUNITIES and record.communities:
        cursor = Cursor(*place, Stage.COMMUNITIES)
        yield _event(EventKind.COMMUNITIES_RECOMPUTED, change, record, cursor), cursor
    yield _event(EventKind.STATE_CHANGED, change, record, _told(place)), _told(place)


def _documents(record: RevisionRecord) -> list[DocumentId]:
    """Each once: a document that was updated is one that came and one that went."""
    return list(dict.fromkeys((*record.documents_added, *record.documents_removed)))


def _event(
    kind: EventKind,
    change: Change,
    record: RevisionRecord,
    cursor: Cursor,
    fact: FactId | None = None,
    status: FactStatus | None = None,
    document: DocumentId | None = None,
) -> Event:
    return Event(kind, change.corpus, change.revision, record.at, cursor, fact, status, document)


def _place(cursor: Cursor) -> Place:
    return Place(cursor.incarnation, cursor.versionstamp)


def _told(place: Place) -> Cursor:
    return Cursor(*place)
