"""Quads that nobody put: what the records of a corpus, and the caller's envelopes, say of where they come from.

They are made when they are asked for, so they cannot differ from what they tell of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_fdb.tuples import KeyRange
from drillcore_formats.quads import Iri
from drillcore_server.envelopes.envelope_plan import IssuedEnvelope
from drillcore_server.envelopes.store import EnvelopeStore, envelope_store, issued_to
from drillcore_server.graphs import provenance
from drillcore_server.graphs.provenance import BYTES_MAX, DerivedPage, Listed, Stretch, Told, every_source_quad, walked
from drillcore_server.graphs.provenance_quads import envelope_quads
from drillcore_server.graphs.quad_model import GRAPH_RETRIEVAL, Quad, QuadPattern, named_by
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision, CorpusReads
from drillcore_server.storage.ids import EnvelopeId, FactId, PrincipalId

__all__ = ["DerivedPage", "every_source_quad", "retrieval_page", "source_page"]
_KEYS_MAX: Final = 500
"""Read for a page, of envelopes or of what leads to them; those of other callers count too."""


def source_page(
    view: CorpusAtRevision, pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The quads of urn:graph:source that match, from `begin` on: empty, or what the page before said.

    A page may be short, or empty: there are more for as long as it says where the next one begins.
    """
    return provenance.source_page(view, pattern, begin, quads_max, bytes_max)


def retrieval_page(
    reads: CorpusReads,
    tr: Reader,
    granted: InTenant,
    principal: PrincipalId,
    view: CorpusAtRevision,
    pattern: QuadPattern,
    begin: bytes,
    quads_max: int,
    bytes_max: int = BYTES_MAX,
) -> DerivedPage:
    """Likewise of urn:graph:retrieval: envelopes of the corpus, up to its revision, that were issued to the caller."""
    if pattern.source is not None or pattern.graph not in {None, GRAPH_RETRIEVAL}:
        return DerivedPage([], None)
    own = OwnEnvelopes.of(reads, tr, granted, principal)
    return walked(_Retrieval(own, view).stretches(pattern), pattern, begin, quads_max, bytes_max)


@dataclass(frozen=True, slots=True)
class OwnEnvelopes:
    """The envelopes that were issued to one caller in a tenant."""

    tr: Reader
    store: EnvelopeStore
    principal: PrincipalId

    @classmethod
    def of(cls, reads: CorpusReads, tr: Reader, granted: InTenant, principal: PrincipalId) -> OwnEnvelopes:
        return cls(tr, envelope_store(reads, granted.tenant), principal)

    def find(self, envelope: EnvelopeId) -> IssuedEnvelope | None:
        """None also if it is another's."""
        found = self.store.find(self.tr, envelope)
        return found if found is not None and found.principal == self.principal else None


@dataclass(frozen=True, slots=True)
class _Retrieval:
    """Which envelopes may have quads that match."""

    own: OwnEnvelopes
    view: CorpusAtRevision

    def stretches(self, pattern: QuadPattern) -> Sequence[Stretch]:
        if pattern.subject is not None:
            named = named_by(pattern.subject.value) if isinstance(pattern.subject, Iri) else None
            is_one = named is not None and named.kind == "envelope"
            return [Listed([EnvelopeId(UUID(named.id))], self._told)] if named is not None and is_one else []
        if isinstance(pattern.object, Iri) and (named := named_by(pattern.object.value)) is not None:
            return [self._with_fact(FactId(UUID(named.id)))] if named.kind == "fact" else []
        return [self._all()]

    def _all(self) -> Stretch:
        store = self.own.store
        return _Envelopes(self.own.tr, store.keys.envelopes(store.tenant), self._told, lambda _: True)

    def _with_fact(self, fact: FactId) -> Stretch:
        own = issued_to(self.own.store.tenant, self.own.principal)
        return _Envelopes(self.own.tr, self.view.keys.fact_envelopes(fact), self._told, own.__eq__)

    def _told(self, envelope: EnvelopeId) -> Sequence[Quad]:
        issued, corpus = self.own.find(envelope), self.view.corpus.id
        if issued is None or not any(one.corpus == corpus and one.head <= self.view.revision for one in issued.corpora):
            return ()
        return envelope_quads(issued, issued.facts_of(corpus))


@dataclass(frozen=True, slots=True)
class _Envelopes:
    """Those whose ids stand behind the beginning of a range, in keys with a value that may be looked at."""

    tr: Reader
    keys: KeyRange
    tell: Callable[[EnvelopeId], Sequence[Quad]]
    is_wanted: Callable[[bytes], bool]

    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        begin, end = self.keys
        stored = list(self.tr.range(begin + place, end, limit=_KEYS_MAX))
        # A large envelope has parts behind its own key.
        ids = dict.fromkeys(key[len(begin) :][:16] for key, value in stored if self.is_wanted(value))
        told = (Told(one, self.tell(EnvelopeId(UUID(bytes=one)))) for one in ids)
        return told, stored[-1][0][len(begin) :][:16] + b"\xff" if len(stored) == _KEYS_MAX else None
