"""ExportCore: TrustGraph's tools read a core without loss, equal content gives equal bytes, exports are recorded."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock
from uuid import UUID

import msgpack
import pytest
from trustgraph.cli import put_de_core, put_kg_core
from trustgraph.messaging.translators.knowledge import KnowledgeRequestTranslator

from drillcore_formats.cores import inspect
from drillcore_formats.cores.framing import Record, read_core
from drillcore_formats.cores.terms import read_triple
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1 import envelopes_pb2, envelopes_pb2_grpc, facts_pb2, nodes_pb2
from drillcore_server.cores.writer import documents
from drillcore_server.cores.writer.core_records import triple
from drillcore_server.facts.store import FACT
from drillcore_server.hierarchy.model import RawPage
from drillcore_server.hierarchy.packed import decode_whole_chunk
from drillcore_server.storage import sealed_file as sorted_file
from drillcore_server.storage.ids import NodeId
from tests.support.callers.core_exports import (
    QUADS,
    CoreCaller,
    auditor,
    fill,
    foreign,
    part_records,
    plant,
    records_of,
    serving,
)
from tests.support.callers.hierarchies import PARAGRAPHS, Made, add_chunk, new_document, put
from tests.support.callers.knowledge import CHUNK, File, at_revision
from tests.support.servers.derived_quads import snapshot, source_quads
from tests.support.servers.running import Running
from tests.support.stores.quads import stored_quads

FULL, PLAIN, EMBEDDINGS = pb.CORE_KIND_FULL, pb.CORE_KIND_PLAIN, pb.CORE_KIND_DOCUMENT_EMBEDDINGS


@pytest.fixture(scope="module")
def server_and_writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, CoreCaller]]:
    with serving(tmp_path_factory.mktemp("cores")) as found:
        yield found


@pytest.fixture(scope="module")
def server(server_and_writer: tuple[Running, CoreCaller]) -> Running:
    return server_and_writer[0]


@pytest.fixture(scope="module")
def writer(server_and_writer: tuple[Running, CoreCaller]) -> CoreCaller:
    return server_and_writer[1]


@pytest.fixture(scope="module")
def eve(server: Running) -> Iterator[CoreCaller]:
    with auditor(server) as caller:
        yield caller


@pytest.fixture(scope="module")
def corpus(server: Running, writer: CoreCaller) -> str:
    """A corpus with some of everything. No test changes it."""
    return filled(server, writer)


def filled(server: Running, writer: CoreCaller, source: str = "trustgraph") -> str:
    made = writer.corpus(f"of {source}")
    fill(writer, made)
    writer.put_quads(made, *QUADS[2:], source=source)
    plant(server, made, foreign(server, made, source))
    return made


def as_trustgraph_reads(core: bytes) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each record as TrustGraph's reader gives it, and as its typed messages encode it again."""
    translator = KnowledgeRequestTranslator()
    names = {"t": "triples", "ge": "graph-embeddings", "lm": "library-metadata", "lb": "library-blob"}
    for record in records_of(core):
        kind, message = put_kg_core.read_message(record, "core")
        typed = translator.decode({"operation": "put-kg-core", "id": "core", names[kind]: message})
        yield kind, message, translator.encode(typed)[names[kind]]


@pytest.mark.parametrize("sources", [True, False])
@pytest.mark.parametrize("kind", [FULL, PLAIN])
def test_trustgraphs_reader_and_typed_messages_take_a_core_without_loss(
    eve: CoreCaller, corpus: str, kind: pb.CoreKind.ValueType, sources: bool
) -> None:
    core = eve.export(corpus, kind=kind, include_sources=sources).data
    seen = Counter[str]()
    for tag, message, again in as_trustgraph_reads(core):
        seen[tag] += 1
        assert again == message
    assert set(seen) == {"t", "ge", "lm", "lb"}


def test_trustgraph_reads_a_document_embeddings_core(eve: CoreCaller, corpus: str) -> None:
    core = eve.export(corpus, kind=EMBEDDINGS).data
    translator, chunks = KnowledgeRequestTranslator(), list[Any]()
    for record in records_of(core):
        message = put_de_core.read_message(record, "core")
        typed = translator.decode({"operation": "put-de-core", "id": "core", "document-embeddings": message})
        assert translator.encode(typed)["document-embeddings"] == message
        chunks += message["chunks"]
    nodes = [node.id for node in eve.query(corpus, level=CHUNK)]
    assert {chunk["chunk_id"] for chunk in chunks} == {"chunk-7", *(f"urn:drillcore:chunk:{node}" for node in nodes)}
    found = eve.node(nodes[0], with_embedding=True)
    (vector,) = [chunk["vector"] for chunk in chunks if chunk["chunk_id"].endswith(nodes[0])]
    assert vector == list(found.chunk.embedding)


def test_every_quad_is_in_the_core_as_it_is_stored(server: Running, eve: CoreCaller, corpus: str) -> None:
    core = eve.export(corpus, kind=PLAIN).data
    told = Counter(
        read_triple(encoded) for record in records_of(core) if record[0] == "t" for encoded in record[1]["t"]
    )
    derived = source_quads(server, corpus)
    found = Counter(quad for quad in derived)
    for quad, _ in stored_quads(snapshot(server, corpus)):
        found[quad] += 1
    assert told == Counter({read_triple(msgpack.unpackb(triple(quad))): count for quad, count in found.items()})
    assert {len(record[1]["t"]) <= 1_000 for record in records_of(core) if record[0] == "t"} == {True}


def test_quads_and_vectors_name_their_source(eve: CoreCaller, corpus: str) -> None:
    core = records_of(eve.export(corpus).data)
    assert [record[1]["m"].get("s") for record in core if record[0] == "t"] == [None, "a graph", "trustgraph", None]
    assert [record[1]["m"].get("s") for record in core if record[0] == "ge"][:2] == ["trustgraph", None]


def test_vectors_are_exact_and_encoded_as_short_as_possible(eve: CoreCaller, corpus: str) -> None:
    exported = eve.export(corpus)
    foreign_record, *own = [record[1] for record in records_of(exported.data) if record[0] == "ge"]
    assert [entity["v"] for entity in foreign_record["e"]] == [[0.5, 0.25, -2.0], [0.5, 0.1, -2.0]]
    assert msgpack.packb(0.1) in exported.data
    assert msgpack.packb(0.1, use_single_float=True) not in exported.data
    vectors = {entity["e"]["i"]: entity["v"] for record in own for entity in record["e"]}
    facts = [fact.fact_id for fact in eve.list(corpus, filters=facts_pb2.FactFilters(statuses=[1]))]
    assert set(vectors) == {f"urn:drillcore:fact:{fact_id}" for fact_id in facts}
    for fact_id in facts:
        assert vectors[f"urn:drillcore:fact:{fact_id}"] == list(eve.get(fact_id, with_embedding=True).embedding)


def test_a_core_has_documents_and_chunks_with_their_text_parents_first(eve: CoreCaller, corpus: str) -> None:
    core = records_of(eve.export(corpus, kind=PLAIN).data)
    described = {record[1]["i"]: record[1] for record in core if record[0] == "lm"}
    blobs = {record[1]["i"]: base64.b64decode(record[1]["d"]) for record in core if record[0] == "lb"}
    order = [record[1]["i"] for record in core if record[0] == "lm"]
    assert order[:3] == ["book", "page/1", "a"]
    assert (blobs["book"], blobs["page/1"], "a" in blobs) == (b"book", b"\x00\xff page", False)
    for document in described.values():
        assert not document["p"] or order.index(document["p"]) < order.index(document["i"])
    for document in eve.list_documents(corpus):
        iri = f"urn:drillcore:document:{document.id}"
        chunks = [document for document in order if described[document]["p"] == iri]
        assert (described[iri]["t"], described[iri]["d"], described[iri]["p"]) == (document.title, "source", "")
        assert blobs[iri].decode() == eve.text(corpus, document.id)
        assert b"".join(blobs[chunk] for chunk in chunks) == blobs[iri]


def test_a_core_without_sources_has_no_text(eve: CoreCaller, corpus: str) -> None:
    for kind in (FULL, PLAIN):
        core = records_of(eve.export(corpus, kind=kind, include_sources=False).data)
        assert not [record for record in core if record[0] == "lm" and record[1]["d"] in {"source", "chunk"}]
    kinds = {record[0] for record in part_records(eve.export(corpus, include_sources=False).data)}
    assert not kinds & {"document", "chunk", "section", "master"}
    assert kinds >= {"fact", "source", "turn", "edge", "library", "embedding", "end"}


def test_a_full_core_has_the_records_themselves_and_their_counts(eve: CoreCaller, corpus: str) -> None:
    exported = eve.export(corpus)
    found, parts = inspect(io.BytesIO(exported.data)), part_records(exported.data)
    assert found.root is not None
    assert (found.whole, found.root.sources, found.core_id) == (True, True, exported.done.core_id)
    facts = [FACT.decode(part[1]) for part in parts if part[0] == "fact"]
    listed = eve.list(corpus, filters=facts_pb2.FactFilters(statuses=[1, 2, 3, 4]))
    assert [str(fact.id) for fact in facts] == sorted(listed_fact.fact_id for listed_fact in listed)
    assert {fact.status.name for fact in facts} == {"ACTIVE", "DELETED"}
    kinds = Counter(part[0] for part in parts)
    counts = exported.done.counts
    assert parts[-1][0] == "end"
    assert parts[-1][1] == {
        **{kind: count for kind, count in kinds.items() if kind != "end"},
        "t": counts.quads,
        "ge": counts.entity_vectors,
    }
    assert (counts.documents, counts.chunks, counts.sections) == (5, kinds["chunk"], kinds["section"])
    assert (counts.facts, counts.turns, counts.edges) == (len(facts), 3, 2)
    assert (counts.library_documents, counts.records) == (3, len(records_of(exported.data)))


def raws_of(node: bytes, stored: bytes) -> RawPage:
    return decode_whole_chunk(NodeId(UUID(bytes=node)), stored).page


def test_a_chunks_text_is_in_the_core_once_as_a_record(eve: CoreCaller, corpus: str) -> None:
    core = eve.export(corpus).data
    for kind, *values in part_records(core):
        if kind == "chunk":
            node, section, stored, vector = values
            packed = raws_of(node, stored)
            assert "".join(raw.content for raw in packed.raws) == ""
            assert str(UUID(bytes=section)) == eve.node(str(UUID(bytes=node))).parent_id
            assert len(vector) == 2 * len(eve.node(str(UUID(bytes=node)), with_embedding=True).chunk.embedding)


def test_records_have_the_shortest_encoding(eve: CoreCaller, corpus: str) -> None:
    core = eve.export(corpus).data
    for record in read_core([core]):
        if isinstance(record, Record) and record.tag != "ge":
            assert msgpack.packb(msgpack.unpackb(record.data)) == record.data
        elif isinstance(record, Record) and b"trustgraph" not in record.data:
            assert msgpack.packb(msgpack.unpackb(record.data), use_single_float=True) == record.data


@pytest.mark.parametrize("kind", [FULL, PLAIN, EMBEDDINGS])
def test_equal_content_gives_equal_bytes(eve: CoreCaller, corpus: str, kind: pb.CoreKind.ValueType) -> None:
    first = eve.export(corpus, kind=kind)
    assert eve.export(corpus, kind=kind).data == first.data
    with (
        mock.patch.object(documents, "_HELD_CHARACTERS_MAX", 0),
        mock.patch.object(sorted_file, "RUN_BYTES", 100),
    ):
        assert eve.export(corpus, kind=kind).data == first.data


def test_an_earlier_revision_is_exported_as_it_was(server: Running, writer: CoreCaller, eve: CoreCaller) -> None:
    corpus = filled(server, writer, "earlier")
    before = eve.export(corpus)
    writer.add(corpus, File("later.txt", "The later document says that nothing else may be in the earlier core."))
    writer.put_quads(corpus, QUADS[3], source="later")
    assert eve.export(corpus, as_of=at_revision(before.done.revision)).data == before.data
    assert eve.export(corpus).data != before.data


def test_a_hierarchy_with_gaps_keeps_the_text_of_its_chunks(writer: CoreCaller, eve: CoreCaller) -> None:
    corpus, made = writer.corpus("gaps"), Made()
    made.documents = [new_document("manual.txt")]
    master = made.add(master=nodes_pb2.MasterContent(summary="It is about batches and their records."))
    section = made.add(master.id, section=nodes_pb2.SectionContent(title="Batches", summary="Of batches."))
    add_chunk(made, section.id, made.documents[0].id, [(10, PARAGRAPHS[0]), (200, PARAGRAPHS[1])])
    add_chunk(made, section.id, made.documents[0].id, [(400, PARAGRAPHS[2])])
    put(writer, corpus, made)
    core = eve.export(corpus).data
    chunks = [raws_of(values[0], values[2]) for kind, *values in part_records(core) if kind == "chunk"]
    assert [page.text for page in chunks] == [f"{PARAGRAPHS[0]}\n{PARAGRAPHS[1]}", PARAGRAPHS[2]]
    blobs = {record[1]["i"]: base64.b64decode(record[1]["d"]) for record in records_of(core) if record[0] == "lb"}
    whole = "".join(f"\n{paragraph}" for paragraph in PARAGRAPHS[:3])
    assert blobs[f"urn:drillcore:document:{made.documents[0].id}"].decode() == whole


def test_envelopes_are_in_a_core_only_on_request(server: Running, eve: CoreCaller, corpus: str) -> None:
    stub = envelopes_pb2_grpc.EnvelopeServiceStub(eve._channel)
    question = envelopes_pb2.EnvelopeQuestion(query="how long are records kept", corpus_ids=[corpus])
    question.budget.tokens = 500
    packed = stub.PackEnvelope(envelopes_pb2.PackEnvelopeRequest(question=question), **eve.options())
    assert b"urn:graph:retrieval" not in eve.export(corpus).data
    core = eve.export(corpus, include_retrieval=True).data
    assert f"urn:drillcore:envelope:{packed.envelope_id}".encode() in core


def test_an_empty_corpus_can_be_exported(writer: CoreCaller, eve: CoreCaller) -> None:
    corpus = writer.corpus("empty")
    exported = eve.export(corpus)
    assert inspect(io.BytesIO(exported.data)).whole
    assert exported.done.core_id == "urn:drillcore:core"
    assert eve.export(corpus, kind=PLAIN).data == b""
    assert eve.export(corpus, core_id="mine").done.core_id == "mine"
