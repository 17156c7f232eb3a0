"""Hierarchies that a client made, and calls that put them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from tests.support.callers.knowledge import Caller

PARAGRAPHS = (
    "The operator shall record every deviation within 24 hours of its discovery.\n",
    "Training records are kept for five years by the quality unit.\n",
    "Each batch must be released by a qualified person before it leaves the site.\n",
    "Temperature in the cold store shall not exceed 8 degrees.\n",
)


@dataclass
class Made:
    """Messages of a hierarchy, to be changed before they are sent."""

    documents: list[pb.HierarchyDocument] = field(default_factory=list)
    nodes: list[pb.HierarchyNode] = field(default_factory=list)

    def nodes_of(self, kind: str) -> list[pb.HierarchyNode]:
        return [node for node in self.nodes if node.WhichOneof("content") == kind]

    @property
    def master(self) -> pb.HierarchyNode:
        (master,) = self.nodes_of("master")
        return master

    def add(self, parent: str = "", **content: Any) -> pb.HierarchyNode:
        self.nodes.append(pb.HierarchyNode(id=str(uuid4()), parent_id=parent, **content))
        return self.nodes[-1]

    def copy(self) -> Made:
        return Made(
            [pb.HierarchyDocument.FromString(document.SerializeToString()) for document in self.documents],
            [pb.HierarchyNode.FromString(node.SerializeToString()) for node in self.nodes],
        )


def span(start: int, end: int) -> nodes_pb2.Span:
    return nodes_pb2.Span(start=start, end=end)


def new_document(source: str, **fields: Any) -> pb.HierarchyDocument:
    return pb.HierarchyDocument(id=str(uuid4()), source_id=source, title=f"Title of {source}", **fields)


def add_chunk(made: Made, section: str, document: str, texts: Sequence[tuple[int, str]], **content: Any) -> str:
    """Adds a chunk of raws, each given as its start and its text. Returns the chunk's id."""
    chunk = made.add(section, chunk=nodes_pb2.ChunkContent(document_id=document, **content)).id
    for start, text in texts:
        raw = nodes_pb2.RawContent(document_id=document, span=span(start, start + len(text)), content=text)
        made.add(chunk, raw=raw)
    return chunk


def whole_text() -> str:
    return "".join(PARAGRAPHS)


def two_sections() -> Made:
    """Two documents of four raws each. A chunk has two raws of a document; a section has a chunk of each document."""
    made = Made()
    made.documents = [new_document("manual.txt", metadata={"site": "12"}), new_document("copy.txt")]
    master = made.add(
        master=nodes_pb2.MasterContent(
            summary="Deviations, training, release and storage.",
            keywords=["deviation", "release"],
            processing=nodes_pb2.Processing(processor="theirs", version="7"),
        )
    ).id
    for number, title in enumerate(("Records", "Release")):
        content = nodes_pb2.SectionContent(
            title=title,
            category=title.lower(),
            summary=f"What is said of {title.lower()}.",
            entities=[nodes_pb2.Entity(type="organisation", value="quality unit")],
            keywords=[title.lower()],
            processing=nodes_pb2.Processing(processor="theirs", version="7"),
        )
        section = made.add(master, section=content)
        for document in made.documents:
            texts = [(_start(place), PARAGRAPHS[place]) for place in (2 * number, 2 * number + 1)]
            chunk = add_chunk(
                made,
                section.id,
                document.id,
                texts,
                summary=f"In short: {title}.",
                headings=[title],
                page=number + 1,
                entities=[nodes_pb2.Entity(type="duration", value=f"{number} hours")],
                keywords=["rule"],
                processing=nodes_pb2.Processing(processor="theirs", version="7", fallback_reason="was asleep"),
            )
            _cite(made, section, chunk, texts[0])
    return made


def _start(place: int) -> int:
    return len("".join(PARAGRAPHS[:place]))


def _cite(made: Made, section: pb.HierarchyNode, chunk: str, raw: tuple[int, str]) -> None:
    start, text = raw
    cited = nodes_pb2.Citation(chunk_id=chunk, span=span(start, start + 10), weight=0.5)
    section.section.citations.append(cited)
    finding = nodes_pb2.Finding(kind="obligation", text=text[:10], citation=cited)
    made.master.master.citations.append(cited)
    made.master.master.findings.append(finding)
    node = next(node for node in made.nodes if node.id == chunk)
    node.chunk.quotes.append(nodes_pb2.Citation(span=span(start + 4, start + 20), text=text[4:20], weight=0.25))


def with_vectors(made: Made, dimensions: int = 4) -> Made:
    """The hierarchy with a vector for each chunk. No two vectors have the same direction."""
    for number, node in enumerate(made.nodes_of("chunk")):
        vector = [0.0] * dimensions
        vector[number % dimensions] = 2.0
        vector[(number + 1) % dimensions] = 0.5
        node.chunk.embedding[:] = vector
    return made


def requests(
    corpus: str, made: Made, *, end: pb.PutHierarchyEnd | None = None, **target: Any
) -> Iterator[pb.PutHierarchyRequest]:
    yield pb.PutHierarchyRequest(target=pb.PutHierarchyTarget(corpus_id=corpus, **target))
    for document in made.documents:
        yield pb.PutHierarchyRequest(document=document)
    for node in made.nodes:
        yield pb.PutHierarchyRequest(node=node)
    counted = pb.PutHierarchyEnd(documents=len(made.documents), nodes=len(made.nodes))
    yield pb.PutHierarchyRequest(end=counted if end is None else end)


def send(
    caller: Caller, sent: Iterator[pb.PutHierarchyRequest], request_id: str | None = None
) -> list[pb.PutHierarchyResponse]:
    return list(caller.documents.PutHierarchy(sent, **caller.options(request_id)))


def put(caller: Caller, corpus: str, made: Made, request_id: str | None = None, **target: Any) -> pb.PutHierarchyDone:
    events = send(caller, requests(corpus, made, **target), request_id)
    assert [event.WhichOneof("event") for event in events[:-1]] == ["progress"] * (len(events) - 1)
    assert events[-1].WhichOneof("event") == "done"
    return events[-1].done
