"""The revisions of a corpus, the claim of whoever writes the next one, and the tenant's feed of committed revisions.

A revision changes all levels of a corpus at once. The head is the one that readers see.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import msgspec

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import KeyRange, prefix_end
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    CorpusId,
    CorpusNumber,
    DocumentId,
    NodeId,
    PrincipalId,
    RecordId,
    RequestId,
    Revision,
)
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """Who made a revision, when and how, and what it changed."""

    revision: Revision
    at: datetime
    by: PrincipalId
    request_id: RequestId
    action: str
    documents_added: tuple[DocumentId, ...]
    documents_removed: tuple[DocumentId, ...]
    sections: tuple[NodeId, ...]
    """The sections it changed, made or removed, which followers have to read again."""
    audit_id: RecordId
    """The id of the audit record, which commits to everything the revision wrote."""
    facts: int = 0
    """How many facts it changed. The feed of fact changes names them."""
    communities: bool = False
    """Whether it recomputed communities."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write the next revision in several transactions. Other writers wait."""

    id: UUID
    revision: Revision
    lease_until: datetime

    def is_expired(self, now: datetime) -> bool:
        return now > self.lease_until


REVISION = RecordKind(RevisionRecord)
CLAIM = RecordKind(Claim)


def head(tr: Reader, keys: CorpusKeys) -> Revision:
    """The revision that readers see now."""
    return Revision(int.from_bytes(tr.get(keys.head()) or b"", "big"))


def at_time(tr: Reader, keys: CorpusKeys, at: datetime) -> Revision:
    """The revision that readers saw at a time."""
    newest = next(iter(tr.range(*keys.revision_times_up_to(at), limit=1, reverse=True)), None)
    return Revision(int.from_bytes(newest[0][-6:], "big")) if newest else Revision(0)


def publish(tr: Transaction, keys: CorpusKeys, record: RevisionRecord) -> None:
    """Makes a revision the head: from this commit on readers see all of it. Times of revisions never go back."""
    assert record.revision == head(tr, keys) + 1, "a revision follows the one before it"
    before = get(tr, keys, Revision(record.revision - 1))
    if before is not None and before.at > record.at:
        record = replace(record, at=before.at)
    tr.set(keys.head(), record.revision.to_bytes(6, "big"))
    REVISION.write(tr, keys.revision(record.revision), record)
    tr.set(keys.revision_time(record.at, record.revision), b"")


def get(tr: Reader, keys: CorpusKeys, revision: Revision) -> RevisionRecord | None:
    return REVISION.read(tr, keys.revision(revision))


def get_many(tr: Reader, keys: CorpusKeys, numbers: Sequence[Revision]) -> list[RevisionRecord | None]:
    """Several revisions, read together."""
    return REVISION.read_many(tr, list(map(keys.revision, numbers)))


def between(tr: Reader, keys: CorpusKeys, after: Revision, up_to: Revision) -> Iterator[RevisionRecord]:
    """The revisions after the first one given, up to and including the second, in order."""
    for _, stored in codec.scan(tr, *keys.revisions(after, up_to)):
        yield REVISION.decode(stored)


def get_claim(tr: Reader, keys: CorpusKeys) -> Claim | None:
    return CLAIM.read(tr, keys.claim())


def put_claim(tr: Transaction, keys: CorpusKeys, claim: Claim) -> None:
    CLAIM.write(tr, keys.claim(), claim)


def clear_claim(tr: Transaction, keys: CorpusKeys) -> None:
    codec.clear(tr, keys.claim())


def stage(tr: Transaction, keys: CorpusKeys, revision: Revision, batch: int, written: Iterable[bytes]) -> None:
    """Notes what a batch of a claimed revision wrote, so that it can be removed if the claim expires.

    Every key that it set begins with one of `written`.
    A batch may be re-run because the result of its commit was lost. It then finds its own locators and does not write
    them again; they stay noted.
    """
    noted = codec.read(tr, keys.staged(revision, batch))
    places = dict.fromkeys([] if noted is None else _places(noted))
    places |= dict.fromkeys(written)
    codec.write(tr, keys.staged(revision, batch), zlib.compress(msgspec.msgpack.encode(list(places)), 1))


def unstage(tr: Transaction, keys: CorpusKeys) -> None:
    """Removes the notes, once what they name is published or removed."""
    tr.clear_range(*keys.all_staged())


def sweep_batch(tr: Transaction, keys: CorpusKeys) -> bool:
    """Removes one batch of what an expired claim left. Returns False if there is none."""
    found = next(iter(codec.scan(tr, *keys.all_staged(), limit=1)), None)
    if found is None:
        return False
    key, places = found
    for place in _places(places):
        tr.clear_range(place, prefix_end(place))
    codec.clear(tr, key)
    return True


def _places(noted: bytes) -> list[bytes]:
    return msgspec.msgpack.decode(zlib.decompress(noted), type=list[bytes])


@dataclass(frozen=True, slots=True)
class Change:
    corpus: CorpusId
    number: CorpusNumber
    revision: Revision


class Place(NamedTuple):
    """The place of a change in the feed.

    A restored store begins a new incarnation, whose versionstamps may be lower.
    """

    incarnation: int
    versionstamp: bytes


CHANGE = RecordKind(Change)
PlacedChange = tuple[Place, Change]


def append(tr: Transaction, keys: Keyspace, corpus: Corpus, revision: Revision, incarnation: int) -> None:
    """Adds a revision to the feed, in the transaction that makes it the head."""
    told = CHANGE.encode(Change(corpus.id, corpus.number, revision))
    tr.set_versionstamped_key(keys.change_template(corpus.tenant_id, incarnation), told)


def first_changes(tr: Reader, keys: Keyspace, ranges: Sequence[KeyRange], limit: int) -> list[PlacedChange]:
    """The first changes in ranges of the feeds of several tenants, in the order of commits."""
    found = heapq.merge(*tr.range_many(ranges, limit=limit), key=lambda entry: keys.parse_change(entry[0]))
    return [(Place(*keys.parse_change(key)), CHANGE.decode(value)) for key, value in islice(found, limit)]
