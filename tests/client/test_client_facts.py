"""Facts, communities, sources and embeddings through the clients. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

import drillcore
from drillcore import (
    AsyncClient,
    Client,
    Community,
    CommunityRun,
    CorpusState,
    EmbeddingModel,
    Erasure,
    Fact,
    FactFilter,
    FactStatus,
    Migration,
    NewFact,
    Purged,
    PutFactsResult,
    Reason,
    Source,
    SourceStatus,
    Span,
)
from drillcore._api.facts import BATCH_BYTES_MAX
from drillcore_proto.v1 import communities_pb2, embeddings_pb2, facts_pb2, nodes_pb2, sources_pb2
from tests.support.data.fact_messages import (
    AT,
    CHUNK,
    COMMUNITY,
    CORPUS,
    FACT,
    LATER,
    RECORD,
    RUN,
    TENANT,
    community,
    erasure,
    fact,
    stamp,
    stored,
)
from tests.support.servers.in_memory_server import Peer, because, page_of, running

Do = Callable[..., Any]


FULL = Fact(
    id=FACT,
    corpus_id=CORPUS,
    content="Keep it.",
    content_hash="ab" * 32,
    status=FactStatus.STALE,
    status_reason="old",
    source_id="sop-7",
    source_location="page 3",
    importance_weight=0.9,
    community_id=COMMUNITY,
    community_label="records",
    ingested_at=AT,
    modified_at=LATER,
    access_count=7,
    last_accessed_at=LATER,
    ttl="P90D",
    metadata={"k": "v"},
    chunk_id=CHUNK,
    document_id=TENANT,
    span=Span(3, 9),
    lead_spans=(Span(0, 2), Span(2, 3)),
    tokens=12,
    archived=True,
    session_only=True,
    created_by="ann",
    version=4,
    embedding_model="static",
    embedding=(0.5, -0.25),
    revision=0,
)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


def sync(address: str, method: str, *args: Any, **options: Any) -> Any:
    with Client(address, tenant_id=TENANT) as client:
        result = getattr(client, method)(*args, **options)
        return list(result) if isinstance(result, Iterator) else result


def asynchronous(address: str, method: str, *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, tenant_id=TENANT) as client:
            result = getattr(client, method)(*args, **options)
            return [item async for item in result] if isinstance(result, AsyncIterator) else await result

    return asyncio.run(run())


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    """Calls a method of a client of the peer and returns its result; an iteration is returned as a list."""
    return lambda method, *args, **options: request.param(peer.address, method, *args, **options)


def test_every_field_of_a_fact_is_sent(do: Do, peer: Peer) -> None:
    peer.answers["PutFacts"] = stored
    new = NewFact(
        "Keep it.",
        source_id="sop-7",
        source_location="page 3",
        importance_weight=0.0,
        ttl="P90D",
        metadata={"k": "v"},
        chunk_id=CHUNK,
        span=Span(3, 9),
        embedding=[0.5, -0.25],
        id=FACT,
    )
    result = do(
        "put_facts",
        CORPUS,
        [new, NewFact("Sign it.")],
        embedding_model="mine",
        cache_control="no-store",
        session_id="s",
    )
    assert result == PutFactsResult((FACT, result.fact_ids[1]), 2)
    (request,) = peer.requests
    full, bare = request.facts
    assert full == facts_pb2.FactDraft(
        fact_id=str(FACT),
        content="Keep it.",
        source_id="sop-7",
        source_location="page 3",
        importance_weight=0.0,
        ttl="P90D",
        metadata={"k": "v"},
        chunk_id=str(CHUNK),
        span=nodes_pb2.Span(start=3, end=9),
        embedding=[0.5, -0.25],
    )
    assert bare == facts_pb2.FactDraft(content="Sign it.")
    assert (request.tenant_id, request.corpus_id) == (str(TENANT), str(CORPUS))
    assert (request.embedding_model, request.cache_control, request.session_id) == ("mine", "no-store", "s")


def test_many_facts_are_sent_in_calls_of_a_thousand_each_with_its_own_request_id(do: Do, peer: Peer) -> None:
    peer.answers["PutFacts"] = stored
    results = do("put_fact_batches", CORPUS, (NewFact(str(number)) for number in range(2_500)), request_id="r")
    assert [len(result.fact_ids) for result in results] == [1_000, 1_000, 500]
    assert [fact.content for request in peer.requests for fact in request.facts] == [
        str(number) for number in range(2_500)
    ]
    assert peer.request_ids() == ["r.0", "r.1", "r.2"]
    assert do("put_fact_batches", CORPUS, []) == []


def test_batches_are_bounded_in_bytes(do: Do, peer: Peer) -> None:
    peer.answers["PutFacts"] = stored
    large = [NewFact("x" * 100_000) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drillcore._api.facts.BATCH_BYTES_MAX", 150_000)
        results = do("put_fact_batches", CORPUS, large)
    assert [len(result.fact_ids) for result in results] == [1, 1]
    assert BATCH_BYTES_MAX < 16 * 1024 * 1024, "a server takes 16 MiB unless it is set up otherwise"


def test_when_a_batch_fails_the_caller_has_the_results_of_earlier_batches(peer: Peer) -> None:
    peer.answers["PutFacts"] = stored
    peer.failures = [lambda _: None, because(Reason.FACT_TOO_SHORT, "fact 7")]
    with Client(peer.address) as client:
        results = client.put_fact_batches(CORPUS, [NewFact("x")] * 3_000)
        assert len(next(results).fact_ids) == 1_000
        with pytest.raises(drillcore.InvalidArgument, match="fact 7"):
            next(results)
    assert len(peer.requests) == 2


def test_a_fact_comes_back_with_every_field(do: Do, peer: Peer) -> None:
    peer.answers["GetFacts"] = facts_pb2.GetFactsResponse(facts=[fact()], revisions={str(CORPUS): 9})
    (found,) = do("get_facts", [FACT], as_of=3, with_embedding=True)
    assert (found, found.revision) == (FULL, 9)
    (request,) = peer.requests
    assert (list(request.fact_ids), request.as_of.revision, request.with_embedding) == ([str(FACT)], 3, True)


def test_missing_fields_of_a_fact_are_none(do: Do, peer: Peer) -> None:
    bare = facts_pb2.Fact(fact_id=str(FACT), corpus_id=str(CORPUS), status=facts_pb2.FACT_STATUS_ACTIVE)
    peer.answers["GetFacts"] = facts_pb2.GetFactsResponse(facts=[bare])
    (found,) = do("get_facts", [FACT])
    assert (found.community_id, found.chunk_id, found.document_id, found.span, found.last_accessed_at) == (None,) * 5


def test_every_field_of_a_filter_is_sent(do: Do, peer: Peer) -> None:
    wanted = FactFilter(
        source_ids=["sop-7"],
        statuses=[FactStatus.ACTIVE, FactStatus.QUARANTINED],
        community_ids=[COMMUNITY],
        metadata={"k": "v"},
        ingested_after=AT,
        ingested_before=LATER,
        document_ids=[TENANT],
        chunk_ids=[CHUNK],
    )
    sent = facts_pb2.FactFilters(
        source_ids=["sop-7"],
        statuses=[facts_pb2.FACT_STATUS_ACTIVE, facts_pb2.FACT_STATUS_QUARANTINED],
        community_ids=[str(COMMUNITY)],
        metadata={"k": "v"},
        ingested_after=stamp(AT),
        ingested_before=stamp(LATER),
        document_ids=[str(TENANT)],
        chunk_ids=[str(CHUNK)],
    )
    peer.answers["ListFacts"] = facts_pb2.ListFactsResponse(facts=[fact()], next_page_token="more", revision=9)
    peer.answers["SearchFacts"] = facts_pb2.SearchFactsResponse()
    page = do("list_facts", CORPUS, wanted, as_of=AT, page_size=1, page_token="here")
    assert (page.items, page.next_page_token, page.revision, page.items[0].revision) == ((FULL,), "more", 9, 9)
    do("search_facts", "who keeps it", filters=wanted)
    listed, searched = peer.requests
    assert listed.filters == searched.filters == sent
    assert (listed.corpus_id, listed.as_of.time, listed.page_size, listed.page_token) == (
        str(CORPUS),
        stamp(AT),
        1,
        "here",
    )


def test_a_time_without_zone_is_refused_before_any_call(do: Do, peer: Peer) -> None:
    with pytest.raises(ValueError, match="no zone"):
        do("list_facts", CORPUS, FactFilter(ingested_after=datetime(2026, 1, 2)))
    assert peer.seen == []


def test_iterations_go_through_all_pages(do: Do, peer: Peer) -> None:
    def facts(request: Any) -> facts_pb2.ListFactsResponse:
        found, token = page_of(request, [fact(number) for number in range(5)])
        return facts_pb2.ListFactsResponse(facts=found, next_page_token=token)

    def members(request: Any) -> communities_pb2.GetCommunityResponse:
        listed = facts(request)
        return communities_pb2.GetCommunityResponse(
            community=community(), facts=listed.facts, next_page_token=listed.next_page_token
        )

    peer.answers |= {"ListFacts": facts, "GetCommunity": members}
    ids = [uuid.UUID(int=FACT.int + number) for number in range(5)]
    assert [fact.id for fact in do("iter_facts", CORPUS, page_size=2)] == ids
    assert [fact.id for fact in do("iter_community_facts", CORPUS, COMMUNITY, page_size=2)] == ids
    assert len(peer.requests) == 6


def test_an_update_sends_only_the_named_fields(do: Do, peer: Peer) -> None:
    peer.answers["UpdateFact"] = facts_pb2.UpdateFactResponse(version=4, revision=9)
    done = do("update_fact", FACT, ttl="", set_metadata={"a": "b"}, remove_metadata=["c"], expected_version=3)
    assert done == drillcore.UpdatedFact(4, 9)
    do("update_fact", FACT, content="New.", importance_weight=0.0, embedding=[1.0], embedding_model="mine")
    first, second = peer.requests
    assert first == facts_pb2.UpdateFactRequest(
        tenant_id=str(TENANT),
        fact_id=str(FACT),
        ttl="",
        set_metadata={"a": "b"},
        remove_metadata=["c"],
        expected_version=3,
    )
    assert not first.HasField("content")
    assert first.HasField("ttl")
    assert (second.content, second.importance_weight, list(second.embedding)) == ("New.", 0.0, [1.0])
    assert second.HasField("importance_weight")
    assert not second.HasField("ttl")


def test_a_status_is_set_with_reason_and_signature(do: Do, peer: Peer) -> None:
    peer.answers["SetFactStatus"] = facts_pb2.SetFactStatusResponse(changed=1, revision=9)
    done = do(
        "set_fact_status",
        [FACT],
        FactStatus.ACTIVE,
        reason="reviewed",
        signature_id=RECORD,
        expected_version=4,
    )
    assert done == drillcore.ChangedFacts(1, 9)
    (request,) = peer.requests
    assert request == facts_pb2.SetFactStatusRequest(
        tenant_id=str(TENANT),
        fact_ids=[str(FACT)],
        status=facts_pb2.FACT_STATUS_ACTIVE,
        reason="reviewed",
        signature_id=str(RECORD),
        expected_version=4,
    )


def test_facts_are_archived_and_restored(do: Do, peer: Peer) -> None:
    peer.answers["ArchiveFacts"] = facts_pb2.ArchiveFactsResponse(archived=2, revision=9)
    peer.answers["RestoreFacts"] = facts_pb2.RestoreFactsResponse(restored=1, revision=10)
    assert do("archive_facts", [FACT, CHUNK]) == drillcore.ChangedFacts(2, 9)
    assert do("restore_facts", [FACT]) == drillcore.ChangedFacts(1, 10)
    assert [list(request.fact_ids) for request in peer.requests] == [[str(FACT), str(CHUNK)], [str(FACT)]]


def test_a_search_sends_every_option_and_returns_every_field(do: Do, peer: Peer) -> None:
    peer.answers["SearchFacts"] = facts_pb2.SearchFactsResponse(
        hits=[facts_pb2.FactHit(fact=fact(), score=0.5, stale=True)],
        revisions={str(CORPUS): 9, str(TENANT): 3},
        exact=True,
        headers={"CRP-Cache": "hit"},
    )
    found = do(
        "search_facts",
        vector=[1.0, 0.0],
        embedding_model="mine",
        corpus_ids=[CORPUS],
        limit=5,
        exact=True,
        as_of=9,
        cache_control="max-age=60",
        session_id="s",
        with_embedding=True,
    )
    (hit,) = found.hits
    assert (hit.fact, hit.fact.revision, hit.score, hit.stale) == (FULL, 9, 0.5, True)
    assert (found.revisions, found.exact, found.headers) == ({CORPUS: 9, TENANT: 3}, True, {"CRP-Cache": "hit"})
    (request,) = peer.requests
    assert request == facts_pb2.SearchFactsRequest(
        tenant_id=str(TENANT),
        corpus_ids=[str(CORPUS)],
        vector=[1.0, 0.0],
        embedding_model="mine",
        filters=facts_pb2.FactFilters(),
        limit=5,
        exact=True,
        as_of=nodes_pb2.AsOf(revision=9),
        cache_control="max-age=60",
        session_id="s",
        with_embedding=True,
    )


@pytest.mark.parametrize("given", [{}, {"text": "x", "vector": [1.0]}], ids=["nothing", "both"])
def test_a_search_needs_either_a_text_or_a_vector(do: Do, peer: Peer, given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="either a text or vector="):
        do("search_facts", **given)
    assert peer.seen == []


def test_states_come_back_with_revision_hash_and_count(do: Do, peer: Peer) -> None:
    state = facts_pb2.CorpusState(corpus_id=str(CORPUS), state_revision=9, state_hash="ab", facts=3, shared=True)
    peer.answers["GetState"] = facts_pb2.GetStateResponse(states=[state], combined_hash="cd")
    found = do("get_state", [CORPUS], revision_only=True)
    assert (found.corpora, found.combined_hash) == ((CorpusState(CORPUS, 9, "ab", 3, True),), "cd")
    (request,) = peer.requests
    assert (list(request.corpus_ids), request.revision_only) == ([str(CORPUS)], True)


def test_ending_a_session_returns_how_many_facts_were_forgotten(do: Do, peer: Peer) -> None:
    peer.answers["EndSession"] = facts_pb2.EndSessionResponse(facts_forgotten=4)
    assert do("end_session", "s") == 4
    assert peer.requests[0].session_id == "s"


def test_communities_are_listed_with_their_last_run(do: Do, peer: Peer) -> None:
    peer.answers["ListCommunities"] = communities_pb2.ListCommunitiesResponse(
        communities=[community()], revision=9, last_run=RUN
    )
    page = do("list_communities", CORPUS, as_of=9, page_size=3, page_token="here")
    assert page.items == (Community(COMMUNITY, CORPUS, "records, trails", ("records", "trails"), 5, AT),)
    assert (page.revision, page.last_run) == (9, CommunityRun(AT, 8, 9, 20, 3, "request", 0.5))
    (request,) = peer.requests
    assert (request.corpus_id, request.as_of.revision, request.page_size) == (str(CORPUS), 9, 3)
    peer.answers["ListCommunities"] = communities_pb2.ListCommunitiesResponse()
    assert do("list_communities", CORPUS).last_run is None
    assert do("iter_communities", CORPUS) == []


def test_a_community_comes_with_its_facts(do: Do, peer: Peer) -> None:
    peer.answers["GetCommunity"] = communities_pb2.GetCommunityResponse(
        community=community(), facts=[fact()], next_page_token="more", revision=9
    )
    found = do("get_community", CORPUS, COMMUNITY, as_of=9)
    assert (found.community.id, found.items, found.revision) == (COMMUNITY, (FULL,), 9)
    assert peer.requests[0].id == str(COMMUNITY)


def test_communities_are_recomputed_on_demand(do: Do, peer: Peer) -> None:
    peer.answers["RecomputeCommunities"] = communities_pb2.RecomputeCommunitiesResponse(run=RUN, changed=True)
    done = do("recompute_communities", CORPUS)
    assert (done.run.communities, done.changed) == (3, True)


def test_a_source_comes_back_with_every_field(do: Do, peer: Peer) -> None:
    source = sources_pb2.Source(
        source_id="sop-7",
        corpus_id=str(CORPUS),
        title="SOP 7",
        uri="https://example.org/sop-7",
        document_hash="ab",
        ingested_at=stamp(AT),
        changed_at=stamp(LATER),
        fact_count=12,
        status=sources_pb2.SOURCE_STATUS_UPDATED,
        document_id=str(CHUNK),
        version=2,
        source_type="internal",
    )
    peer.answers["GetSource"] = sources_pb2.GetSourceResponse(source=source, revision=9)
    peer.answers["ListSources"] = sources_pb2.ListSourcesResponse(sources=[source], revision=8)
    found = do("get_source", CORPUS, "sop-7", as_of=9)
    assert found == Source(
        id="sop-7",
        corpus_id=CORPUS,
        title="SOP 7",
        uri="https://example.org/sop-7",
        source_type="internal",
        status=SourceStatus.UPDATED,
        version=2,
        document_id=CHUNK,
        document_hash="ab",
        fact_count=12,
        ingested_at=AT,
        changed_at=LATER,
        revision=9,
    )
    assert found.revision == 9
    assert do("list_sources", CORPUS, page_size=3).items == (found,)
    assert do("iter_sources", CORPUS)[0].revision == 8


def test_an_erasure_sends_its_reason_and_returns_its_outcome(do: Do, peer: Peer) -> None:
    peer.answers["EraseSource"] = sources_pb2.EraseSourceResponse(erasure=erasure(), revision=9)
    peer.answers["ListErasures"] = sources_pb2.ListErasuresResponse(erasures=[erasure()])
    done = do("erase_source", CORPUS, "sop-7", reason="request 17", purge_now=True)
    assert done == Erasure(FACT, CORPUS, AT, "ann", 9, (3, 4), 1, 2, 5, 1, LATER, None, RECORD)
    (request,) = peer.requests
    assert (request.source_id, request.reason, request.purge_now) == ("sop-7", "request 17", True)
    assert do("list_erasures", CORPUS).items == (done,)
    assert do("iter_erasures", CORPUS) == [done]


def test_a_purge_returns_what_it_removed(do: Do, peer: Peer) -> None:
    peer.answers["PurgeErased"] = sources_pb2.PurgeErasedResponse(erasures=2, records_removed=30, finished=True)
    assert do("purge_erased", CORPUS) == Purged(2, 30, True)


def test_a_migration_reports_its_models_and_progress(do: Do, peer: Peer) -> None:
    peer.answers["GetMigration"] = embeddings_pb2.GetMigrationResponse(
        migration=embeddings_pb2.Migration(
            corpus_id=str(CORPUS),
            current=embeddings_pb2.EmbeddingModel(name="static", dimensions=256),
            next=embeddings_pb2.EmbeddingModel(name="minilm", dimensions=384),
            done=5,
            total=20,
            begun_at=stamp(AT),
        )
    )
    models = EmbeddingModel("static", 256), EmbeddingModel("minilm", 384)
    assert do("get_migration", CORPUS) == Migration(CORPUS, *models, 5, 20, AT, None)
