"""Extreme requests: tiny and huge budgets, filters that allow nothing, several models, moments and regions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore_proto.reasons import RESIDENCY_HEADER, Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from tests.support.callers.communities import topic_drafts
from tests.support.callers.envelopes import TEXTS, EnvelopeCaller, filled, ids, question, refusal
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running

QUERY = "how long must records of transactions be kept?"
EVERYTHING = pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0)
NEW = "Records of board meetings are kept for ten years after the meeting, together with their annexes."


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[EnvelopeCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: EnvelopeCaller) -> str:
    return filled(caller)


@pytest.mark.parametrize("form", [pb.RENDER_FORMAT_MARKDOWN, pb.RENDER_FORMAT_XML, pb.RENDER_FORMAT_JSON])
def test_a_budget_of_one_token_packs_nothing(
    caller: EnvelopeCaller, corpus: str, form: pb.RenderFormat.ValueType
) -> None:
    answer = caller.pack(QUERY, corpus, budget=1, format=form, scoring=EVERYTHING)
    assert (ids(answer), answer.envelope.text, answer.envelope.token_count) == ([], "", 0)
    assert answer.envelope.quality_tier == pb.QUALITY_TIER_D
    assert not answer.continuation_id, "no window of this budget could hold any fact"


def test_a_budget_of_ten_million_tokens_packs_everything(caller: EnvelopeCaller, corpus: str) -> None:
    answer = caller.pack(QUERY, corpus, budget=10_000_000, scoring=EVERYTHING)
    assert len(ids(answer)) == len(TEXTS)
    assert answer.headers["CRP-Context-Saturation"] == "0.000"
    assert answer.headers["CRP-Context-Cache-Status"] == "PARTIAL; reason=limited-ckf-coverage"
    assert not answer.continuation_id


def test_filters_that_allow_nothing_give_an_empty_envelope(caller: EnvelopeCaller, corpus: str) -> None:
    for filters in (
        facts_pb2.FactFilters(source_ids=["nowhere"]),
        facts_pb2.FactFilters(source_ids=["manual 0"], statuses=[facts_pb2.FACT_STATUS_STALE]),
    ):
        envelope = caller.pack(QUERY, corpus, filters=filters).envelope
        assert (list(envelope.facts), envelope.total_facts_available) == ([], 0)
        assert envelope.quality_tier == pb.QUALITY_TIER_D
        known = refusal(lambda f=filters: caller.pack(QUERY, corpus, filters=f, cache_control="only-if-ckf"))  # type: ignore[misc]
        assert known.reason == Reason.NO_CKF_FACTS.name


def test_filters_hold_for_every_way_to_a_fact(caller: EnvelopeCaller, corpus: str) -> None:
    filters = facts_pb2.FactFilters(source_ids=["manual 0", "manual 3"])
    answer = caller.pack(QUERY, corpus, filters=filters, scoring=EVERYTHING, explain=True)
    assert {fact.source_id for fact in answer.envelope.facts} == {"manual 0", "manual 3"}
    assert len(answer.candidates) == 2


def test_accepting_tier_d_accepts_every_envelope(caller: EnvelopeCaller) -> None:
    envelope = caller.pack(QUERY, caller.corpus(), accept_tiers=[pb.QUALITY_TIER_D]).envelope
    assert (envelope.quality_tier, envelope.strategy) == (pb.QUALITY_TIER_D, "direct")


def test_facts_in_the_callers_window_are_not_packed_again(caller: EnvelopeCaller, corpus: str) -> None:
    first = ids(caller.pack(QUERY, corpus, budget=42))
    answer = caller.pack(QUERY, corpus, budget=4_000, scoring=EVERYTHING, window_fact_ids=first)
    assert set(ids(answer)) == {fact.fact_id for fact in caller.list(corpus)} - set(first)
    assert answer.envelope.total_facts_available == len(TEXTS)


@pytest.mark.parametrize("tier", [0, 1, 2])
def test_without_a_session_the_lower_tiers_are_empty(caller: EnvelopeCaller, corpus: str, tier: int) -> None:
    envelope = caller.pack(QUERY, corpus, memory_tier_max=tier).envelope
    assert (list(envelope.facts), envelope.memory_tier_hit) == ([], tier)


def test_facts_with_the_same_content_are_packed_once(caller: EnvelopeCaller) -> None:
    corpus = caller.corpus()
    drafts = [
        facts_pb2.FactDraft(content=TEXTS[0], source_id=f"copy {number}", importance_weight=0.1 * number)
        for number in range(1, 6)
    ]
    caller.put(corpus, *drafts)
    for policy in ("cosine-1", "fused-1"):
        (kept,) = caller.pack(QUERY, corpus, scoring=pb.ScoringOptions(policy=policy)).envelope.facts
        assert kept.source_id == "copy 5", "the most important copy is kept"


def test_a_refusal_names_a_corpus_whose_model_the_server_lacks(caller: EnvelopeCaller, corpus: str) -> None:
    other_corpus = caller.corpus("other")
    caller.put(other_corpus, *topic_drafts(salmon=3), embedding_model="planted")
    known = refusal(lambda: caller.pack(QUERY, corpus, other_corpus))
    assert known.reason == Reason.MODEL_MISMATCH.name
    assert caller.pack(QUERY, corpus).envelope.facts, "the corpus without that model can be packed"


def test_a_corpus_without_vectors_is_passed_over(caller: EnvelopeCaller, corpus: str) -> None:
    empty = caller.corpus("empty")
    answer = caller.pack(QUERY, corpus, empty, scoring=EVERYTHING)
    assert len(ids(answer)) == len(TEXTS)
    assert answer.envelope.revisions[empty] == 0
    again = caller.pack(QUERY, corpus, empty, scoring=EVERYTHING, if_match=answer.envelope.etag)
    assert again.not_modified
    caller.put(empty, facts_pb2.FactDraft(content=NEW, source_id="new"))
    assert not caller.pack(QUERY, corpus, empty, scoring=EVERYTHING, if_match=answer.envelope.etag).not_modified


def test_as_of_a_time_applies_to_every_corpus(caller: EnvelopeCaller, corpus: str) -> None:
    other_corpus = filled(caller, "other")
    moment = Timestamp()
    moment.FromDatetime(datetime.now(UTC))
    earlier = pb.EnvelopeQuestion(as_of={"time": moment}).as_of
    for target in (corpus, other_corpus):
        caller.put(target, facts_pb2.FactDraft(content=NEW, source_id="new"))
    before = caller.pack(QUERY, corpus, other_corpus, as_of=earlier, scoring=EVERYTHING, budget=4_000)
    assert NEW not in before.envelope.text
    assert NEW in caller.pack(QUERY, corpus, other_corpus, scoring=EVERYTHING, budget=4_000).envelope.text
    fields = {"as_of": earlier, "scoring": EVERYTHING, "budget": 4_000, "if_match": before.envelope.etag}
    assert caller.pack(QUERY, corpus, other_corpus, **fields).not_modified
    assert caller.replay(before.envelope_id).replay == pb.REPLAY_SAME


def test_a_call_that_is_bound_to_a_region_packs_only_facts_of_that_region(caller: EnvelopeCaller) -> None:
    client = caller.server.client(ACME)
    corpora = {region: str(client.create_corpus(region, region=region).id) for region in ("eu", "us")}
    for region, corpus in corpora.items():
        caller.put(corpus, facts_pb2.FactDraft(content=f"{TEXTS[0]} So it is in {region}.", source_id=region))
    options = caller.options()
    options["metadata"] = [*options["metadata"], (RESIDENCY_HEADER, "eu")]
    request = pb.PackEnvelopeRequest(question=question(QUERY, scoring=EVERYTHING))
    bound = caller.envelopes.PackEnvelope(request, **options)
    assert [fact.source_id for fact in bound.envelope.facts] == ["eu"]
    free = caller.pack(QUERY, scoring=EVERYTHING)
    assert {fact.source_id for fact in free.envelope.facts} == {"eu", "us"}
    assert not caller.pack(QUERY, scoring=EVERYTHING, if_match=bound.envelope.etag).not_modified


def test_facts_of_the_session_are_gone_with_their_source(caller: EnvelopeCaller, corpus: str) -> None:
    draft = facts_pb2.FactDraft(content=NEW, source_id="manual 0")
    caller.put(corpus, draft, cache_control="no-store", session_id="s")
    first = caller.pack(QUERY, corpus, session_id="s", scoring=EVERYTHING)
    assert NEW in first.envelope.text
    caller.server.client(ACME).erase_source(corpus, "manual 0", reason="GDPR", purge_now=True)
    again = caller.pack(QUERY, corpus, session_id="s", scoring=EVERYTHING, if_match=first.envelope.etag)
    assert not again.not_modified
    assert not {NEW, TEXTS[0]} & {fact.content for fact in again.envelope.facts}


def test_a_source_erased_between_two_windows_is_in_neither_text(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, budget=42, scoring=EVERYTHING)
    gone = first.envelope.deferred_fact_ids[0]
    source = caller.get(gone).source_id
    caller.server.client(ACME).erase_source(corpus, source, reason="GDPR", purge_now=True)
    windows = [caller.go_on(first.continuation_id)]
    while windows[-1].continuation_id:
        windows.append(caller.go_on(windows[-1].continuation_id))
    packed = [fact for window in windows for fact in ids(window)]
    assert gone not in packed
    assert len(packed) + len(ids(first)) == len(TEXTS) - 1


def test_facts_added_between_two_windows_join_the_next(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, budget=42, scoring=EVERYTHING)
    content = "The firm must keep records of every transaction for nine years from now on."
    (added,) = caller.put(corpus, facts_pb2.FactDraft(content=content, source_id="new", importance_weight=1.0)).fact_ids
    assert added in ids(caller.go_on(first.continuation_id))


def test_a_fact_that_is_too_large_for_any_window_is_not_left_for_the_next(caller: EnvelopeCaller, corpus: str) -> None:
    content = " ".join(f"Records of transactions of site {number} are kept for {number} years." for number in range(20))
    (large,) = caller.put(corpus, facts_pb2.FactDraft(content=content, source_id="large")).fact_ids
    answer = caller.pack(QUERY, corpus, budget=60, scoring=EVERYTHING, explain=True)
    (told,) = [candidate for candidate in answer.candidates if candidate.fact_id == large]
    assert told.outcome == "over-budget"
    assert answer.envelope.deferred_fact_ids
    assert large not in answer.envelope.deferred_fact_ids


def test_only_relevant_facts_are_left_for_the_next_window(caller: EnvelopeCaller, corpus: str) -> None:
    scoring = pb.ScoringOptions(relevance_floor=0.99, duplicate_similarity=1.0)
    answer = caller.pack(QUERY, corpus, budget=30, scoring=scoring)
    assert answer.envelope.total_facts_included < answer.envelope.total_facts_available
    assert not answer.envelope.deferred_fact_ids
    assert not answer.continuation_id


def test_filters_hold_for_facts_of_the_session(caller: EnvelopeCaller, corpus: str) -> None:
    caller.put(corpus, facts_pb2.FactDraft(content=NEW, source_id="talk"), cache_control="no-store", session_id="s")
    for source, is_there in (("talk", True), ("manual 0", False)):
        filters = facts_pb2.FactFilters(source_ids=[source])
        envelope = caller.pack(QUERY, corpus, session_id="s", filters=filters).envelope
        assert (NEW in envelope.text) == is_there


def test_facts_of_the_session_are_not_those_of_an_earlier_moment(caller: EnvelopeCaller, corpus: str) -> None:
    caller.put(corpus, facts_pb2.FactDraft(content=NEW, source_id="talk"), cache_control="no-store", session_id="s")
    earlier = pb.EnvelopeQuestion(as_of={"revision": 1}).as_of
    assert NEW not in caller.pack(QUERY, corpus, session_id="s", as_of=earlier).envelope.text


def test_strict_grounding_on_little_context_gives_a_warning(caller: EnvelopeCaller, corpus: str) -> None:
    strict = caller.pack(QUERY, corpus, budget=4_000, grounding_mode=pb.GROUNDING_MODE_CONTEXT_STRICT).envelope
    plain = caller.pack(QUERY, corpus, budget=4_000).envelope
    assert [warning.split(":")[0] for warning in strict.warnings] == ["limited-ckf-coverage", "strict-grounding-sparse"]
    assert [warning.split(":")[0] for warning in plain.warnings] == ["limited-ckf-coverage"]


def test_a_session_whose_quality_falls_gives_a_warning(caller: EnvelopeCaller, corpus: str) -> None:
    def packed(**fields: object) -> pb.PackEnvelopeResponse:
        return caller.pack(QUERY, corpus, session_id="s", **fields)

    whole = caller.pack(QUERY, corpus, budget=4_000, scoring=EVERYTHING).envelope
    best = packed(budget=whole.token_count, scoring=EVERYTHING)
    worse = packed(budget=int(whole.token_count / 0.9), scoring=EVERYTHING)
    last = packed(budget=4_000, filters=facts_pb2.FactFilters(source_ids=["nowhere"]))
    assert list(last.quality_history) == sorted(set(last.quality_history)), (
        "each window is worse than the window before"
    )
    warned = [
        any(text.startswith("quality-degrading") for text in answer.envelope.warnings) for answer in (best, worse, last)
    ]
    assert warned == [False, False, True]
