"""Purging removes the bytes of erased content from every file, and fsck can tell a purge from tampering."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock
from uuid import UUID

import pytest

from drillcore_fdb.embedded import compact
from drillcore_fdb.errors import UnavailableError
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.app.config import EngineSettings
from drillcore_server.app.factories import open_keyring
from drillcore_server.erasure import purge_store as purging
from drillcore_server.erasure.destroy_keys import finish_erasures
from drillcore_server.erasure.purge import purge_due
from drillcore_server.storage import versioned
from drillcore_server.storage.keyring import KeyErased, KeyNumber, Keyring
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.sealed import keys_of as header_of
from drillcore_server.storage.versioned import Entry
from tests.support.callers.erasures import (
    MARKED,
    MARKER,
    OTHER,
    SEALED,
    ErasingCaller,
    files_with,
    opened,
    problems,
    sealed_under,
    under_key,
)
from tests.support.callers.knowledge import CHUNK, SECTION, File, at_revision, refused
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.stores.aged import age, keys_in, keys_of
from tests.support.stores.engines import open_engine
from tests.support.stores.stores import wait_until
from tests.support.stores.trails import records


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[ErasingCaller]:
    with ErasingCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: ErasingCaller) -> str:
    return filled(caller)


def filled(caller: ErasingCaller, name: str = "plan") -> str:
    """A corpus of three revisions. The second and the third changed what the first made."""
    made = caller.corpus(name)
    caller.add(made, File("other.md", OTHER, "other"))
    caller.add(made, File("marked.md", MARKED, "marked"))
    caller.add(made, File("marked.md", MARKED + f"\nA second {MARKER} edition says that keepers must pay.\n", "marked"))
    return made


def marked(values: Iterator[bytes]) -> int:
    return sum(MARKER.encode() in value.lower() for value in values)


def test_an_erasure_leaves_bytes_that_a_purge_removes(server: Running, caller: ErasingCaller, corpus: str) -> None:
    assert marked(opened(server, corpus)) > 3
    key, _ = caller.erase(corpus, "marked").erasure.erased_keys
    assert marked(opened(server, corpus)) == 0, "nothing of it can be opened"
    left = sealed_under(server, corpus, key)
    assert left > 5
    done = caller.purge(corpus)
    assert (done.erasures, done.finished) == (1, True)
    assert done.records_removed >= left
    assert sealed_under(server, corpus, key) == 0
    assert caller.erasures(corpus)[0].HasField("purged_at")
    again = caller.purge(corpus)
    assert (again.erasures, again.records_removed, again.finished) == (0, 0, True)


def test_a_purge_is_on_the_record_and_fsck_accepts_it_and_nothing_else(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    caller.erase(corpus, "marked")
    assert problems(server) == ()
    done = caller.purge(corpus)
    (record,) = records(server, call="PurgeErased")
    assert (record["action"], record["outcome"]) == ("ERASE", "OK")
    assert record["detail"]["purged_records"] == done.records_removed
    assert problems(server) == ()
    keys = keys_of(server, corpus)
    chunk = next(node.id for node in caller.query(corpus, level=CHUNK))
    server.engine.run(lambda tr: tr.clear_range(keys.chunk(UUID(chunk)), versioned.behind(keys.chunk(UUID(chunk)))))  # type: ignore[arg-type]
    assert any("is gone, and not by trimming or a purge" in problem for problem in problems(server))


def test_a_changed_list_of_purged_records_is_found(server: Running, caller: ErasingCaller, corpus: str) -> None:
    """Removing a record cannot be hidden by adding it to the list of purged records."""
    caller.erase(corpus, "marked", purge_now=True)
    assert problems(server) == ()
    keys = keys_of(server, corpus)
    place = keys.purged(1, 0)

    def forge(tr: purging.Transaction) -> None:
        listed = purging.codec.read(tr, place) or b""
        purging.codec.write(tr, place, listed + bytes(12) + (1).to_bytes(6, "big"))

    server.engine.run(forge)
    assert any(
        "the list of purge 1 is not what its audit record committed to" in problem for problem in problems(server)
    )


def test_history_is_readable_after_a_purge_without_the_erased_content(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    """Removing a record does not bring back an older version of it."""
    (first,) = caller.query(corpus, level=SECTION, as_of=at_revision(1))
    (second,) = caller.query(corpus, level=SECTION, as_of=at_revision(2))
    assert (first.id, first.version + 1) == (second.id, second.version)
    caller.erase(corpus, "marked", purge_now=True)
    assert [node.section.summary for node in caller.query(corpus, level=SECTION, as_of=at_revision(1))] == [
        first.section.summary
    ]
    for revision in range(1, caller.head(corpus) + 1):
        sources = {document.source_id for document in caller.list_documents(corpus, as_of=at_revision(revision))}
        assert sources == {"other"}
        assert [node.chunk.source_id for node in caller.query(corpus, level=CHUNK, as_of=at_revision(revision))] == [
            "other"
        ]
    for revision in (2, 3):
        assert caller.query(corpus, level=SECTION, as_of=at_revision(revision)) == []


def test_a_section_made_from_erased_content_stays_in_every_list(server: Running, caller: ErasingCaller) -> None:
    """The index entries of the section are as old as its first record, which is purged. Its later records stay."""
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
    (section,) = caller.query(corpus, level=SECTION)
    caller.erase(corpus, "marked")
    before = caller.query(corpus, level=SECTION)
    assert [listed.id for listed in before] == [section.id]
    caller.purge(corpus)
    category = nodes_pb2.Filters(categories=[section.section.category])
    assert caller.query(corpus, level=SECTION) == caller.query(corpus, level=SECTION, filters=category) == before
    assert problems(server) == ()


def test_no_index_names_purged_nodes(server: Running, caller: ErasingCaller, corpus: str) -> None:
    """Indexes keep neither entries nor removals. Only keys that manifests list remain: emptied records and removals."""
    documents = [document.id for document in caller.list_documents(corpus) if document.source_id == "marked"]
    chunks = [node.id for node in caller.query(corpus, level=CHUNK) if node.chunk.source_id == "marked"]
    facts = [fact.fact_id for fact in caller.list(corpus) if fact.source_id == "marked"]
    gone = [UUID(node_id).bytes for node_id in (*documents, *chunks, *facts)]
    assert all((documents, chunks, facts))
    assert index_keys(server, corpus, gone) > 5
    caller.erase(corpus, "marked", purge_now=True)
    assert index_keys(server, corpus, gone) == 0


def index_keys(server: Running, corpus: str, ids: list[bytes]) -> int:
    """How many keys of indexes have one of these ids."""
    keys = keys_of(server, corpus)
    spaces = [space for space in keys.by_revision() if keys.space_of(space.begin) not in SEALED]
    found = [key for space in spaces for key, _ in server.engine.run(lambda tr, s=space: list(tr.range(*s)))]  # type: ignore[misc]
    return sum(any(node_id in key for node_id in ids) for key in found if not keys.is_committed(key))


@pytest.mark.parametrize("is_trimmed_first", [True, False])
def test_a_purge_and_a_trim_in_either_order_keep_the_remaining_content(
    server: Running, caller: ErasingCaller, corpus: str, is_trimmed_first: bool
) -> None:
    key, _ = caller.erase(corpus, "marked").erasure.erased_keys
    client = server.client(ACME)
    client.update_corpus(UUID(corpus), retention_days=1)
    age(server, corpus, 10)
    caller.add(corpus, File("more.md", OTHER + "\nMore is said here than there.\n", "more"))
    before = caller.query(corpus, level=SECTION)
    works = [lambda: client.trim_corpus(UUID(corpus)).finished, lambda: caller.purge(corpus).finished]
    for work in works if is_trimmed_first else reversed(works):
        assert work()
        assert problems(server) == ()
    assert caller.query(corpus, level=SECTION) == before
    assert sealed_under(server, corpus, key) == 0


def test_no_file_has_the_text_after_purge_and_compaction(tmp_path: Path) -> None:
    """The sealed bytes are gone too, so a copy of the disk with all keys has nothing to open."""
    data = tmp_path / "data"
    with running(data) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as caller:
            corpus = filled(caller)
            sealed = _sealed_chunk(server, corpus)
            assert files_with(data, sealed) == ["data.mdb"]
            caller.erase(corpus, "marked", purge_now=True)
    assert files_with(data, MARKER.encode()) == []
    compact(data)
    assert files_with(data, sealed) == []
    assert files_with(data, MARKER.encode()) == files_with(data, MARKER.title().encode()) == []
    with running(data) as server:
        assert problems(server) == ()
        assert marked(opened(server, corpus)) == 0


def _sealed_chunk(server: Running, corpus: str) -> bytes:
    """Some bytes of a chunk of the marked source, as it is stored."""
    keys = keys_of(server, corpus)
    values, _ = server.engine.run(lambda tr: versioned.values_page(tr, *keys.chunks(), 10_000))
    sealed = SealedRecords(server.server.keyring)
    found = (
        version.value
        for version in values
        if version.value is not None
        and MARKER.encode() in sealed.opened(Entry(version.key, version.revision, version.value)).value
    )
    return next(found)[-64:]


def test_an_old_copy_of_the_store_cannot_be_read_with_the_current_keyring(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with running(data) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as caller:
            corpus = filled(caller)
    shutil.copytree(data, backup, ignore=shutil.ignore_patterns("keyring"))
    with running(data) as server, ErasingCaller(server, ACME) as caller:
        caller.erase(corpus, "marked")
    shutil.copytree(data / "keyring", backup / "keyring")
    engine = open_engine(backup)
    with open_keyring(EngineSettings(data_dir=backup), engine) as keyring:
        sealed, keys = SealedRecords(keyring), keys_in(engine, corpus)
        values, _ = engine.run(lambda tr: versioned.values_page(tr, *keys.chunks(), 10_000))
        entries = [
            Entry(version.key, version.revision, version.value) for version in values if version.value is not None
        ]
        left = list(sealed.opened_all(entries))
        assert 0 < len(left) < len(entries)
        assert marked(entry.value for entry in left) == 0
        erased = next(entry for entry in entries if entry.key not in {known.key for known in left})
        with pytest.raises(KeyErased):
            sealed.opened(erased)
    engine.close()


def test_a_keyring_that_is_restored_from_an_older_copy_loses_the_erased_keys_again(tmp_path: Path) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    with running(data) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as caller:
            corpus = filled(caller)
    shutil.copytree(data / "keyring", copied)
    with running(data) as server, ErasingCaller(server, ACME) as caller:
        key, _ = caller.erase(corpus, "marked").erasure.erased_keys
    shutil.rmtree(data / "keyring")
    shutil.copytree(copied, data / "keyring")
    with running(data) as server, ErasingCaller(server, ACME) as caller:
        wait_until(lambda: "erased keys destroyed" in server.log.getvalue(), "the server destroys the key by itself")
        assert server.server.keyring.stored_and_destroyed([KeyNumber(key)]) == (set(), {key})
        assert not any("again" in problem for problem in problems(server))
        unit, now = server.server._unit, datetime.now(UTC)
        done = dict(finish_erasures(server.engine, unit.keys, server.server.keyring, now))
        assert set(done.values()) == {0}, "the erasure is finished only once"
        caller.add(corpus, File("marked.md", MARKED, "marked"))
        server.server._housekeeper.destroy_keys(now)
        assert marked(opened(server, corpus)) > 0, "a source that came again keeps its new key"


def test_the_housekeeper_purges_when_a_purge_is_due_and_not_before(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    key, _ = caller.erase(corpus, "marked").erasure.erased_keys
    now, unit = datetime.now(UTC), server.server._unit
    assert list(purge_due(server.engine, unit, now + timedelta(days=29), lambda: False)) == []
    assert sealed_under(server, corpus, key) > 0
    ((found, done),) = purge_due(server.engine, unit, now + timedelta(days=31), lambda: False)
    assert str(found) == corpus
    assert done.finished  # type: ignore[union-attr]
    assert sealed_under(server, corpus, key) == 0
    assert problems(server) == ()


def test_the_housekeeper_destroys_remaining_keys_and_purges_when_due(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    """The keyring fails after the commit, and no server is restarted."""
    failing = mock.patch.object(Keyring, "destroy", side_effect=UnavailableError("the disk is gone"))
    with failing, refused(Reason.STORE_UNAVAILABLE):
        caller.erase(corpus, "marked")
    (erasure,) = caller.erasures(corpus)
    key, housekeeper, keyring = erasure.erased_keys[0], server.server._housekeeper, server.server.keyring
    assert keyring.stored_and_destroyed([KeyNumber(key)]) == ({key}, set())
    assert marked(opened(server, corpus)) == 0, "the remaining key is not used"
    housekeeper.destroy_keys(datetime.now(UTC))
    housekeeper.purge(datetime.now(UTC))
    assert keyring.stored_and_destroyed([KeyNumber(key)]) == (set(), {key})
    assert sealed_under(server, corpus, key) > 0
    housekeeper.purge(datetime.now(UTC) + timedelta(days=31))
    assert sealed_under(server, corpus, key) == 0


def test_the_housekeeper_purges_nothing_of_a_corpus_on_hold(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    key, _ = caller.erase(corpus, "marked").erasure.erased_keys
    left, later, unit = sealed_under(server, corpus, key), datetime.now(UTC) + timedelta(days=31), server.server._unit
    client = server.client(ACME)
    client.update_corpus(UUID(corpus), hold_reason="Case 2026-17")
    assert list(purge_due(server.engine, unit, later, lambda: False)) == []
    assert sealed_under(server, corpus, key) == left > 0
    client.update_corpus(UUID(corpus), release_reason="settled")
    assert len(list(purge_due(server.engine, unit, later, lambda: False))) == 1
    assert sealed_under(server, corpus, key) == 0


def test_erased_content_of_a_deleted_corpus_is_purged_too(server: Running, caller: ErasingCaller, corpus: str) -> None:
    key, _ = caller.erase(corpus, "marked").erasure.erased_keys
    keys, unit = keys_of(server, corpus), server.server._unit
    server.client(ACME).delete_corpus(UUID(corpus))
    with refused(Reason.CORPUS_NOT_FOUND):
        caller.purge(corpus)
    later = datetime.now(UTC) + timedelta(days=31)
    ((_, done),) = purge_due(server.engine, unit, later, lambda: False)
    assert done.finished  # type: ignore[union-attr]
    assert under_key(server, keys, key) == 0
    assert list(purge_due(server.engine, unit, later, lambda: False)) == []
    assert problems(server) == ()


def test_a_lost_key_is_an_error_and_never_taken_for_erased(server: Running, caller: ErasingCaller, corpus: str) -> None:
    keyring = server.server.keyring
    (document,) = [document.id for document in caller.list_documents(corpus) if document.source_id == "marked"]
    (number,) = _numbers(server, corpus, document)
    keyring._engine.run(lambda tr: tr.clear(keyring._root.pack((1, number))))
    keyring._keys.clear()
    keyring._composites.clear()
    with refused(Reason.STORE_UNAVAILABLE):
        caller.document(corpus, document)
    with refused(Reason.STORE_UNAVAILABLE):
        caller.list_documents(corpus)
    assert any(f"the key {number} is lost" in problem for problem in problems(server))


def _numbers(server: Running, corpus: str, document: str) -> tuple[int, ...]:
    keys = keys_of(server, corpus)
    entry = server.engine.run(lambda tr: versioned.get(tr, keys.document(UUID(document)), 10_000))  # type: ignore[arg-type]
    assert entry is not None
    return header_of(entry.value)
