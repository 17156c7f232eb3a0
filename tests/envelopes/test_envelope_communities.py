"""Community expansion and drilling down through sections find facts that the question alone would not find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.envelopes import select as envelope_select
from drillcore_server.envelopes import store as envelopes
from tests.support.callers.communities import TOPICS
from tests.support.callers.envelopes import EnvelopeCaller, filled
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running

SALMON = "Is the wild salmon of the northern river counted by wardens at the old weir? Is there a steam turbine?"
TURBINE = "Is the steam turbine overhauled by engineers at the power station? Do wardens count salmon?"
ONE_EACH = {"scoring": pb.ScoringOptions(policy="cosine-1", candidates_per_query=1, relevance_floor=0.1), "budget": 20}


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvelopeCaller]:
    monkeypatch.setattr(envelope_select, "WORDS_FACTOR", 1)
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: EnvelopeCaller) -> str:
    """A corpus with facts of several topics. Each topic is a community."""
    corpus = caller.corpus()
    for topic, said in TOPICS.items():
        drafts = [facts_pb2.FactDraft(content=f"In year {1900 + year} {said}.", source_id=topic) for year in range(15)]
        caller.put(corpus, *drafts)
    client = caller.server.client(ACME)
    client.recompute_communities(corpus)
    return corpus


def expanded(caller: EnvelopeCaller, corpus: str, query: str) -> dict[str, int]:
    """The topics whose communities were expanded, and how many facts each expansion found."""
    answer = caller.pack(query, corpus, explain=True, **ONE_EACH)
    sources = {fact.fact_id: fact.source_id for fact in caller.list(corpus)}
    led = [sources[candidate.fact_id] for candidate in answer.candidates if "community" in candidate.found_by]
    return {topic: led.count(topic) for topic in TOPICS if topic in led}


@pytest.mark.parametrize("query", [SALMON, TURBINE])
def test_a_community_with_few_candidates_is_expanded(caller: EnvelopeCaller, corpus: str, query: str) -> None:
    found = expanded(caller, corpus, query)
    assert set(found) == {"salmon", "turbine"}
    assert all(count >= 10 for count in found.values())


def test_a_community_with_enough_candidates_is_not_expanded(caller: EnvelopeCaller, corpus: str) -> None:
    answer = caller.pack(SALMON, corpus, explain=True)
    assert not [candidate for candidate in answer.candidates if "community" in candidate.found_by]


@pytest.mark.parametrize(("query", "best"), [(SALMON, "salmon"), (TURBINE, "turbine")])
def test_only_the_communities_of_the_best_candidates_are_expanded(
    caller: EnvelopeCaller, corpus: str, monkeypatch: pytest.MonkeyPatch, query: str, best: str
) -> None:
    monkeypatch.setattr(envelope_select, "COMMUNITIES_MAX", 1)
    assert set(expanded(caller, corpus, query)) == {best}


def test_a_community_far_from_the_question_is_not_expanded(
    caller: EnvelopeCaller, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoring = pb.ScoringOptions(policy="cosine-1", candidates_per_query=1, relevance_floor=0.99)
    monkeypatch.setitem(ONE_EACH, "scoring", scoring)
    assert not expanded(caller, corpus, SALMON)


MANUAL = """# Archive

## Boxes

Each box bears the name of whoever filled it, the date on which it was filled, and the number of its shelf.

Boxes that are damp are emptied at once, and what was in them is spread out on the tables of the drying room.

## Laboratory

Samples are weighed on the balance beside the window, and the weight is written down before the sample is moved.

The balance is levelled each morning by whoever comes first, with the screws below its feet.
"""


def test_sections_lead_to_facts_that_neither_words_nor_vectors_find(caller: EnvelopeCaller) -> None:
    corpus = caller.corpus()
    caller.add_texts(corpus, {"manual.md": MANUAL})
    answer = caller.pack("what does a box bear?", corpus, explain=True, **ONE_EACH)
    led = {candidate.fact_id for candidate in answer.candidates if "sections" in candidate.found_by}
    alone = {candidate.fact_id for candidate in answer.candidates if list(candidate.found_by) == ["sections"]}
    said = {fact.fact_id: fact.content for fact in caller.list(corpus)}
    assert any("drying room" in said[fact] for fact in alone), "the fact is in the same section"
    assert led <= set(said)


def test_the_number_of_facts_taken_from_a_section_is_limited(
    caller: EnvelopeCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envelope_select, "SECTION_FACTS_MAX", 1)
    monkeypatch.setattr(envelope_select, "SECTIONS_MAX", 1)
    corpus = caller.corpus()
    caller.add_texts(corpus, {"manual.md": MANUAL})
    answer = caller.pack("what does a box bear?", corpus, explain=True, **ONE_EACH)
    assert len([candidate for candidate in answer.candidates if "sections" in candidate.found_by]) == 1


def test_facts_that_a_session_used_before_are_warm(caller: EnvelopeCaller, corpus: str) -> None:
    """Tier 2 has the communities of the session's earlier envelopes and nothing else."""
    salmon, violin = TOPICS["salmon"], TOPICS["violin"]
    first = caller.pack(salmon, corpus, session_id="s").envelope
    assert (first.memory_tier_hit, {fact.source_id for fact in first.facts}) == (3, {"salmon"})
    again = caller.pack(salmon, corpus, session_id="s").envelope
    assert (again.memory_tier_hit, {fact.memory_tier for fact in again.facts}) == (2, {2})
    narrow = caller.pack(violin, corpus, session_id="s", memory_tier_max=2).envelope
    assert {fact.source_id for fact in narrow.facts} == {"salmon"}
    assert narrow.memory_tier_hit == 2
    assert caller.pack(violin, corpus, session_id="s").envelope.memory_tier_hit == 3
    assert not caller.pack(salmon, corpus, session_id="other", memory_tier_max=2).envelope.facts


def test_an_etag_of_warm_facts_depends_on_what_was_warm(caller: EnvelopeCaller, corpus: str) -> None:
    asked = {"session_id": "s", "memory_tier_max": 2, "budget": 1_000}
    caller.pack(TOPICS["salmon"], corpus, session_id="s")
    caller.pack(TOPICS["violin"], corpus, **asked)
    known = caller.pack(TOPICS["violin"], corpus, **asked)
    assert caller.pack(TOPICS["violin"], corpus, if_match=known.envelope.etag, **asked).not_modified
    caller.pack(TOPICS["violin"], corpus, session_id="s")
    again = caller.pack(TOPICS["violin"], corpus, if_match=known.envelope.etag, **asked)
    assert not again.not_modified
    assert again.envelope.facts[0].source_id == "violin"


def test_an_unaccepted_tier_is_retried_once_with_a_wider_selection(
    caller: EnvelopeCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envelope_select, "FACT_TOKENS", 1_000_000)
    corpus, query = filled(caller), "how long must records of transactions be kept?"

    def scoring(candidates: int) -> pb.ScoringOptions:
        return pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0, candidates_per_query=candidates)

    wide = caller.pack(query, corpus, scoring=scoring(4), budget=4_000).envelope
    asked = {"scoring": scoring(1), "budget": wide.token_count}
    plain = caller.pack(query, corpus, **asked).envelope
    accepted = [tier for tier in (pb.QUALITY_TIER_S, pb.QUALITY_TIER_A, pb.QUALITY_TIER_B) if tier < plain.quality_tier]
    upgraded = caller.pack(query, corpus, accept_tiers=accepted, **asked)
    assert (plain.strategy, upgraded.envelope.strategy) == ("direct", "widened")
    assert {fact.fact_id for fact in upgraded.envelope.facts} == {fact.fact_id for fact in wide.facts}
    assert upgraded.headers["CRP-Context-Strategy"] == "widened"
    assert caller.replay(upgraded.envelope_id).replay == pb.REPLAY_SAME
    unmet = caller.preview(query, corpus, accept_tiers=[pb.QUALITY_TIER_S], budget=4_000)
    assert unmet.headers["CRP-Context-Strategy"] == "direct", "the wider selection was no better"


def test_the_memory_of_a_session_is_limited(
    caller: EnvelopeCaller, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envelopes, "HISTORY_MAX", 2)
    monkeypatch.setattr(envelopes, "WARM_MAX", 1)
    for topic in ("violin", "turbine", "salmon"):
        caller.pack(TOPICS[topic], corpus, session_id="s")
    last = caller.pack(TOPICS["salmon"], corpus, session_id="s")
    assert len(last.quality_history) == 2 + 1
    assert last.envelope.memory_tier_hit == 2, "the facts used last are warm"
    assert caller.pack(TOPICS["violin"], corpus, session_id="s").envelope.memory_tier_hit == 3
