# ruff: noqa: N818  # `except NotFound` reads as what happened; only the root class is called an error
"""The exceptions of failed calls.

    DrillcoreError
    ├── InvalidArgument     the server can never accept this request
    ├── Unauthenticated     there is no token, or the server does not know it
    ├── PermissionDenied    the caller may not do this
    ├── NotFound            what the request names does not exist
    ├── AlreadyExists       what the request would create exists, or existed
    ├── FailedPrecondition  the state of the store forbids it, until somebody changes that state
    ├── Conflict            somebody else changed it first, nothing was written: read again, then retry
    ├── ResourceExhausted   the request is over a limit, or the store is full
    ├── Incompatible        client and server speak different versions of the protocol
    ├── Unavailable         the server did not answer, in spite of retries: retry with the same request id
    ├── DeadlineExceeded    the server did not answer in time: retry with the same request id
    ├── Cancelled           the caller gave up
    └── Internal            the server has a defect

The class says what to do. `reason` says exactly why, such as `Reason.CORPUS_NOT_FOUND` in a NotFound.
Invalid settings raise `SettingsError` before any call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from drillcore._remedies import REMEDIES
from drillcore._version import api_version, client_version
from drillcore_proto.reasons import DOMAIN, SERVER_VERSION_HEADER, Reason

_STATUS_DETAILS: Final = "grpc-status-details-bin"


class DrillcoreError(Exception):
    """A call failed. Its text also names the argument or setting that helps, where there is one.

    `reason` is None if this client does not know the server's reason, or if no server answered. `reason_name` is always
    set: to the server's reason, else to the name of the gRPC code. `message` is what the server said.
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
        remedy = REMEDIES.get(reason_name)
        super().__init__(f"{reason_name}: {message}" + (f": {remedy.python}" if remedy else ""))
        self.message = message
        self.reason_name = reason_name
        self.reason = Reason.__members__.get(reason_name)
        self.code = code
        self.request_id = request_id
        self.metadata: Mapping[str, str] = dict(metadata or {})

    def __reduce__(self) -> tuple[object, ...]:
        """Lets an error be pickled: by default Python would call __init__ without the keyword arguments."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class InvalidArgument(DrillcoreError):
    """The server can never accept this request."""


class Unauthenticated(DrillcoreError):
    """There is no token, or the server does not know it."""


class PermissionDenied(DrillcoreError):
    """The caller may not do this."""


class NotFound(DrillcoreError):
    """What the request names does not exist."""


class AlreadyExists(DrillcoreError):
    """What the request would create exists or existed. Ids are never used again."""


class FailedPrecondition(DrillcoreError):
    """The state of the store forbids this, until somebody changes that state."""


class Conflict(DrillcoreError):
    """Somebody else changed it first and nothing was written. Read again, then retry under a new request id."""


class ResourceExhausted(DrillcoreError):
    """The request is over a limit, or the store is full."""


class Incompatible(DrillcoreError):
    """Client and server speak different versions of the protocol. The message says which one to upgrade."""


class Unavailable(DrillcoreError):
    """The server did not answer, in spite of retries. A write may have happened: retry it with the same request id."""


class DeadlineExceeded(DrillcoreError):
    """The server did not answer in time. A write may have happened: retry it with the same request id."""


class Cancelled(DrillcoreError):
    """The caller gave up. A write may have happened."""


class Internal(DrillcoreError):
    """The server has a defect. Its log has the details under the request id."""


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
    """The exception for a failed call: from the server's explanation, else from the gRPC status."""
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
    """The exception for an error that no Drillcore server explained: no server, message too large, unknown call."""
    code, details = error.code(), error.details() or "no details"
    reason = _MADE_BY_GRPC.get(code)
    message = f"{address}: {details}"
    if reason is Reason.SERVER_TOO_OLD:
        message = _too_old(address, server_version)
    elif code is grpc.StatusCode.UNAVAILABLE:
        message = f"no answer from {address} ({details})"
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"no answer from {address} in time; a write may have happened: repeat it under the same request id"
    name = reason.name if reason else code.name
    return _BY_CODE.get(code, Internal)(message, reason_name=name, code=code, request_id=request_id)


def _too_old(address: str, server_version: str | None) -> str:
    client = f"this client is {client_version()} (API {api_version()})"
    if server_version is None:
        return f"{address} does not know this call, and {client}: upgrade the server, if it is a Drillcore server"
    return f"server {server_version} at {address} does not know this call, and {client}: upgrade the server"


def _metadata_pairs(error: grpc.RpcError) -> Iterable[tuple[str, str | bytes]]:
    # grpc and grpc.aio have different types for this; both are pairs, or None if no server answered.
    return cast(Iterable[tuple[str, str | bytes]] | None, error.trailing_metadata()) or ()


def _text_metadata(error: grpc.RpcError) -> dict[str, str]:
    return {key: value for key, value in _metadata_pairs(error) if isinstance(value, str)}


def _error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """Our ErrorInfo in the details of the status, None if there is none or it cannot be parsed."""
    packed = next((value for key, value in _metadata_pairs(error) if key == _STATUS_DETAILS), b"")
    info = error_details_pb2.ErrorInfo()
    try:
        status = status_pb2.Status.FromString(packed if isinstance(packed, bytes) else b"")
        found = any(detail.Unpack(info) and info.domain == DOMAIN for detail in status.details)
    except DecodeError:
        return None
    return info if found else None
