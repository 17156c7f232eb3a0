"""Explain: the chain from a fact, node, document or source to the characters of the original documents, step by step.

    envelope -> fact
    section, master, fact -> chunk -> raw -> document -> source

Every step counts as a read, as in any other call: the audit record names it, and facts count as accessed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.envelope_plan import IssuedEnvelope
from drillcore_server.facts.fact_reads import corpus_of
from drillcore_server.facts.model import Fact
from drillcore_server.facts.store import FactReader, note_accesses_later
from drillcore_server.graphs.derived_quads import OwnEnvelopes
from drillcore_server.graphs.provenance_quads import cited_by
from drillcore_server.graphs.quad_model import Named, iri_of
from drillcore_server.hierarchy.model import ChunkWithRaws, Master, RawPage, Section, chunk_of_raw, raw_id
from drillcore_server.hierarchy.reader import at_node, expected_locators
from drillcore_server.hierarchy.store import HierarchyReader, raw_key
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads, unless_erased
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    CorpusId,
    DocumentId,
    EnvelopeId,
    FactId,
    Level,
    NodeId,
    Revision,
    SourceId,
    Span,
    TenantId,
)

STEPS_MAX: Final = 1_000
_OVERHEAD_BYTES: Final = 300
"""Generous estimate for the ids and numbers of a step."""
_IRI_BYTES: Final = 70


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    id: UUID | str
    """Text for a source, a UUID for everything else."""
    title: str = ""
    derived_from: Sequence[str] = ()
    document: DocumentId | None = None
    span: Span | None = None
    text: str = ""
    """The original characters of the span."""
    gone: bool = False
    """Whether the record was erased or no longer exists."""

    @property
    def iri(self) -> str:
        return iri_of(self.kind, self.id)

    @property
    def size_bytes(self) -> int:
        """Rough size in an answer."""
        return _OVERHEAD_BYTES + 4 * (len(self.title) + len(self.text)) + _IRI_BYTES * len(self.derived_from)


@dataclass(frozen=True, slots=True)
class Explanation:
    steps: Sequence[Step]
    truncated: bool
    corpus: CorpusId | None
    """None for an envelope of several corpora."""
    revision: Revision


@dataclass(slots=True)
class Steps:
    """The steps of an answer in their order, each once, limited in number and size."""

    bytes_max: int
    by_iri: dict[str, Step] = field(default_factory=dict)
    truncated: bool = False
    _is_full: bool = False
    _size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no further step fits."""
        return self._is_full

    def add(self, step: Step) -> bool:
        """Adds a step. Returns whether it is new and fits. Only then should the caller add what it came from."""
        if self._is_full or step.iri in self.by_iri:
            return False
        self._size_bytes += step.size_bytes
        if self.by_iri and (len(self.by_iri) >= STEPS_MAX or self._size_bytes > self.bytes_max):
            self.truncated = self._is_full = True
            return False
        self.by_iri[step.iri] = step
        return True

    def named(self, iris: Iterable[str]) -> tuple[str, ...]:
        """The IRIs that a step was made from, each once, and no more than there can be steps."""
        each = tuple(dict.fromkeys(iris))
        self.truncated = self.truncated or len(each) > STEPS_MAX
        return each[:STEPS_MAX]


def parts_of(page: RawPage, wanted: Sequence[Span] | None) -> dict[int, Span]:
    """The raws of a chunk that hold wanted characters, by place, each with the span from its first to its last of them.

    If `wanted` is None, all raws with their whole spans.
    """
    if wanted is None:
        return {place: raw.span for place, raw in enumerate(page.raws)}
    found: dict[int, Span] = {}
    for place, raw in enumerate(page.raws):
        pieces = [piece for piece in (_overlap(raw.span, span) for span in wanted) if piece is not None]
        if pieces:
            found[place] = Span(min(piece.start for piece in pieces), max(piece.end for piece in pieces))
    return found


def _overlap(first: Span, second: Span) -> Span | None:
    start, end = max(first.start, second.start), min(first.end, second.end)
    return Span(start, end) if start < end else None


_CHUNKS_CACHED: Final = 8
"""Chunks that are cached with their raws. Neighbouring facts mostly come from the same few chunks."""
_TITLE_SEPARATOR: Final = " / "
_NODE_KINDS: Final = frozenset(level.word for level in Level)
_READ_AT_ONCE: Final = 100
"""How many chunks are read together, with all that they were made from."""
T = TypeVar("T")


class Chains:
    """Adds the chains of one corpus at one revision. Each method adds a record, and all records it was made from."""

    def __init__(
        self, view: CorpusAtRevision, trail: Trail, steps: Steps, on_fact: Callable[[CorpusKeys, FactId], None]
    ) -> None:
        """`on_fact` is called for each fact that the caller gets."""
        self._view = view
        self._number = view.corpus.number
        self._trail = trail
        self._steps = steps
        self._on_fact = on_fact
        self._wanted: dict[NodeId, list[Span] | None] = {}
        """The characters of each chunk that facts or summaries refer to; None for the whole chunk."""
        self._with_raws = lru_cache(_CHUNKS_CACHED)(self._read_chunk)

    def facts(self, ids: Iterable[FactId]) -> None:
        """Adds facts in the given order. A chunk that several of them come from is added once, with all their spans."""
        wanted = list(ids)
        found = list(zip(wanted, FactReader(self._view).facts_unless_erased(wanted), strict=True))
        for _, fact in found:
            if fact is not None and fact.chunk is not None:
                self._want(fact.chunk, fact.span)
        for batch in self._batches(found):
            facts = [fact for _, fact in batch if fact is not None]
            self._read_ahead([fact.chunk for fact in facts if fact.chunk is not None], {fact.source for fact in facts})
            for id_, fact in batch:
                self._fact(id_, fact)

    def node(self, node: NodeId, level: Level) -> None:
        match level:
            case Level.MASTER:
                master = HierarchyReader(self._view).master_unless_erased()
                self._summary(node, level, master if master is not None and master.id == node else None)
            case Level.SECTION:
                self._summary(node, level, unless_erased(HierarchyReader(self._view).section, node))
            case Level.CHUNK:
                self._read_ahead([node])
                self._chunk(node)
            case Level.RAW:
                self._raw(node)

    def document(self, document: DocumentId) -> None:
        found = unless_erased(HierarchyReader(self._view).document, document)
        if found is None:
            self._steps.add(Step("document", document, gone=True))
            return
        named = (iri_of("source", found.source),)
        if self._steps.add(Step("document", document, found.title, named, document)):
            self._trail.touch_documents([document])
            self._trail.sources.add((self._number, found.source))
            self.source(found.source)

    def source(self, source: SourceId) -> None:
        found = HierarchyReader(self._view).source_unless_erased(source)
        title = "" if found is None else found.title
        if self._steps.add(Step("source", source, title, gone=found is None)) and found is not None:
            self._trail.sources.add((self._number, source))

    def _fact(self, id_: FactId, fact: Fact | None) -> None:
        if fact is None:
            self._steps.add(Step("fact", id_, gone=True))
            return
        from_ = iri_of("source", fact.source) if fact.chunk is None else iri_of("chunk", fact.chunk)
        step = Step("fact", id_, "", (from_,), fact.document, fact.span, self._text_of(fact))
        if not self._steps.add(step):
            return
        self._trail.touch_facts([fact], self._number)
        self._on_fact(self._view.keys, fact.id)
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
        kind = level.word
        if found is None:
            self._steps.add(Step(kind, node, gone=True))
            return
        cited = cited_by(found)
        for citation in cited:
            self._want(citation.chunk, citation.span)
        named = self._steps.named(iri_of("chunk", citation.chunk) for citation in cited)
        title = found.title if isinstance(found, Section) else ""
        if self._steps.add(Step(kind, node, title, named)):
            self._touch(node, level)
            for chunks in self._batches(list(dict.fromkeys(citation.chunk for citation in cited))):
                self._read_ahead(chunks)
                for chunk in chunks:
                    self._chunk(chunk)

    def _chunk(self, chunk: NodeId) -> None:
        found = self._with_raws(chunk)
        if found is None:
            self._steps.add(Step("chunk", chunk, gone=True))
            return
        parts = parts_of(found.page, self._wanted.get(chunk))
        named = self._steps.named(iri_of("raw", _raw_at(found, place)) for place in parts)
        record = found.chunk
        title = _TITLE_SEPARATOR.join(record.headings)
        if self._steps.add(Step("chunk", chunk, title, named, record.document, record.span)):
            self._touch(chunk, Level.CHUNK, record.source)
            for place, span in parts.items():
                self._raw_of(found, place, span)

    def _raw(self, raw: NodeId) -> None:
        made = chunk_of_raw(raw)[0]
        self._view.read_ahead([self._view.keys.parent(raw), self._view.keys.chunk(made)])
        chunk = HierarchyReader(self._view).parent(raw) or made
        self._read_ahead([chunk])
        found = self._with_raws(chunk)
        places = range(0 if found is None else len(found.page.raws))
        place = next((at for at in places if found is not None and _raw_at(found, at) == raw), None)
        if found is None or place is None:
            self._steps.add(Step("raw", raw, gone=True))
        else:
            self._raw_of(found, place, found.page.raws[place].span)

    def _raw_of(self, found: ChunkWithRaws, place: int, span: Span) -> None:
        """Adds a raw with the characters of the span."""
        raw, document = _raw_at(found, place), found.chunk.document
        content = found.page.raws[place]
        text = content.content[span.start - content.span.start : span.end - content.span.start]
        if self._steps.add(Step("raw", raw, "", (iri_of("document", document),), document, span, text)):
            self._touch(raw, Level.RAW, found.chunk.source)
            self.document(document)

    def _want(self, chunk: NodeId, span: Span | None) -> None:
        """Notes which characters of a chunk are wanted. None means all of them."""
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

    def _batches(self, records: Sequence[T]) -> Iterator[Sequence[T]]:
        """The records in parts that are read together, until no further step fits."""
        for start in range(0, len(records), _READ_AT_ONCE):
            if self._steps.is_full:
                return
            yield records[start : start + _READ_AT_ONCE]

    def _read_ahead(self, chunks: Sequence[NodeId], sources: Collection[SourceId] = ()) -> None:
        """Reads what the chains from these chunks and sources need: the chunks, then all else in one round trip."""
        view, sealed = self._view, self._view.sealed
        found = [placed.chunk for placed in HierarchyReader(view).placed_chunks(chunks) if placed is not None]
        documents = {chunk.document for chunk in found}
        named = {*sources, *(chunk.source for chunk in found)}
        view.read_ahead(
            [
                *(raw_key(view.keys, chunk) for chunk in found),
                *map(view.keys.document, documents),
                *(view.keys.source(sealed.hashed(source)) for source in named),
            ]
        )

    def _read_chunk(self, chunk: NodeId) -> ChunkWithRaws | None:
        return unless_erased(HierarchyReader(self._view).chunk_with_raws, chunk)


def _raw_at(found: ChunkWithRaws, place: int) -> NodeId:
    own = found.chunk.raw_ids
    return own[place] if own else raw_id(found.chunk.id, place)


def explain(
    reads: CorpusReads,
    call: Call,
    *,
    tenant: TenantId | None,
    wanted: Named | UUID | None,
    corpus: CorpusId | None,
    as_of: AsOf,
) -> Explanation:
    """The chain from a record to the characters of the original documents. May be re-run.

    `wanted` is what an IRI names, or None if the IRI is not one of Drillcore's, or the id of anything but a source.
    Documents and sources need `corpus`. A step that was erased has only its IRI. Raises `Refused`, with NODE_NOT_FOUND
    if the record never existed or the caller may not see it.
    """

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Explanation:
        return _Explainer(reads, call, tr, granted, trail, notes, corpus, as_of).explain(wanted)

    expected = expected_locators(reads, call, tenant, _nodes_named(wanted))
    return reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)


def _nodes_named(wanted: Named | UUID | None) -> list[NodeId]:
    """The node that may be meant."""
    if isinstance(wanted, Named):
        return [NodeId(UUID(wanted.id))] if wanted.kind in _NODE_KINDS else []
    return [] if wanted is None else [NodeId(wanted)]


@dataclass(frozen=True, slots=True)
class _Explainer:
    reads: CorpusReads
    call: Call
    tr: Reader
    granted: InTenant
    trail: Trail
    notes: Notes
    corpus: CorpusId | None
    as_of: AsOf

    def explain(self, wanted: Named | UUID | None) -> Explanation:
        if wanted is None:
            raise _missing("an IRI must be urn:drillcore:KIND:ID; the id of a source is percent-encoded")
        if isinstance(wanted, UUID):
            return self._by_id(wanted)
        found = self._source(SourceId(wanted.id)) if wanted.kind == "source" else self._by_name(wanted)
        if found is None:
            raise _missing(f"there is no {wanted.kind} with this IRI")
        return found

    def _by_name(self, named: Named) -> Explanation | None:
        id_ = UUID(named.id)
        match named.kind:
            case "document":
                self._need_corpus()
                return self._document(DocumentId(id_))
            case "fact":
                return self._fact(FactId(id_))
            case "envelope":
                return self._envelope(EnvelopeId(id_))
            case kind:
                return self._node(NodeId(id_), Level.named(kind))

    def _by_id(self, id_: UUID) -> Explanation:
        """The first of node, fact, envelope and document that has this id."""
        lookups: list[Callable[[], Explanation | None]] = [
            lambda: self._node(NodeId(id_)),
            lambda: self._fact(FactId(id_)),
            lambda: self._envelope(EnvelopeId(id_)),
            lambda: None if self.corpus is None else self._document(DocumentId(id_)),
        ]
        for look_up in lookups:
            found = look_up()
            if found is not None:
                return found
        hint = "" if self.corpus else "; to find a document, set corpus_id"
        raise _missing(f"there is no node, fact, envelope or document {id_}{hint}")

    def _node(self, node: NodeId, level: Level | None = None) -> Explanation | None:
        self.trail.touch_node_ids([node])
        try:
            view, own = at_node(self.reads, self.tr, self.granted, self.trail, node, self.as_of)
        except Missing as missing:
            if missing.reason is not Reason.NODE_NOT_FOUND:
                raise
            return None
        if level not in {None, own} or not self._is_in_corpus(view):
            return None
        return self._explain_at(view, lambda chains: chains.node(node, own))

    def _fact(self, fact: FactId) -> Explanation | None:
        self.trail.touch_node_ids([NodeId(fact)])
        try:
            corpus = corpus_of(self.tr, self.reads, self.granted, fact)
        except Missing:
            return None
        view = self._view(corpus, self.as_of)
        return self._explain_at(view, lambda chains: chains.facts([fact])) if self._is_in_corpus(view) else None

    def _document(self, document: DocumentId) -> Explanation | None:
        self.trail.touch_documents([document])
        view = self._view(self._need_corpus(), self.as_of)
        if not self._was_there(view, view.keys.document(document)):
            return None
        return self._explain_at(view, lambda chains: chains.document(document))

    def _source(self, source: SourceId) -> Explanation | None:
        view = self._view(self._need_corpus(), self.as_of)
        if not self._was_there(view, view.keys.source(self.reads.sealed.hashed(source))):
            return None
        return self._explain_at(view, lambda chains: chains.source(source))

    def _envelope(self, envelope: EnvelopeId) -> Explanation | None:
        """Explains an envelope of the caller, at the revisions that it was made from unless `as_of` is set."""
        own = OwnEnvelopes.of(self.reads, self.tr, self.granted, self.call.principal.id)
        issued = own.find(envelope)
        if issued is None:
            return None
        self.trail.detail["envelope"] = str(envelope)
        if self.as_of.revision is not None and len(issued.corpora) > 1:
            message = "a revision cannot be set for this envelope, because it was made from several corpora"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
        views = [
            self._view(part.corpus, AsOf(part.revision) if self.as_of == AsOf() else self.as_of)
            for part in issued.corpora
        ]
        return self._envelope_steps(issued, views)

    def _envelope_steps(self, issued: IssuedEnvelope, views: list[CorpusAtRevision]) -> Explanation:
        steps = Steps(self.reads.unit.page_bytes_max)
        steps.add(Step("envelope", issued.id, "", steps.named(iri_of("fact", fact) for _, fact in issued.stored())))
        for view in views:
            Chains(view, self.trail, steps, self._count_access).facts(issued.facts_of(view.corpus.id))
        return _explanation(steps, views)

    def _explain_at(self, view: CorpusAtRevision, add: Callable[[Chains], None]) -> Explanation:
        self.granted.check_level(view.corpus.id, *Level)
        steps = Steps(self.reads.unit.page_bytes_max)
        add(Chains(view, self.trail, steps, self._count_access))
        return _explanation(steps, [view])

    def _count_access(self, keys: CorpusKeys, fact: FactId) -> None:
        note_accesses_later(self.notes, keys, [fact], self.call.at)

    def _view(self, corpus: CorpusId, as_of: AsOf) -> CorpusAtRevision:
        view = self.reads.at(self.tr, self.granted, self.trail, corpus, as_of)
        self.granted.check_level(corpus, *Level)
        return view

    def _is_in_corpus(self, view: CorpusAtRevision) -> bool:
        return self.corpus in {None, view.corpus.id}

    def _was_there(self, view: CorpusAtRevision, key: bytes) -> bool:
        """Whether a record existed at this revision or an earlier one. Records that are gone are explained, too."""
        return versioned.last_there(self.tr, key, view.revision) is not None

    def _need_corpus(self) -> CorpusId:
        if self.corpus is None:
            message = "set corpus_id to explain a document or a source"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_id")
        return self.corpus


def _explanation(steps: Steps, views: list[CorpusAtRevision]) -> Explanation:
    corpus, revision = (views[0].corpus.id, views[0].revision) if len(views) == 1 else (None, Revision(0))
    return Explanation(list(steps.by_iri.values()), steps.truncated, corpus, revision)


def _missing(message: str) -> Missing:
    return Missing(Reason.NODE_NOT_FOUND, message)
