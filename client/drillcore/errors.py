# ruff: noqa: N818  # `except NotFound` reads as what happened; only the root, which says no more, is called an error
"""Why a call failed, as exceptions.

    DrillcoreError
    ├── InvalidArgument     the request can never be accepted as it is
    ├── Unauthenticated     no token, or one the server does not know
    ├── PermissionDenied    the caller may not do this
    ├── NotFound            what the request names is not there
    ├── AlreadyExists       what the request would create is there, or was
    ├── FailedPrecondition  the state of the store forbids it, until somebody changes that state
    ├── Conflict            somebody else changed it first, nothing was written: read again, then retry
    ├── ResourceExhausted   over a limit, or the store is full
    ├── Incompatible        client and server speak different versions of the protocol
    ├── Unavailable         no answer for now, in spite of retries: retry with the same request id
    ├── DeadlineExceeded    no answer in time: retry with the same request id
    ├── Cancelled           the caller gave up
    └── Internal            a defect of the server

The class says what to do; `reason` says exactly why, such as `Reason.CORPUS_NOT_FOUND` in a NotFound.
Settings that cannot be used raise `SettingsError` before any call is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from drillcore._version import api_version, client_version
from drillcore_proto.reasons import DOMAIN, SERVER_VERSION_HEADER, Reason

_STATUS_DETAILS: Final = "grpc-status-details-bin"


class DrillcoreError(Exception):
    """A call failed.

    `reason` is None if the server gave a reason that this client does not know, or if no server answered;
    `reason_name` is always there: the reason as it was sent, else the name of the gRPC code.
    """

    def __init__(
        self,
        message: str,
        *,
        reason_name: str,
        code: grpc.StatusCode,
        request_id: str,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{reason_name}: {message}")
        self.message = message
        self.reason_name = reason_name
        self.reason = Reason.__members__.get(reason_name)
        self.code = code
        self.request_id = request_id
        self.metadata: Mapping[str, str] = dict(metadata or {})

    def __reduce__(self) -> tuple[object, ...]:
        """Lets the error pass between processes: by default Python would call __init__ without the keywords."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class InvalidArgument(DrillcoreError):
    """The request can never be accepted as it is."""


class Unauthenticated(DrillcoreError):
    """There was no token, or one the server does not know."""


class PermissionDenied(DrillcoreError):
    """The caller may not do this."""


class NotFound(DrillcoreError):
    """What the request names is not there."""


class AlreadyExists(DrillcoreError):
    """What the request would create is there, or was: ids are never used again."""


class FailedPrecondition(DrillcoreError):
    """The state of the store forbids it, until somebody changes that state."""


class Conflict(DrillcoreError):
    """Somebody else changed it first and nothing was written. Read again, then retry under a new request id."""


class ResourceExhausted(DrillcoreError):
    """The request is over a limit, or the store is full."""


class Incompatible(DrillcoreError):
    """Client and server speak different versions of the protocol. The message says which one to upgrade."""


class Unavailable(DrillcoreError):
    """No answer for now, in spite of retries. A write may have happened: retry it with the same request id."""


class DeadlineExceeded(DrillcoreError):
    """No answer in time. A write may have happened: retry it with the same request id."""


class Cancelled(DrillcoreError):
    """The caller gave up. A write may have happened."""


class Internal(DrillcoreError):
    """A defect of the server, whose log has the details under the request id."""


_BY_CODE: Final[Mapping[grpc.StatusCode, type[DrillcoreError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNIMPLEMENTED: Incompatible,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
}

_BY_REASON: Final[Mapping[str, type[DrillcoreError]]] = {
    Reason.CLIENT_TOO_OLD.name: Incompatible,
    Reason.CLIENT_TOO_NEW.name: Incompatible,
}

_MADE_BY_GRPC: Final[Mapping[grpc.StatusCode, Reason]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.TOO_LARGE,
    grpc.StatusCode.UNIMPLEMENTED: Reason.SERVER_TOO_OLD,
}


def from_rpc_error(error: grpc.RpcError, *, request_id: str, address: str = "the server") -> DrillcoreError:
    """The exception for a failed call: as the server explained it, else by what gRPC itself says."""
    trailing = _text_metadata(error)
    info = _error_info(error)
    if info is None:
        return _unexplained(error, request_id, address, trailing.get(SERVER_VERSION_HEADER))
    kind = _BY_REASON.get(info.reason) or _BY_CODE.get(error.code(), Internal)
    return kind(
        error.details() or "",
        reason_name=info.reason,
        code=error.code(),
        request_id=request_id,
        metadata=dict(info.metadata),
    )


def _unexplained(error: grpc.RpcError, request_id: str, address: str, server_version: str | None) -> DrillcoreError:
    """Made by gRPC (nobody listens, message too large, unknown call), or by something that is no Drillcore server."""
    code, details = error.code(), error.details() or "no details"
    reason = _MADE_BY_GRPC.get(code)
    message = f"{address}: {details}"
    if reason is Reason.SERVER_TOO_OLD:
        message = _too_old(address, server_version)
    elif code is grpc.StatusCode.UNAVAILABLE:
        message = f"no answer from {address}; does the server run there? ({details})"
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"no answer from {address} in time; a write may have happened, so repeat it under the same request id"
    name = reason.name if reason else code.name
    return _BY_CODE.get(code, Internal)(message, reason_name=name, code=code, request_id=request_id)


def _too_old(address: str, server_version: str | None) -> str:
    client = f"this client is {client_version()} (API {api_version()})"
    if server_version is None:
        return f"{address} does not know this call and {client}: upgrade the server, if it is a Drillcore server at all"
    return f"server {server_version} at {address} does not know this call and {client}: upgrade the server"


def _metadata_pairs(error: grpc.RpcError) -> Iterable[tuple[str, str | bytes]]:
    # grpc and grpc.aio have types of their own for this; both are pairs, or None if no server answered.
    return cast(Iterable[tuple[str, str | bytes]] | None, error.trailing_metadata()) or ()


def _text_metadata(error: grpc.RpcError) -> dict[str, str]:
    return {key: value for key, value in _metadata_pairs(error) if isinstance(value, str)}


def _error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """Our ErrorInfo in the details of the status. Details that do not parse count as none."""
    packed = next((value for key, value in _metadata_pairs(error) if key == _STATUS_DETAILS), b"")
    info = error_details_pb2.ErrorInfo()
    try:
        status = status_pb2.Status.FromString(packed if isinstance(packed, bytes) else b"")
        found = any(detail.Unpack(info) and info.domain == DOMAIN for detail in status.details)
    except DecodeError:
        return None
    return info if found else None
