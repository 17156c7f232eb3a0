"""Protocol messages to results. The only place that knows both."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from drillcore._results import Corpus, Page, ServerInfo, Tenant
from drillcore_proto.v1 import corpora_pb2, server_pb2, tenants_pb2


def tenant(message: tenants_pb2.Tenant) -> Tenant:
    return Tenant(
        id=UUID(message.id),
        name=message.name,
        metadata=dict(message.metadata),
        created_at=_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=_datetime(message.updated_at),
        version=message.version,
    )


def tenants(message: tenants_pb2.ListTenantsResponse) -> Page[Tenant]:
    return Page(tuple(tenant(one) for one in message.tenants), message.next_page_token)


def corpus(message: corpora_pb2.Corpus) -> Corpus:
    return Corpus(
        id=UUID(message.id),
        tenant_id=UUID(message.tenant_id),
        name=message.name,
        description=message.description,
        metadata=dict(message.metadata),
        created_at=_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=_datetime(message.updated_at),
        version=message.version,
    )


def corpora(message: corpora_pb2.ListCorporaResponse) -> Page[Corpus]:
    return Page(tuple(corpus(one) for one in message.corpora), message.next_page_token)


def server_info(message: server_pb2.GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(
        version=message.version,
        api_version=message.api_version,
        principal=message.principal,
        tenant_id=UUID(message.tenant_id) if message.tenant_id else None,
        engine=message.engine,
        format_version=message.format_version,
        message_bytes_max=message.message_bytes_max,
    )


def _datetime(message: Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)
