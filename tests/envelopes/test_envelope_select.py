"""When a candidate counts as stale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from drillcore_server.envelopes.envelope_plan import EnvelopePlan
from drillcore_server.envelopes.model import Budget, GroundingMode, RenderFormat, Weights
from drillcore_server.envelopes.select import is_stale
from drillcore_server.facts.model import Fact, FactFilters, FactStatus, fact_hash
from drillcore_server.kernel.corpus_at_revision import AsOf
from drillcore_server.storage.ids import FactId, PrincipalId, SourceId

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TEXT = "The firm keeps its records for seven years."


def plan(max_age_s: int | None) -> EnvelopePlan:
    return EnvelopePlan(
        query=TEXT,
        sub_queries=(TEXT,),
        time_sensitive=False,
        corpora=(),
        filters=FactFilters(),
        mode=GroundingMode.OPEN,
        format=RenderFormat.MARKDOWN,
        policy="fused-1",
        weights=Weights(0.7, 0.18, 0.1, 0.02, 365),
        relevance_floor=0.5,
        duplicate_similarity=0.95,
        per_query=50,
        budget=Budget(100),
        model="gpt-4o",
        tokenizer="",
        session="",
        exact=False,
        as_of=AsOf(),
        window_facts=(),
        memory_tier_max=3,
        day=NOW.toordinal(),
        max_age_s=max_age_s,
    )


def fact(age_s: int, status: FactStatus = FactStatus.ACTIVE) -> Fact:
    at = NOW - timedelta(seconds=age_s)
    return Fact(
        id=FactId(UUID(int=1)),
        content=TEXT,
        content_hash=fact_hash(TEXT),
        tokens=10,
        source=SourceId("manual"),
        source_location="",
        importance=0.5,
        ingested_at=at,
        modified_at=at,
        created_by=PrincipalId("ann"),
        metadata={},
        status=status,
    )


@pytest.mark.parametrize(("age_s", "expected"), [(59, False), (60, False), (61, True)])
def test_a_fact_is_too_old_when_it_is_older_than_max_age(age_s: int, expected: bool) -> None:
    assert is_stale(fact(age_s), plan(60), NOW) == expected


def test_without_max_age_only_the_status_counts() -> None:
    assert not is_stale(fact(10**9), plan(None), NOW)
    assert is_stale(fact(0, FactStatus.STALE), plan(None), NOW)
