"""PutFacts. Stores facts as a revision of the corpus or, with no-store, keeps them in the caller's session only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts import session_fact_store
from drillcore_server.facts.blocks import block_of, new_fact_ids
from drillcore_server.facts.change import Embedded, FactPlanner
from drillcore_server.facts.importance import importance
from drillcore_server.facts.model import (
    FACTS_MAX,
    ChangedFact,
    Fact,
    FactChange,
    check_duration,
    check_importance,
    check_location,
    check_tokens,
    fact_hash,
)
from drillcore_server.facts.session_fact_store import FactSession, OwnSession, SessionFact
from drillcore_server.facts.session_facts import FactSessions, new_session_source
from drillcore_server.facts.store import FactReader
from drillcore_server.facts.words import titles_above
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws
from drillcore_server.hierarchy.source_model import SourceDescription, SourceType
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, Exists, Missing
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.kernel.revise import Plan, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, errors_as_refusals
from drillcore_server.storage.ids import (
    SOURCE_CHARACTERS_MAX,
    DocumentId,
    FactId,
    Level,
    NodeId,
    Revision,
    SourceId,
    Span,
)
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedKind
from drillcore_server.vectors.embedding.unit_vectors import client_vector
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.stored_vectors import packed


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact as the caller gives it."""

    content: str
    source: SourceId
    """Empty if `chunk` is given: the fact then has the source of its chunk."""
    id: FactId | None = None
    source_location: str = ""
    importance: float | None = None
    ttl: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    chunk: NodeId | None = None
    span: Span | None = None
    embedding: tuple[float, ...] = ()


def check_drafts(drafts: Sequence[FactDraft]) -> None:
    """Checks all that needs neither the store nor the tokenizer. Raises `BadInput`, which names the first bad draft."""
    if not 0 < len(drafts) <= FACTS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"put 1 to {FACTS_MAX} facts in one call", field="facts")
    seen: set[FactId] = set()
    for place, draft in enumerate(drafts):
        _check_draft(draft, f"facts[{place}]")
        if draft.id is not None and draft.id in seen:
            message = f"facts[{place}] has the same fact_id as an earlier fact of the call"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="fact_id")
        seen.update([] if draft.id is None else [draft.id])
    if len({len(draft.embedding) > 0 for draft in drafts}) > 1:
        message = "give an embedding for every fact, or for none"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding")


def _check_draft(draft: FactDraft, what: str) -> None:
    if draft.chunk is None and not 0 < len(draft.source) <= SOURCE_CHARACTERS_MAX:
        message = f"{what} needs a chunk_id, or a source_id of 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if draft.span is not None and (draft.chunk is None or not draft.span.start < draft.span.end):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{what}: a span needs a chunk_id, and must not be empty", field="span")
    check_importance(draft.importance, what)
    check_location(draft.source_location, what)
    if draft.ttl:
        check_duration(draft.ttl, "ttl")
    checked_metadata(draft.metadata)


@dataclass(frozen=True, slots=True)
class PutFacts:
    """The outcome of the call."""

    facts: tuple[FactId, ...]
    """In the order of the drafts."""
    revision: Revision


PUT_FACTS = RecordKind(PutFacts)


def put_facts(
    planner: FactPlanner, call: Call, target: Target, drafts: Sequence[FactDraft], embedding_model: str = ""
) -> PutFacts:
    """Stores facts as one revision: all or none. A retry of the same call returns the first outcome.

    `embedding_model` made the vectors of the drafts; it is empty if they have none. Raises `Refused`.
    """
    check_drafts(drafts)
    made: list[NewFacts] = []

    def plan(snapshot: BatchedReads) -> Plan[PutFacts]:
        if not made:
            made.append(NewFacts(planner, call, drafts, embedding_model))
        return made[0].plan(snapshot)

    return planner.reviser.revise(call, target, PUT_FACTS, plan)


class NewFacts:
    """Makes facts of drafts. May plan several times: counts tokens once, and embeds again only if the model changed."""

    def __init__(self, planner: FactPlanner, call: Call, drafts: Sequence[FactDraft], embedding_model: str) -> None:
        self._planner = planner
        self._call = call
        self._drafts = drafts
        made = iter(new_fact_ids([(draft.source, draft.chunk, draft.content) for draft in drafts if draft.id is None]))
        self._ids = [draft.id or next(made) for draft in drafts]
        self._new_blocks = {block_of(id_) for id_, draft in zip(self._ids, drafts, strict=True) if draft.id is None}
        self._tokens = [planner.counter.count(draft.content) for draft in drafts]
        for place, tokens in enumerate(self._tokens):
            check_tokens(tokens, f"facts[{place}]")
        self._given = self._checked(embedding_model) if drafts[0].embedding else None
        self._made = self._given

    @property
    def model(self) -> Model:
        """The model of the vectors. Call `make` first."""
        assert self._made is not None
        return self._made.model

    def make(self, snapshot: BatchedReads) -> list[tuple[Fact, bytes]]:
        """The facts, each with its vector as stored. Raises `Refused` if an id is taken or a chunk does not fit."""
        snapshot.read(self._read_ahead)
        self._check_new(snapshot)
        model, vectors = self._embedded(snapshot)
        found = _chunks(snapshot, [draft.chunk for draft in self._drafts if draft.chunk is not None])
        self._pages = {id_: chunk.page for id_, chunk in found.items()}
        chunks = {id_: chunk.chunk for id_, chunk in found.items()}
        self._titles = _document_titles(snapshot, [chunk.document for chunk in chunks.values()])
        self._described = self._planner.describe(snapshot, chunks.values())
        facts = [self._fact(place, chunks, model) for place in range(len(self._drafts))]
        return list(zip(facts, vectors, strict=True))

    def plan(self, snapshot: BatchedReads) -> Plan[PutFacts]:
        made = self.make(snapshot)
        changes = [ChangedFact(None, fact, FactChange.ADDED, vector) for fact, vector in made]
        ids = tuple(self._ids)
        return self._planner.plan(
            snapshot,
            changes,
            lambda revision: PutFacts(ids, revision),
            model=self.model,
            new_blocks=self._new_blocks,
        )

    def _read_ahead(self, view: CorpusAtRevision) -> None:
        """Reads what is known to be needed, in one round trip."""
        given = [draft.id for draft in self._drafts if draft.id is not None]
        chunks = {draft.chunk for draft in self._drafts if draft.chunk is not None}
        sources = {view.sealed.hashed(draft.source) for draft in self._drafts if draft.chunk is None}
        keys = [view.keys.embeddings(), *map(view.keys.chunk, chunks), *map(view.keys.source, sources)]
        view.read_ahead([*keys, *FactReader(view).keys_of(given)])

    def _embedded(self, snapshot: BatchedReads) -> Embedded:
        if self._given is not None:
            return self._given
        now = self._planner.models(snapshot).now()
        if self._made is None or (now is not None and now.current.model != self._made.model):
            self._made = self._planner.embedded(snapshot, [draft.content for draft in self._drafts])
        return self._made

    def _checked(self, named: str) -> Embedded:
        """The vectors that the caller gave, checked."""
        if not named:
            message = "embedding_model must name the model that made the embeddings"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding_model")
        given = [client_vector(draft.embedding, f"facts[{place}]") for place, draft in enumerate(self._drafts)]
        if len({len(vector) for vector in given}) > 1:
            raise BadInput(Reason.INVALID_VECTOR, "the embeddings have different lengths", field="embedding")
        return Embedded(Model(named, len(given[0])), [packed(vector) for vector in given])

    def _check_new(self, snapshot: BatchedReads) -> None:
        given = [draft.id for draft in self._drafts if draft.id is not None]
        found = snapshot.read(lambda view: FactReader(view).facts_by_id(given))
        for id_, known in zip(given, found, strict=True):
            if known is not None:
                message = f"the fact {id_} exists already; change it with UpdateFact, or give a new fact_id"
                raise Exists(Reason.NODE_EXISTS, message, node=str(id_))

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
        """Follows from the type of the chunk's source. A fact without a chunk weighs as a statement of the user."""
        weights = self._planner.weights
        if chunk is None:
            return importance(weights, SourceDescription(SourceType.USER), draft.content)
        return importance(weights, self._described[chunk.document], draft.content, chunk.headings)


def _chunks(snapshot: BatchedReads, wanted: Sequence[NodeId]) -> dict[NodeId, ChunkWithRaws]:
    ids = sorted(set(wanted))
    found = dict(
        zip(ids, snapshot.find(ids, lambda view, id_: HierarchyReader(view).chunk_with_raws(id_)), strict=True)
    )
    for id_, chunk in found.items():
        if chunk is None:
            raise Missing(Reason.NODE_NOT_FOUND, f"there is no chunk {id_}")
    return {id_: chunk for id_, chunk in found.items() if chunk is not None}


def _document_titles(snapshot: BatchedReads, wanted: Sequence[DocumentId]) -> dict[DocumentId, str]:
    ids = sorted(set(wanted))
    found = snapshot.each(ids, lambda view, id_: HierarchyReader(view).document(id_))
    return {id_: document.title for id_, document in zip(ids, found, strict=True)}


def _check_ties(draft: FactDraft, chunk: Chunk, what: str) -> None:
    if draft.source and draft.source != chunk.source:
        message = f"{what}: source_id is not the source of the chunk; leave source_id out"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if draft.span is not None and not (chunk.span.start <= draft.span.start and draft.span.end <= chunk.span.end):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{what}: the span is not within the chunk", field="span")


def put_session_facts(
    planner: FactPlanner,
    sessions: FactSessions,
    call: Call,
    target: Target,
    drafts: Sequence[FactDraft],
    embedding_model: str,
    session: str,
) -> PutFacts:
    """Keeps facts in the caller's session: all or none. A retry of the same call returns the first outcome.

    The corpus does not change; the returned revision is its present one. Raises `Refused`.
    """
    check_drafts(drafts)
    with planner.reviser.engine.reads() as reads, errors_as_refusals():
        begun = planner.reviser.begin(call, target, PUT_FACTS, reads)
        if begun.known is not None:
            return begun.known
        snapshot = planner.reviser.batched(begun.corpus, begun.head, reads)
        new = NewFacts(planner, call, drafts, embedding_model)
        facts = new.make(snapshot)
        planner.models(snapshot).after(new.model)  # refuses vectors of another model
    made = [SessionFact(begun.corpus.id, fact, vector) for fact, vector in facts]
    own = OwnSession(begun.corpus.tenant_id, call.principal.id, session)
    sources = sessions.source_keys(begun.corpus.number, {kept.fact.source for kept in made})
    put = _SessionPut(sessions, call, target, own, made, sources, begun.head)
    kind = SealedKind(PUT_FACTS, sessions.sealed, call.request_id, planner.reviser.make_keys(begun.corpus, []))
    expected = [session_fact_store.head_key(sessions.unit.keys, own)]
    return sessions.unit.write(call, target.access, kind, put.work, expected=expected)


class _SessionPut:
    """Its work may run several times. The key of a new session is made only once."""

    def __init__(
        self,
        sessions: FactSessions,
        call: Call,
        target: Target,
        own: OwnSession,
        made: Sequence[SessionFact],
        sources: Mapping[SourceId, KeyNumber],
        revision: Revision,
    ) -> None:
        self._sessions = sessions
        self._call = call
        self._target = target
        self._own = own
        self._made = made
        self._revision = revision
        self._sources = sources
        self._source = new_session_source()

    def work(self, tr: Transaction, granted: InTenant, trail: Trail) -> PutFacts:
        keys = self._sessions.unit.keys
        corpus = granted.corpus(tr, keys, self._target.corpus)
        granted.check_level(corpus.id, *Level)
        session = self._session(tr)
        self._check(tr, session)
        session_fact_store.add(tr, keys, self._sessions.sealed, session, self._made, self._sources)
        self._leave_trail(trail, corpus)
        return PutFacts(tuple(kept.fact.id for kept in self._made), self._revision)

    def _session(self, tr: Transaction) -> FactSession:
        """The session, with a later end. Begins one if there is none, or if it is over."""
        keys, now = self._sessions.unit.keys, self._call.at
        session = session_fact_store.find(tr, keys, self._own, now)
        if session is not None:
            return session_fact_store.renew(tr, keys, session, now + self._sessions.idle)
        session = self._sessions.new(self._own, self._source, now)
        session_fact_store.begin(tr, keys, session)
        return session

    def _check(self, tr: Transaction, session: FactSession) -> None:
        if session.facts + len(self._made) > self._sessions.facts_max:
            message = f"a session keeps at most {self._sessions.facts_max} facts; end it, or use another session_id"
            raise BadInput(Reason.TOO_LARGE, message, field="session_id")
        ids = [kept.fact.id for kept in self._made]
        for known in session_fact_store.those_there(tr, self._sessions.unit.keys, self._own, ids):
            message = f"the session has a fact {known} already; give a new fact_id"
            raise Exists(Reason.NODE_EXISTS, message, node=str(known))

    def _leave_trail(self, trail: Trail, corpus: Corpus) -> None:
        trail.touch_corpus(corpus.id, self._revision)
        trail.touch_facts((kept.fact for kept in self._made), corpus.number)
        trail.detail["session_facts"] = len(self._made)
