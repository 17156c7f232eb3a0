"""Builds an envelope: selects, ranks and packs candidates, assesses the result, and reads the provenance of facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Final

from drillcore_server.envelopes.envelope_plan import HASH_BYTES, EnvelopePlan, SeenFact
from drillcore_server.envelopes.envelope_text import GROUNDING_INSTRUCTIONS
from drillcore_server.envelopes.headers import etag
from drillcore_server.envelopes.model import (
    MEMORY_TIER_STORE,
    SCORE_DIGITS,
    Candidate,
    CandidateOutcome,
    Envelope,
    GroundingMode,
    Outcome,
    Packing,
    Provenance,
    Quality,
    QualityTier,
    Ranking,
    RawSpan,
)
from drillcore_server.envelopes.quality import QualityInput, assess, is_degrading, meets
from drillcore_server.envelopes.rank import rank
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.select import Selection, SessionMemory, SoughtFacts, select
from drillcore_server.envelopes.settings import FUSED
from drillcore_server.envelopes.token_packer import pack
from drillcore_server.facts.model import Fact
from drillcore_server.hierarchy.model import raw_id
from drillcore_server.hierarchy.packed import PlacedChunk
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import CommunityId, FactId, Span


def provenance_of(view: CorpusAtRevision, facts: Sequence[Fact]) -> list[Provenance]:
    """Where facts of one corpus come from, in order. Reads all their chunks together, and all their documents.

    A fact that was put without a chunk has only a source. A fact from an earlier version of a document may have no raw
    text any more.
    """
    hierarchy = HierarchyReader(view)
    chunks = list(dict.fromkeys(fact.chunk for fact in facts if fact.chunk is not None))
    documents = list(dict.fromkeys(fact.document for fact in facts if fact.document is not None))
    placed = dict(zip(chunks, hierarchy.placed_chunks(chunks), strict=True))
    found = zip(documents, hierarchy.documents_by_id(documents), strict=True)
    titles = {id_: document.title for id_, document in found if document is not None}
    return [
        Provenance(
            source=fact.source,
            location=fact.source_location,
            document=fact.document,
            document_title="" if fact.document is None else titles.get(fact.document, ""),
            chunk=fact.chunk,
            span=fact.span,
            raws=() if fact.chunk is None else _raws_in(placed[fact.chunk], fact.span),
            leads=fact.leads,
        )
        for fact in facts
    ]


def _raws_in(placed: PlacedChunk | None, span: Span | None) -> tuple[RawSpan, ...]:
    """The raws of a chunk that have something of a span, or all of them. Needs no text of raws."""
    if placed is None:
        return ()
    ids = placed.chunk.raw_ids or [raw_id(placed.chunk.id, place) for place in range(len(placed.raws))]
    raws = map(RawSpan, ids, placed.raws)
    return tuple(raw for raw in raws if span is None or _overlap(raw.span, span))


def _overlap(first: Span, second: Span) -> bool:
    return first.start < second.end and second.start < first.end


DIRECT: Final = "direct"
WIDENED: Final = "widened"
CONTINUATION: Final = "continuation"
WIDER_FACTOR: Final = 4
"""A second try, after a tier that the caller does not accept, selects this many times as many candidates."""
SPARSE_SATURATION_BELOW: Final = 0.70
LIMITED_COVERAGE: Final = "limited-ckf-coverage: the store has little that is relevant to this query"
STRICT_AND_SPARSE: Final = (
    "strict-grounding-sparse: the answer may use only this context, and there is little of it; it may be incomplete"
)
DEGRADING: Final = (
    "quality-degrading: each window of this session is worse than the one before; consider a hierarchical strategy "
    "(drill down from sections), or that the store lacks depth here"
)


@dataclass(frozen=True, slots=True)
class Window:
    """The place of an envelope in a chain of windows, and what came before it."""

    number: int = 1
    seen: tuple[SeenFact, ...] = ()
    """The facts of the windows before."""
    answer: Candidate | None = None
    """A summary of the model's answer in the window before."""
    salt: bytes = b""
    """Keys the etag; empty for a plain etag."""
    tiers: tuple[QualityTier, ...] = ()
    """The tiers of the session's windows so far."""

    @property
    def strategy(self) -> str:
        return DIRECT if self.number == 1 else CONTINUATION


@dataclass(frozen=True, slots=True)
class BuiltEnvelope:
    envelope: Envelope
    plan: EnvelopePlan
    """The plan that was used in the end, perhaps the wider one."""
    facts: tuple[SeenFact, ...]
    """The facts in the order of the text, without the answer of the model."""
    warm: tuple[CommunityId, ...]
    """The communities of the packed facts."""
    warm_before: tuple[CommunityId, ...]
    """The communities that the session had used before and that influence this envelope."""
    is_continued: bool
    """Whether there is a further window."""
    changes_at: datetime | None
    """When the first candidate becomes too old for max-age."""
    best_relevance: float | None
    """The best relevance of a fact of the store; None if none was found."""
    ckf_hits: int
    """The number of facts of the store that were found."""


@dataclass(frozen=True, slots=True)
class EnvelopeBuilder:
    """Builds the envelope of one plan on corpora at fixed revisions."""

    reads: EnvelopeReads
    views: Sequence[CorpusAtRevision]
    plan: EnvelopePlan
    sought: SoughtFacts
    memory: SessionMemory
    window: Window
    now: datetime

    def built(self, accepted: frozenset[QualityTier]) -> BuiltEnvelope:
        """Returns the envelope. If its tier is not accepted, tries a wider selection, and returns the better result."""
        first = self._built(self.plan, self.window.strategy)
        if not accepted or meets(first.envelope.quality.tier, sorted(accepted)):
            return first
        wider = replace(self.plan, per_query=WIDER_FACTOR * self.plan.per_query, exact=True)
        second = self._built(wider, WIDENED)
        return second if second.envelope.quality.tier < first.envelope.quality.tier else first

    def replayed(self, strategy: str) -> BuiltEnvelope:
        """Builds the envelope of a plan that was used before, with the same strategy."""
        return self._built(self.plan, strategy)

    def _built(self, plan: EnvelopePlan, strategy: str) -> BuiltEnvelope:
        selected = select(self.reads, self.views, plan, self.sought, self.memory, self.now)
        pool, left_out = self._pool(selected.candidates)
        tokenizer = self.reads.models.find(plan.model).tokenizer
        ranking = rank(pool, plan.weights, plan.ranked_on, plan.duplicate_similarity, same_words=plan.policy == FUSED)
        packing = pack(ranking.kept, plan.budget.tokens, tokenizer.count, plan.format, tokenizer.at_least)
        explained = tuple(chain(_outcomes(ranking, packing), left_out))
        envelope = self._envelope(plan, strategy, selected, packing, _quality(plan, packing, pool), explained)
        included = _included(packing)
        stored = [candidate.relevance for candidate in selected.candidates if not candidate.session_only]
        return BuiltEnvelope(
            envelope=envelope,
            plan=plan,
            facts=tuple(_seen(candidate) for candidate in included if candidate.fact is not None),
            warm=tuple(dict.fromkeys(candidate.community for candidate in included if candidate.community is not None)),
            warm_before=self._warm_before(plan, included),
            is_continued=bool(envelope.deferred) and self.window.number < self.reads.settings.windows_max,
            changes_at=_changes_at(selected.candidates, plan),
            best_relevance=max(stored, default=None),
            ckf_hits=len(stored),
        )

    def _envelope(
        self,
        plan: EnvelopePlan,
        strategy: str,
        selected: Selection,
        packing: Packing,
        quality: Quality,
        explained: Sequence[CandidateOutcome],
    ) -> Envelope:
        included = _included(packing)
        facts = [candidate for candidate in included if candidate.fact is not None]
        return Envelope(
            session=plan.session,
            window=self.window.number,
            packing=packing,
            provenance=self._provenance(facts),
            available=len(selected.candidates),
            budget=plan.budget,
            quality=quality,
            etag=etag((candidate.id for candidate in facts), self.window.salt),
            strategy=strategy,
            mode=plan.mode,
            communities=_communities(included),
            memory_tier_hit=max((candidate.memory_tier for candidate in included), default=plan.memory_tier_max),
            warnings=tuple(self._warnings(plan, quality)),
            sub_queries=plan.sub_queries,
            time_sensitive=plan.time_sensitive,
            instruction=GROUNDING_INSTRUCTIONS[plan.mode],
            format=plan.format,
            revisions={view.corpus.id: view.revision for view in self.views},
            policy=plan.policy,
            weights=plan.weights,
            relevance_floor=plan.relevance_floor,
            exact=selected.exact,
            ranked_on=plan.ranked_on,
            tokenizer=self.reads.models.find(plan.model).tokenizer.name,
            deferred=self._deferred(plan, packing),
            explained=explained,
        )

    def _pool(self, found: Sequence[Candidate]) -> tuple[list[Candidate], list[CandidateOutcome]]:
        """Returns the candidates that may be packed, and the outcomes of the others.

        Leaves out facts that the caller's window already has, and facts that an earlier window had with the same
        content.
        """
        seen = {fact.id: fact.hashed for fact in self.window.seen}
        in_window = set(self.plan.window_facts)
        pool, left_out = [], []
        for candidate in found:
            if candidate.id in in_window:
                left_out.append(CandidateOutcome(candidate, Outcome.IN_WINDOW))
            elif candidate.fact is not None and seen.get(candidate.id) == _hashed(candidate.fact):
                left_out.append(CandidateOutcome(candidate, Outcome.SEEN))
            else:
                pool.append(candidate)
        return [*pool, *([] if self.window.answer is None else [self.window.answer])], left_out

    def _deferred(self, plan: EnvelopePlan, packing: Packing) -> tuple[FactId, ...]:
        """Returns the relevant facts for the next window: those that did not fit here, but would fit alone.

        If nothing fitted into this budget, nothing will fit into the next, so there is no next window.
        """
        if not packing.included:
            return ()
        left = zip((ranked.candidate for ranked in packing.excluded), packing.wanted, strict=True)
        fits = (candidate for candidate, tokens in left if tokens <= plan.budget.tokens and candidate.fact is not None)
        return tuple(candidate.id for candidate in fits if candidate.relevance >= plan.relevance_floor)

    def _provenance(self, found: Sequence[Candidate]) -> dict[FactId, Provenance]:
        made: dict[FactId, Provenance] = {}
        for view in self.views:
            facts = [seen.fact for seen in found if seen.fact is not None and seen.corpus == view.corpus.id]
            made |= zip((fact.id for fact in facts), provenance_of(view, facts), strict=True)
        return {candidate.id: made[candidate.id] for candidate in found}

    def _warnings(self, plan: EnvelopePlan, quality: Quality) -> Iterator[str]:
        if quality.saturation < SPARSE_SATURATION_BELOW:
            yield LIMITED_COVERAGE
            if plan.mode is GroundingMode.CONTEXT_STRICT:
                yield STRICT_AND_SPARSE
        if is_degrading((*self.window.tiers, quality.tier)):
            yield DEGRADING

    def _warm_before(self, plan: EnvelopePlan, included: Sequence[Candidate]) -> tuple[CommunityId, ...]:
        if plan.memory_tier_max < MEMORY_TIER_STORE:
            return tuple(sorted(self.memory.warm))
        used = {candidate.community for candidate in included if candidate.community is not None}
        return tuple(sorted(used & self.memory.warm))


def _included(packing: Packing) -> list[Candidate]:
    return [packed.ranked.candidate for packed in packing.included]


def _quality(plan: EnvelopePlan, packing: Packing, pool: Sequence[Candidate]) -> Quality:
    budget, floor = plan.budget.tokens, plan.relevance_floor
    return assess(QualityInput(packing, pool, budget, floor, plan.mode, plan.time_sensitive, plan.ranked_on))


def _communities(included: Sequence[Candidate]) -> tuple[str, ...]:
    """Returns the labels of the communities, by the summed relevance of their packed facts, best first."""
    relevance: dict[str, float] = defaultdict(float)
    for candidate in included:
        if candidate.community_label:
            relevance[candidate.community_label] += candidate.relevance
    return tuple(sorted(relevance, key=lambda label: (-round(relevance[label], SCORE_DIGITS), label)))


def _outcomes(ranking: Ranking, packing: Packing) -> Iterator[CandidateOutcome]:
    """Yields what became of every candidate that was ranked."""
    for packed in packing.included:
        ranked = packed.ranked
        yield CandidateOutcome(ranked.candidate, Outcome.INCLUDED, ranked.composite, "", packed.tokens, packed.position)
    for ranked, tokens in zip(packing.excluded, packing.wanted, strict=True):
        yield CandidateOutcome(ranked.candidate, Outcome.OVER_BUDGET, ranked.composite, "", tokens)
    for duplicate in ranking.duplicates:
        ranked = duplicate.ranked
        yield CandidateOutcome(ranked.candidate, Outcome.DUPLICATE, ranked.composite, str(duplicate.of))


def _changes_at(found: Sequence[Candidate], plan: EnvelopePlan) -> datetime | None:
    """Returns when the first candidate becomes too old for max-age; None if none will."""
    if plan.max_age is None:
        return None
    fresh = (candidate for candidate in found if not candidate.stale)
    return min((candidate.ingested_at + plan.max_age for candidate in fresh), default=None)


def _seen(candidate: Candidate) -> SeenFact:
    assert candidate.fact is not None
    return SeenFact(candidate.id, _hashed(candidate.fact))


def _hashed(fact: Fact) -> bytes:
    return bytes.fromhex(fact.content_hash)[:HASH_BYTES]
