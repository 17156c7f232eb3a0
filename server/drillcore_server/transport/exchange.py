"""One call on its way through the server, how a refusal goes out, and the stage that records refusals.

A refusal is a gRPC status with `google.rpc.ErrorInfo`, which clients turn into exceptions by its reason. An answered
call has its audit record in the transaction that answered it. A refused call has changed nothing, so its record is
written here, in a transaction of its own, also if the caller was not authenticated.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn

import grpc
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from drillcore_proto.reasons import DOMAIN, REASON_HEADER, REQUEST_ID_HEADER, SERVER_VERSION_HEADER, Reason
from drillcore_server import VERSION
from drillcore_server.kernel.access import NOBODY, Principal
from drillcore_server.kernel.errors import BadInput, Refused, Unavailable
from drillcore_server.kernel.journal import UNKNOWN_CLIENT, Client
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import RequestId

_DETAILS_HEADER = "grpc-status-details-bin"


def reply_metadata(request_id: str) -> tuple[tuple[str, str | bytes], ...]:
    """Sent with every answer, also with refusals."""
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


@dataclass(slots=True)
class Exchange:
    """One call, with everything known about it. Each stage adds its part, in the order of `pipeline.ORDER`."""

    method: str
    request: Message | Iterator[Message]
    """An iterator if the caller streams."""
    context: grpc.ServicerContext
    metadata: dict[str, str]
    at: datetime
    timeout_s: float
    request_id: RequestId
    client: Client = UNKNOWN_CLIENT
    reason: str | None = ""
    """The reason that the caller gave; None if it is not valid text."""
    region: str = ""
    """The region that the caller binds the call to."""
    principal: Principal | None = None
    call: Call | None = None
    """The call as the handler gets it."""
    emit: Callable[[Message], None] | None = None
    """Sends a response, if the server streams."""


Answer = Callable[[Exchange], Message | None]
"""The response; None if the handler emitted its responses."""
Handler = Callable[..., Any]
"""A method of a service: takes the request and the call, returns the response. A streaming method takes the requests,
the call and `emit`, and returns after the last response."""


REASON_CHARACTERS_MAX: Final = 2_000
_HOSTS_MAX: Final = 10_000


class Record:
    def __init__(
        self,
        unit: Unit,
        log: structlog.stdlib.BoundLogger,
        *,
        reason_required: bool = False,
        strangers_per_minute: int = 60,
    ) -> None:
        self._unit = unit
        self._log = log
        self._reason_required = reason_required
        self._strangers = Strangers(strangers_per_minute)

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        try:
            self._check_reason(exchange)
            return proceed(exchange)
        except Refused as refused:
            self._record(exchange, refused)
            raise
        except Exception:
            self._record(exchange, Unavailable(Reason.INTERNAL, "a defect of the server"))
            raise

    def _check_reason(self, exchange: Exchange) -> None:
        if exchange.reason is None or len(exchange.reason) > REASON_CHARACTERS_MAX:
            message = f"{REASON_HEADER} must be UTF-8 of at most {REASON_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field=REASON_HEADER)
        if self._reason_required and not exchange.reason.strip():
            message = (
                "this server wants a reason for every call: --reason on the command line, client.reason in the "
                f"settings, or the header {REASON_HEADER}"
            )
            raise BadInput(Reason.REASON_REQUIRED, message, field=REASON_HEADER)

    def _record(self, exchange: Exchange, refused: Refused) -> None:
        call = exchange.call or Call(
            exchange.method,
            exchange.request_id,
            exchange.principal or NOBODY,
            exchange.at,
            exchange.timeout_s,
            b"",
            client=exchange.client,
        )
        suppressed = 0
        if call.principal is NOBODY:
            counted = self._strangers.admit(exchange.client.host)
            if counted is None:
                return
            suppressed = counted
        try:
            self._unit.record_refusal(call, refused, suppressed)
        except Refused as failed:
            # The call fails in any case, and it has left nothing in the store, which cannot take the record.
            self._log.error("refusal not recorded", request_id=call.request_id, reason=failed.reason.name)


@dataclass(slots=True)
class _Host:
    since: float
    recorded: int = 0
    suppressed: int = 0


class Strangers:
    """Counts the recorded refusals of unknown callers, for each host and minute.

    Refusals beyond the limit are only counted, in the next record: a stranger must not be able to fill the disk.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._lock = threading.Lock()
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def admit(self, host: str) -> int | None:
        """None if this refusal must not be recorded; else how many were left out before it."""
        now = time.monotonic()
        with self._lock:
            known = self._hosts.setdefault(host, _Host(now))
            self._hosts.move_to_end(host)
            if len(self._hosts) > _HOSTS_MAX:
                self._hosts.popitem(last=False)
            if now - known.since >= 60:
                known.since, known.recorded = now, 0
            if known.recorded >= self._per_minute:
                known.suppressed += 1
                return None
            known.recorded += 1
            suppressed, known.suppressed = known.suppressed, 0
            return suppressed
