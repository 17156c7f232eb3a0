"""PutFacts.

PutFacts with no-store: facts that are kept in the caller's session, and make no revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts import session_store as fact_sessions
from drillcore_server.facts.change import ChangedFact, Embedded, FactPlanner
from drillcore_server.facts.drafts import FactDraft, check_drafts, check_tokens
from drillcore_server.facts.importance import importance
from drillcore_server.facts.model import Fact, FactChange, fact_hash
from drillcore_server.facts.session_facts import FactSessions, new_session_source
from drillcore_server.facts.session_store import FactSession, OwnSession, SessionFact
from drillcore_server.facts.store import FactReader, packed
from drillcore_server.facts.words import titles_above
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws
from drillcore_server.hierarchy.source_model import Described, SourceType
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.errors import BadInput, Exists, Missing
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.kernel.revise import Plan, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import DocumentId, FactId, Level, NodeId, Revision, SourceId, new_uuid
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedKind
from drillcore_server.vectors.embedding.unit_vectors import client_vector
from drillcore_server.vectors.model import Model


@dataclass(frozen=True, slots=True)
class PutFacts:
    facts: tuple[FactId, ...]
    """In the order of the drafts."""
    revision: Revision


PUT_FACTS = RecordKind(PutFacts)


def put_facts(
    planner: FactPlanner, call: Call, target: Target, drafts: Sequence[FactDraft], embedding_model: str = ""
) -> PutFacts:
    """Stores facts as one revision: all or none. `embedding_model` made their vectors, if they have any."""
    check_drafts(drafts)
    begun = planner.reviser.begin(call, target, PUT_FACTS)
    if begun.known is not None:
        return begun.known
    put = DraftedFacts(planner, call, drafts, embedding_model)
    return planner.reviser.revise(call, target, PUT_FACTS, put.plan)


class DraftedFacts:
    """Tokens and vectors are made once, however often the plan is, unless the corpus's model changes meanwhile."""

    def __init__(self, planner: FactPlanner, call: Call, drafts: Sequence[FactDraft], embedding_model: str) -> None:
        self._planner = planner
        self._call = call
        self._drafts = drafts
        self._ids = [draft.id or FactId(new_uuid()) for draft in drafts]
        self._tokens = [planner.counter.count(draft.content) for draft in drafts]
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
        snapshot = self._planner.reviser.batched(corpus, base)
        self._check_new(snapshot)
        model, vectors = self._embedded(corpus, base)
        found = _chunks(snapshot, [draft.chunk for draft in self._drafts if draft.chunk is not None])
        self._pages = {one: held.page for one, held in found.items()}
        chunks = {one: held.chunk for one, held in found.items()}
        self._titles = _document_titles(snapshot, [chunk.document for chunk in chunks.values()])
        self._described = self._planner.describe(corpus, base, chunks.values())
        facts = [self._fact(place, chunks, model) for place in range(len(self._drafts))]
        return list(zip(facts, vectors, strict=True))

    def plan(self, corpus: Corpus, base: Revision) -> Plan[PutFacts]:
        made = self.made(corpus, base)
        changes = [ChangedFact(None, fact, FactChange.ADDED, vector) for fact, vector in made]
        ids = tuple(self._ids)
        return self._planner.plan(corpus, base, changes, lambda revision: PutFacts(ids, revision), model=self.model)

    def _embedded(self, corpus: Corpus, base: Revision) -> Embedded:
        if self._given is not None:
            return self._given
        now = self._planner.models(corpus, base).now()
        if self._made is None or (now is not None and now.current.model != self._made.model):
            self._made = self._planner.embedded(corpus, base, [draft.content for draft in self._drafts])
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

    def _check_new(self, snapshot: BatchedReads) -> None:
        given = [draft.id for draft in self._drafts if draft.id is not None]
        found = snapshot.find(given, lambda view, one: FactReader(view).fact(one))
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
        weights = self._planner.weights
        if chunk is None:
            return importance(weights, Described(SourceType.USER), draft.content)
        return importance(weights, self._described[chunk.document], draft.content, chunk.headings)


def _chunks(snapshot: BatchedReads, wanted: Sequence[NodeId]) -> dict[NodeId, ChunkWithRaws]:
    ids = sorted(set(wanted))
    found = dict(
        zip(ids, snapshot.find(ids, lambda view, one: HierarchyReader(view).chunk_with_raws(one)), strict=True)
    )
    for one, chunk in found.items():
        if chunk is None:
            raise Missing(Reason.NODE_NOT_FOUND, f"there is no chunk {one}")
    return {one: chunk for one, chunk in found.items() if chunk is not None}


def _document_titles(snapshot: BatchedReads, wanted: Sequence[DocumentId]) -> dict[DocumentId, str]:
    ids = sorted(set(wanted))
    found = snapshot.each(ids, lambda view, one: HierarchyReader(view).document(one))
    return {one: document.title for one, document in zip(ids, found, strict=True)}


def _check_ties(draft: FactDraft, chunk: Chunk, what: str) -> None:
    if draft.source and draft.source != chunk.source:
        message = f"{what}: its chunk is of another source; leave source_id out"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if draft.span is not None and not (chunk.span.start <= draft.span.start and draft.span.end <= chunk.span.end):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{what}: its span is not in its chunk", field="span")


def put_session_facts(
    planner: FactPlanner,
    sessions: FactSessions,
    call: Call,
    target: Target,
    drafts: Sequence[FactDraft],
    embedding_model: str,
    session: str,
) -> PutFacts:
    """Keeps facts in the caller's session: all or none. The corpus is as it was; its revision is told."""
    check_drafts(drafts)
    begun = planner.reviser.begin(call, target, PUT_FACTS)
    if begun.known is not None:
        return begun.known
    drafted = DraftedFacts(planner, call, drafts, embedding_model)
    facts = drafted.made(begun.corpus, begun.head)
    planner.models(begun.corpus, begun.head).after(drafted.model)  # refuses another model's
    made = [SessionFact(begun.corpus.id, *one) for one in facts]
    own = OwnSession(begun.corpus.tenant_id, call.principal.id, session)
    sources = sessions.source_keys(begun.corpus.number, {one.fact.source for one in made})
    putting = _Putting(sessions, call, target, own, made, sources, begun.head)
    kind = SealedKind(PUT_FACTS, sessions.sealed, call.request_id, planner.reviser.make_keys(begun.corpus, []))
    return sessions.unit.write(call, target.access, kind, putting.work)


class _Putting:
    """The key of a new session is made once, however often the work is run."""

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
        fact_sessions.add(tr, keys, self._sessions.sealed, session, self._made, self._sources)
        self._leave_trail(trail, corpus)
        return PutFacts(tuple(one.fact.id for one in self._made), self._revision)

    def _session(self, tr: Transaction) -> FactSession:
        """The session, which ends later now; begun if it does not stand."""
        keys, now = self._sessions.unit.keys, self._call.at
        session = fact_sessions.find(tr, keys, self._own, now)
        if session is not None:
            return fact_sessions.renew(tr, keys, session, now + self._sessions.idle)
        session = self._sessions.new(self._own, self._source, now)
        fact_sessions.begin(tr, keys, session)
        return session

    def _check(self, tr: Transaction, session: FactSession) -> None:
        if session.facts + len(self._made) > self._sessions.facts_max:
            message = f"a session keeps at most {self._sessions.facts_max} facts; end it, or take another"
            raise BadInput(Reason.TOO_LARGE, message, field="session_id")
        for one in self._made:
            if fact_sessions.has(tr, self._sessions.unit.keys, self._own, one.fact.id):
                message = f"the session has a fact {one.fact.id} already"
                raise Exists(Reason.NODE_EXISTS, message, node=str(one.fact.id))

    def _leave_trail(self, trail: Trail, corpus: Corpus) -> None:
        trail.touch_corpus(corpus.id, self._revision)
        trail.touch_facts((one.fact for one in self._made), corpus.number)
        trail.detail["session_facts"] = len(self._made)
