"""Erasing under faults: killed between its steps, on several servers, and while others add the same source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest

from drillcore_fdb.errors import EngineError
from drillcore_proto.reasons import Reason
from drillcore_server.erasure.destroy_keys import finish_erasures
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import erasures
from drillcore_server.kernel.erasures import Erasure
from drillcore_server.kernel.errors import Refused
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import Revision, SourceId
from drillcore_server.storage.keyring import KeyErased, KeyNumber, Keyring
from tests.support.processes.killed import process
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of
from tests.support.stores.archive_erasures import erase, purge
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates
from tests.support.stores.journals import open_journal

TOPIC = "fishing"


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        fill(archive)
        yield archive


def fill(archive: Archive) -> None:
    """Makes two revisions, each with documents of every source."""
    for seed in range(2):
        archive.add({topic: text_of(topic, seed) for topic in SENTENCES})


def noted(archive: Archive) -> list[Erasure]:
    return archive.engine.run(lambda tr: list(erasures.of_corpus(tr, archive.keys)))


def readable(archive: Archive, revision: int) -> list[str]:
    """The sources whose documents can be read at a revision."""
    snapshot = archive.planner.reviser.batched(archive.corpus, Revision(revision))
    return sorted(document.source for document in snapshot.read(lambda view: list(HierarchyReader(view).documents())))


def finished(archive: Archive) -> int:
    """How many erasures a round of the keeper finishes."""
    done = finish_erasures(archive.engine, archive.keyspace, archive.keyring, datetime.now(UTC))
    return sum(count for _, count in done if isinstance(count, int))


LEFT = sorted(SENTENCES.keys() - {TOPIC})


def test_an_erasure_killed_before_the_keys_are_destroyed_is_finished_later(tmp_path: Path) -> None:
    with opened_archive(tmp_path) as archive:
        fill(archive)
    with process("-m", "tests.support.stores.archive_erasures", str(tmp_path), "destroy", TOPIC) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"now\n"
    with opened_archive(tmp_path) as archive:
        (erasure,) = noted(archive)
        numbers = set(map(KeyNumber, erasure.key_numbers))
        assert archive.keyring.stored_and_destroyed(numbers)[0] == numbers, "the keyring still has the keys"
        assert [readable(archive, revision) for revision in (1, 2, 3)] == [LEFT] * 3
        report = archive.fsck()
        assert (report.problems, len(report.notes)) == ((), 1)
        assert "not finished" in report.notes[0]
        assert finished(archive) == 1
        assert archive.keyring.stored_and_destroyed(numbers)[1] == numbers
        assert finished(archive) == 0
        report = archive.fsck()
        assert (report.problems, report.notes) == ((), ())


def test_another_server_does_not_use_an_erased_key_from_its_memory(archive: Archive, tmp_path: Path) -> None:
    second_server = _other_server(archive, tmp_path)
    assert readable(second_server, 2) == sorted(SENTENCES)
    titles = [outline.title for outline in second_server.reader(Revision(2)).outlines().by_id.values()]
    assert any(TOPIC in title for title in titles)
    erase(archive, TOPIC)
    assert [readable(second_server, revision) for revision in (1, 2, 3)] == [LEFT] * 3
    for revision in (1, 2, 3):
        outlines = second_server.reader(Revision(revision)).outlines()
        assert not any(TOPIC in outline.title for outline in outlines.by_id.values())
    second_server.add({TOPIC: text_of(TOPIC, 9)})
    assert readable(archive, 4) == sorted(SENTENCES)
    assert archive.fsck().problems == ()


def _other_server(archive: Archive, path: Path) -> Archive:
    """The corpus on another server, with a keyring, caches and a journal of its own."""
    known = archive.keyring
    keyring = Keyring(known._engine, known._root, (path / "keyring" / "master.key").read_bytes())
    journal = open_journal(archive.engine, archive.keyspace, keyring, path)
    return replace(archive, keyring=keyring, journal=journal).on(archive.engine)


def test_a_source_that_is_added_while_it_is_erased_is_sealed_under_a_key_that_stays(
    archive: Archive, tmp_path: Path
) -> None:
    second_server, outcomes = _other_server(archive, tmp_path), Counter[str]()
    for seed in range(12):
        start = Barrier(2)

        def add(start: Barrier = start, seed: int = seed) -> None:
            start.wait()
            second_server.add({TOPIC: text_of(TOPIC, 100 + seed)})

        def remove(start: Barrier = start) -> None:
            start.wait()
            try:
                erase(archive, TOPIC)
                outcomes["erased"] += 1
            except Refused as refused:
                outcomes[refused.reason.name] += 1

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(add), threads.submit(remove)]:
                done.result()
        head = archive.head()
        for server in (archive, second_server):
            reader = server.reader(head)
            documents = server.planner.reviser.batched(server.corpus, head).read(
                lambda view: list(HierarchyReader(view).documents())
            )
            assert reader.chunks_with_raws([chunk for document in documents for chunk in document.chunks])
        outcomes["there"] += TOPIC in readable(archive, head)
    assert outcomes.keys() <= {"erased", "there", "SOURCE_ERASED", "SOURCE_NOT_FOUND"}
    assert outcomes["erased"] > 3
    assert outcomes["there"] > 0
    assert archive.fsck().problems == ()


def test_faults_of_the_store_leave_one_erasure_or_none(tmp_path: Path) -> None:
    injected: Counter[Fault] = Counter()
    for seed in range(6):
        with opened_archive(tmp_path / str(seed)) as archive:
            fill(archive)
            faults = Faults(seed, rates(commit=0.6, read=0.01))
            call = archive.call("EraseSource")
            faulty = archive.on(FaultyEngine(archive.engine, faults))
            _until_done(faulty, call)
            injected += faults.injected
            (erasure,) = noted(archive)
            assert erasure.destroyed_at is not None
            assert readable(archive, archive.head()) == LEFT
            assert archive.fsck().problems == ()
    assert injected.total() > 8


def _until_done(archive: Archive, call: Call) -> Erasure:
    while True:
        try:
            return erase(archive, TOPIC, call)
        except Refused as refused:
            if refused.reason in {Reason.SOURCE_ERASED, Reason.ERASED}:
                raise
        except EngineError:
            pass


def test_a_killed_purge_continues(tmp_path: Path) -> None:
    with opened_archive(tmp_path) as archive:
        fill(archive)
        erase(archive, TOPIC)
    killed, done = 0, False
    while not done:
        pages = 0
        with process("-m", "tests.support.stores.archive_erasures", str(tmp_path), "purge") as purger:
            assert purger.stdout is not None
            for line in purger.stdout:
                pages += line == b"page\n"
                done = done or line == b"done\n"
                if pages == 4 and killed < 3:
                    purger.kill()
        with opened_archive(tmp_path) as archive:
            assert archive.fsck().problems == ()
        killed += not done
    assert killed >= 2
    with opened_archive(tmp_path) as archive:
        (erasure,) = noted(archive)
        assert erasure.purged_at is not None
        assert purge(archive).erasures == 0
        assert [readable(archive, revision) for revision in (1, 2, 3)] == [LEFT] * 3


def test_an_erased_key_cannot_be_used_by_a_plan_that_was_made_before(archive: Archive) -> None:
    (number,) = archive.keyring.numbers(archive.corpus.number, [SourceId(TOPIC)])
    erase(archive, TOPIC)
    with pytest.raises(KeyErased):
        archive.sealed.seal(b"key", Revision(9), number, b"content")
    assert archive.keyring.numbers(archive.corpus.number, [SourceId(TOPIC)]) != [number]
