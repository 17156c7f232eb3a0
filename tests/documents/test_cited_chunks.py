"""What digests are made from stays in memory, and only as long as it is what the corpus has."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from drillcore_server.documents.ingestion.cited_chunks import Cited
from drillcore_server.documents.ingestion.plan_reader import PlanReader
from drillcore_server.hierarchy.model import ChunkWithRaws, Citation
from drillcore_server.storage.ids import DocumentId, NodeId, Span, new_uuid
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.counting_engine import CountingEngine, Counts

TOPICS = ("fishing", "banking", "school")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as opened:
        opened.add({topic: text_of(topic, 1) for topic in TOPICS})
        yield opened


def kept(archive: Archive) -> Cited:
    view = archive.planner.reviser.batched(archive.corpus, archive.head())
    return view.read(archive.planner.cited.at)


def documents_kept(archive: Archive) -> set[DocumentId]:
    return {found.chunk.document for found in kept(archive).chunks.values()}


def test_chunks_of_a_removed_document_are_dropped(archive: Archive) -> None:
    documents = archive.documents()
    archive.add({"fishing 2": text_of("fishing", 2)})
    assert documents["banking"] in documents_kept(archive)
    archive.remove([documents["banking"]])
    assert documents["banking"] not in documents_kept(archive)


def test_chunks_of_a_document_that_another_server_replaced_are_dropped(archive: Archive) -> None:
    archive.add({"fishing 2": text_of("fishing", 2)})
    assert archive.documents()["school"] in (before := documents_kept(archive))
    archive.on(archive.engine).add({"school": text_of("school", 9)})
    assert documents_kept(archive) < before


def test_masters_and_summaries_are_the_same_with_and_without_what_is_kept(archive: Archive, tmp_path: Path) -> None:
    for seed in range(2, 6):
        archive.add({f"{topic} {seed}": text_of(topic, seed) for topic in TOPICS})
    archive.remove([archive.documents()["fishing 3"]])
    with opened_archive(tmp_path / "other") as plain:
        plain.add({topic: text_of(topic, 1) for topic in TOPICS})
        for seed in range(2, 6):
            plain.on(plain.engine).add({f"{topic} {seed}": text_of(topic, seed) for topic in TOPICS})
        plain.on(plain.engine).remove([plain.documents()["fishing 3"]])
        assert summaries(plain) == summaries(archive)


def summaries(archive: Archive) -> list[str]:
    reader = archive.reader(archive.head())
    master = reader.master()
    assert master is not None
    return [master.summary, *sorted(section.summary for section in reader.sections(list(reader.outlines().ids)))]


def test_a_second_addition_reads_no_chunk_that_the_first_has_read(archive: Archive) -> None:
    engine = CountingEngine(archive.engine)
    writer = archive.on(engine)
    costs = []
    for seed in (2, 3):
        engine.counts = Counts()
        writer.add({f"fishing {seed}": text_of("fishing", seed)})
        costs.append(engine.counts.reads)
    assert costs[1] < costs[0]


def test_another_thread_may_replace_what_is_kept_while_a_master_is_planned(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add({"fishing 2": text_of("fishing", 2)})
    read = PlanReader.chunks_with_raws

    def read_while_another_replaces(reader: PlanReader, ids: Sequence[NodeId]) -> list[ChunkWithRaws]:
        found = read(reader, ids)
        reader.kept().chunks = {}
        return found

    reader = archive.reader(archive.head())
    known = list(reader.kept().chunks)
    new = next(member.id for member in reader.members(reader.outlines().ids[0]) if member.id not in known[1:])
    reader.kept().chunks = {id_: found for id_, found in reader.kept().chunks.items() if id_ != new}
    monkeypatch.setattr(PlanReader, "chunks_with_raws", read_while_another_replaces)
    assert set(reader.cited_chunks([*known, new])) == {*known, new}


def test_what_was_kept_first_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drillcore_server.documents.ingestion.cited_chunks.DOCUMENTS_MAX", 2)
    citations = [Citation(DocumentId(new_uuid()), NodeId(new_uuid()), Span(0, 9), 1.0) for _ in range(3)]
    known = Cited({}, {})
    known.note((citation, str(place)) for place, citation in enumerate(citations))
    assert [known.passage(citation) for citation in citations] == [None, "1", "2"]
    assert known.without({citations[1].document}).passage(citations[1]) is None
