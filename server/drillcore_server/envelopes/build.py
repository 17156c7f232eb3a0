"""From a fact to the characters of the original document: fact, chunk, raws, document.

Phases 2 and 3 of an envelope: candidates are ranked and packed, and what comes out is assessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Final

from drillcore_server.envelopes.envelope_plan import HASH_BYTES, EnvelopePlan, SeenFact
from drillcore_server.envelopes.headers import etag
from drillcore_server.envelopes.model import (
    SCORE_DIGITS,
    Candidate,
    Envelope,
    Explained,
    GroundingMode,
    Outcome,
    Packing,
    Provenance,
    Quality,
    QualityTier,
    Ranking,
    RawSpan,
)
from drillcore_server.envelopes.packing import pack
from drillcore_server.envelopes.quality import Assessed, assess, is_degrading, meets
from drillcore_server.envelopes.rank import rank
from drillcore_server.envelopes.rendering import GROUNDING_INSTRUCTIONS
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.scoring import FUSED
from drillcore_server.envelopes.select import Selected, SessionMemory, SoughtFacts, select
from drillcore_server.facts.model import Fact
from drillcore_server.hierarchy.found import RawText
from drillcore_server.hierarchy.query import left
from drillcore_server.hierarchy.reader import NodeReader
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import CommunityId, DocumentId, FactId, NodeId, Span


@dataclass(frozen=True, slots=True)
class Provenances:
    """Of facts of one corpus at one revision. Facts of a chunk, or document, share what is read of it."""

    nodes: NodeReader
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
            found = self.nodes.raws_left(chunk)
            self._raws[chunk] = tuple(
                RawSpan(one.id, one.content.raw.span) for one in found if isinstance(one.content, RawText)
            )
        return self._raws[chunk]

    def _title_of(self, document: DocumentId) -> str:
        if document not in self._titles:
            found = left(HierarchyReader(self.nodes.view).document, document)
            self._titles[document] = "" if found is None else found.title
        return self._titles[document]


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


DIRECT: Final = "direct"
WIDENED: Final = "widened"
CONTINUATION: Final = "continuation"
WIDER: Final = 4
"""Times as many candidates, when the tier that comes out is not accepted."""
SPARSE: Final = 0.70
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
    """Where in a chain of windows an envelope stands, and what came before it."""

    number: int = 1
    seen: tuple[SeenFact, ...] = ()
    answer: Candidate | None = None
    """What the model said in the window before, in short."""
    salt: bytes = b""
    tiers: tuple[QualityTier, ...] = ()
    """Of the session's windows so far."""

    @property
    def strategy(self) -> str:
        return DIRECT if self.number == 1 else CONTINUATION


@dataclass(frozen=True, slots=True)
class Built:
    envelope: Envelope
    plan: EnvelopePlan
    """As it was used in the end."""
    facts: tuple[SeenFact, ...]
    """In their order in the text, without the answer."""
    warm: tuple[CommunityId, ...]
    """The communities that it used."""
    warm_before: tuple[CommunityId, ...]
    """Of those that the session had used before, the ones that matter to it."""
    is_continued: bool
    """Whether there is a further window."""
    changes_at: datetime | None
    """When one of the candidates gets too old for max-age."""
    best_relevance: float | None
    """Of the store's facts; None if there is none."""
    ckf_hits: int
    """How many of those were found."""


@dataclass(frozen=True, slots=True)
class EnvelopeBuilder:
    """Builds envelopes of one plan on corpora as they are at one moment."""

    reads: EnvelopeReads
    views: Sequence[CorpusAtRevision]
    plan: EnvelopePlan
    sought: SoughtFacts
    memory: SessionMemory
    window: Window
    now: datetime

    def built(self, accepted: frozenset[QualityTier]) -> Built:
        """The envelope; with a wider selection if its tier is not accepted and that makes it better."""
        first = self._built(self.plan, self.window.strategy)
        if not accepted or meets(first.envelope.quality.tier, sorted(accepted)):
            return first
        wider = replace(self.plan, per_query=WIDER * self.plan.per_query, exact=True)
        second = self._built(wider, WIDENED)
        return second if second.envelope.quality.tier < first.envelope.quality.tier else first

    def replayed(self, strategy: str) -> Built:
        """The envelope of a plan that was used before, with the strategy of then."""
        return self._built(self.plan, strategy)

    def _built(self, plan: EnvelopePlan, strategy: str) -> Built:
        selected = select(self.reads, self.views, plan, self.sought, self.memory, self.now)
        pool, left_out = self._pool(selected.candidates)
        tokenizer = self.reads.models.find(plan.model).tokenizer
        ranking = rank(pool, plan.weights, plan.ranked_on, plan.duplicate_similarity, same_words=plan.policy == FUSED)
        packing = pack(ranking.kept, plan.budget.tokens, tokenizer.count, plan.format, tokenizer.at_least)
        explained = tuple(chain(_explained(ranking, packing), left_out))
        envelope = self._envelope(plan, strategy, selected, packing, _quality(plan, packing, pool), explained)
        included = _included(packing)
        stored = [one.relevance for one in selected.candidates if not one.session_only]
        return Built(
            envelope=envelope,
            plan=plan,
            facts=tuple(_seen(one) for one in included if one.fact is not None),
            warm=tuple(dict.fromkeys(one.community for one in included if one.community is not None)),
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
        selected: Selected,
        packing: Packing,
        quality: Quality,
        explained: Sequence[Explained],
    ) -> Envelope:
        included = _included(packing)
        facts = [one for one in included if one.fact is not None]
        return Envelope(
            session=plan.session,
            window=self.window.number,
            packing=packing,
            provenance=self._provenance(facts),
            available=len(selected.candidates),
            budget=plan.budget,
            quality=quality,
            etag=etag((one.id for one in facts), self.window.salt),
            strategy=strategy,
            mode=plan.mode,
            communities=_communities(included),
            memory_tier_hit=max((one.memory_tier for one in included), default=plan.memory_tier_max),
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

    def _pool(self, found: Sequence[Candidate]) -> tuple[list[Candidate], list[Explained]]:
        """What may be packed: neither in the caller's window already, nor in an earlier one as it is now."""
        seen = {one.id: one.hashed for one in self.window.seen}
        in_window = set(self.plan.window_facts)
        pool, left_out = [], []
        for one in found:
            if one.id in in_window:
                left_out.append(Explained(one, Outcome.IN_WINDOW))
            elif one.fact is not None and seen.get(one.id) == _hashed(one.fact):
                left_out.append(Explained(one, Outcome.SEEN))
            else:
                pool.append(one)
        return [*pool, *([] if self.window.answer is None else [self.window.answer])], left_out

    def _deferred(self, plan: EnvelopePlan, packing: Packing) -> tuple[FactId, ...]:
        """What is relevant and found no room, though it would alone: for the next window. Where nothing fitted into a
        whole budget, nothing ever will."""
        if not packing.included:
            return ()
        left = zip((one.candidate for one in packing.excluded), packing.wanted, strict=True)
        fits = (one for one, tokens in left if tokens <= plan.budget.tokens and one.fact is not None)
        return tuple(one.id for one in fits if one.relevance >= plan.relevance_floor)

    def _provenance(self, facts: Sequence[Candidate]) -> dict[FactId, Provenance]:
        known = {view.corpus.id: Provenances(NodeReader(view)) for view in self.views}
        return {one.id: known[one.corpus].of(one.fact) for one in facts if one.fact is not None}

    def _warnings(self, plan: EnvelopePlan, quality: Quality) -> Iterator[str]:
        if quality.saturation < SPARSE:
            yield LIMITED_COVERAGE
            if plan.mode is GroundingMode.CONTEXT_STRICT:
                yield STRICT_AND_SPARSE
        if is_degrading((*self.window.tiers, quality.tier)):
            yield DEGRADING

    def _warm_before(self, plan: EnvelopePlan, included: Sequence[Candidate]) -> tuple[CommunityId, ...]:
        if plan.memory_tier_max < 3:
            return tuple(sorted(self.memory.warm))
        return tuple(sorted({one.community for one in included if one.community in self.memory.warm}))


def _included(packing: Packing) -> list[Candidate]:
    return [one.ranked.candidate for one in packing.included]


def _quality(plan: EnvelopePlan, packing: Packing, pool: Sequence[Candidate]) -> Quality:
    budget, floor = plan.budget.tokens, plan.relevance_floor
    return assess(Assessed(packing, pool, budget, floor, plan.mode, plan.time_sensitive, plan.ranked_on))


def _communities(included: Sequence[Candidate]) -> tuple[str, ...]:
    """Their labels, the one whose facts are most relevant first."""
    relevance: dict[str, float] = defaultdict(float)
    for one in included:
        if one.community_label:
            relevance[one.community_label] += one.relevance
    return tuple(sorted(relevance, key=lambda label: (-round(relevance[label], SCORE_DIGITS), label)))


def _explained(ranking: Ranking, packing: Packing) -> Iterator[Explained]:
    """Of every candidate that was ranked, what became of it."""
    for packed in packing.included:
        one = packed.ranked
        yield Explained(one.candidate, Outcome.INCLUDED, one.composite, "", packed.tokens, packed.position)
    for one, tokens in zip(packing.excluded, packing.wanted, strict=True):
        yield Explained(one.candidate, Outcome.OVER_BUDGET, one.composite, "", tokens)
    for duplicate in ranking.duplicates:
        one = duplicate.ranked
        yield Explained(one.candidate, Outcome.DUPLICATE, one.composite, str(duplicate.of))


def _changes_at(found: Sequence[Candidate], plan: EnvelopePlan) -> datetime | None:
    """When the first of the candidates gets too old."""
    if plan.max_age is None:
        return None
    return min((one.ingested_at + plan.max_age for one in found if not one.stale), default=None)


def _seen(one: Candidate) -> SeenFact:
    assert one.fact is not None
    return SeenFact(one.id, _hashed(one.fact))


def _hashed(fact: Fact) -> bytes:
    return bytes.fromhex(fact.content_hash)[:HASH_BYTES]
