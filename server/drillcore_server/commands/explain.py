"""Explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.derived_quads import OwnEnvelopes
from drillcore_server.commands.explaining import Chains
from drillcore_server.commands.fact_library import corpus_of
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.envelope_plans import IssuedEnvelope
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.explained import Explanation, Step, Steps
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, DocumentId, EnvelopeId, FactId, NodeId, Revision, SourceId, TenantId
from drillcore_server.domain.iris import Named, iri_of
from drillcore_server.domain.nodes import Level
from drillcore_server.store import versioned

_NODES: Final = {level.name.lower(): level for level in Level}


def explain(
    library: Library,
    call: Call,
    *,
    tenant: TenantId | None,
    wanted: Named | UUID | None,
    corpus: CorpusId | None,
    as_of: AsOf,
) -> Explanation:
    """The way from what is wanted to the characters of the original documents. What is gone is named, and says nothing.

    `wanted` is what an IRI names, None for one that is not ours; or the id of anything but a source. Documents and
    sources need the corpus. Raises `Refused`: NODE_NOT_FOUND for what is not there, was never, or is another's.
    """

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Explanation:
        return _Explaining(library, call, tr, granted, trail, corpus, as_of).of(wanted)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


@dataclass(frozen=True, slots=True)
class _Explaining:
    library: Library
    call: Call
    tr: Reader
    granted: InTenant
    trail: Trail
    corpus: CorpusId | None
    as_of: AsOf

    def of(self, wanted: Named | UUID | None) -> Explanation:
        if wanted is None:
            raise _missing("this is no IRI of ours: they are urn:drillcore:KIND:ID, a source's id percent-encoded")
        if isinstance(wanted, UUID):
            return self._of_id(wanted)
        found = self._of_source(SourceId(wanted.id)) if wanted.kind == "source" else self._of_named(wanted)
        if found is None:
            raise _missing(f"there is no {wanted.kind} of this IRI")
        return found

    def _of_named(self, named: Named) -> Explanation | None:
        id_ = UUID(named.id)
        match named.kind:
            case "document":
                self._need_corpus()
                return self._of_document(DocumentId(id_))
            case "fact":
                return self._of_fact(FactId(id_))
            case "envelope":
                return self._of_envelope(EnvelopeId(id_))
            case kind:
                return self._of_node(NodeId(id_), _NODES[kind])

    def _of_id(self, id_: UUID) -> Explanation:
        """Whatever has this id."""
        tries: list[Callable[[], Explanation | None]] = [
            lambda: self._of_node(NodeId(id_)),
            lambda: self._of_fact(FactId(id_)),
            lambda: self._of_envelope(EnvelopeId(id_)),
            lambda: None if self.corpus is None else self._of_document(DocumentId(id_)),
        ]
        for one in tries:
            found = one()
            if found is not None:
                return found
        documents = "" if self.corpus else ", and documents are found in a corpus: name it"
        raise _missing(f"there is no node, fact, envelope or document {id_}{documents}")

    def _of_node(self, node: NodeId, level: Level | None = None) -> Explanation | None:
        self.trail.touch_node_ids([node])
        try:
            shelf, own = self.library.shelf_of(self.tr, self.granted, self.trail, node, self.as_of)
        except Missing as missing:
            if missing.reason is not Reason.NODE_NOT_FOUND:
                raise
            return None
        if level not in {None, own} or not self._is_asked_for(shelf):
            return None
        return self._told(shelf, lambda chains: chains.node(node, own))

    def _of_fact(self, fact: FactId) -> Explanation | None:
        self.trail.touch_node_ids([NodeId(fact)])
        try:
            corpus = corpus_of(self.tr, self.library, self.granted, fact)
        except Missing:
            return None
        shelf = self._shelf(corpus, self.as_of)
        return self._told(shelf, lambda chains: chains.facts([fact])) if self._is_asked_for(shelf) else None

    def _of_document(self, document: DocumentId) -> Explanation | None:
        self.trail.touch_documents([document])
        shelf = self._shelf(self._need_corpus(), self.as_of)
        if not self._was_there(shelf, shelf.view.keys.document(document)):
            return None
        return self._told(shelf, lambda chains: chains.document(document))

    def _of_source(self, source: SourceId) -> Explanation | None:
        shelf = self._shelf(self._need_corpus(), self.as_of)
        if not self._was_there(shelf, shelf.view.keys.source(self.library.sealed.hashed(source))):
            return None
        return self._told(shelf, lambda chains: chains.source(source))

    def _of_envelope(self, envelope: EnvelopeId) -> Explanation | None:
        """Of one that was issued to the caller, as of the revisions that it was made of unless another is asked for."""
        own = OwnEnvelopes.of(self.library, self.tr, self.granted, self.call.principal.id)
        issued = own.find(envelope)
        if issued is None:
            return None
        self.trail.detail["envelope"] = str(envelope)
        if self.as_of.revision is not None and len(issued.corpora) > 1:
            message = "a revision is of one corpus, and the envelope is of several"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
        shelves = [
            self._shelf(one.corpus, AsOf(one.revision) if self.as_of == AsOf() else self.as_of)
            for one in issued.corpora
        ]
        return self._envelope(issued, shelves)

    def _envelope(self, issued: IssuedEnvelope, shelves: list[Shelf]) -> Explanation:
        steps = Steps(self.library.unit.page_bytes_max)
        steps.add(Step("envelope", issued.id, "", steps.named(iri_of("fact", fact) for _, fact in issued.stored())))
        for shelf in shelves:
            Chains(shelf, self.trail, steps).facts(issued.facts_of(shelf.corpus.id))
        return _explanation(steps, shelves)

    def _told(self, shelf: Shelf, tell: Callable[[Chains], None]) -> Explanation:
        self.granted.check_level(shelf.corpus.id, *Level)
        steps = Steps(self.library.unit.page_bytes_max)
        tell(Chains(shelf, self.trail, steps))
        return _explanation(steps, [shelf])

    def _shelf(self, corpus: CorpusId, as_of: AsOf) -> Shelf:
        shelf = self.library.shelf(self.tr, self.granted, self.trail, corpus, as_of)
        self.granted.check_level(corpus, *Level)
        return shelf

    def _is_asked_for(self, shelf: Shelf) -> bool:
        return self.corpus in {None, shelf.corpus.id}

    def _was_there(self, shelf: Shelf, key: bytes) -> bool:
        """At some revision up to this one: what is gone is told of, too."""
        return versioned.last_there(self.tr, key, shelf.revision) is not None

    def _need_corpus(self) -> CorpusId:
        if self.corpus is None:
            message = "a document or a source is found in a corpus: name it"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_id")
        return self.corpus


def _explanation(steps: Steps, shelves: list[Shelf]) -> Explanation:
    corpus, revision = (shelves[0].corpus.id, shelves[0].revision) if len(shelves) == 1 else (None, Revision(0))
    return Explanation(list(steps.told.values()), steps.truncated, corpus, revision)


def _missing(message: str) -> Missing:
    return Missing(Reason.NODE_NOT_FOUND, message)
