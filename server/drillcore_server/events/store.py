"""The events of a tenant, from its own feed of revisions and from those of tenants that share corpora with it.

Events are in the order of the commits over all feeds, because versionstamps belong to the whole store. A transaction
sees every commit below its read version, and later commits have higher versionstamps. So a watcher that continues after
the last place it has read misses nothing, whatever is committed meanwhile and whichever server it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import KeyValue, RangeRead, Reader
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
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
from drillcore_server.facts.store import Changed
from drillcore_server.kernel import corpus_store, revisions
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.revisions import Change, Place, PlacedChange, RevisionRecord
from drillcore_server.storage import audit_records
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import DocumentId, FactId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace

_VERSION_BYTES: Final = 8
"""The first bytes of a versionstamp: the version of the commit.

The rest is the place among commits of the same version.
"""
_BLOCKS_AHEAD: Final = 8
"""How many entries of each revision's feed of changed facts are read before they are asked for."""
PlacedEvent = tuple[Event | None, Cursor]
"""An event with its place, or only a place that was read if it has no event."""


def newest(tr: Reader, keys: Keyspace) -> Cursor:
    """Returns the place after everything that has happened so far, also in corpora that the tenant cannot read yet."""
    version = tr.read_version().to_bytes(_VERSION_BYTES, "big")
    return Cursor(audit_records.state(tr, keys).incarnation, version + b"\xff" * (VERSIONSTAMP_BYTES - _VERSION_BYTES))


def changes_after(
    tr: Reader, keys: Keyspace, granted: InTenant, cursor: Cursor, changes_max: int
) -> list[PlacedChange]:
    """Returns up to `changes_max` revisions after the cursor that the tenant itself, or one that shares with it, made.

    The cursor's own revision comes first if it has more events. Takes one round trip, or two if others share.
    """

    def feed(tenant: TenantId) -> KeyRange:
        first = keys.change(tenant, *_place(cursor))
        return KeyRange(first if cursor.stage is not Stage.STATE else first + b"\0", keys.changes(tenant).end)

    shared = corpus_store.shared_ranges(keys, granted.tenant)
    tr.read_ahead(
        [], [RangeRead(*feed(granted.tenant), limit=changes_max), *(RangeRead(*of_reader) for of_reader in shared)]
    )
    return revisions.first_changes(tr, keys, [feed(owner) for owner in granted.owners(tr, keys)], changes_max)


def events_of(
    tr: Reader, keys: Keyspace, changes: Sequence[PlacedChange], cursor: Cursor, wanted: Callable[[Change], bool]
) -> Iterator[PlacedEvent]:
    """Yields the events of these revisions that come after the cursor.

    Skips the events of unwanted revisions, but yields the place after each revision. Reads the beginning of all wanted
    revisions together, and what is long of one as it is consumed.
    """
    shown = [change for _, change in changes if wanted(change)]
    places = [(keys.of_corpus(change.number), change.revision) for change in shown]
    records = [of_corpus.revision(revision) for of_corpus, revision in places]
    ranges = [of_corpus.fact_changes_of(revision) for of_corpus, revision in places]
    tr.read_ahead(records, [RangeRead(*of_revision, limit=_BLOCKS_AHEAD) for of_revision in ranges])
    feeds = dict(zip(shown, tr.range_many(ranges, limit=_BLOCKS_AHEAD), strict=True))
    for place, change in changes:
        if change in feeds:
            inside = cursor if place == _place(cursor) else None
            yield from _events(tr, keys, place, change, feeds[change], inside)
        yield None, end_of(place)


def _events(
    tr: Reader, keys: Keyspace, place: Place, change: Change, feed: Sequence[KeyValue], inside: Cursor | None
) -> Iterator[PlacedEvent]:
    """Yields the events of a revision; only those after `inside`, if it is given.

    `feed` is the beginning of its feed of changed facts.
    """
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
        for changed in _changed_facts(tr, of_corpus, change.revision, feed, last):
            cursor = Cursor(*place, Stage.FACTS, changed.fact.bytes)
            kind = kind_of(changed.change, changed.status)
            event = (
                None if kind is None else _event(kind, change, record, cursor, fact=changed.fact, status=changed.status)
            )
            yield event, cursor
    if stage < Stage.COMMUNITIES and record.communities:
        cursor = Cursor(*place, Stage.COMMUNITIES)
        yield _event(EventKind.COMMUNITIES_RECOMPUTED, change, record, cursor), cursor
    yield _event(EventKind.STATE_CHANGED, change, record, end_of(place)), end_of(place)


def _changed_facts(
    tr: Reader, keys: CorpusKeys, revision: Revision, feed: Sequence[KeyValue], last: FactId | None
) -> Iterator[Changed]:
    """Yields the changes by a revision to facts; only those after `last`, if it is given."""
    if last is not None:
        yield from facts.changes_of(tr, keys, revision, last, limit=0)
        return
    further = tr.range(feed[-1][0] + b"\0", keys.fact_changes_of(revision).end) if len(feed) == _BLOCKS_AHEAD else ()
    for entry in chain(feed, further):
        yield from facts.feed_changes(*entry)


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


def end_of(place: Place) -> Cursor:
    """Returns the place after all events of a revision."""
    return Cursor(*place)
