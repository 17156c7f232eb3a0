"""A trim may fail, be killed, be held up or run twice at once: no revision that is kept ever changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from drillcore_fdb.embedded import verify
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.store import HierarchyReader, Located, locate
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import TrimState
from drillcore_server.kernel.errors import Missing, NotReady
from drillcore_server.kernel.retention import UnseenPage
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import Level, NodeId, Revision
from drillcore_server.vectors.corpus_follower import Follower
from tests.support.processes.killed import process
from tests.support.processes.trimmer import PAGE_ENTRIES
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of
from tests.support.stores.archive_retention import Pages, hold, keep_days, readable, release, state, trim
from tests.support.stores.consistent import Hierarchy, check
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates

FLOOR = Revision(4)
HEAD = Revision(6)
Known = dict[Revision, Hierarchy]


def fill(archive: Archive) -> Known:
    """Makes six revisions that add, change and remove documents. Returns those that will be kept."""
    for number in range(1, 6):
        archive.add({topic: text_of(topic, number) for topic in SENTENCES if topic != "school" or number != 3})
    archive.remove([archive.documents()["fishing"]])
    keep_days(archive, 1)
    return {revision: check(archive, revision) for revision in map(Revision, range(FLOOR, HEAD + 1))}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        yield archive


@pytest.fixture
def known(archive: Archive) -> Known:
    return fill(archive)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGE_ENTRIES", PAGE_ENTRIES)


def assert_kept(archive: Archive, known: Known, *, finished: bool) -> None:
    for revision, before in known.items():
        assert readable(check(archive, revision, trimming=not finished)) == readable(before)


def fsck(archive: Archive) -> tuple[str, ...]:
    """The notes of fsck, which must find no problem."""
    report = archive.fsck()
    assert report.problems == ()
    return report.notes


def finish(archive: Archive, known: Known) -> None:
    """Trims once more and asserts that nothing is left to trim."""
    assert trim(archive, FLOOR).finished
    assert state(archive) == TrimState(floor=FLOOR, trimmed=FLOOR)
    assert_kept(archive, known, finished=True)
    assert fsck(archive) == ()


def test_every_kept_revision_is_unchanged_after_every_page(archive: Archive, known: Known) -> None:
    notes: list[str] = []
    pages = 0
    while not trim(archive, FLOOR, Pages.of(1)).finished:
        pages += 1
        assert_kept(archive, known, finished=False)
        notes += fsck(archive)
    assert pages > 10
    assert all("before revision 4 are still stored" in note for note in notes)
    assert len(set(notes)) > 5, "less is left each time"
    finish(archive, known)


def test_a_trim_continues_where_it_stopped(archive: Archive, known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[bytes] = []
    inner = retention.find_unseen

    def find_unseen(tr: Reader, keys: CorpusKeys, floor: Revision, begin: bytes) -> UnseenPage:
        walked.append(begin)
        return inner(tr, keys, floor, begin)

    monkeypatch.setattr(retention, "find_unseen", find_unseen)
    trim(archive, FLOOR, Pages.of(3))
    trim(archive, FLOOR)
    assert walked == sorted(set(walked))
    count = len(walked)
    assert trim(archive, FLOOR).finished
    assert len(walked) == count, "a finished trim looks for nothing"


def test_a_floor_that_rises_during_a_walk_gets_another_walk(archive: Archive, known: Known) -> None:
    assert not trim(archive, Revision(2), Pages.of(4)).finished
    assert not trim(archive, FLOOR, Pages.of(2)).finished
    assert state(archive).walking == 2
    finish(archive, known)


def test_a_killed_trim_does_no_harm_and_the_next_one_finishes_it(tmp_path: Path) -> None:
    dice = random.Random(5)
    with opened_archive(tmp_path) as archive:
        known = fill(archive)
    killed = 0
    while True:
        kill_after, pages, done = dice.randint(1, 14), 0, False
        with process("-m", "tests.support.processes.trimmer", str(tmp_path), str(FLOOR)) as trimmer:
            assert trimmer.stdout is not None
            for line in trimmer.stdout:
                pages += line == b"page\n"
                done = done or line == b"done\n"
                if pages == kill_after:
                    trimmer.kill()
        assert verify(tmp_path) == []
        with opened_archive(tmp_path) as archive:
            assert_kept(archive, known, finished=state(archive).finished)
            if done:
                break
            killed += 1
    assert killed >= 2
    with opened_archive(tmp_path) as archive:
        finish(archive, known)


def test_store_faults_damage_no_kept_revision(tmp_path: Path) -> None:
    injected: Counter[Fault] = Counter()
    for seed in range(8):
        with opened_archive(tmp_path / str(seed)) as archive:
            known = fill(archive)
            faults = Faults(seed, rates(commit=0.4, read=0.002))
            finished = False
            while not finished:
                try:
                    finished = trim(archive, FLOOR, engine=FaultyEngine(archive.engine, faults)).finished
                except EngineError:
                    assert_kept(archive, known, finished=state(archive).finished)
            injected += faults.injected
            finish(archive, known)
    assert {Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED, Fault.CONFLICT} <= set(injected)


def test_a_hold_stops_a_running_trim_until_it_is_released(archive: Archive, known: Known) -> None:
    pages = Pages.of(4)

    def enough() -> bool:
        if pages():
            hold(archive)
        return False

    def stored() -> dict[bytes, bytes]:
        return archive.engine.run(
            lambda tr: {k: v for space in archive.keys.by_revision() for k, v in tr.range(*space)}
        )

    with pytest.raises(NotReady) as caught:
        trim(archive, FLOOR, enough)
    assert caught.value.reason is Reason.CORPUS_ON_HOLD
    left = stored()
    with pytest.raises(NotReady):
        trim(archive, HEAD)
    assert stored() == left
    assert state(archive).floor == FLOOR
    assert_kept(archive, known, finished=False)
    assert len(fsck(archive)) == 1
    release(archive)
    finish(archive, known)


def meanwhile(monkeypatch: pytest.MonkeyPatch, function: str, event: Callable[[], object]) -> None:
    """Calls `event` once, inside a transaction of a trim, after its reads and before its commit."""
    inner: Callable[..., Any] = getattr(retention, function)
    events = [event]

    def wrapper(*arguments: Any) -> Any:
        result = inner(*arguments)
        if events:
            events.pop()()
        return result

    monkeypatch.setattr(retention, function, wrapper)


def test_a_hold_wins_over_a_floor_that_rises_at_the_same_time(
    archive: Archive, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, "raise_floor", lambda: hold(archive))
    with pytest.raises(NotReady):
        trim(archive, FLOOR)
    assert state(archive) == TrimState()
    check(archive, Revision(1))


def test_a_hold_wins_over_a_page_that_is_removed_at_the_same_time(
    archive: Archive, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = archive.engine.run(lambda tr: list(tr.range(*archive.keys.chunks())))
    meanwhile(monkeypatch, "trim_page", lambda: hold(archive))
    with pytest.raises(NotReady):
        trim(archive, FLOOR)
    assert state(archive) == TrimState(floor=FLOOR)
    assert archive.engine.run(lambda tr: list(tr.range(*archive.keys.chunks()))) == before


def test_several_trims_at_once_do_no_harm(archive: Archive, known: Known) -> None:
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda to: trim(archive, Revision(to)), [2, FLOOR, 3, FLOOR]))
    assert all(outcome.finished for outcome in done)
    finish(archive, known)


def test_writers_and_a_trim_do_not_wait_for_each_other(archive: Archive, known: Known) -> None:
    """Records that are staged for the next revision are above every floor."""

    def enough() -> bool:
        if archive.head() < HEAD + 3:
            archive.add({"consent": text_of("consent", 10 + archive.head())})
        return False

    assert trim(archive, FLOOR, enough).finished
    assert archive.head() == HEAD + 3
    assert_kept(archive, known, finished=True)
    assert fsck(archive) == ()


def removed_chunk(archive: Archive) -> NodeId:
    """A chunk that no revision from the floor on has."""
    view = archive.engine.run(lambda tr: _chunks(tr, archive, Revision(1)))
    return min(view - archive.engine.run(lambda tr: _chunks(tr, archive, FLOOR)))


def _chunks(tr: Reader, archive: Archive, revision: Revision) -> set[NodeId]:
    view = CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, revision)
    return {chunk for document in HierarchyReader(view).documents() for chunk in document.chunks}


def located(archive: Archive, node: NodeId) -> Located | None:
    return archive.engine.run(lambda tr: locate(tr, archive.keyspace, archive.corpus.tenant_id, node))


def test_the_locator_of_a_node_that_returns_during_a_trim_stays(
    archive: Archive, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's record is written before its locator, perhaps in another transaction."""
    chunk = removed_chunk(archive)
    monkeypatch.setattr(retention, "PAGE_ENTRIES", 100_000)

    def come_back() -> None:
        archive.engine.run(lambda tr: versioned.put(tr, archive.keys.chunk(chunk), Revision(HEAD + 1), b"record"))

    meanwhile(monkeypatch, "find_unseen", come_back)
    assert trim(archive, FLOOR).finished
    assert located(archive, chunk) == Located(archive.corpus.number, Level.CHUNK)


def test_the_locator_of_an_id_that_now_belongs_to_another_corpus_stays(archive: Archive, known: Known) -> None:
    chunk = removed_chunk(archive)
    foreign = bytes([Level.CHUNK]) + (archive.corpus.number + 1).to_bytes(4, "big")
    key = archive.keyspace.locator(archive.corpus.tenant_id, chunk)
    archive.engine.run(lambda tr: tr.set(key, foreign))
    assert trim(archive, FLOOR).finished
    assert archive.engine.run(lambda tr: tr.get(key)) == foreign


def test_the_locator_of_a_raw_with_its_own_id_is_removed_with_its_parent(archive: Archive, known: Known) -> None:
    raw = NodeId(UUID(int=77))
    key = archive.keyspace.locator(archive.corpus.tenant_id, raw)

    def work(tr: Transaction) -> None:
        versioned.put(tr, archive.keys.parent(raw), Revision(1), removed_chunk(archive).bytes)
        versioned.remove(tr, archive.keys.parent(raw), Revision(2))
        tr.set(key, bytes([Level.RAW]) + archive.corpus.number.to_bytes(4, "big"))

    archive.engine.run(work)
    assert trim(archive, FLOOR).finished
    assert archive.engine.run(lambda tr: tr.get(key)) is None
    check(archive)


def test_a_reader_that_began_before_the_floor_rose_can_finish(archive: Archive, known: Known) -> None:
    oldest = check(archive, Revision(1))

    def work(tr: Transaction) -> None:
        assert retention.floor(tr.snapshot, archive.keys) == 0
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(trim, archive, FLOOR).result().finished
        view = CorpusAtRevision(tr.snapshot, archive.corpus, archive.keys, archive.sealed, Revision(1))
        assert {document.source for document in HierarchyReader(view).documents()} == set(oldest.texts)

    archive.engine.run(work)
    assert state(archive).floor == FLOOR


def test_a_load_into_memory_is_not_used_if_its_revision_was_trimmed_meanwhile(archive: Archive, known: Known) -> None:
    """The load takes several transactions, so a part may be gone already."""

    def load(_snapshot: BatchedReads) -> str:
        trim(archive, FLOOR)
        return "half of it"

    follower = Follower(archive.engine, load, lambda kept, _since, _snapshot: kept)

    def read(tr: Transaction) -> str:
        return follower.at(CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, Revision(2)))

    with pytest.raises(Missing) as caught:
        archive.engine.run(read)
    assert caught.value.reason is Reason.REVISION_TRIMMED


def test_fsck_finds_a_kept_record_that_is_missing(archive: Archive, known: Known) -> None:
    assert trim(archive, FLOOR).finished
    lost = archive.keys.section(min(known[FLOOR].sections))
    newest = archive.engine.run(lambda tr: versioned.newest(tr, lost, FLOOR))
    assert newest is not None
    place = lost + newest.to_bytes(6, "big")
    archive.engine.run(lambda tr: tr.clear_range(place, place + b"\xff"))
    report = archive.fsck()
    assert any("revision 4" in problem for problem in report.problems)


def test_fsck_finds_a_gap_in_the_list_of_revisions(archive: Archive, known: Known) -> None:
    assert trim(archive, FLOOR).finished
    archive.engine.run(lambda tr: tr.clear(archive.keys.revision(Revision(2))))
    report = archive.fsck()
    assert any("the record of revision 2 is missing" in problem for problem in report.problems)


def test_an_index_is_read_again_if_the_revisions_it_follows_were_trimmed(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add({"x": text_of("fishing", 1)})
    cache = VectorCache(archive.engine)

    def ask(tr: Transaction) -> set[NodeId]:
        view = CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, revisions.head(tr, archive.keys))
        assert set(cache.at(view).ids()) == {
            chunk for document in HierarchyReader(view).documents() for chunk in document.chunks
        }
        return set(cache.at(view).ids())

    before = archive.engine.run(ask)
    archive.add({"x": text_of("fishing", 2)})
    archive.add({"y": text_of("school", 2)})
    keep_days(archive, 1)
    between = revisions.between

    def trimmed_meanwhile(*arguments: Any) -> Any:
        found = list(between(*arguments))
        trim(archive, archive.head())
        return found

    monkeypatch.setattr(revisions, "between", trimmed_meanwhile)
    assert not before & archive.engine.run(ask)
