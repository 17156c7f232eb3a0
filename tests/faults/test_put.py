"""A hierarchy that a client puts is stored whole or not at all, and nodes keep their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from drillcore_fdb.engine import Transaction
from drillcore_fdb.tuples import prefix_end
from drillcore_proto.reasons import Reason
from drillcore_server.documents.put_hierarchy import replace as replacing
from drillcore_server.documents.put_hierarchy.hierarchy_upload import HierarchyUpload, Put, PutTarget
from drillcore_server.documents.put_hierarchy.stream import document_draft, node_draft
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import revise
from drillcore_server.kernel.errors import BadInput, Exists, Unavailable
from drillcore_server.kernel.revise import Reviser
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.kernel.writes import FACT_MARK
from drillcore_server.storage.ids import CorpusId, Level, NodeId, Revision, SourceId
from drillcore_server.storage.spaces import Space
from drillcore_server.tenancy.corpora import create_corpus
from tests.faults.test_faulty_engine import failing_first
from tests.faults.test_revise import Died, before_each, failing_after
from tests.support.callers.hierarchies import Made, two_sections
from tests.support.stores.archive import TENANT, Archive, _archive, opened_archive, text_of
from tests.support.stores.archive_retention import keep_days, trim
from tests.support.stores.faulty_engine import Fault, FaultyEngine


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        archive.add({"fishing": text_of("fishing", 1)})
        yield archive


@pytest.fixture
def second_corpus(archive: Archive) -> Archive:
    """Another corpus of the tenant."""
    second = CorpusId(UUID(int=3))
    unit = Unit(archive.engine, archive.keyspace, archive.journal)
    create_corpus(
        unit, archive.call("CreateCorpus"), tenant=TENANT, name="2", description="", metadata={}, corpus_id=second
    )
    corpus = archive.engine.run(lambda tr: corpora.get(tr, unit.keys, TENANT, second))
    return _archive(archive.engine, archive.keyring, archive.keyspace, archive.journal, corpus)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 1_500)


@pytest.fixture(params=["small", "large"])
def either(request: pytest.FixtureRequest) -> None:
    if request.param == "large":
        request.getfixturevalue("large")


def put(archive: Archive, made: Made, call: Call | None = None) -> Put:
    call = call or archive.call("PutHierarchy")
    upload = HierarchyUpload(archive.planner, call, PutTarget(archive.target, "", None), lambda _: None)
    for document in made.documents:
        upload.take_document(document_draft(document))
    for node in made.nodes:
        upload.take_node(node_draft(node))
    return upload.commit(call)


def locators(archive: Archive) -> dict[bytes, bytes]:
    prefix = archive.keyspace._spaces[Space.LOCATORS].prefix
    return archive.engine.run(lambda tr: dict(tr.range(prefix, prefix_end(prefix))))


def assert_agrees(archive: Archive) -> None:
    assert archive.fsck().problems == ()


def grown(made: Made) -> Made:
    """The same nodes and as many new ones: a copy of each node under another id."""
    more, copy = two_sections(), made.copy()
    for document in more.documents:
        document.source_id += " again"
    nodes = [node for node in more.nodes if not node.HasField("master")]
    for node in nodes:
        if node.HasField("section"):
            node.parent_id = made.master.id
    return Made(copy.documents + more.documents, copy.nodes + nodes)


@pytest.mark.usefixtures("large")
def test_batches_are_staged_between_reads_of_the_former_chunks(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each staged batch renews the lease. To read all of a large hierarchy at once would take longer than a lease."""
    made, events = two_sections(), list[str]()
    put(archive, made)
    origins = replacing.Replacement._origins

    def read(self: replacing.Replacement, decode: Any, *more: Any) -> Any:
        if decode is replacing._decode_without_id:
            events.append("read")
        return origins(self, decode, *more)

    monkeypatch.setattr(replacing.Replacement, "_origins", read)
    monkeypatch.setattr(replacing, "_BATCH", 2)
    before_each(monkeypatch, "_stage", lambda *_: events.append("stage"))
    put(archive, made)
    first, last = events.index("read"), len(events) - events[::-1].index("read")
    assert "stage" in events[first:last]
    assert_agrees(archive)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("batches", [1, 5, 12, None])
def test_a_put_that_fails_halfway_leaves_every_key_as_it_was(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, batches: int | None
) -> None:
    """That includes the locators of earlier nodes: the sweep clears what the put wrote and nothing else."""
    made = two_sections()
    put(archive, made)
    before = archive.dump()

    def die(_: Reviser, number: int) -> None:
        if batches is None or number == batches:
            raise Died

    with monkeypatch.context() as patch:
        before_each(patch, "_publish" if batches is None else "_stage", die)
        with pytest.raises(Died):
            put(archive, grown(made))
    assert archive.dump() == before
    assert_agrees(archive)
    assert put(archive, grown(made)).revision == 3
    assert_agrees(archive)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED])
def test_a_batch_whose_result_was_lost_is_swept_too(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """The batch runs again and finds its own locators, which are still its own to clear."""
    before = archive.dump()
    for commits in range(1, 40, 3):
        faulty = failing_after(archive.engine, fault, commits)
        with monkeypatch.context() as patch:
            before_each(patch, "_publish", lambda *_: (_ for _ in ()).throw(Died))
            with pytest.raises(Died):
                put(archive.on(faulty), two_sections())
        assert archive.dump() == before


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED, Fault.CONFLICT])
def test_a_put_whose_commit_results_get_lost_is_made_once(archive: Archive, fault: Fault) -> None:
    faulty: FaultyEngine = failing_first(archive.engine, fault, times=3)
    made = two_sections()
    assert put(archive.on(faulty), made).revision == 2
    assert faulty.faults.injected[fault] > 0
    assert_agrees(archive)


@pytest.mark.usefixtures("large")
def test_a_store_failure_during_a_put_is_a_refusal_and_leaves_nothing(archive: Archive) -> None:
    made, call = two_sections(), archive.call("PutHierarchy")
    before = archive.dump()
    with pytest.raises(Unavailable):
        put(archive.on(failing_after(archive.engine, Fault.TIMED_OUT_APPLIED, 4)), made, call)
    assert archive.dump() == before
    assert put(archive, made, call).revision == 2
    assert_agrees(archive)


@pytest.mark.usefixtures("either")
def test_only_one_of_two_corpora_that_put_the_same_ids_at_once_gets_them(
    archive: Archive, second_corpus: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second corpus writes after the first has checked the ids and before the first writes."""
    made, theirs = two_sections(), two_sections()
    shared = made.nodes_of("raw")[-1].id
    theirs.nodes_of("raw")[-1].id = shared
    inner = Reviser._write

    def overtaken(self: Reviser, *arguments: Any) -> Any:
        if self is archive.planner.reviser:
            put(second_corpus, theirs)
        return inner(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Reviser, "_write", overtaken)
        with pytest.raises(Exists) as refused:
            put(archive, made)
    assert refused.value.reason is Reason.NODE_EXISTS
    assert shared in refused.value.message
    assert (archive.head(), second_corpus.head()) == (Revision(1), Revision(1))
    own = {UUID(node.id).bytes for node in made.nodes} - {UUID(shared).bytes}
    assert not own & {key[-16:] for key in locators(archive)}
    assert_agrees(archive)


@pytest.mark.usefixtures("either")
def test_an_overtaken_put_replaces_what_the_other_writer_stored(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = archive.on(archive.engine)
    inner = Reviser._write

    def overtaken(self: Reviser, *arguments: Any) -> Any:
        if self is archive.planner.reviser and archive.head() == 1:
            writer.add({"banking": text_of("banking", 2)})
        return inner(self, *arguments)

    monkeypatch.setattr(Reviser, "_write", overtaken)
    assert put(archive, two_sections()).revision == 3
    assert set(archive.documents()) == {"manual.txt", "copy.txt"}
    assert_agrees(archive)


def test_trimming_removes_the_locators_of_a_replaced_hierarchy(archive: Archive) -> None:
    """The master's locator stays: every corpus has a master, and its id is never given away. Deleted facts stay too."""
    put(archive, two_sections())
    gone = locators(archive)
    put(archive, two_sections())
    keep_days(archive, 1)
    trim(archive, archive.head())
    left = locators(archive)
    assert {value[:1] for key, value in left.items() if key in gone} == {bytes([Level.MASTER]), FACT_MARK}
    assert_agrees(archive)


def damaged(archive: Archive, change: Callable[[Transaction], object]) -> str:
    """The problems that fsck finds after a change made directly in the store."""
    archive.engine.run(change)
    return "\n".join(archive.fsck().problems)


def test_fsck_finds_a_raw_whose_locator_or_chunk_is_lost(archive: Archive) -> None:
    made = two_sections()
    put(archive, made)
    first, second = (NodeId(UUID(node.id)) for node in made.nodes_of("raw")[:2])
    lost = archive.keyspace.locator(archive.corpus.tenant_id, first)
    assert f"the locator of {first} does not lead to it" in damaged(archive, lambda tr: tr.clear(lost))
    parent = archive.keys.parent(second)
    found = damaged(archive, lambda tr: tr.clear_range(parent, prefix_end(parent)))
    assert f"the parent of {second} is not the node it is in" in found


def test_fsck_finds_a_vector_of_the_wrong_length(archive: Archive) -> None:
    made = two_sections()
    put(archive, made)
    chunk = NodeId(UUID(made.nodes_of("chunk")[0].id))
    (number,) = archive.keyring.numbers(archive.corpus.number, [SourceId("manual.txt")])
    key = archive.keys.vector(1, chunk)
    found = damaged(archive, lambda tr: archive.sealed.put(tr, key, Revision(2), number, b"12"))
    assert f"the vector of chunk {chunk} has the wrong length" in found


@pytest.mark.usefixtures("large")
def test_a_trim_during_a_put_that_never_ends_leaves_no_locator_in_the_end(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes were there before, are gone, and are being put again while the corpus is trimmed."""
    made, known = two_sections(), locators(archive).keys()
    put(archive, made)
    gone = locators(archive).keys() - known
    put(archive, two_sections())
    keep_days(archive, 1)

    def publish(*_: object) -> None:
        trim(archive, archive.head())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Reviser, "_publish", publish)
        with pytest.raises(KeyboardInterrupt):
            put(archive, made)
    assert gone <= set(locators(archive)), "a writer that stages a node relies on its locator"
    trim(archive, archive.head())
    left = locators(archive)
    assert {left[key][0] for key in gone & left.keys()} == {Level.MASTER}
    assert_agrees(archive)


def test_a_revision_that_would_name_too_much_is_refused_before_anything_is_staged(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(revise, "RECORD_BYTES_MAX", 50)
    before = archive.dump()
    with pytest.raises(BadInput, match="than one revision can name"):
        put(archive, two_sections())
    assert archive.dump() == before
