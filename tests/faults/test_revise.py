"""A revision becomes visible whole or not at all, whatever its size and whoever else writes, waits, pauses or dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from drillcore_fdb.engine import Engine
from drillcore_proto.reasons import Reason
from drillcore_server.documents.add import ADDED, OutcomeKind
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.sections import Outline, Outlines, SectionCache
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import corpus_at_revision, revise, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.errors import BadInput, Missing, Unavailable
from drillcore_server.kernel.revise import Claimed, Overtaken, Plan, Reviser, Staged
from drillcore_server.kernel.revisions import Claim
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import DocumentId, Revision
from drillcore_server.storage.keyring import CORPUS_SCOPE
from tests.faults.test_faulty_engine import failing_first
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of
from tests.support.stores.consistent import check
from tests.support.stores.faulty_engine import Fault
from tests.support.stores.stores import started, wait_until

FIRST = {topic: text_of(topic, 1) for topic in ("fishing", "banking", "school")}
NEXT = {"fishing": text_of("fishing", 2), "aircraft": text_of("aircraft", 2)}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        archive.add(FIRST)
        yield archive


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every revision too large for one transaction, so that it takes many."""
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 3_000)


@pytest.fixture(params=["small", "large"])
def either(request: pytest.FixtureRequest) -> str:
    if request.param == "large":
        request.getfixturevalue("large")
    return str(request.param)


def before_each(monkeypatch: pytest.MonkeyPatch, method: str, hook: Callable[[Reviser, int], None]) -> list[int]:
    """Calls `hook` with the count of earlier calls before each call of a method of any reviser. Returns the calls."""
    inner: Callable[..., Any] = getattr(Reviser, method)
    calls: list[int] = []

    def wrapper(self: Reviser, *arguments: Any) -> Any:
        calls.append(len(calls))
        hook(self, calls[-1])
        return inner(self, *arguments)

    monkeypatch.setattr(Reviser, method, wrapper)
    return calls


@pytest.mark.usefixtures("either")
def test_a_revision_of_any_size_is_whole_and_keeps_the_previous_revision(archive: Archive) -> None:
    before = check(archive)
    added = archive.add(NEXT)
    assert added.revision == before.revision + 1
    after = check(archive)
    assert after.texts == FIRST | NEXT
    assert check(archive, before.revision).records == before.records
    removed = archive.remove([archive.documents()["banking"]])
    assert removed.revision == after.revision + 1
    assert set(check(archive).texts) == {"fishing", "school", "aircraft"}
    assert check(archive, after.revision).records == after.records


@pytest.mark.usefixtures("large")
def test_nothing_of_a_large_revision_is_visible_until_it_is_published(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = check(archive)
    calls = before_each(monkeypatch, "_stage", lambda *_: unchanged())
    before_each(monkeypatch, "_publish", lambda *_: unchanged())

    def unchanged() -> None:
        now = check(archive, idle=False)
        assert (now.revision, now.records) == (before.revision, before.records)

    archive.add(NEXT)
    assert len(calls) > 5
    assert check(archive).texts == FIRST | NEXT


def edition(archive: Archive, number: int) -> None:
    """Replaces all documents, so that no two editions share a chunk."""
    archive.add({topic: text_of(topic, number) for topic in SENTENCES})


class Readers:
    """Threads that read the whole corpus at its head, again and again, in every way there is."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._sections, self._vectors = SectionCache(archive.engine), VectorCache(archive.engine)
        self.stop = threading.Event()
        self.seen: set[Revision] = set()

    def read_until_stopped(self, way: Callable[[], Revision]) -> None:
        while not self.stop.is_set():
            self.seen.add(way())

    def in_one_transaction(self) -> Revision:
        """Reads every space and every index. A mixture of two editions would not agree with itself."""
        found = check(self._archive, idle=False)
        assert found.texts == {topic: text_of(topic, found.revision) for topic in SENTENCES}
        return found.revision

    def in_many_transactions(self) -> Revision:
        revision = self._archive.head()
        reader = self._archive.reader(revision)
        chunks = [chunk.id for section in reader.outlines().ids for chunk in reader.members(section)]
        texts = ["".join(raw.content for raw in chunk.page.raws) for chunk in reader.chunks_with_raws(chunks)]
        master = reader.master()
        assert master is not None
        assert master.statistics.chunks == len(chunks)
        assert sum(f"edition {revision}\n" in text for text in texts) == len(SENTENCES)
        assert not [text for text in texts if "edition" in text and f"edition {revision}\n" not in text]
        return revision

    def through_caches(self) -> Revision:
        archive = self._archive

        def work(tr: revisions.Transaction) -> Revision:
            view = CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, revisions.head(tr, archive.keys))
            chunks = {chunk for document in HierarchyReader(view).documents() for chunk in document.chunks}
            assert set(self._vectors.at(view).ids()) == chunks
            sections = {
                section_id: HierarchyReader(view).section(section_id)
                for section_id in HierarchyReader(view).section_ids()
            }
            outlines = self._sections.at(view)
            assert outlines.by_id == {
                section_id: Outline.of(section) for section_id, section in sections.items() if section
            }
            assert outlines.ids == tuple(sections)
            assert np.array_equal(outlines.rows, Outlines.of(outlines.by_id.values()).rows)
            return view.revision

        return archive.engine.run(work)


@pytest.mark.usefixtures("either")
def test_readers_at_any_moment_see_exactly_one_whole_revision(archive: Archive) -> None:
    editions = range(4, 9)
    archive.remove(list(archive.documents().values()))
    edition(archive, 3)
    readers = Readers(archive)
    ways = [readers.in_one_transaction, readers.in_many_transactions, readers.through_caches]
    with ThreadPoolExecutor(len(ways)) as threads:
        reading = [threads.submit(readers.read_until_stopped, way) for way in ways]
        try:
            for number in editions:
                edition(archive, number)
                wait_until(
                    lambda n=number: n in readers.seen or any(r.done() for r in reading),
                    "a reader has seen the revision",
                )  # type: ignore[misc]
        finally:
            readers.stop.set()
        for reader in reading:
            reader.result()
    assert {*editions} <= readers.seen
    assert check(archive).revision == editions[-1]


@pytest.mark.usefixtures("either")
def test_an_overtaken_plan_is_made_again_on_the_new_head(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    second_server = archive.on(archive.engine)
    inner = Reviser._write

    def overtaken(self: Reviser, *arguments: Any) -> Any:
        if self is archive.planner.reviser and archive.head() == 1:
            second_server.add({"consent": text_of("consent", 5), "aircraft": text_of("aircraft", 9)})
        return inner(self, *arguments)

    monkeypatch.setattr(Reviser, "_write", overtaken)
    added = archive.add(NEXT)
    assert added.revision == 3
    assert [outcome.kind for outcome in added.outcomes] == [OutcomeKind.UPDATED, OutcomeKind.UPDATED]
    assert check(archive).texts == FIRST | {"consent": text_of("consent", 5)} | NEXT
    assert check(archive, Revision(2)).texts["aircraft"] == text_of("aircraft", 9)


@pytest.mark.usefixtures("either")
def test_documents_that_another_writer_added_meanwhile_are_reported_as_unchanged(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_server = archive.on(archive.engine)
    inner = Reviser._write

    def overtaken(self: Reviser, *arguments: Any) -> Any:
        if self is archive.planner.reviser and archive.head() == 1:
            second_server.add(NEXT)
        return inner(self, *arguments)

    monkeypatch.setattr(Reviser, "_write", overtaken)
    added = archive.add(NEXT)
    assert added.revision == check(archive).revision == 2
    assert [outcome.kind for outcome in added.outcomes] == [OutcomeKind.UNCHANGED] * 2
    assert [outcome.document for outcome in added.outcomes] == [archive.documents()[source] for source in NEXT]


def hold_claim(archive: Archive, lease_s: float) -> Claim:
    """Claims the next revision as another writer would, and does nothing more."""
    claim = Claim(uuid4(), Revision(archive.head() + 1), datetime.now(UTC) + timedelta(seconds=lease_s))
    archive.engine.run(lambda tr: revisions.put_claim(tr, archive.keys, claim))
    return claim


def release_claim(archive: Archive) -> None:
    archive.engine.run(lambda tr: revisions.clear_claim(tr, archive.keys))


@pytest.mark.usefixtures("either")
def test_a_writer_waits_while_the_revision_is_claimed_and_then_writes(archive: Archive) -> None:
    hold_claim(archive, 60)
    done = threading.Event()
    writer = started(lambda: (archive.add(NEXT), done.set()))
    assert not done.wait(0.3)
    assert check(archive, idle=False).revision == 1
    release_claim(archive)
    writer.join(20)
    assert check(archive).texts == FIRST | NEXT


def test_a_waiting_writer_does_not_plan_again_and_again(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning reads and summarises every section it touches, and a claim may be held for minutes."""
    calls = before_each(monkeypatch, "_write", lambda *_: None)
    hold_claim(archive, 60)
    writer = started(lambda: archive.add(NEXT))
    wait_until(lambda: calls, "the first plan")
    time.sleep(0.7)
    release_claim(archive)
    writer.join(20)
    assert check(archive).revision == 2
    assert len(calls) <= 3


@pytest.mark.usefixtures("either")
def test_a_writer_that_waited_too_long_is_refused_and_has_written_nothing(archive: Archive) -> None:
    hold_claim(archive, 60)
    before = archive.dump()
    with pytest.raises(Unavailable) as refused:
        archive.add(NEXT, archive.call("AddDocuments", timeout_s=0.3))
    assert refused.value.reason in {Reason.CONFLICT, Reason.DEADLINE_EXCEEDED}
    assert archive.dump() == before


def slow_to_plan(monkeypatch: pytest.MonkeyPatch, archive: Archive) -> None:
    """Makes the first plan of the archive's own writer take longer than a call may take."""
    ahead_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0], sleep=time.sleep)
    monkeypatch.setattr(revise, "time", clock)

    def pass_time(reviser: Reviser, _: int) -> None:
        if reviser is archive.planner.reviser and not ahead_s[0]:
            ahead_s[0] = 1_000.0

    before_each(monkeypatch, "_write", pass_time)


@pytest.mark.usefixtures("either")
def test_a_writer_with_a_slow_plan_still_sweeps_after_a_dead_writer(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_while_staging(archive, monkeypatch, 2)
    slow_to_plan(monkeypatch, archive)
    assert archive.add(NEXT).revision == 2
    assert check(archive).texts == FIRST | NEXT


@pytest.mark.usefixtures("either")
def test_a_writer_with_a_slow_plan_that_was_overtaken_once_plans_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_server = archive.on(archive.engine)
    inner = Reviser._write

    def overtaken(self: Reviser, *arguments: Any) -> Any:
        if self is archive.planner.reviser and archive.head() == 1:
            second_server.add({"consent": text_of("consent", 5)})
        return inner(self, *arguments)

    monkeypatch.setattr(Reviser, "_write", overtaken)
    slow_to_plan(monkeypatch, archive)
    assert archive.add(NEXT).revision == 3
    assert check(archive).texts == FIRST | {"consent": text_of("consent", 5)} | NEXT


class Died(Exception):  # noqa: N818 - the fate of a writer
    pass


def die_while_staging(archive: Archive, monkeypatch: pytest.MonkeyPatch, batches: int | None) -> None:
    """Leaves what a writer leaves that is killed after this many batches; None: just before it publishes."""

    def die(_: Reviser, number: int) -> None:
        if batches is None or number == batches:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(revise, "SMALL_BYTES_MAX", 0)
        patch.setattr(revise, "BATCH_BYTES_MAX", 3_000)
        patch.setattr(revise, "LEASE_S", -1.0)
        patch.setattr(Reviser, "_sweep", lambda *_: None)
        before_each(patch, "_publish" if batches is None else "_stage", die)
        with pytest.raises(Died):
            archive.on(archive.engine).add(NEXT | {"consent": text_of("consent", 1, paragraphs=4)})


@pytest.mark.parametrize("batches", [0, 1, 4, None])
def test_every_key_of_an_expired_claim_is_swept(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, batches: int | None
) -> None:
    before = archive.dump()
    die_while_staging(archive, monkeypatch, batches)
    assert len(archive.dump()) > len(before)
    assert check(archive, idle=False).texts == FIRST
    planned: list[Revision] = []

    def plan(base: BatchedReads) -> Plan[Any]:
        planned.append(base.revision)
        if len(planned) == 2:
            raise Died
        raise Claimed(archive.engine.run(lambda tr: revisions.get_claim(tr, archive.keys)))  # type: ignore[arg-type]

    with pytest.raises(Died):
        archive.planner.reviser.revise(archive.call("Sweep"), archive.target, ADDED, plan)
    assert planned == [1, 1]
    assert archive.dump() == before


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("batches", [0, 4, None])
def test_the_next_writer_after_a_dead_one_succeeds(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, batches: int | None
) -> None:
    die_while_staging(archive, monkeypatch, batches)
    assert archive.add({"school": text_of("school", 5)}).revision == 2
    assert check(archive).texts == FIRST | {"school": text_of("school", 5)}


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("method", ["_stage", "_publish"])
@pytest.mark.parametrize("other_publishes", [True, False])
def test_a_writer_whose_claim_was_taken_over_while_it_paused_starts_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, method: str, other_publishes: bool
) -> None:
    """The second server sweeps the paused writer's batches, and publishes a revision of its own or not."""
    second_server = archive.on(archive.engine)
    monkeypatch.setattr(revise, "LEASE_S", -1.0)
    paused: list[int] = []

    def pause(reviser: Reviser, number: int) -> None:
        if reviser is archive.planner.reviser and not paused and (method == "_publish" or number == 4):
            paused.append(number)
            if other_publishes:
                second_server.add({"school": text_of("school", 5)})
            else:
                hold_claim(archive, -1)

    before_each(monkeypatch, method, pause)
    added = archive.add(NEXT)
    assert paused
    assert added.revision == (3 if other_publishes else 2)
    school = {"school": text_of("school", 5)} if other_publishes else {}
    assert check(archive).texts == FIRST | NEXT | school


@pytest.mark.usefixtures("large")
def test_nothing_is_staged_or_published_without_holding_the_claim(archive: Archive) -> None:
    reviser: Any = archive.planner.reviser
    own = Claim(uuid4(), Revision(2), datetime.now(UTC) + timedelta(seconds=60))
    plan = Plan(**_plan_fields(archive))
    writes = [Write(b"key", b"value")]
    steps: Sequence[Callable[[], object]] = [
        lambda: reviser._stage(archive.keys, own, 0, writes),
        lambda: reviser._publish(
            archive.call("AddDocuments"), archive.target, ADDED, plan, Staged(own, b""), archive.keys
        ),
    ]
    before = archive.dump()
    for step in steps:
        with pytest.raises(Overtaken):
            step()
    hold_claim(archive, 60)
    held = archive.dump()
    for step in steps:
        with pytest.raises(Claimed):
            step()
    assert archive.dump() == held
    reviser._sweep(archive.keys, own)
    assert archive.dump() == held, "nobody sweeps under another writer's claim"
    release_claim(archive)
    assert archive.dump() == before


def _plan_fields(archive: Archive) -> dict[str, Any]:
    known = {
        "base": Revision(1),
        "writes": [],
        "sections": (),
        "documents_added": (),
        "documents_removed": (),
        "sources": (),
        "result": lambda _: None,
        "number": archive.keyring.numbers(archive.corpus.number, [CORPUS_SCOPE])[0],
    }
    needed = [field for field in fields(Plan) if field.default is MISSING]
    return {field.name: known[field.name] for field in needed}


@pytest.mark.usefixtures("either")
def test_a_repeated_request_gets_its_first_answer_and_makes_no_second_revision(archive: Archive) -> None:
    adding, removing = archive.call("AddDocuments"), archive.call("RemoveDocuments")
    added = archive.add(NEXT, adding)
    assert archive.add(NEXT, adding) == added
    assert archive.on(archive.engine).add(NEXT, adding) == added
    gone = archive.documents()["aircraft"]
    removed = archive.remove([gone], removing)
    assert archive.remove([gone], removing) == removed
    assert archive.add(NEXT, adding) == added, "the answer is the same after later revisions"
    assert check(archive).revision == removed.revision


@pytest.mark.usefixtures("either")
def test_a_different_request_under_the_same_id_is_refused(archive: Archive) -> None:
    call = archive.call("AddDocuments")
    archive.add(NEXT, call)
    for texts in (NEXT, {"consent": text_of("consent", 1)}):
        with pytest.raises(BadInput) as refused:
            archive.add(texts, replace(call, fingerprint=b"another"))
        assert refused.value.reason is Reason.REQUEST_ID_REUSED
    assert check(archive).revision == 2


@pytest.mark.usefixtures("large")
def test_two_equal_requests_at_once_are_done_once_and_leave_no_claim(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An impatient caller sends its request again while the first request is still staging."""
    call, answers = archive.call("AddDocuments"), []
    again = archive.on(archive.engine)
    monkeypatch.setattr(revise, "LEASE_S", -1.0)

    def ask_again(reviser: Reviser, number: int) -> None:
        if reviser is archive.planner.reviser and number == 3:
            answers.append(again.add(NEXT, call))

    before_each(monkeypatch, "_stage", ask_again)
    answers.append(archive.add(NEXT, call))
    assert answers[0] == answers[1]
    assert check(archive).revision == 2


@pytest.mark.usefixtures("either")
def test_removing_a_missing_document_is_refused_and_writes_nothing(archive: Archive) -> None:
    before = archive.dump()
    with pytest.raises(Missing):
        archive.remove([archive.documents()["school"], DocumentId(uuid4())])
    assert archive.dump() == before


STRIKES = [Fault.TIMED_OUT_APPLIED, Fault.TIMED_OUT_NOT_APPLIED]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("fault", STRIKES)
@pytest.mark.parametrize("commits_before", [0, 1, 5])
def test_a_store_failure_during_a_revision_is_a_refusal_and_the_next_writer_need_not_wait(
    archive: Archive, fault: Fault, commits_before: int
) -> None:
    """The store fails at the claim, the first batch or a later one. That is no server defect and leaves no claim."""
    call = archive.call("AddDocuments")
    with pytest.raises(Unavailable) as refused:
        archive.on(failing_after(archive.engine, fault, commits_before)).add(NEXT, call)
    assert refused.value.reason is Reason.DEADLINE_EXCEEDED
    began = time.monotonic()
    assert archive.add(NEXT, call).revision == 2
    assert time.monotonic() - began < 10
    assert check(archive).texts == FIRST | NEXT


def failing_after(engine: Engine, fault: Fault, commits: int) -> Engine:
    faulty = failing_first(engine, fault)
    draw, left = faulty.faults.draw, [commits]

    def later(dice: Any, among: Sequence[Fault]) -> Fault | None:
        if fault in among and left[0]:
            left[0] -= 1
            return None
        return draw(dice, among)

    faulty.faults = _Drawing(faulty.faults, later)
    return faulty


class _Drawing:
    """Another object's count of faults, with a different way to draw them."""

    def __init__(self, faults: Any, draw: Callable[..., Fault | None]) -> None:
        self.begin, self.draw, self.injected = faults.begin, draw, faults.injected


@pytest.mark.usefixtures("either")
def test_a_read_at_a_time_gives_what_readers_saw_then_even_during_a_write(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes its time from its arrival, but readers see its revision only later."""
    moments: list[datetime] = []

    def note(*_: object) -> None:
        assert archive.head() == 1
        time.sleep(0.001)
        moments.append(datetime.now(UTC))

    before_each(monkeypatch, "_publish", note)
    archive.add(NEXT)
    assert archive.engine.run(lambda tr: revisions.at_time(tr, archive.keys, moments[0])) == 1
    assert archive.engine.run(lambda tr: revisions.at_time(tr, archive.keys, datetime.now(UTC))) == 2


def test_changed_sections_are_read_in_transactions_of_bounded_size(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision may change any number of sections."""

    def outlines(cache: SectionCache) -> Outlines:
        def work(tr: revisions.Transaction) -> Outlines:
            view = CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, revisions.head(tr, archive.keys))
            return cache.at(view)

        return archive.engine.run(work)

    cache = SectionCache(archive.engine)
    before = outlines(cache)
    edition(archive, 2)
    monkeypatch.setattr(corpus_at_revision, "_RECORDS_MAX", 1)
    reads: list[int] = []
    read = BatchedReads.read
    monkeypatch.setattr(BatchedReads, "read", lambda self, work: (reads.append(1), read(self, work))[1])
    after = outlines(cache)
    changed = [section for section, outline in after.by_id.items() if outline != before.by_id.get(section)]
    assert len(reads) >= len(changed) > 1
    assert after.by_id == outlines(SectionCache(archive.engine)).by_id
