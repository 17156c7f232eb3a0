"""Writes a core of a corpus at one revision.

    record      content, in this order
    t           stored quads; quads of urn:graph:source; quads of the caller's envelopes, if requested
    ge          vectors of entities of other systems; vectors of facts
    lm, lb      library documents of other systems; in a full core its root; documents and chunks with their texts;
                in a full core all records, in parts, and the end

The bytes depend only on the content, so two exports of the same content are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from drillcore_formats.cores.format import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, TRIPLES
from drillcore_formats.cores.parts import END, CoreModel, CoreRoot, root_document
from drillcore_server.cores.foreign_store import LibraryPlaces
from drillcore_server.cores.model import CoreCounts, CoreKind
from drillcore_server.cores.writer.core_file import CoreFile, PartWriter
from drillcore_server.cores.writer.corpus_records import RecordWriter, sections
from drillcore_server.cores.writer.documents import DocumentWriter, GatheredSignatures, SignatureBook, write_library
from drillcore_server.cores.writer.quads import write_document_vectors, write_graph_vectors, write_quads
from drillcore_server.graphs.quad_model import OWN, Quad, iri_of
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import EmbeddingModel

DEFAULT_ID: Final = f"{OWN}core"
"""The id of a core without a master to name it after."""


@dataclass(frozen=True, slots=True)
class CoreContent:
    """The content of a core, and where to read it."""

    snapshot: BatchedReads
    kind: CoreKind
    sources: bool
    """Includes the texts of documents and chunks, and in a full core the hierarchy."""
    places: LibraryPlaces
    book: SignatureBook
    retrieval: Iterable[Quad]


def default_id(content: CoreContent) -> str:
    """Returns the IRI of the master, if the core contains it."""
    if content.kind is CoreKind.FULL and not content.sources:
        return DEFAULT_ID
    master = content.snapshot.read(lambda view: HierarchyReader(view).master_unless_erased())
    return DEFAULT_ID if master is None else iri_of("master", master.id)


def check_whole(content: CoreContent) -> None:
    """Raises `KeyErased` if the core contains a hierarchy and one of its sources was erased after that revision.

    A section is sealed by the keys of all its chunks' sources, so such a hierarchy has chunks without a section, and
    counts that include erased records. No server could import it.
    """
    if content.kind is CoreKind.FULL and content.sources:
        content.snapshot.read(lambda view: HierarchyReader(view).master())
        for _ in sections(content.snapshot):
            pass


def write_core(core: CoreFile, content: CoreContent) -> CoreCounts:
    """Writes the core and returns its counts. Raises `KeyErased` like `check_whole`."""
    check_whole(content)
    embeddings = content.snapshot.read(embeddings_of)
    model = None if embeddings is None else embeddings.current
    counts: Counter[str] = Counter()
    if content.kind is CoreKind.DOCUMENT_EMBEDDINGS:
        write_document_vectors(core, content.snapshot, None if model is None else model.number)
    else:
        _write_graph(core, content, model)
        _write_library(core, content, model, counts)
    return _counted(core, counts)


def _write_graph(core: CoreFile, content: CoreContent, model: EmbeddingModel | None) -> None:
    hierarchy = content.sources or content.kind is not CoreKind.FULL
    write_quads(core, content.snapshot, content.retrieval, hierarchy=hierarchy)
    write_graph_vectors(core, content.snapshot, None if model is None else model.number)


def _write_library(core: CoreFile, content: CoreContent, model: EmbeddingModel | None, counts: Counter[str]) -> None:
    full = content.kind is CoreKind.FULL
    write_library(core, content.snapshot, content.places)
    if full:
        _write_root(core, content, model)
    with GatheredSignatures(content.book, content.snapshot) as signatures:
        if content.sources and model is not None:
            DocumentWriter(core, content.snapshot, model.number, counts, signatures).write_all(full=full)
        if full:
            _write_records(core, content, counts, signatures)


def _write_root(core: CoreFile, content: CoreContent, model: EmbeddingModel | None) -> None:
    root = CoreRoot(content.sources, None if model is None else CoreModel(model.name, model.dimensions)).encode()
    core.describe(root_document(core.core_id))
    core.blob(core.core_id, len(root), [root])


def _write_records(core: CoreFile, content: CoreContent, counts: Counter[str], signatures: GatheredSignatures) -> None:
    parts = PartWriter(core, "records", core.core_id, counts)
    records = RecordWriter(parts, content.snapshot, signatures)
    if content.sources:
        records.write_summaries()
    records.write_sources(with_documents=content.sources)
    records.write_communities(records.write_facts())
    records.write_turns()
    records.write_foreign(content.places)
    records.write_signatures()
    listed = {tag: core.items[tag] for tag in (TRIPLES, GRAPH_EMBEDDINGS)}
    parts.add(END, dict(sorted({**counts, **listed}.items())))
    parts.close()


def _counted(core: CoreFile, counts: Counter[str]) -> CoreCounts:
    return CoreCounts(
        records=core.records,
        quads=core.items[TRIPLES],
        entity_vectors=core.items[GRAPH_EMBEDDINGS] + core.items[DOCUMENT_EMBEDDINGS],
        library_documents=core.foreign_documents,
        documents=counts["document"],
        sections=counts["section"],
        chunks=counts["chunk"],
        facts=counts["fact"],
        sources=counts["source"],
        communities=counts["community"],
        signatures=counts["signature"],
        turns=counts["turn"],
        edges=counts["edge"],
    )
