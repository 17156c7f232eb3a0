"""Any valid hierarchy is stored by either path of writing, reads back as it was put, and agrees with itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.kernel import revise
from tests.documents.test_put_hierarchy import assert_agrees
from tests.support.callers.hierarchies import Made, put, span
from tests.support.callers.knowledge import CHUNK, RAW, Caller
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, Running, create_tenants, running

LETTERS = "abc déß語😀 .\n\t"


class Builder:
    """Draws a hierarchy: chunks of a document may overlap and leave gaps; raws of a chunk may leave gaps only."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.made = Made()
        self.dimensions = dice.choice([0, 0, 1, 3, 17])

    def uuid(self) -> str:
        """A UUID whose last bytes are often zero or small, as in the ids of ingested chunks and raws."""
        tail = self.dice.choice([0, self.dice.randint(1, 3), self.dice.getrandbits(16)])
        return str(UUID(int=uuid4().int >> 16 << 16 | tail))

    def node(self, parent: str, **content: Any) -> str:
        self.made.nodes.append(pb.HierarchyNode(id=self.uuid(), parent_id=parent, **content))
        return self.made.nodes[-1].id

    def text(self, longest: int = 30) -> str:
        return "".join(self.dice.choices(LETTERS, k=self.dice.randint(1, longest)))

    def build(self) -> Made:
        content = nodes_pb2.MasterContent(
            summary=self.text(), keywords=[self.text()], processing=nodes_pb2.Processing(processor="p")
        )
        master = self.node("", master=content)
        sections = [self.section(master) for _ in range(self.dice.randint(1, 3))]
        for number in range(self.dice.randint(1, 3)):
            self.document(number, sections)
        used = {node.parent_id for node in self.made.nodes_of("chunk")}
        self.made.nodes = [node for node in self.made.nodes if node.id in used or not node.HasField("section")]
        self.cite()
        self.dice.shuffle(self.made.nodes)
        return self.made

    def section(self, master: str) -> str:
        content = nodes_pb2.SectionContent(
            title=self.text(),
            category=self.dice.choice(["", "one", "two"]),
            summary=self.text(),
            entities=[nodes_pb2.Entity(type="kind", value=self.text())],
            processing=nodes_pb2.Processing(processor="p", version=self.text()),
        )
        return self.node(master, section=content)

    def document(self, number: int, sections: list[str]) -> None:
        document_id, text = self.uuid(), self.text(300)
        self.made.documents.append(pb.HierarchyDocument(id=document_id, source_id=f"s{number}", title="A title"))
        for _ in range(self.dice.randint(1, 4)):
            self.chunk(self.dice.choice(sections), document_id, text)

    def chunk(self, section: str, document: str, text: str) -> None:
        content = nodes_pb2.ChunkContent(
            document_id=document,
            summary=self.text(),
            keywords=[self.text()],
            headings=[self.text()],
            processing=nodes_pb2.Processing(fallback_reason=self.text()),
        )
        if self.dice.random() < 0.5:
            content.page = self.dice.randint(0, 9)
        content.entities.extend(nodes_pb2.Entity(type="k", value=self.text()) for _ in range(self.dice.randint(0, 2)))
        content.embedding.extend(self.dice.uniform(-2, 2) or 1.0 for _ in range(self.dimensions))
        chunk = self.node(section, chunk=content)
        cuts = sorted(self.dice.randint(0, len(text)) for _ in range(2 * self.dice.randint(1, 4)))
        pairs = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if a < b] or [(0, len(text))]
        for start, end in pairs:
            raw = nodes_pb2.RawContent(document_id=document, span=span(start, end), content=text[start:end])
            self.node(chunk, raw=raw)
            if self.dice.random() < 0.1:
                self.made.nodes[-1].id = ""

    def cite(self) -> None:
        for raw in self.made.nodes_of("raw"):
            chunk = next(node for node in self.made.nodes if node.id == raw.parent_id)
            section = next(node for node in self.made.nodes if node.id == chunk.parent_id)
            start = self.dice.randint(raw.raw.span.start, raw.raw.span.end - 1)
            place = span(start, self.dice.randint(start + 1, raw.raw.span.end))
            cited = nodes_pb2.Citation(chunk_id=chunk.id, span=place, weight=self.dice.random())
            if self.dice.random() < 0.3:
                chunk.chunk.quotes.append(cited)
            if self.dice.random() < 0.3:
                section.section.citations.append(cited)
            if self.dice.random() < 0.2:
                finding = nodes_pb2.Finding(kind="statement", text=self.text(), citation=cited)
                self.made.master.master.findings.append(finding)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path: Path = tmp_path_factory.mktemp("put")
    with running(path) as found:
        create_tenants(found.client())
        yield found
        assert_agrees(found)


def as_put(node: pb.HierarchyNode, found: nodes_pb2.Node) -> pb.HierarchyNode:
    """The node that was read, without the parts that the server makes."""
    kind = str(node.WhichOneof("content"))
    kept = pb.HierarchyNode(id=found.id, parent_id=found.parent_id)
    content = getattr(kept, kind)
    content.CopyFrom(getattr(found, kind))
    made = ("statistics", "document_count", "chunk_count", "source_id", "tokens", "embedding_model", "embedding")
    for name in (*made, *(["span"] if kind == "chunk" else [])):
        if name in content.DESCRIPTOR.fields_by_name:
            content.ClearField(name)
    for citation in _citations(content):
        citation.document_id = ""
        citation.text = ""
        if kind == "chunk":
            assert citation.chunk_id == found.id
    return kept


def _citations(content: Any) -> list[nodes_pb2.Citation]:
    found = [*getattr(content, "citations", ()), *getattr(content, "quotes", ())]
    return found + [finding.citation for finding in getattr(content, "findings", ())]


def without_embedding(node: pb.HierarchyNode) -> pb.HierarchyNode:
    kept = pb.HierarchyNode.FromString(node.SerializeToString())
    if kept.HasField("chunk"):
        kept.chunk.ClearField("embedding")
    return kept


def assert_read_back(caller: Caller, made: Made) -> None:
    for node in made.nodes:
        if not node.id:
            (same,) = [raw for raw in caller.below(node.parent_id, RAW) if raw.raw.span == node.raw.span]
            assert same.raw.content == node.raw.content
            continue
        found = caller.node(node.id, with_embedding=True)
        assert as_put(node, found) == without_embedding(node)
        if node.HasField("chunk") and node.chunk.embedding:
            sent = np.array(node.chunk.embedding)
            assert np.allclose(np.array(found.chunk.embedding), sent / np.linalg.norm(sent), atol=1e-2)
        children = {child.id for child in made.nodes if child.parent_id == node.id}
        assert children - {""} <= set(found.child_ids)
        assert len(found.child_ids) == sum(child.parent_id == node.id for child in made.nodes)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seeds=st.lists(st.integers(0, 1 << 32), min_size=1, max_size=3), large=st.booleans())
def test_a_hierarchy_is_read_back_as_it_was_put_and_agrees(server: Running, seeds: list[int], large: bool) -> None:
    caller, corpus = Caller(server.address, ACME), new_corpus(server)
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(revise, "SMALL_BYTES_MAX", 0)
            patch.setattr(revise, "BATCH_BYTES_MAX", 3_000)
        for revision, seed in enumerate(seeds, 1):
            builder = Builder(random.Random(seed))
            made = builder.build()
            model = "theirs" if builder.dimensions else ""
            assert put(caller, corpus, made, embedding_model=model).revision == revision
            assert_read_back(caller, made)
            assert len(caller.query(corpus, level=CHUNK)) == len(made.nodes_of("chunk"))
    caller.close()
