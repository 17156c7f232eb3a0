"""What Explain tells: the way from something to the characters of the original documents, step by step.

The way from facts, nodes, documents and sources of a corpus to the characters of the original documents.

section, master, fact -> chunk -> raw -> document -> source

What somebody reads on that way is read as by any other call: the audit record names it, facts count as accessed.

Explain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.envelope_plan import IssuedEnvelope
from drillcore_server.facts import counters
from drillcore_server.facts.model import Fact
from drillcore_server.facts.reader import corpus_of
from drillcore_server.facts.store import FactReader
from drillcore_server.graphs.derived_quads import OwnEnvelopes
from drillcore_server.graphs.provenance_quads import cited_by
from drillcore_server.graphs.quad_model import Named, iri_of
from drillcore_server.hierarchy.model import ChunkWithRaws, Master, RawPage, Section, chunk_of_raw, raw_id
from drillcore_server.hierarchy.query import left
from drillcore_server.hierarchy.reader import at_node
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
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
"""Of ids and numbers: a generous guess."""
_IRI_BYTES: Final = 70


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    id: UUID | str
    """A source's is any text."""
    title: str = ""
    derived_from: Sequence[str] = ()
    document: DocumentId | None = None
    span: Span | None = None
    text: str = ""
    """The original characters of the span."""
    gone: bool = False

    @property
    def iri(self) -> str:
        return iri_of(self.kind, self.id)

    @property
    def size_bytes(self) -> int:
        """About what it takes in an answer."""
        return _OVERHEAD_BYTES + 4 * (len(self.title) + len(self.text)) + _IRI_BYTES * len(self.derived_from)


@dataclass(frozen=True, slots=True)
class Explanation:
    steps: Sequence[Step]
    truncated: bool
    corpus: CorpusId | None
    """None for an envelope of several."""
    revision: Revision


@dataclass(slots=True)
class Steps:
    """Steps in their order, each once, up to so many and so large."""

    bytes_max: int
    told: dict[str, Step] = field(default_factory=dict)
    truncated: bool = False
    _is_full: bool = False
    _size_bytes: int = 0

    def add(self, step: Step) -> bool:
        """Whether it is new and there was room for it: then what it was made from is to be told, too."""
        if self._is_full or step.iri in self.told:
            return False
        self._size_bytes += step.size_bytes
        if self.told and (len(self.told) >= STEPS_MAX or self._size_bytes > self.bytes_max):
            self.truncated = self._is_full = True
            return False
        self.told[step.iri] = step
        return True

    def named(self, iris: Iterable[str]) -> tuple[str, ...]:
        """What a step was made from, each once; more than there can be steps are not named."""
        each = tuple(dict.fromkeys(iris))
        self.truncated = self.truncated or len(each) > STEPS_MAX
        return each[:STEPS_MAX]


def parts_of(page: RawPage, wanted: Sequence[Span] | None) -> dict[int, Span]:
    """Of which raws of a chunk the wanted characters are, by their places: from the first in each to the last.

    None: all of them.
    """
    if wanted is None:
        return {place: raw.span for place, raw in enumerate(page.raws)}
    found: dict[int, Span] = {}
    for place, raw in enumerate(page.raws):
        pieces = [one for one in (_common(raw.span, span) for span in wanted) if one is not None]
        if pieces:
            found[place] = Span(min(one.start for one in pieces), max(one.end for one in pieces))
    return found


def _common(one: Span, other: Span) -> Span | None:
    start, end = max(one.start, other.start), min(one.end, other.end)
    return Span(start, end) if start < end else None


_CHUNKS_AT_HAND: Final = 8
"""With their raws: neighbouring facts are mostly of the same few."""
_TITLES_BETWEEN: Final = " / "


class Chains:
    """The ways in one corpus at one revision. Each method tells of one thing, and of all that it comes from."""

    def __init__(
        self, view: CorpusAtRevision, trail: Trail, steps: Steps, on_fact: Callable[[CorpusKeys, FactId], None]
    ) -> None:
        """`on_fact` is told of each fact that the caller gets."""
        self._view = view
        self._number = view.corpus.number
        self._trail = trail
        self._steps = steps
        self._on_fact = on_fact
        self._wanted: dict[NodeId, list[Span] | None] = {}
        """Of chunks that lead on: the characters to go on to; None for all."""
        self._with_raws = lru_cache(_CHUNKS_AT_HAND)(self._read_chunk)

    def facts(self, ids: Iterable[FactId]) -> None:
        """In their order. What they say of one chunk is told together."""
        found = [(one, FactReader(self._view).fact_left(one)) for one in ids]
        for _, fact in found:
            if fact is not None and fact.chunk is not None:
                self._want(fact.chunk, fact.span)
        for one, fact in found:
            self._fact(one, fact)

    def node(self, node: NodeId, level: Level) -> None:
        match level:
            case Level.MASTER:
                master = HierarchyReader(self._view).master_left()
                self._summary(node, level, master if master is not None and master.id == node else None)
            case Level.SECTION:
                self._summary(node, level, left(HierarchyReader(self._view).section, node))
            case Level.CHUNK:
                self._chunk(node)
            case Level.RAW:
                self._raw(node)

    def document(self, document: DocumentId) -> None:
        found = left(HierarchyReader(self._view).document, document)
        if found is None:
            self._steps.add(Step("document", document, gone=True))
            return
        named = (iri_of("source", found.source),)
        if self._steps.add(Step("document", document, found.title, named, document)):
            self._trail.touch_documents([document])
            self._trail.sources.add((self._number, found.source))
            self.source(found.source)

    def source(self, source: SourceId) -> None:
        found = HierarchyReader(self._view).source_left(source)
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
        found = self._with_raws(HierarchyReader(self._view).parent(raw) or chunk_of_raw(raw)[0])
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
        return left(HierarchyReader(self._view).chunk_with_raws, chunk)


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
    """The way from what is wanted to the characters of the original documents. What is gone is named, and says nothing.

    `wanted` is what an IRI names, None for one that is not ours; or the id of anything but a source. Documents and
    sources need the corpus. Raises `Refused`: NODE_NOT_FOUND for what is not there, was never, or is another's.
    """

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Explanation:
        return _Explaining(reads, call, tr, granted, trail, notes, corpus, as_of).of(wanted)

    return reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work)


@dataclass(frozen=True, slots=True)
class _Explaining:
    reads: CorpusReads
    call: Call
    tr: Reader
    granted: InTenant
    trail: Trail
    notes: Notes
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
                return self._of_node(NodeId(id_), Level.named(kind))

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
            view, own = at_node(self.reads, self.tr, self.granted, self.trail, node, self.as_of)
        except Missing as missing:
            if missing.reason is not Reason.NODE_NOT_FOUND:
                raise
            return None
        if level not in {None, own} or not self._is_asked_for(view):
            return None
        return self._told(view, lambda chains: chains.node(node, own))

    def _of_fact(self, fact: FactId) -> Explanation | None:
        self.trail.touch_node_ids([NodeId(fact)])
        try:
            corpus = corpus_of(self.tr, self.reads, self.granted, fact)
        except Missing:
            return None
        view = self._view(corpus, self.as_of)
        return self._told(view, lambda chains: chains.facts([fact])) if self._is_asked_for(view) else None

    def _of_document(self, document: DocumentId) -> Explanation | None:
        self.trail.touch_documents([document])
        view = self._view(self._need_corpus(), self.as_of)
        if not self._was_there(view, view.keys.document(document)):
            return None
        return self._told(view, lambda chains: chains.document(document))

    def _of_source(self, source: SourceId) -> Explanation | None:
        view = self._view(self._need_corpus(), self.as_of)
        if not self._was_there(view, view.keys.source(self.reads.sealed.hashed(source))):
            return None
        return self._told(view, lambda chains: chains.source(source))

    def _of_envelope(self, envelope: EnvelopeId) -> Explanation | None:
        """Of one that was issued to the caller, as of the revisions that it was made of unless another is asked for."""
        own = OwnEnvelopes.of(self.reads, self.tr, self.granted, self.call.principal.id)
        issued = own.find(envelope)
        if issued is None:
            return None
        self.trail.detail["envelope"] = str(envelope)
        if self.as_of.revision is not None and len(issued.corpora) > 1:
            message = "a revision is of one corpus, and the envelope is of several"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
        views = [
            self._view(one.corpus, AsOf(one.revision) if self.as_of == AsOf() else self.as_of) for one in issued.corpora
        ]
        return self._envelope(issued, views)

    def _envelope(self, issued: IssuedEnvelope, views: list[CorpusAtRevision]) -> Explanation:
        steps = Steps(self.reads.unit.page_bytes_max)
        steps.add(Step("envelope", issued.id, "", steps.named(iri_of("fact", fact) for _, fact in issued.stored())))
        for view in views:
            Chains(view, self.trail, steps, self._count_access).facts(issued.facts_of(view.corpus.id))
        return _explanation(steps, views)

    def _told(self, view: CorpusAtRevision, tell: Callable[[Chains], None]) -> Explanation:
        self.granted.check_level(view.corpus.id, *Level)
        steps = Steps(self.reads.unit.page_bytes_max)
        tell(Chains(view, self.trail, steps, self._count_access))
        return _explanation(steps, [view])

    def _count_access(self, keys: CorpusKeys, fact: FactId) -> None:
        counters.note_later(self.notes, keys, [fact], self.call.at)

    def _view(self, corpus: CorpusId, as_of: AsOf) -> CorpusAtRevision:
        view = self.reads.at(self.tr, self.granted, self.trail, corpus, as_of)
        self.granted.check_level(corpus, *Level)
        return view

    def _is_asked_for(self, view: CorpusAtRevision) -> bool:
        return self.corpus in {None, view.corpus.id}

    def _was_there(self, view: CorpusAtRevision, key: bytes) -> bool:
        """At some revision up to this one: what is gone is told of, too."""
        return versioned.last_there(self.tr, key, view.revision) is not None

    def _need_corpus(self) -> CorpusId:
        if self.corpus is None:
            message = "a document or a source is found in a corpus: name it"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_id")
        return self.corpus


def _explanation(steps: Steps, views: list[CorpusAtRevision]) -> Explanation:
    corpus, revision = (views[0].corpus.id, views[0].revision) if len(views) == 1 else (None, Revision(0))
    return Explanation(list(steps.told.values()), steps.truncated, corpus, revision)


def _missing(message: str) -> Missing:
    return Missing(Reason.NODE_NOT_FOUND, message)
