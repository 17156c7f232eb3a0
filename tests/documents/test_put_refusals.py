"""A hierarchy with anything wrong is refused as a whole, with a reason and a message that names the node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from tests.support.callers.hierarchies import Made, new_document, put, span, two_sections, with_vectors
from tests.support.callers.knowledge import Caller, info_of
from tests.transport.test_stalled_streams import served

Spoil = Callable[[Made], object]
"""Makes a hierarchy wrong and returns the id that the refusal must name."""


def master(made: Made) -> pb.HierarchyNode:
    return made.master


def section(made: Made) -> pb.HierarchyNode:
    return made.nodes_of("section")[0]


def chunk(made: Made) -> pb.HierarchyNode:
    return made.nodes_of("chunk")[0]


def raw(made: Made) -> pb.HierarchyNode:
    return made.nodes_of("raw")[0]


def changed(node_of: Callable[[Made], pb.HierarchyNode], change: Callable[[pb.HierarchyNode], object]) -> Spoil:
    """Changes one node, which the refusal must then name."""

    def spoil(made: Made) -> str:
        node = node_of(made)
        change(node)
        return node.id

    return spoil


def same_id(first: str, second: str) -> Spoil:
    def spoil(made: Made) -> str:
        made.nodes_of(second)[-1].id = made.nodes_of(first)[0].id
        return made.nodes_of(first)[0].id

    return spoil


def each_others_parents(made: Made) -> str:
    first, second = made.nodes_of("section")
    first.parent_id, second.parent_id = second.id, first.id
    return first.id


def below_the_master(kind: str) -> Spoil:
    def spoil(made: Made) -> str:
        made.nodes_of(kind)[0].parent_id = made.master.id
        return made.nodes_of(kind)[0].id

    return spoil


def no_master(made: Made) -> str:
    made.nodes.remove(made.master)
    return ""


def second_master(made: Made) -> str:
    return made.add(master=nodes_pb2.MasterContent()).id


def empty_section(made: Made) -> str:
    return made.add(made.master.id, section=nodes_pb2.SectionContent()).id


def empty_chunk(made: Made) -> str:
    content = nodes_pb2.ChunkContent(document_id=made.documents[0].id)
    return made.add(section(made).id, chunk=content).id


def document_without_chunks(made: Made) -> str:
    made.documents.append(new_document("unused.txt"))
    return made.documents[-1].id


def document_twice(made: Made) -> str:
    made.documents.append(made.documents[0])
    return made.documents[0].id


def source_twice(made: Made) -> str:
    made.documents[1].source_id = made.documents[0].source_id
    return made.documents[1].id


def document_as_node(made: Made) -> str:
    chunk(made).id = made.documents[0].id
    return made.documents[0].id


def document_field(**fields: object) -> Spoil:
    def spoil(made: Made) -> str:
        for name, value in fields.items():
            setattr(made.documents[0], name, value)
        return made.documents[0].id

    return spoil


def overlapping_raws(made: Made) -> str:
    second = made.nodes_of("raw")[1]
    second.raw.span.start -= 1
    second.raw.content = "x" + second.raw.content
    return second.id


def contradicting_chunks(made: Made) -> str:
    duplicate = made.copy()
    own, document = chunk(made), made.documents[0].id
    copy = made.add(own.parent_id, chunk=nodes_pb2.ChunkContent(document_id=document))
    for node in duplicate.nodes_of("raw")[:1]:
        node.raw.content = node.raw.content.upper()
        made.add(copy.id, raw=node.raw)
    return ""


def raw_of_another_document(made: Made) -> str:
    raw(made).raw.document_id = made.documents[1].id
    return raw(made).id


def cite(node_of: Callable[[Made], pb.HierarchyNode], **citation: object) -> Spoil:
    """Adds a citation that is right except for these fields."""

    def spoil(made: Made) -> str:
        node = node_of(made)
        content = getattr(node, str(node.WhichOneof("content")))
        cited = (content.quotes if node.HasField("chunk") else content.citations)[0]
        for name, value in citation.items():
            if name == "span":
                cited.span.CopyFrom(value)
            else:
                setattr(cited, name, value)
        return node.id

    return spoil


def cite_another_sections_chunk(made: Made) -> str:
    section(made).section.citations[0].chunk_id = made.nodes_of("section")[1].section.citations[0].chunk_id
    return section(made).id


def quote_a_lot(node: pb.HierarchyNode) -> None:
    node.chunk.quotes.extend([nodes_pb2.Citation(span=span(0, 130))] * 900)
    node.chunk.quotes[0].span.end = 1_000_000


NODE = str(uuid4())
HIERARCHY: dict[str, Spoil] = {
    "the same id twice at a level": same_id("raw", "raw"),
    "the same id at two levels": same_id("section", "raw"),
    "an id of a document and a node": document_as_node,
    "a document twice": document_twice,
    "two documents of a source": source_twice,
    "a document without a source": document_field(source_id=""),
    "a document without chunks": document_without_chunks,
    "a document shorter than its raws": document_field(characters=10),
    "a hash that is none": document_field(content_hash="x"),
    "a cycle": each_others_parents,
    "a parent that is not there": changed(section, lambda node: setattr(node, "parent_id", NODE)),
    "a node that is its own parent": changed(section, lambda node: setattr(node, "parent_id", node.id)),
    "a parent two levels above": below_the_master("chunk"),
    "a raw below the master": below_the_master("raw"),
    "no parent": changed(chunk, lambda node: setattr(node, "parent_id", "")),
    "a master with a parent": changed(master, lambda node: setattr(node, "parent_id", NODE)),
    "no master": no_master,
    "two masters": second_master,
    "a section without chunks": empty_section,
    "a chunk without raws": empty_chunk,
    "no content": changed(raw, lambda node: node.ClearField("raw")),
    "a chunk of a document that is not there": changed(chunk, lambda node: setattr(node.chunk, "document_id", NODE)),
    "a raw of another document than its chunk": raw_of_another_document,
    "a raw longer than its span": changed(raw, lambda node: setattr(node.raw, "content", node.raw.content + "x")),
    "a raw shorter than its span": changed(raw, lambda node: setattr(node.raw, "content", node.raw.content[1:])),
    "an empty raw": changed(raw, lambda node: node.raw.CopyFrom(nodes_pb2.RawContent())),
    "a span that ends before it starts": changed(raw, lambda node: node.raw.span.CopyFrom(span(9, 3))),
    "a span beyond all texts": changed(raw, lambda node: node.raw.span.CopyFrom(span(1 << 63, (1 << 63) + 76))),
    "raws of a chunk that overlap": overlapping_raws,
    "chunks that contradict each other": contradicting_chunks,
    "a quote beyond its chunk": cite(chunk, span=span(100, 500)),
    "an empty quote": cite(chunk, span=span(5, 5)),
    "a quote of other words": cite(chunk, text="never said"),
    "a quote of another chunk": cite(chunk, chunk_id=NODE),
    "a quote of another document": cite(chunk, document_id=NODE),
    "a weight over one": cite(chunk, weight=1.5),
    "a weight that is no number": cite(chunk, weight=float("nan")),
    "a citation of no chunk": cite(section, chunk_id=NODE),
    "a citation of text that is not there": cite(section, span=span(0, 10_000)),
    "a section that cites a chunk of another": cite_another_sections_chunk,
    "a master that cites no chunk": cite(master, chunk_id=NODE),
    "a finding of no kind": changed(master, lambda node: setattr(node.master.findings[0], "kind", "rumour")),
    "an entity without a value": changed(chunk, lambda node: setattr(node.chunk.entities[0], "value", "")),
    "statistics": changed(master, lambda node: setattr(node.master.statistics, "chunks", 4)),
    "a count": changed(section, lambda node: setattr(node.section, "chunk_count", 2)),
    "tokens": changed(chunk, lambda node: setattr(node.chunk, "tokens", 2)),
    "preprocessing of a raw": changed(raw, lambda node: node.raw.preprocessing.append("decoded")),
    "a zero character in a text": changed(section, lambda node: setattr(node.section, "summary", "a\0b")),
    "a zero character in a raw": changed(raw, lambda node: setattr(node.raw, "content", "\0" + node.raw.content[1:])),
}
OTHERS: dict[str, tuple[Reason, Spoil]] = {
    "an id that is no UUID": (Reason.INVALID_ID, changed(section, lambda node: setattr(node, "id", "section 1"))),
    "a chunk without an id": (Reason.INVALID_ID, changed(chunk, lambda node: setattr(node, "id", ""))),
    "the nil id": (Reason.INVALID_ID, changed(chunk, lambda node: setattr(node, "id", str(UUID(int=0))))),
    "a document id that is no UUID": (Reason.INVALID_ID, document_field(id="1")),
    "a chunk without a document": (
        Reason.INVALID_ID,
        changed(chunk, lambda node: setattr(node.chunk, "document_id", "")),
    ),
    "a long summary": (
        Reason.TOO_LARGE,
        changed(section, lambda node: setattr(node.section, "summary", "s" * 100_001)),
    ),
    "a long title of a document": (Reason.TOO_LARGE, document_field(title="t" * 1_001)),
    "quotes longer than any chunk": (Reason.TOO_LARGE, changed(chunk, quote_a_lot)),
    "a long raw": (Reason.TOO_LARGE, changed(raw, lambda node: setattr(node.raw, "content", "r" * 1_000_001))),
    "a large node": (Reason.TOO_LARGE, changed(section, lambda node: node.section.keywords.append("k" * 5_000_000))),
    "many keywords": (Reason.TOO_LARGE, changed(chunk, lambda node: node.chunk.keywords.extend(["k"] * 1_001))),
}


def refusal(library: Caller, corpus: str, made: Made, **target: object) -> tuple[str, str]:
    """The reason and the message of the refusal. Asserts that nothing was stored."""
    with pytest.raises(grpc.RpcError) as caught:
        put(library, corpus, made, **target)
    info = info_of(caught.value)
    assert caught.value.code() is Reason[info.reason].code
    assert library.head(corpus) == 0
    return info.reason, str(caught.value.details())


@pytest.mark.parametrize("wrong", HIERARCHY)
def test_an_invalid_hierarchy_is_refused(library: Caller, corpus: str, wrong: str) -> None:
    made = two_sections()
    named = str(HIERARCHY[wrong](made))
    reason, message = refusal(library, corpus, made)
    assert reason == Reason.INVALID_HIERARCHY.name
    assert named in message


@pytest.mark.parametrize("wrong", OTHERS)
def test_invalid_ids_and_sizes_are_refused(library: Caller, corpus: str, wrong: str) -> None:
    made = two_sections()
    expected, spoil = OTHERS[wrong]
    named = str(spoil(made))
    reason, message = refusal(library, corpus, made)
    assert reason == expected.name
    assert named in message


def test_the_unspoilt_hierarchy_is_accepted(library: Caller, corpus: str) -> None:
    assert put(library, corpus, two_sections()).revision == 1
    assert put(library, corpus, with_vectors(two_sections()), embedding_model="theirs").revision == 2


VECTORS: dict[str, list[float]] = {
    "not a number": [1.0, float("nan"), 0.0, 0.0],
    "infinite": [1.0, float("inf"), 0.0, 0.0],
    "zero": [0.0] * 4,
    "shorter than the others": [1.0, 0.0, 0.0],
    "longer than the others": [1.0] * 5,
    "longer than any": [1.0] * 4_097,
    "missing": [],
}


@pytest.mark.parametrize("wrong", VECTORS)
def test_a_vector_that_cannot_be_used_is_refused(library: Caller, corpus: str, wrong: str) -> None:
    made = with_vectors(two_sections())
    node = made.nodes_of("chunk")[1]
    node.chunk.embedding[:] = VECTORS[wrong]
    reason, message = refusal(library, corpus, made, embedding_model="theirs")
    assert reason == Reason.INVALID_VECTOR.name
    assert node.id in message


def test_a_vector_is_refused_if_other_chunks_have_none(library: Caller, corpus: str) -> None:
    made = two_sections()
    made.nodes_of("chunk")[2].chunk.embedding[:] = [1.0, 0.0]
    reason, message = refusal(library, corpus, made, embedding_model="theirs")
    assert reason == Reason.INVALID_VECTOR.name
    assert made.nodes_of("chunk")[2].id in message


def test_vectors_without_the_name_of_their_model_are_refused(library: Caller, corpus: str) -> None:
    assert refusal(library, corpus, with_vectors(two_sections()))[0] == Reason.INVALID_VECTOR.name


def test_a_model_without_vectors_is_refused_unless_it_is_the_servers(library: Caller, corpus: str) -> None:
    assert refusal(library, corpus, two_sections(), embedding_model="theirs")[0] == Reason.MODEL_MISMATCH.name
    assert put(library, corpus, two_sections()).revision == 1
    own = library.query(corpus, level=nodes_pb2.LEVEL_CHUNK)[0].chunk.embedding_model
    assert put(library, corpus, two_sections(), embedding_model=own).revision == 2
    reason = refusal_of_wrong_length(library, corpus, own)
    assert reason == Reason.INVALID_VECTOR.name


def refusal_of_wrong_length(library: Caller, corpus: str, model: str) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        put(library, corpus, with_vectors(two_sections()), embedding_model=model)
    return str(info_of(caught.value).reason)


def test_text_that_cannot_be_embedded_is_refused_with_its_chunk(library: Caller, corpus: str) -> None:
    made = two_sections()
    made.documents[0].title = ""
    node = chunk(made)
    del node.chunk.headings[:], node.chunk.quotes[:]
    del section(made).section.citations[:], made.master.master.citations[:], made.master.master.findings[:]
    for raw_node in made.nodes_of("raw"):
        if raw_node.parent_id == node.id:
            raw_node.raw.content = " " * len(raw_node.raw.content)
    reason, message = refusal(library, corpus, made)
    assert reason == Reason.INVALID_HIERARCHY.name
    assert node.id in message
    assert put(library, corpus, with_vectors(made), embedding_model="theirs").revision == 1


def test_a_hierarchy_larger_than_the_server_holds_is_refused_while_it_comes(tmp_path: Path) -> None:
    with served(tmp_path, hierarchy_bytes_max=2_000, stream_idle_s=30.0) as (_, caller, corpus):
        with pytest.raises(grpc.RpcError) as refused:
            put(caller, corpus, two_sections())
        assert info_of(refused.value).reason == Reason.TOO_LARGE.name
        assert "server.hierarchy_bytes_max" in refused.value.details()
        assert caller.head(corpus) == 0
