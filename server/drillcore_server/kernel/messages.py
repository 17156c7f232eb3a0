"""Converts between messages and the domain's types: ids, times, and the single request of a stream."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import UUID

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import AccountId, CorpusId, DocumentId, NodeId, RecordId, TenantId, to_microseconds

# Python's UUID accepts more than a UUID: underscores, signs and any Unicode digits.
_UUID: Final = re.compile("[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def tenant_id(text: str, field: str = "id") -> TenantId:
    return TenantId(_uuid(text, field))


def corpus_id(text: str, field: str = "id") -> CorpusId:
    return CorpusId(_uuid(text, field))


def node_id(text: str, field: str = "id") -> NodeId:
    return NodeId(_uuid(text, field))


def document_id(text: str, field: str = "id") -> DocumentId:
    return DocumentId(_uuid(text, field))


def account_id(text: str, field: str = "id") -> AccountId:
    return AccountId(_uuid(text, field))


def any_id(text: str, field: str) -> UUID:
    return _uuid(text, field)


def optional_uuid(text: str, field: str) -> UUID | None:
    return _uuid(text, field) if text else None


def record_id(text: str, field: str = "id") -> RecordId:
    return RecordId(_uuid(text, field))


def optional_tenant_id(text: str, field: str = "tenant_id") -> TenantId | None:
    return tenant_id(text, field) if text else None


def optional_corpus_id(text: str, field: str = "id") -> CorpusId | None:
    return corpus_id(text, field) if text else None


def timestamp(at: datetime) -> Timestamp:
    """Same result as `FromDatetime`, faster: every fact has several times."""
    seconds, microseconds = divmod(to_microseconds(at), 1_000_000)
    return Timestamp(seconds=seconds, nanos=1_000 * microseconds)


def utc(message: Timestamp, field: str) -> datetime:
    try:
        return message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} is not a time of the years 1 to 9999", field=field) from error


def check_known_fields(message: Message) -> None:
    """Raises `BadInput` for a field that a newer client has set and this server would silently ignore."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        text = f"field {number} of {message.DESCRIPTOR.name} is not known to this server; upgrade it, or leave it out"
        raise BadInput(Reason.UNKNOWN_FIELD, text, field=str(number))
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in [value] if isinstance(value, Message) else value:
                check_known_fields(inner)


def _uuid(text: str, field: str) -> UUID:
    if _UUID.fullmatch(text):
        return UUID(text)
    shown = text if len(text) <= 64 else text[:64] + "..."
    raise BadInput(Reason.INVALID_ID, f"{field} is not a UUID: {shown!r}", field=field)


M = TypeVar("M", bound=Message)


def one_request(requests: Iterator[M], call: Call) -> tuple[M, Call]:
    """The only request of a stream, and the call with its fingerprint, which the stages before could not know."""
    request = next(requests, None)
    if request is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="corpus_id")
    content = request.SerializeToString(deterministic=True)
    return request, replace(call, fingerprint=hashlib.sha256(call.fingerprint + content).digest())
