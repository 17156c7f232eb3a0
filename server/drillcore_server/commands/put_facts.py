"""PutFacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_proto.reasons import Reason
from drillcore_server.commands.fact_changing import ChangedFact, Embedded, FactDesk
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import Model
from drillcore_server.domain.errors import BadInput, Exists, Missing
from drillcore_server.domain.fact_drafts import FactDraft, check_drafts, check_tokens
from drillcore_server.domain.fact_words import titles_above
from drillcore_server.domain.facts import Fact, FactChange, fact_hash
from drillcore_server.domain.ids import DocumentId, FactId, NodeId, Revision, new_uuid
from drillcore_server.domain.importance import Described, SourceType, importance
from drillcore_server.domain.named import checked_metadata
from drillcore_server.domain.nodes import Chunk, ChunkWithRaws
from drillcore_server.ingest.client_made import client_vector
from drillcore_server.store.facts import FactsView, packed
from drillcore_server.store.records import RecordKind
from drillcore_server.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PutFacts:
    facts: tuple[FactId, ...]
    """In the order of the drafts."""
    revision: Revision


PUT_FACTS = RecordKind(PutFacts)


def put_facts(
    desk: FactDesk, call: Call, target: Target, drafts: Sequence[FactDraft], embedding_model: str = ""
) -> PutFacts:
    """Stores facts as one revision: all or none. `embedding_model` made their vectors, if they have any."""
    check_drafts(drafts)
    begun = desk.ingester.reviser.begin(call, target, PUT_FACTS)
    if begun.known is not None:
        return begun.known
    put = DraftedFacts(desk, call, drafts, embedding_model)
    return desk.ingester.reviser.revise(call, target, PUT_FACTS, put.plan)


class DraftedFacts:
    """Tokens and vectors are made once, however often the plan is, unless the corpus's model changes meanwhile."""

    def __init__(self, desk: FactDesk, call: Call, drafts: Sequence[FactDraft], embedding_model: str) -> None:
        self._desk = desk
        self._call = call
        self._drafts = drafts
        self._ids = [draft.id or FactId(new_uuid()) for draft in drafts]
        self._tokens = [desk.counter.count(draft.content) for draft in drafts]
        for place, tokens in enumerate(self._tokens):
            check_tokens(tokens, f"facts[{place}]")
        self._given = self._checked(embedding_model) if drafts[0].embedding else None
        self._made = self._given

    @property
    def model(self) -> Model:
        """That made the vectors, once they are made."""
        assert self._made is not None
        return self._made.model

    def made(self, corpus: Corpus, base: Revision) -> list[tuple[Fact, bytes]]:
        """The facts, and their vectors as they are stored. Raises `Refused` if they do not fit what is there."""
        snapshot = self._desk.ingester.snapshot(corpus, base)
        self._check_new(snapshot)
        model, vectors = self._embedded(corpus, base)
        found = _chunks(snapshot, [draft.chunk for draft in self._drafts if draft.chunk is not None])
        self._pages = {one: held.page for one, held in found.items()}
        chunks = {one: held.chunk for one, held in found.items()}
        self._titles = _document_titles(snapshot, [chunk.document for chunk in chunks.values()])
        self._described = self._desk.describe(corpus, base, chunks.values())
        facts = [self._fact(place, chunks, model) for place in range(len(self._drafts))]
        return list(zip(facts, vectors, strict=True))

    def plan(self, corpus: Corpus, base: Revision) -> Plan[PutFacts]:
        made = self.made(corpus, base)
        changes = [ChangedFact(None, fact, FactChange.ADDED, vector) for fact, vector in made]
        ids = tuple(self._ids)
        return self._desk.plan(corpus, base, changes, lambda revision: PutFacts(ids, revision), model=self.model)

    def _embedded(self, corpus: Corpus, base: Revision) -> Embedded:
        if self._given is not None:
            return self._given
        now = self._desk.ingester.models(corpus, base).now()
        if self._made is None or (now is not None and now.current.model != self._made.model):
            self._made = self._desk.embedded(corpus, base, [draft.content for draft in self._drafts])
        return self._made

    def _checked(self, named: str) -> Embedded:
        """The vectors that the caller gives."""
        if not named:
            message = "embeddings come with the name of the model that made them"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding_model")
        given = [client_vector(one.embedding, f"facts[{place}]") for place, one in enumerate(self._drafts)]
        if len({len(one) for one in given}) > 1:
            raise BadInput(Reason.INVALID_VECTOR, "the embeddings have different lengths", field="embedding")
        return Embedded(Model(named, len(given[0])), [packed(one) for one in given])

    def _check_new(self, snapshot: Snapshot) -> None:
        given = [draft.id for draft in self._drafts if draft.id is not None]
        found = snapshot.find(given, lambda view, one: FactsView(view).fact(one))
        for one, known in zip(given, found, strict=True):
            if known is not None:
                message = f"there is a fact {one} already; change it with UpdateFact, or give a new id"
                raise Exists(Reason.NODE_EXISTS, message, node=str(one))

    def _fact(self, place: int, chunks: dict[NodeId, Chunk], model: Model) -> Fact:
        draft, call = self._drafts[place], self._call
        chunk = chunks[draft.chunk] if draft.chunk is not None else None
        if chunk is not None:
            _check_ties(draft, chunk, f"facts[{place}]")
        return Fact(
            id=self._ids[place],
            content=draft.content,
            content_hash=fact_hash(draft.content),
            tokens=self._tokens[place],
            source=draft.source if chunk is None else chunk.source,
            source_location=draft.source_location,
            importance=self._weight(draft, chunk) if draft.importance is None else draft.importance,
            ingested_at=call.at,
            modified_at=call.at,
            created_by=call.principal.id,
            metadata=checked_metadata(draft.metadata),
            ttl=draft.ttl,
            chunk=draft.chunk,
            document=None if chunk is None else chunk.document,
            span=draft.span,
            embedding_model=model.name,
            titles=() if chunk is None else titles_above(self._titles[chunk.document], chunk.headings),
            passage=self._passage(draft),
        )

    def _passage(self, draft: FactDraft) -> int | None:
        if draft.chunk is None or draft.span is None:
            return None
        return self._pages[draft.chunk].place_of(draft.span.start)

    def _weight(self, draft: FactDraft, chunk: Chunk | None) -> float:
        """By the type of the chunk's source; without a chunk it is the user's word."""
        weights = self._desk.ingester.weights
        if chunk is None:
            return importance(weights, Described(SourceType.USER), draft.content)
        return importance(weights, self._described[chunk.document], draft.content, chunk.headings)


def _chunks(snapshot: Snapshot, wanted: Sequence[NodeId]) -> dict[NodeId, ChunkWithRaws]:
    ids = sorted(set(wanted))
    found = dict(zip(ids, snapshot.find(ids, lambda view, one: view.chunk_with_raws(one)), strict=True))
    for one, chunk in found.items():
        if chunk is None:
            raise Missing(Reason.NODE_NOT_FOUND, f"there is no chunk {one}")
    return {one: chunk for one, chunk in found.items() if chunk is not None}


def _document_titles(snapshot: Snapshot, wanted: Sequence[DocumentId]) -> dict[DocumentId, str]:
    ids = sorted(set(wanted))
    found = snapshot.each(ids, lambda view, one: view.document(one))
    return {one: document.title for one, document in zip(ids, found, strict=True)}


def _check_ties(draft: FactDraft, chunk: Chunk, what: str) -> None:
    if draft.source and draft.source != chunk.source:
        message = f"{what}: its chunk is of another source; leave source_id out"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if draft.span is not None and not (chunk.span.start <= draft.span.start and draft.span.end <= chunk.span.end):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{what}: its span is not in its chunk", field="span")
