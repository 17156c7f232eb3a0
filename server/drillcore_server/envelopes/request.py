"""The question of a caller, the plan that it becomes with the server's settings, and what all envelope calls read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.communities.memberships import CommunityCache
from drillcore_server.envelopes.decomposition import decompose
from drillcore_server.envelopes.envelope_plan import EnvelopePlan, IssuedEnvelope
from drillcore_server.envelopes.envelope_text import GROUNDING_INSTRUCTIONS
from drillcore_server.envelopes.model import MEMORY_TIER_STORE, GroundingMode, QualityTier, RenderFormat
from drillcore_server.envelopes.scoring_policy import ScoringOptions, is_time_sensitive, scoring_rules
from drillcore_server.envelopes.settings import EnvelopeSettings
from drillcore_server.envelopes.store import EnvelopeStore, envelope_store
from drillcore_server.envelopes.token_packer import BudgetRequest, token_budget
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.fact_reads import FactReads, check_corpora
from drillcore_server.facts.lexical.lexical_cache import LexicalIndexes
from drillcore_server.facts.model import SEARCHED_STATUSES, FactFilters
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.sections import SectionIndexes
from drillcore_server.kernel.corpus_at_revision import AsOf
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import CorpusId, EnvelopeId, FactId, TenantId
from drillcore_server.tokenizers.models import Models


@dataclass(frozen=True, slots=True)
class EnvelopeReads:
    """Everything that calls about envelopes read from."""

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

    def named(self, call: Call, tenant: TenantId | None, *envelopes: EnvelopeId) -> list[bytes]:
        """The keys of envelopes that a call names, to be read ahead. Empty if its tenant is not known yet."""
        owner = call.principal.tenant or tenant
        return [] if owner is None else [self.unit.keys.envelope(owner, envelope) for envelope in envelopes]

    def session_end(self, now: datetime) -> datetime:
        return now + self.facts.sessions.idle

    def kept_until(self, now: datetime) -> datetime:
        return now + timedelta(days=self.settings.keep_days)


def call_about(call: Call, issued: IssuedEnvelope) -> Call:
    """The call, with the corpora of an envelope that it names: they are read ahead."""
    return replace(call, subjects=replace(call.subjects, corpora=tuple(at.corpus for at in issued.corpora)))


QUERY_CHARACTERS_MAX: Final = 10_000
WINDOW_FACTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class EnvelopeQuestion:
    query: str
    corpora: tuple[CorpusId, ...]
    """Empty: all corpora that the caller may read."""
    filters: FactFilters
    budget: BudgetRequest
    model: str
    """The language model; empty: the server's default."""
    mode: GroundingMode
    scoring: ScoringOptions
    accepted: frozenset[QualityTier]
    """The tiers that the caller accepts. Empty: any tier."""
    directives: CacheDirectives
    session: str
    exact: bool
    as_of: AsOf
    format: RenderFormat
    window_facts: tuple[FactId, ...]
    """The facts that the caller's context window already has."""
    memory_tier_max: int


def plan_of(reads: EnvelopeReads, asked: EnvelopeQuestion, at: datetime) -> EnvelopePlan:
    """Returns the plan, which needs nothing from the store. Raises `BadInput` for a question that makes no sense."""
    _check(asked)
    query = asked.query.strip()
    today = at.astimezone(UTC).date()
    time_sensitive = is_time_sensitive(query, today)
    rules = scoring_rules(reads.settings.scoring, asked.scoring, asked.mode, time_sensitive)
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
        policy=rules.policy,
        weights=rules.weights,
        relevance_floor=rules.relevance_floor,
        duplicate_similarity=rules.duplicate_similarity,
        per_query=rules.candidates_per_query,
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


def _check(asked: EnvelopeQuestion) -> None:
    check_corpora(asked.corpora)
    if not asked.query.strip():
        raise BadInput(Reason.INVALID_ARGUMENT, "query must not be empty", field="query")
    if len(asked.query) > QUERY_CHARACTERS_MAX:
        message = (
            f"query must have at most {QUERY_CHARACTERS_MAX} characters; send only the question, not the whole prompt"
        )
        raise BadInput(Reason.TOO_LARGE, message, field="query")
    if not asked.filters.statuses <= SEARCHED_STATUSES:
        raise BadInput(Reason.INVALID_ARGUMENT, "filters.statuses may be ACTIVE and STALE only", field="filters")
    if asked.as_of.revision is not None and len(asked.corpora) != 1:
        message = "as_of.revision is a revision of one corpus: name exactly one corpus in corpus_ids"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
    if len(asked.window_facts) > WINDOW_FACTS_MAX:
        message = f"window_fact_ids must have at most {WINDOW_FACTS_MAX} ids"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="window_fact_ids")
    if asked.memory_tier_max > MEMORY_TIER_STORE:
        message = f"memory_tier_max must be 0 to {MEMORY_TIER_STORE}"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="memory_tier_max")
