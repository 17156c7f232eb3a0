"""Refusals on the wire: a gRPC status with `google.rpc.ErrorInfo`, which clients turn into exceptions by reason."""

from __future__ import annotations

from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from drillcore_proto.reasons import DOMAIN, REQUEST_ID_HEADER, SERVER_VERSION_HEADER
from drillcore_server.domain.errors import Refused
from drillcore_server.version import VERSION

_DETAILS_HEADER = "grpc-status-details-bin"


def reply_metadata(request_id: str) -> tuple[tuple[str, str | bytes], ...]:
    """Goes with every answer, good or bad."""
    return ((REQUEST_ID_HEADER, request_id), (SERVER_VERSION_HEADER, VERSION))


def abort(context: grpc.ServicerContext, refused: Refused, request_id: str) -> NoReturn:
    """Ends the call with the refusal."""
    info = error_details_pb2.ErrorInfo(
        reason=refused.reason.name, domain=DOMAIN, metadata={**refused.details, "request_id": request_id}
    )
    packed = any_pb2.Any()
    packed.Pack(info)
    status = status_pb2.Status(code=refused.reason.code.value[0], message=refused.message, details=[packed])
    context.set_trailing_metadata((*reply_metadata(request_id), (_DETAILS_HEADER, status.SerializeToString())))
    context.abort(refused.reason.code, refused.message)
    raise AssertionError("abort raises")
