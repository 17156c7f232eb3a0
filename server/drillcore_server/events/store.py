"""The events of a tenant, from its own feed of revisions and from those of tenants that share corpora with it.

Events are in the order of the commits over all feeds, because versionstamps belong to the whole store. A transaction
sees every commit below its read version, and later commits have higher versionstamps. So a watcher that continues after
the last place it has read misses nothing, whatever is committed meanwhile and whichever server it asks.
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
from drillcore_server.kernel.revisions import Change, Place, RevisionRecord
from drillcore_server.storage import audit_records
from drillcore_server.storage.ids import DocumentId, FactId, TenantId
from drillcore_server.storage.keyspace import Keyspace

_VERSION_BYTES: Final = 8
"""The first bytes of a versionstamp: the version of the commit.

The rest is the place among commits of the same version.
"""
PlacedEvent = tuple[Event | None, Cursor]
"""An event with its place, or only a place that was read if it has no event."""


def newest(tr: Reader, keys: Keyspace) -> Cursor:
    """Returns the place after everything that has happened so far, also in corpora that the tenant cannot read yet."""
    version = tr.read_version().to_bytes(_VERSION_BYTES, "big")
    return Cursor(audit_records.state(tr, keys).incarnation, version + b"\xff" * (VERSIONSTAMP_BYTES - _VERSION_BYTES))


def after(
    tr: Reader,
    keys: Keyspace,
    tenants: Iterable[TenantId],
    cursor: Cursor,
    wanted: Callable[[Change], bool],
    changes_max: int,
) -> Iterator[PlacedEvent]:
    """Yields the events of up to `changes_max` revisions after the cursor, and reads them as they are consumed.

    Skips the events of unwanted revisions, but yields the place after each revision.
    """
    for place, change in islice(_changes(tr, keys, list(tenants), cursor, changes_max), changes_max):
        if wanted(change):
            inside = cursor if place == _place(cursor) else None
            yield from _events(tr, keys, place, change, inside)
        yield None, _end_of(place)


def _changes(
    tr: Reader, keys: Keyspace, tenants: list[TenantId], cursor: Cursor, limit: int
) -> Iterator[tuple[Place, Change]]:
    place = _place(cursor)
    if cursor.stage is not Stage.STATE:
        for tenant in tenants:
            found = revisions.at(tr, keys, tenant, place)
            if found is not None:
                yield place, found
    yield from heapq.merge(*(revisions.after(tr, keys, tenant, place, limit) for tenant in tenants))


def _events(tr: Reader, keys: Keyspace, place: Place, change: Change, inside: Cursor | None) -> Iterator[PlacedEvent]:
    """Yields the events of a revision; only those after `inside`, if it is given."""
    of_corpus = keys.of_corpus(change.number)
    record = revisions.get(tr, of_corpus, change.revision)
    if record is None:
        raise StoreCorruptError(
            f"revision {change.revision} of corpus {change.corpus} is in the feed, but its record is missing"
        )
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
            event = (
                None if kind is None else _event(kind, change, record, cursor, fact=changed.fact, status=changed.status)
            )
            yield event, cursor
    if stage < Stage.COMMUNITIES and record.communities:
        cursor = Cursor(*place, Stage.COMMUNITIES)
        yield _event(EventKind.COMMUNITIES_RECOMPUTED, change, record, cursor), cursor
    yield _event(EventKind.STATE_CHANGED, change, record, _end_of(place)), _end_of(place)


def _documents(record: RevisionRecord) -> list[DocumentId]:
    """Returns each document once. An updated document is in both lists: as removed and as added."""
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


def _end_of(place: Place) -> Cursor:
    return Cursor(*place)
