"""Protocol messages to results. Only this module and its sisters `_convert_*` know both."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore._results import Corpus, LegalHold, Page, ServerInfo, Sharing, Tenant, Trimmed
from drillcore_proto.v1 import corpora_pb2, server_pb2, tenants_pb2


def tenant(message: tenants_pb2.Tenant) -> Tenant:
    return Tenant(
        id=UUID(message.id),
        name=message.name,
        metadata=dict(message.metadata),
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=to_datetime(message.updated_at),
        version=message.version,
        allowed_regions=tuple(message.allowed_regions),
    )


def tenants(message: tenants_pb2.ListTenantsResponse) -> Page[Tenant]:
    return Page(tuple(tenant(one) for one in message.tenants), message.next_page_token)


def corpus(message: corpora_pb2.Corpus) -> Corpus:
    return Corpus(
        id=UUID(message.id),
        tenant_id=to_id(message.tenant_id),
        name=message.name,
        description=message.description,
        metadata=dict(message.metadata),
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=to_datetime(message.updated_at),
        version=message.version,
        retention_days=message.retention_days if message.HasField("retention_days") else None,
        legal_hold=_legal_hold(message.legal_hold) if message.HasField("legal_hold") else None,
        region=message.region,
        sharing=_sharing(message.sharing) if message.HasField("sharing") else None,
        shared=message.shared,
    )


def _sharing(message: corpora_pb2.Sharing) -> Sharing:
    tenants = tuple(UUID(one) for one in message.tenant_ids)
    return Sharing(everyone=message.everyone, tenant_ids=tenants, by=message.by, at=to_datetime(message.at))


def _legal_hold(message: corpora_pb2.LegalHold) -> LegalHold:
    return LegalHold(on=message.on, reason=message.reason, by=message.by, at=to_datetime(message.at))


def trimmed(message: corpora_pb2.TrimCorpusResponse) -> Trimmed:
    return Trimmed(message.oldest_revision, message.records_removed, message.finished)


def corpora(message: corpora_pb2.ListCorporaResponse) -> Page[Corpus]:
    return Page(tuple(corpus(one) for one in message.corpora), message.next_page_token)


def server_info(message: server_pb2.GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(
        version=message.version,
        api_version=message.api_version,
        principal=message.principal,
        tenant_id=to_id(message.tenant_id),
        engine=message.engine,
        format_version=message.format_version,
        message_bytes_max=message.message_bytes_max,
    )


def to_datetime(message: Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)


def optional_datetime(message: Message, field: str) -> datetime | None:
    """The time in a field of a message, None where there is none."""
    return to_datetime(getattr(message, field)) if message.HasField(field) else None


def to_id(text: str) -> UUID | None:
    """The id, None where there is none."""
    return UUID(text) if text else None
