"""The texts that vectors of chunks and facts are made of, read back from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.commands.missing_vectors import Item
from drillcore_server.domain.ids import DocumentId, FactId, NodeId, SourceId
from drillcore_server.domain.nodes import ChunkWithRaws, Document
from drillcore_server.ingest.prepare import embedded_text
from drillcore_server.store.facts import FactsView
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.snapshot import Snapshot


class EmbeddedText(NamedTuple):
    item: Item
    source: SourceId
    text: str


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """Word for word what was embedded when the chunk or fact was stored, whoever embedded it."""

    snapshot: Snapshot

    def of(self, items: Sequence[Item]) -> list[EmbeddedText]:
        """Raises `StoreCorruptError` for one that is not there."""
        chunks = [one for one in items if not one.is_fact]
        facts = [one for one in items if one.is_fact]
        return [*self._of_chunks(chunks), *self.snapshot.each(facts, _of_fact)]

    def _of_chunks(self, items: Sequence[Item]) -> Iterator[EmbeddedText]:
        found = self.snapshot.each(items, lambda view, one: view.chunk_with_raws(NodeId(one.id)))
        document_of = lru_cache(1)(self._document)
        for item, chunk in zip(items, found, strict=True):
            document = document_of(chunk.chunk.document)
            text = self._lead_in(chunk, document) + chunk.page.text
            yield EmbeddedText(item, chunk.chunk.source, embedded_text(document.title, chunk.chunk.headings, text))

    def _document(self, document: DocumentId) -> Document:
        found = self.snapshot.read(lambda view: view.document(document))
        if found is None:
            raise StoreCorruptError(f"a chunk names document {document}, which is not there")
        return found

    def _lead_in(self, found: ChunkWithRaws, document: Document) -> str:
        """The end of the chunk before it, with which it is read."""
        if not found.chunk.overlap:
            return ""
        before = document.chunks[found.chunk.ordinal - 1]
        (page,) = self.snapshot.each([before], lambda view, one: view.raws(one))
        return page.text[-found.chunk.overlap :]


def _of_fact(view: CorpusView, item: Item) -> EmbeddedText | None:
    fact = FactsView(view).fact(FactId(item.id))
    return None if fact is None else EmbeddedText(item, fact.source, fact.content)
