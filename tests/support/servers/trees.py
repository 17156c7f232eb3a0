"""A corpus's whole hierarchy at one revision, and the rules that must hold for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from drillcore_proto.v1 import documents_pb2, nodes_pb2
from tests.support.callers.knowledge import CHUNK, MASTER, RAW, SECTION, Caller, at_revision

Nodes = Mapping[str, nodes_pb2.Node]


@dataclass(frozen=True)
class Tree:
    revision: int
    master: nodes_pb2.Node
    sections: Nodes
    chunks: Nodes
    raws: Nodes
    documents: Mapping[str, documents_pb2.Document]

    def text(self, document: str) -> str:
        """A document's text, put together from its raws."""
        own = [raw.raw for raw in self.raws.values() if raw.raw.document_id == document]
        return "".join(raw.content for raw in sorted(own, key=lambda raw: raw.span.start))


def walk(caller: Caller, corpus: str, revision: int | None = None) -> Tree:
    """Reads the tree from the master down, at one revision: by default the head."""
    as_of = at_revision(caller.head(corpus) if revision is None else revision)
    (found,) = caller.query(corpus, level=MASTER, as_of=as_of)
    master = caller.node(found.id, as_of=as_of)
    return Tree(
        as_of.revision,
        master,
        {section_id: caller.node(section_id, as_of=as_of) for section_id in master.child_ids},
        {node.id: node for node in caller.below(master.id, CHUNK, as_of=as_of)},
        {node.id: node for node in caller.below(master.id, RAW, as_of=as_of)},
        {document.id: document for document in caller.list_documents(corpus, as_of=as_of)},
    )


def assert_whole(tree: Tree) -> None:
    """Asserts that nothing is an orphan, every count is right, and every span gives the original characters."""
    _assert_parents(tree)
    _assert_counts(tree)
    _assert_spans(tree)


def _assert_parents(tree: Tree) -> None:
    assert (tree.master.level, tree.master.parent_id) == (MASTER, "")
    assert {section.parent_id for section in tree.sections.values()} <= {tree.master.id}
    assert {section.level for section in tree.sections.values()} <= {SECTION}
    listed = [(child, section.id) for section in tree.sections.values() for child in section.child_ids]
    assert Counter(listed) == Counter((chunk.id, chunk.parent_id) for chunk in tree.chunks.values())
    assert len(tree.chunks) == len(listed), "a chunk is in one section only"
    assert {raw.parent_id for raw in tree.raws.values()} == set(tree.chunks)
    assert {chunk.chunk.document_id for chunk in tree.chunks.values()} == set(tree.documents)
    for raw in tree.raws.values():
        assert raw.raw.document_id == tree.chunks[raw.parent_id].chunk.document_id


def _assert_counts(tree: Tree) -> None:
    documents = tree.documents.values()
    assert tree.master.master.statistics == nodes_pb2.Statistics(
        documents=len(documents),
        sections=len(tree.sections),
        chunks=len(tree.chunks),
        raws=len(tree.raws),
        characters=sum(document.characters for document in documents),
        tokens=sum(document.tokens for document in documents),
    )
    chunks = Counter(chunk.chunk.document_id for chunk in tree.chunks.values())
    raws = Counter(raw.raw.document_id for raw in tree.raws.values())
    for document in documents:
        assert (document.chunks, document.raws) == (chunks[document.id], raws[document.id])
    of_sections = defaultdict(set)
    for chunk in tree.chunks.values():
        of_sections[chunk.parent_id].add(chunk.chunk.document_id)
    for section in tree.sections.values():
        content = section.section
        assert (content.chunk_count, content.document_count) == (len(section.child_ids), len(of_sections[section.id]))


def _assert_spans(tree: Tree) -> None:
    texts = {document_id: tree.text(document_id) for document_id in tree.documents}
    for document_id, document in tree.documents.items():
        own = sorted(
            (raw.raw.span.start, raw.raw.span.end) for raw in tree.raws.values() if raw.raw.document_id == document_id
        )
        assert [start for start, _ in own] == [0, *(end for _, end in own[:-1])], "raws leave no gap and do not overlap"
        assert own[-1][1] == document.characters == len(texts[document_id])
    for raw in (node.raw for node in tree.raws.values()):
        assert raw.content == texts[raw.document_id][raw.span.start : raw.span.end]
    citations = [quote for chunk in tree.chunks.values() for quote in chunk.chunk.quotes]
    for quote in citations:
        assert quote.text == texts[quote.document_id][quote.span.start : quote.span.end] != ""
    citations += [cited for section in tree.sections.values() for cited in section.section.citations]
    citations += [*tree.master.master.citations, *(finding.citation for finding in tree.master.master.findings)]
    for citation in citations:
        chunk = tree.chunks[citation.chunk_id].chunk
        assert chunk.document_id == citation.document_id
        assert chunk.span.start <= citation.span.start < citation.span.end <= chunk.span.end
    for finding in tree.master.master.findings:
        cited = finding.citation
        assert finding.text == texts[cited.document_id][cited.span.start : cited.span.end]
