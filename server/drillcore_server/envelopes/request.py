"""What the commands of envelopes share.

What a caller asks an envelope for, and the plan that it becomes with the server's settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.communities.memberships import CommunityCache
from drillcore_server.envelopes.decomposition import decompose
from drillcore_server.envelopes.envelope_plan import EnvelopePlan
from drillcore_server.envelopes.model import GroundingMode, QualityTier, RenderFormat
from drillcore_server.envelopes.packing import BudgetRequest, token_budget
from drillcore_server.envelopes.rendering import GROUNDING_INSTRUCTIONS
from drillcore_server.envelopes.scoring import ScoringAsked, is_time_sensitive, scoring
from drillcore_server.envelopes.settings import EnvelopeSettings
from drillcore_server.envelopes.store import EnvelopeStore, envelope_store
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.lexical.lexical_cache import LexicalIndexes
from drillcore_server.facts.model import FOUND, FactFilters
from drillcore_server.facts.reader import FactReads, check_count
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.sections import SectionIndexes
from drillcore_server.kernel.corpus_at_revision import AsOf
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.unit import Unit
from drillcore_server.storage.ids import CorpusId, FactId, TenantId
from drillcore_server.tokenizers.models import Models


@dataclass(frozen=True, slots=True)
class EnvelopeReads:
    """What calls that pack or read envelopes use."""

    facts: FactReads
    words: LexicalIndexes
    sections: SectionIndexes
    chunks: VectorCache
    communities: CommunityCache
    models: Models
    settings: EnvelopeSettings

    @property
    def unit(self) -> Unit:
        return self.facts.unit

    def store(self, tenant: TenantId) -> EnvelopeStore:
        return envelope_store(self.facts.corpora, tenant)

    def session_end(self, now: datetime) -> datetime:
        return now + self.facts.sessions.idle

    def kept_until(self, now: datetime) -> datetime:
        return now + timedelta(days=self.settings.keep_days)


QUERY_CHARACTERS_MAX: Final = 10_000
WINDOW_FACTS_MAX: Final = 1_000
TIER_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class EnvelopeAsked:
    query: str
    corpora: tuple[CorpusId, ...]
    filters: FactFilters
    budget: BudgetRequest
    model: str
    """Empty: the server's default."""
    mode: GroundingMode
    scoring: ScoringAsked
    accepted: frozenset[QualityTier]
    """None: any."""
    directives: CacheDirectives
    session: str
    exact: bool
    as_of: AsOf
    format: RenderFormat
    window_facts: tuple[FactId, ...]
    """That the caller's window has already."""
    memory_tier_max: int


def plan_of(reads: EnvelopeReads, asked: EnvelopeAsked, at: datetime) -> EnvelopePlan:
    """Everything that is decided without the store. Raises `BadInput`."""
    _check(asked)
    query = asked.query.strip()
    today = at.astimezone(UTC).date()
    time_sensitive = is_time_sensitive(query, today)
    scored = scoring(reads.settings.scoring, asked.scoring, asked.mode, time_sensitive)
    model = reads.models.find(asked.model)
    age = asked.directives.max_age
    return EnvelopePlan(
        query=query,
        sub_queries=decompose(query),
        time_sensitive=time_sensitive,
        corpora=asked.corpora,
        filters=asked.filters,
        mode=asked.mode,
        format=asked.format,
        policy=scored.policy,
        weights=scored.weights,
        relevance_floor=scored.relevance_floor,
        duplicate_similarity=scored.duplicate_similarity,
        per_query=scored.candidates_per_query,
        budget=token_budget(
            asked.budget,
            query=query,
            instruction=GROUNDING_INSTRUCTIONS[asked.mode],
            model=model.name,
            model_window=model.context_window,
            count=model.tokenizer.count,
        ),
        model=model.name,
        tokenizer=model.tokenizer.fingerprint,
        session=asked.session,
        exact=asked.exact,
        as_of=asked.as_of,
        window_facts=asked.window_facts,
        memory_tier_max=asked.memory_tier_max,
        day=today.toordinal(),
        max_age_s=None if age is None else int(age.total_seconds()),
        only_if_ckf=asked.directives.only_if_ckf,
    )


def _check(asked: EnvelopeAsked) -> None:
    check_count(asked.corpora)
    if not asked.query.strip():
        raise BadInput(Reason.INVALID_ARGUMENT, "the query is empty", field="query")
    if len(asked.query) > QUERY_CHARACTERS_MAX:
        message = f"the query has over {QUERY_CHARACTERS_MAX} characters; what else the model is to see is no query"
        raise BadInput(Reason.TOO_LARGE, message, field="query")
    if not asked.filters.statuses <= FOUND:
        raise BadInput(Reason.INVALID_ARGUMENT, "only active and stale facts are packed", field="filters")
    if asked.as_of.revision is not None and len(asked.corpora) != 1:
        raise BadInput(Reason.INVALID_ARGUMENT, "a revision is of one corpus: name just that one", field="as_of")
    if len(asked.window_facts) > WINDOW_FACTS_MAX:
        message = f"name at most {WINDOW_FACTS_MAX} facts of the window"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="window_fact_ids")
    if asked.memory_tier_max > TIER_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, "memory_tier_max is 0 to 3", field="memory_tier_max")
