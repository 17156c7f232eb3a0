"""From a fact to the characters of the original document: fact, chunk, raws, document."""

from __future__ import annotations

from dataclasses import dataclass, field

from drillcore_server.commands.selecting import left
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.documents import Span
from drillcore_server.domain.envelopes import Provenance, RawSpan
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import RawText
from drillcore_server.domain.ids import DocumentId, NodeId


@dataclass(frozen=True, slots=True)
class Provenances:
    """Of facts of one corpus at one revision. Facts of a chunk, or document, share what is read of it."""

    shelf: Shelf
    _raws: dict[NodeId, tuple[RawSpan, ...]] = field(default_factory=dict)
    _titles: dict[DocumentId, str] = field(default_factory=dict)

    def of(self, fact: Fact) -> Provenance:
        """What is known: a fact that was put without a chunk has its source, and one of an earlier version of a
        document may have no raws any more."""
        raws = () if fact.chunk is None else self._raws_of(fact.chunk)
        return Provenance(
            source=fact.source,
            location=fact.source_location,
            document=fact.document,
            document_title="" if fact.document is None else self._title_of(fact.document),
            chunk=fact.chunk,
            span=fact.span,
            raws=raws if fact.span is None else tuple(one for one in raws if _overlap(one.span, fact.span)),
            leads=fact.leads,
        )

    def _raws_of(self, chunk: NodeId) -> tuple[RawSpan, ...]:
        if chunk not in self._raws:
            found = self.shelf.raws_left(chunk)
            self._raws[chunk] = tuple(
                RawSpan(one.id, one.content.raw.span) for one in found if isinstance(one.content, RawText)
            )
        return self._raws[chunk]

    def _title_of(self, document: DocumentId) -> str:
        if document not in self._titles:
            found = left(self.shelf.view.document, document)
            self._titles[document] = "" if found is None else found.title
        return self._titles[document]


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end
