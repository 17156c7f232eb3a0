"""The way from facts, nodes, documents and sources of a corpus to the characters of the original documents.

section, master, fact -> chunk -> raw -> document -> source

What somebody reads on that way is read as by any other call: the audit record names it, facts count as accessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from drillcore_server.commands.selecting import left
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.documents import Span
from drillcore_server.domain.explained import Step, Steps, parts_of
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import DocumentId, FactId, NodeId, SourceId
from drillcore_server.domain.iris import iri_of
from drillcore_server.domain.nodes import ChunkWithRaws, Level, Master, Section, chunk_of_raw, raw_id
from drillcore_server.domain.provenance_quads import cited_by
from drillcore_server.store.facts import FactsView

_CHUNKS_AT_HAND: Final = 8
"""With their raws: neighbouring facts are mostly of the same few."""
_TITLES_BETWEEN: Final = " / "


class Chains:
    """The ways in one corpus at one revision. Each method tells of one thing, and of all that it comes from."""

    def __init__(self, shelf: Shelf, trail: Trail, steps: Steps) -> None:
        self._view = shelf.view
        self._number = shelf.corpus.number
        self._trail = trail
        self._steps = steps
        self._wanted: dict[NodeId, list[Span] | None] = {}
        """Of chunks that lead on: the characters to go on to; None for all."""
        self._with_raws = lru_cache(_CHUNKS_AT_HAND)(self._read_chunk)

    def facts(self, ids: Iterable[FactId]) -> None:
        """In their order. What they say of one chunk is told together."""
        found = [(one, FactsView(self._view).fact_left(one)) for one in ids]
        for _, fact in found:
            if fact is not None and fact.chunk is not None:
                self._want(fact.chunk, fact.span)
        for one, fact in found:
            self._fact(one, fact)

    def node(self, node: NodeId, level: Level) -> None:
        match level:
            case Level.MASTER:
                master = self._view.master_left()
                self._summary(node, level, master if master is not None and master.id == node else None)
            case Level.SECTION:
                self._summary(node, level, left(self._view.section, node))
            case Level.CHUNK:
                self._chunk(node)
            case Level.RAW:
                self._raw(node)

    def document(self, document: DocumentId) -> None:
        found = left(self._view.document, document)
        if found is None:
            self._steps.add(Step("document", document, gone=True))
            return
        named = (iri_of("source", found.source),)
        if self._steps.add(Step("document", document, found.title, named, document)):
            self._trail.touch_documents([document])
            self._trail.sources.add((self._number, found.source))
            self.source(found.source)

    def source(self, source: SourceId) -> None:
        found = self._view.source_left(source)
        title = "" if found is None else found.title
        if self._steps.add(Step("source", source, title, gone=found is None)) and found is not None:
            self._trail.sources.add((self._number, source))

    def _fact(self, one: FactId, fact: Fact | None) -> None:
        if fact is None:
            self._steps.add(Step("fact", one, gone=True))
            return
        from_ = iri_of("source", fact.source) if fact.chunk is None else iri_of("chunk", fact.chunk)
        step = Step("fact", one, "", (from_,), fact.document, fact.span, self._text_of(fact))
        if not self._steps.add(step):
            return
        self._trail.touch_facts([fact], self._number, accessed=True)
        if fact.chunk is None:
            self.source(fact.source)
        else:
            self._chunk(fact.chunk)

    def _text_of(self, fact: Fact) -> str:
        found = None if fact.chunk is None or fact.span is None else self._with_raws(fact.chunk)
        if found is None or fact.span is None or not found.page.holds(fact.span):
            return ""
        return found.page.text_of(fact.span)

    def _summary(self, node: NodeId, level: Level, found: Section | Master | None) -> None:
        kind = level.name.lower()
        if found is None:
            self._steps.add(Step(kind, node, gone=True))
            return
        cited = cited_by(found)
        for one in cited:
            self._want(one.chunk, one.span)
        named = self._steps.named(iri_of("chunk", one.chunk) for one in cited)
        title = found.title if isinstance(found, Section) else ""
        if self._steps.add(Step(kind, node, title, named)):
            self._touch(node, level)
            for one in cited:
                self._chunk(one.chunk)

    def _chunk(self, chunk: NodeId) -> None:
        found = self._with_raws(chunk)
        if found is None:
            self._steps.add(Step("chunk", chunk, gone=True))
            return
        parts = parts_of(found.page, self._wanted.get(chunk))
        named = self._steps.named(iri_of("raw", _raw_at(found, place)) for place in parts)
        record = found.chunk
        title = _TITLES_BETWEEN.join(record.headings)
        if self._steps.add(Step("chunk", chunk, title, named, record.document, record.span)):
            self._touch(chunk, Level.CHUNK, record.source)
            for place, span in parts.items():
                self._raw_of(found, place, span)

    def _raw(self, raw: NodeId) -> None:
        found = self._with_raws(self._view.parent(raw) or chunk_of_raw(raw)[0])
        places = range(0 if found is None else len(found.page.raws))
        place = next((one for one in places if found is not None and _raw_at(found, one) == raw), None)
        if found is None or place is None:
            self._steps.add(Step("raw", raw, gone=True))
        else:
            self._raw_of(found, place, found.page.raws[place].span)

    def _raw_of(self, found: ChunkWithRaws, place: int, span: Span) -> None:
        """Of the characters of a raw those that are asked for."""
        raw, document = _raw_at(found, place), found.chunk.document
        content = found.page.raws[place]
        text = content.content[span.start - content.span.start : span.end - content.span.start]
        if self._steps.add(Step("raw", raw, "", (iri_of("document", document),), document, span, text)):
            self._touch(raw, Level.RAW, found.chunk.source)
            self.document(document)

    def _want(self, chunk: NodeId, span: Span | None) -> None:
        known = self._wanted.setdefault(chunk, [])
        if span is None:
            self._wanted[chunk] = None
        elif known is not None:
            known.append(span)

    def _touch(self, node: NodeId, level: Level, source: SourceId | None = None) -> None:
        self._trail.levels.add(level)
        self._trail.touch_node_ids([node])
        if source is not None:
            self._trail.sources.add((self._number, source))

    def _read_chunk(self, chunk: NodeId) -> ChunkWithRaws | None:
        return left(self._view.chunk_with_raws, chunk)


def _raw_at(found: ChunkWithRaws, place: int) -> NodeId:
    own = found.chunk.raw_ids
    return own[place] if own else raw_id(found.chunk.id, place)
