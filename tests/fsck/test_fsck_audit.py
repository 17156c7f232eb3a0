"""fsck finds edits of the store, whatever keys the editor has, as long as the editor cannot sign.

fsck compares the records with the commitments of the signed audit trail. The editor here has the keyring, so every
edit is sealed correctly, and nodes and indexes still agree with each other after every edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore_fdb import codec
from drillcore_fdb.engine import Transaction
from drillcore_server.kernel import revisions
from drillcore_server.kernel import writes as manifests
from drillcore_server.storage import audit_records, versioned
from drillcore_server.storage.audit_records import RECORD
from drillcore_server.storage.ids import RecordId, Revision
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.archive_retention import keep_days, trim

Edit = Callable[[Transaction, Archive], None]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    """Three revisions: documents added, one replaced, one removed."""
    with opened_archive(tmp_path) as archive:
        archive.add({"fishing": text_of("fishing", 1), "banking": text_of("banking", 1)})
        archive.add({"fishing": text_of("fishing", 2)})
        archive.remove([archive.documents()["banking"]])
        assert archive.fsck().problems == ()
        yield archive


def stored(tr: Transaction, keys: tuple[bytes, bytes]) -> list[versioned.Value]:
    return versioned.values_page(tr, *keys, 10_000)[0]


def rewrite_a_master(tr: Transaction, archive: Archive) -> None:
    """Changes the summary of revision 2 and seals it under the right key."""
    key = archive.keys.master()
    entry = archive.sealed.get(tr, key, Revision(2))
    assert entry is not None
    number = archive.planner.reviser.make_keys(archive.corpus, [])
    archive.sealed.put(tr, key, Revision(2), number, entry.value.replace(b"vessel", b"rowboat"))


def seal_anew(tr: Transaction, archive: Archive) -> None:
    """Seals the same content again. This is an edit too."""
    key = archive.keys.master()
    entry = archive.sealed.get(tr, key, Revision(1))
    assert entry is not None
    archive.sealed.put(tr, key, Revision(1), archive.planner.reviser.make_keys(archive.corpus, []), entry.value)


def roll_back_a_master(tr: Transaction, archive: Archive) -> None:
    """Makes readers of the head see the master of the revision before."""
    place = archive.keys.master() + Revision(3).to_bytes(6, "big")
    tr.clear_range(place, place + b"\xff\xff")


def remove_an_old_version(tr: Transaction, archive: Archive) -> None:
    """Removes a part of the history that no reader of the head sees."""
    old = next(version for version in stored(tr, archive.keys.chunks()) if version.revision == 1 and version.value)
    place = old.key + old.revision.to_bytes(6, "big")
    tr.clear_range(place, place + b"\xff\xff")


def add_a_version(tr: Transaction, archive: Archive) -> None:
    versions = stored(tr, archive.keys.parents())
    changed = {version.key for version in versions if version.revision == 2}
    old = next(version for version in versions if version.revision == 1 and version.key not in changed)
    assert old.value is not None
    versioned.put(tr, old.key, Revision(2), old.value)


def remove_a_tombstone(tr: Transaction, archive: Archive) -> None:
    gone = next(version for version in stored(tr, archive.keys.documents()) if version.value is None)
    tr.clear(gone.key + gone.revision.to_bytes(6, "big") + b"\0\0")


def fit_the_manifest(tr: Transaction, archive: Archive) -> None:
    """Rewrites a version and the manifest with it. The audit record still commits to the old manifest."""
    rewrite_a_master(tr, archive)
    key = archive.keys.master()
    now = next(version for version in stored(tr, (key, key + b"\xff" * 8)) if version.revision == 2)
    entries, _ = manifests.read(tr, archive.keys, Revision(2))
    hashed = manifests.key_hash(key)
    fitted = manifests.Entry(hashed, manifests.value_hash(key, Revision(2), now.value))
    manifests.put(tr, archive.keys, Revision(2), 0, [fitted if entry.key == hashed else entry for entry in entries])


def remove_an_audit_record(tr: Transaction, archive: Archive) -> None:
    tr.clear(archive.keyspace.audit_record(*_position(tr, archive, Revision(2))))


def sign_with_another_key(tr: Transaction, archive: Archive) -> None:
    _change_record(tr, archive, lambda record: replace(record, signature=bytes(64)))


def change_a_commitment(tr: Transaction, archive: Archive) -> None:
    _change_record(tr, archive, lambda record: replace(record, commitment=bytes(32)))


def put_another_body_there(tr: Transaction, archive: Archive) -> None:
    """Puts the body of another record there. It is of the same log and sealed to its own record."""
    other_record = audit_records.get(tr, archive.keyspace, audit_records.Position(*_position(tr, archive, Revision(3))))
    assert other_record is not None
    _change_record(tr, archive, lambda record: replace(record, body=other_record.body))


def name_another_audit_record(tr: Transaction, archive: Archive) -> None:
    record = revisions.get(tr, archive.keys, Revision(2))
    assert record is not None
    forged = replace(record, audit_id=RecordId(uuid4()))
    revisions.REVISION.write(tr, archive.keys.revision(Revision(2)), forged)


def exchange_two_revisions(tr: Transaction, archive: Archive) -> None:
    """The record of revision 2 names the audit record of revision 3, and its caller and request."""
    second, third = (revisions.get(tr, archive.keys, Revision(number)) for number in (2, 3))
    assert second is not None
    assert third is not None
    forged = replace(second, audit_id=third.audit_id, by=third.by, request_id=third.request_id)
    revisions.REVISION.write(tr, archive.keys.revision(Revision(2)), forged)


def remove_a_revision(tr: Transaction, archive: Archive) -> None:
    codec.clear(tr, archive.keys.revision(Revision(2)))


def _position(tr: Transaction, archive: Archive, revision: Revision) -> tuple[int, int, bytes]:
    record = revisions.get(tr, archive.keys, revision)
    assert record is not None
    found = audit_records.find_request(tr, archive.keyspace, record.by, record.request_id)
    assert found is not None
    return found.position.incarnation, found.position.bucket, found.position.versionstamp


def _change_record(
    tr: Transaction, archive: Archive, change: Callable[[audit_records.StoredRecord], audit_records.StoredRecord]
) -> None:
    place = _position(tr, archive, Revision(2))
    record = audit_records.get(tr, archive.keyspace, audit_records.Position(*place))
    assert record is not None
    tr.set(archive.keyspace.audit_record(*place), RECORD.encode(change(record)))


EDITS = {
    rewrite_a_master: "is not what was written",
    seal_anew: "is not what was written",
    roll_back_a_master: "is gone, and not by trimming",
    remove_an_old_version: "is gone, and not by trimming",
    add_a_version: "is in no manifest: no recorded call wrote it",
    remove_a_tombstone: "is gone, and not by trimming",
    fit_the_manifest: "revision 2: its manifest is not what its audit record committed to",
    remove_an_audit_record: "revision 2: its audit record is missing",
    sign_with_another_key: "revision 2: its audit record was changed",
    change_a_commitment: "revision 2: its audit record was changed",
    put_another_body_there: "revision 2: its audit record was changed",
    name_another_audit_record: "revision 2: its audit record is missing",
    exchange_two_revisions: "revision 2: its audit record is about something else",
    remove_a_revision: "revision 2: its record is missing",
}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_of_the_store_is_found(archive: Archive, edit: Edit) -> None:
    archive.engine.run(lambda tr: edit(tr, archive))
    found = archive.fsck().problems
    assert any(EDITS[edit] in problem for problem in found), found


def test_fsck_does_not_miss_trimmed_records_and_still_checks_the_rest(archive: Archive) -> None:
    keep_days(archive, 1)
    trim(archive, Revision(3))
    assert archive.fsck().problems == ()
    archive.engine.run(lambda tr: roll_back_a_master(tr, archive))
    assert any("is gone, and not by trimming" in problem for problem in archive.fsck().problems)
