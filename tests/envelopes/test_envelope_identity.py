"""Identity of envelopes: etags that two envelopes share, retries of a request, and ids that two facts share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from tests.support.callers.envelopes import TEXTS, EnvelopeCaller, filled, ids, refusal
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, create_tenants, running
from tests.support.stores.trails import records

QUERY = "how long must records of transactions be kept?"
EVERYTHING = pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0)
FACT = "00000007-0000-4000-8000-000000000000"
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


def test_the_etag_of_a_later_window_is_not_that_of_the_first(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, budget=42, scoring=EVERYTHING, session_id="s")
    second = caller.go_on(first.continuation_id)
    again = caller.pack(QUERY, corpus, budget=42, scoring=EVERYTHING, session_id="s", if_match=second.envelope.etag)
    assert not again.not_modified
    assert ids(again) == ids(first)


def test_not_modified_never_passes_a_tier_that_is_not_accepted(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, budget=4_000)
    accepted = [pb.QUALITY_TIER_S]
    known = refusal(
        lambda: caller.pack(QUERY, corpus, budget=4_000, accept_tiers=accepted, if_match=first.envelope.etag)
    )
    assert known.reason == Reason.QUALITY_NOT_MET.name
    gated = caller.pack(QUERY, corpus, budget=4_000, accept_tiers=[pb.QUALITY_TIER_D])
    again = caller.pack(QUERY, corpus, budget=4_000, accept_tiers=[pb.QUALITY_TIER_D], if_match=gated.envelope.etag)
    assert again.not_modified


def test_an_etag_shared_by_two_texts_is_valid_for_neither(caller: EnvelopeCaller, corpus: str) -> None:
    """A caller with the first text may ask after another caller has received the second."""
    first = caller.pack(QUERY, corpus)
    caller.update(ids(first)[0], content=TEXTS[0].replace("seven", "eight"))
    second = caller.pack(QUERY, corpus)
    assert second.envelope.etag == first.envelope.etag
    assert second.envelope.text != first.envelope.text
    again = caller.pack(QUERY, corpus, if_match=first.envelope.etag)
    assert again.envelope.text == second.envelope.text
    assert caller.pack(QUERY, corpus, if_match=second.envelope_id).not_modified
    assert not caller.pack(QUERY, corpus, if_match=first.envelope_id).not_modified


def test_facts_of_another_session_of_the_same_name_modify_an_envelope(caller: EnvelopeCaller, corpus: str) -> None:
    def said(content: str) -> pb.PackEnvelopeResponse:
        draft = facts_pb2.FactDraft(fact_id=FACT, content=content, source_id="talk")
        caller.put(corpus, draft, cache_control="no-store", session_id="s")
        return caller.pack(QUERY, corpus, session_id="s", if_match=known)

    known = ""
    known = said(NEW).envelope.etag
    caller.facts.EndSession(facts_pb2.EndSessionRequest(session_id="s"), **caller.options())
    again = said(NEW.replace("ten", "twelve"))
    assert "twelve" in again.envelope.text


def add_a_community(caller: EnvelopeCaller, corpus: str) -> None:
    alike = [f"The auditor of site {number} reads all records of transactions once a month." for number in range(30)]
    caller.put(corpus, *(facts_pb2.FactDraft(content=text, source_id="sites") for text in alike))
    assert caller.server.client(ACME).recompute_communities(corpus)


def test_a_repeated_request_gets_the_kept_envelope(caller: EnvelopeCaller, corpus: str) -> None:
    add_a_community(caller, corpus)
    fields = {"session_id": "s", "scoring": EVERYTHING, "request_id": "once"}
    first = caller.pack(QUERY, corpus, **fields)
    for budget in (100, 60, 42):
        caller.pack(QUERY, corpus, budget=budget, session_id="s", scoring=EVERYTHING)
    again = caller.pack(QUERY, corpus, **fields)
    assert again.envelope == first.envelope
    assert (again.envelope_id, again.quality_history) == (first.envelope_id, first.quality_history)
    assert caller.replay(first.envelope_id).replay == pb.REPLAY_SAME
    assert len(records(caller.server, call="PackEnvelope")) == 4


def test_a_repeated_request_is_not_answered_as_not_modified(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, budget=42)
    caller.put(corpus, facts_pb2.FactDraft(content="The canteen serves soup on Mondays, if at all.", source_id="menu"))
    fields = {"budget": 42, "if_match": first.envelope.etag, "request_id": "once"}
    second = caller.pack(QUERY, corpus, **fields)
    assert second.envelope.etag == first.envelope.etag
    again = caller.pack(QUERY, corpus, **fields)
    assert again.envelope == second.envelope


def test_a_fact_is_a_candidate_once_though_two_tenants_have_its_id(caller: EnvelopeCaller) -> None:
    own, shared = caller.corpus("own"), ""
    caller.put(own, facts_pb2.FactDraft(fact_id=FACT, content=TEXTS[0], source_id="own"))
    with EnvelopeCaller(caller.server, GLOBEX) as stranger:
        shared = stranger.corpus("shared")
        stranger.put(shared, facts_pb2.FactDraft(fact_id=FACT, content=TEXTS[3], source_id="theirs"))
        caller.server.client(OPERATOR).update_corpus(shared, share_with=[ACME_ID], tenant_id=GLOBEX_ID)
    for corpora in ((own, shared), (shared, own)):
        envelope = caller.pack(QUERY, *corpora, scoring=EVERYTHING).envelope
        assert [fact.fact_id for fact in envelope.facts] == [FACT]
        assert envelope.facts[0].source_id == envelope.facts[0].provenance.source_id


def test_a_fact_of_the_session_comes_before_a_stored_one_with_its_id(caller: EnvelopeCaller, corpus: str) -> None:
    draft = facts_pb2.FactDraft(fact_id=FACT, content=NEW, source_id="talk")
    caller.put(corpus, draft, cache_control="no-store", session_id="s")
    caller.put(corpus, facts_pb2.FactDraft(fact_id=FACT, content=f"{TEXTS[3]} Or so.", source_id="manual"))
    envelope = caller.pack(QUERY, corpus, session_id="s", scoring=EVERYTHING, budget=4_000).envelope
    (found,) = [fact for fact in envelope.facts if fact.fact_id == FACT]
    assert (found.session_only, found.content) == (True, NEW)
    assert found.provenance.source_id == "talk"
    assert envelope.total_facts_available == len(TEXTS) + 1


def test_concurrent_packs_of_a_session_are_all_in_its_history(caller: EnvelopeCaller, corpus: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: caller.pack(QUERY, corpus, session_id="s"), range(12)))
    assert len({answer.envelope_id for answer in made}) == 12
    assert len(caller.pack(QUERY, corpus, session_id="s").quality_history) == 13
    assert {fact.access_count for fact in caller.list(corpus)} == {13}


def test_a_chain_without_the_store_goes_on_without_the_store(caller: EnvelopeCaller, corpus: str) -> None:
    said = [f"Somebody said that records of transactions of site {number} are kept for a year." for number in range(6)]
    drafts = [facts_pb2.FactDraft(content=text, source_id="talk") for text in said]
    kept = caller.put(corpus, *drafts, cache_control="no-store", session_id="s").fact_ids
    add_a_community(caller, corpus)
    warm = caller.pack(QUERY, corpus, session_id="s", scoring=EVERYTHING, budget=4_000)
    assert warm.envelope.ckf_communities
    first = caller.pack(QUERY, corpus, budget=42, session_id="s", memory_tier_max=1, scoring=EVERYTHING)
    second = caller.go_on(first.continuation_id)
    assert second.envelope.total_facts_available == len(said)
    assert set(ids(first)) | set(ids(second)) <= set(kept)
    assert second.envelope.memory_tier_hit == 1
