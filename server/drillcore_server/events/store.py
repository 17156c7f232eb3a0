"""The events of a tenant, from its own feed of revisions and from those of tenants that share corpora with it.

The order is that of the commits, over all feeds: versionstamps belong to the whole store. A transaction sees every
commit below its read version, and later commits have higher versionstamps. So a watcher that continues after the last
place it has read misses nothing, whatever is committed meanwhile and whichever server it asks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.events.model import (
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
from drillcore_server.facts import store as facts
from drillcore_server.facts.model import FactStatus
from drillcore_server.kernel import revisions
from drillcore_server.kernel import revisions as changes
from drillcore_server.kernel.revisions import Change, Place, RevisionRecord
from drillcore_server.storage import audit_records
from drillcore_server.storage.ids import DocumentId, FactId, TenantId
from drillcore_server.storage.keyspace import Keyspace

_VERSION_BYTES: Final = 8
"""The first bytes of a versionstamp: the version of the commit.

The rest is the place among commits of the same version.
"""
Told = tuple[Event | None, Cursor]
"""An event and its place, or only a place if there is no event to tell."""


def newest(tr: Reader, keys: Keyspace) -> Cursor:
    """The place after everything that has happened so far, also in corpora that the tenant cannot read yet."""
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
    """The events of the following revisions, up to a limit, read as they are consumed.

    Unwanted revisions are skipped.
    """
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
    """The events of a revision, or those after `inside`."""
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
        for changed in facts.changes_of(tr, of_corpus, change.revision, last, limit=0):
            cursor = Cursor(*place, Stage.FACTS, changed.fact.bytes)
            kind = kind_of(changed.change, changed.status)
            told = (
                None if kind is None else _event(kind, change, record, cursor, fact=changed.fact, status=changed.status)
            )
            yield told, cursor
    if stage < Stage.COMMUNITIES and record.communities:
        cursor = Cursor(*place, Stage.COMMUNITIES)
        yield _event(EventKind.COMMUNITIES_RECOMPUTED, change, record, cursor), cursor
    yield _event(EventKind.STATE_CHANGED, change, record, _told(place)), _told(place)


def _documents(record: RevisionRecord) -> list[DocumentId]:
    """Each document once: an updated document is in both lists, as removed and as added."""
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
