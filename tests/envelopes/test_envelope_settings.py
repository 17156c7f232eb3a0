"""Settings for envelopes, and what a restart or changed settings mean for envelopes that callers already have."""

from __future__ import annotations

from pathlib import Path

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.app.config import FactSettings
from drillcore_server.envelopes.settings import EnvelopeSettings, ScoringSettings
from tests.support.callers.envelopes import EnvelopeCaller, filled, refusal
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, create_tenants, running

QUERY = "how long must records of transactions be kept?"
EVERYTHING = pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0)
OTHERS = {
    "weights": EnvelopeSettings(scoring=ScoringSettings(freshness_weight=0.9)),
    "policy": EnvelopeSettings(scoring=ScoringSettings(policy="cosine-1")),
    "floor": EnvelopeSettings(scoring=ScoringSettings(relevance_floor=0.4)),
    "tokenizer": EnvelopeSettings(model="gpt-4"),
}


def test_an_etag_is_valid_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server, EnvelopeCaller(server, ACME) as caller:
        create_tenants(server.client(OPERATOR))
        corpus = filled(caller)
        known = caller.pack(QUERY, corpus)
    with running(tmp_path) as server, EnvelopeCaller(server, ACME) as caller:
        assert caller.pack(QUERY, corpus, if_match=known.envelope.etag).not_modified
        assert caller.pack(QUERY, corpus, if_match=known.envelope_id).not_modified
        assert caller.replay(known.envelope_id).replay == pb.REPLAY_SAME


@pytest.mark.parametrize("changed", OTHERS)
def test_an_etag_is_valid_only_with_the_settings_it_was_made_with(tmp_path: Path, changed: str) -> None:
    budget = pb.TokenBudget(tokens=200)
    with running(tmp_path) as server, EnvelopeCaller(server, ACME) as caller:
        create_tenants(server.client(OPERATOR))
        corpus = filled(caller)
        known = caller.pack(QUERY, corpus, question_budget=budget)
    with running(tmp_path, envelopes=OTHERS[changed]) as server, EnvelopeCaller(server, ACME) as caller:
        for if_match in (known.envelope.etag, known.envelope_id):
            assert not caller.pack(QUERY, corpus, question_budget=budget, if_match=if_match).not_modified


def test_an_etag_of_everything_is_not_valid_with_other_grants(tmp_path: Path) -> None:
    with (
        running(tmp_path) as server,
        EnvelopeCaller(server, ACME) as caller,
        EnvelopeCaller(server, GLOBEX) as stranger,
    ):
        operator = server.client(OPERATOR)
        create_tenants(operator)
        corpus = filled(caller)
        operator.update_corpus(corpus, share_with=[GLOBEX_ID], tenant_id=ACME_ID)
        known = stranger.pack(QUERY)
        assert known.envelope.facts
        assert stranger.pack(QUERY, if_match=known.envelope.etag).not_modified
        operator.update_corpus(corpus, stop_sharing=True, tenant_id=ACME_ID)
        for if_match in (known.envelope.etag, known.envelope_id):
            again = stranger.pack(QUERY, if_match=if_match)
            assert not again.not_modified
            assert not again.envelope.facts
        assert refusal(lambda: stranger.replay(known.envelope_id)).reason == Reason.CORPUS_NOT_FOUND.name


def test_an_envelope_id_in_if_match_must_be_of_the_same_caller(tmp_path: Path) -> None:
    with (
        running(tmp_path) as server,
        EnvelopeCaller(server, ACME) as caller,
        EnvelopeCaller(server, GLOBEX) as stranger,
    ):
        operator = server.client(OPERATOR)
        create_tenants(operator)
        corpus = filled(caller)
        operator.update_corpus(corpus, share_with=[GLOBEX_ID], tenant_id=ACME_ID)
        known = caller.pack(QUERY, corpus)
        assert not stranger.pack(QUERY, corpus, if_match=known.envelope_id).not_modified
        assert not caller.pack(QUERY, corpus, budget=150, if_match=known.envelope_id).not_modified


def test_the_header_that_names_a_community_can_be_left_out(tmp_path: Path) -> None:
    alike = [f"The auditor of site {number} reads all records of transactions once a month." for number in range(30)]
    for shown in (True, False):
        folder = tmp_path / str(shown)
        with running(folder, envelopes=EnvelopeSettings(community_header=shown)) as server:
            create_tenants(server.client(OPERATOR))
            with EnvelopeCaller(server, ACME) as caller:
                corpus = caller.corpus()
                caller.put(corpus, *(facts_pb2.FactDraft(content=text, source_id="sites") for text in alike))
                server.client(ACME).recompute_communities(corpus)
                answer = caller.pack(QUERY, corpus)
                assert answer.envelope.ckf_communities
                assert ("CRP-Memory-CKF-Community" in answer.headers) == shown


def test_a_session_that_was_idle_for_too_long_is_over(tmp_path: Path) -> None:
    with running(tmp_path, facts=FactSettings(session_idle_s=1e-6, sweep_every_s=86_400.0)) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            corpus = filled(caller)
            first = caller.pack(QUERY, corpus, budget=42, scoring=EVERYTHING, session_id="s")
            known = refusal(lambda: caller.go_on(first.continuation_id))
            assert known.reason == Reason.CONTINUATION_NOT_FOUND.name
            again = caller.pack(QUERY, corpus, budget=42, scoring=EVERYTHING, session_id="s")
            assert len(again.quality_history) == 1, "another session of the same name begins"


def test_a_session_that_is_over_leaves_nothing_to_the_next_session_of_its_name(tmp_path: Path) -> None:
    with running(tmp_path, facts=FactSettings(session_idle_s=1e-6, sweep_every_s=86_400.0)) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            corpus = filled(caller)
            old = caller.pack(QUERY, corpus, session_id="s", salted_etag=True)
    with running(tmp_path) as server, EnvelopeCaller(server, ACME) as caller:
        made = [caller.pack(QUERY, corpus, session_id="s", salted_etag=True) for _ in range(2)]
    assert [len(answer.quality_history) for answer in made] == [1, 2]
    assert made[0].envelope.etag == made[1].envelope.etag != old.envelope.etag


def test_there_are_as_many_windows_as_the_deployment_allows(tmp_path: Path) -> None:
    with running(tmp_path, envelopes=EnvelopeSettings(windows_max=2)) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            first = caller.pack(QUERY, filled(caller), budget=30, scoring=EVERYTHING)
            second = caller.go_on(first.continuation_id)
            assert second.headers["CRP-Context-Window"] == "2/2"
            assert second.envelope.deferred_fact_ids
            assert not second.continuation_id
            known = refusal(lambda: caller.go_on(second.envelope_id))
            assert known.reason == Reason.CONTINUATION_NOT_FOUND.name
