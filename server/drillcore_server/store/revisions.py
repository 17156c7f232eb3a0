"""A corpus's head, its revisions, and the claim of whoever is writing the next one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import prefix_end
from drillcore_server.domain.ids import Revision
from drillcore_server.domain.revisions import Claim, RevisionRecord
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.records import RecordKind
from drillcore_server.store.writes import Write

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
    """Makes a revision the head: from this commit on readers see it, whole. Times never go back."""
    assert record.revision == head(tr, keys) + 1, "a revision follows the one before it"
    before = get(tr, keys, Revision(record.revision - 1))
    if before is not None and before.at > record.at:
        record = replace(record, at=before.at)
    tr.set(keys.head(), record.revision.to_bytes(6, "big"))
    REVISION.write(tr, keys.revision(record.revision), record)
    tr.set(keys.revision_time(record.at, record.revision), b"")


def get(tr: Reader, keys: CorpusKeys, revision: Revision) -> RevisionRecord | None:
    return REVISION.read(tr, keys.revision(revision))


def between(tr: Reader, keys: CorpusKeys, after: Revision, up_to: Revision) -> Iterator[RevisionRecord]:
    """The revisions after one, up to and including another, in order."""
    for _, stored in codec.scan(tr, *keys.revisions(after, up_to)):
        yield REVISION.decode(stored)


def get_claim(tr: Reader, keys: CorpusKeys) -> Claim | None:
    return CLAIM.read(tr, keys.claim())


def put_claim(tr: Transaction, keys: CorpusKeys, claim: Claim) -> None:
    CLAIM.write(tr, keys.claim(), claim)


def clear_claim(tr: Transaction, keys: CorpusKeys) -> None:
    codec.clear(tr, keys.claim())


def stage(tr: Transaction, keys: CorpusKeys, revision: Revision, batch: int, writes: Sequence[Write]) -> None:
    """Notes what a batch of a claimed revision wrote, so that it can be swept away if the claim expires.

    A batch that is run again, because the result of its commit was lost, finds its own locators and does not write
    them: they stay noted.
    """
    noted = codec.read(tr, keys.staged(revision, batch))
    places = dict.fromkeys([] if noted is None else _places(noted))
    places |= dict.fromkeys(write.place(revision) for write in writes)
    places[keys.manifest(revision, batch)] = None
    codec.write(tr, keys.staged(revision, batch), zlib.compress(msgspec.msgpack.encode(list(places)), 1))


def unstage(tr: Transaction, keys: CorpusKeys) -> None:
    """Forgets the notes: what they name is published, or swept away."""
    tr.clear_range(*keys.all_staged())


def sweep_batch(tr: Transaction, keys: CorpusKeys) -> bool:
    """Removes one batch of what an expired claim left. False if there is none."""
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
