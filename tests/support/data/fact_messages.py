"""Messages about facts with something in every field, and streams that answer by a script."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import communities_pb2, embeddings_pb2, events_pb2, facts_pb2, nodes_pb2, sources_pb2
from tests.support.servers.in_memory_server import because

TENANT = uuid.UUID("11111111-1111-1111-1111-111111111111")
CORPUS = uuid.UUID("22222222-2222-2222-2222-222222222222")
FACT = uuid.UUID("33333333-3333-3333-3333-333333333333")
CHUNK = uuid.UUID("44444444-4444-4444-4444-444444444444")
COMMUNITY = uuid.UUID("55555555-5555-5555-5555-555555555555")
RECORD = uuid.UUID("66666666-6666-6666-6666-666666666666")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
STOPS: Final = because(Reason.SHUTTING_DOWN)
"""How a stream fails when its server stops."""


def stamp(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time)
    return message


def fact(number: int = 0) -> facts_pb2.Fact:
    """A fact with something in every field."""
    return facts_pb2.Fact(
        fact_id=str(uuid.UUID(int=FACT.int + number)),
        corpus_id=str(CORPUS),
        content="Keep it.",
        content_hash="ab" * 32,
        embedding=[0.5, -0.25],
        embedding_model="static",
        source_id="sop-7",
        source_location="page 3",
        importance_weight=0.9,
        community_label="records",
        community_id=str(COMMUNITY),
        ingested_at=stamp(AT),
        modified_at=stamp(LATER),
        access_count=7,
        last_accessed_at=stamp(LATER),
        ttl="P90D",
        status=facts_pb2.FACT_STATUS_STALE,
        metadata={"k": "v"},
        chunk_id=str(CHUNK),
        document_id=str(TENANT),
        span=nodes_pb2.Span(start=3, end=9),
        lead_spans=[nodes_pb2.Span(start=0, end=2), nodes_pb2.Span(start=2, end=3)],
        version=4,
        tokens=12,
        archived=True,
        created_by="ann",
        status_reason="old",
        session_only=True,
    )


def stored(request: facts_pb2.PutFactsRequest) -> facts_pb2.PutFactsResponse:
    ids = [fact.fact_id or str(uuid.uuid4()) for fact in request.facts]
    return facts_pb2.PutFactsResponse(fact_ids=ids, revision=len(ids))


def community() -> communities_pb2.Community:
    return communities_pb2.Community(
        id=str(COMMUNITY),
        corpus_id=str(CORPUS),
        label="records, trails",
        keywords=["records", "trails"],
        size=5,
        made_at=stamp(AT),
    )


RUN = communities_pb2.CommunityRun(
    at=stamp(AT), of_revision=8, revision=9, facts=20, communities=3, trigger="request", took_s=0.5
)


def erasure(**fields: Any) -> sources_pb2.Erasure:
    return sources_pb2.Erasure(
        id=str(FACT),
        corpus_id=str(CORPUS),
        erased_at=stamp(AT),
        erased_by="ann",
        revision=9,
        erased_keys=[3, 4],
        documents=1,
        chunks=2,
        facts=5,
        sections_regenerated=1,
        purge_due=stamp(LATER),
        audit_record_id=str(RECORD),
        **fields,
    )


class Script:
    """The answers of a stream to each connection in turn: messages, then a failure or the end of the stream."""

    def __init__(self, *connections: list[Any]) -> None:
        self._connections = iter(connections)
        self.firsts: list[Any] = []
        """The first request of each connection."""

    def __call__(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        self.firsts.append(next(requests))
        for step in next(self._connections):
            if callable(step):
                step(context)
            else:
                yield step


def answer(*numbers: int, token: str = "") -> events_pb2.WatchEventsResponse:
    """Events of these revisions. Each event's token is the number of its revision."""
    events = [
        events_pb2.Event(
            kind=events_pb2.EVENT_KIND_STATE_CHANGED, corpus_id=str(CORPUS), revision=number, resume_token=str(number)
        )
        for number in numbers
    ]
    return events_pb2.WatchEventsResponse(events=events, resume_token=token or str(numbers[-1]))


def progress(done: int, *, finished: bool = False) -> embeddings_pb2.MigrateEmbeddingsResponse:
    migration = embeddings_pb2.Migration(
        corpus_id=str(CORPUS),
        current=embeddings_pb2.EmbeddingModel(name="static", dimensions=256),
        done=done,
        total=3,
    )
    return embeddings_pb2.MigrateEmbeddingsResponse(migration=migration, finished=finished, revision=done)
