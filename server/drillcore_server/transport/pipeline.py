"""Binds services to gRPC, and takes each call through the stages to its handler and back.

    gRPC -> RequestIds -> Log -> Measure -> Admit -> Record -> Authenticate -> handler (a method of a service here)
         -> command

A service is a class with one method for each RPC, with the name of the RPC. `bind` looks the methods up by the
service's descriptor, so a missing method is noticed when the server starts, not when the RPC is called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from uuid import uuid4

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from drillcore_proto.reasons import API_VERSION_HEADER, REASON_HEADER, REQUEST_ID_HEADER, RESIDENCY_HEADER, Reason
from drillcore_server import VERSION
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.journal import Client
from drillcore_server.kernel.messages import check_known_fields
from drillcore_server.kernel.read_ahead import NO_SUBJECTS, Subjects
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import RequestId
from drillcore_server.transport.exchange import Answer, Exchange, Handler, Record, abort
from drillcore_server.transport.stages import (
    API_VERSION_CHARACTERS_MAX,
    Admit,
    Authenticate,
    Log,
    Measure,
    RequestIds,
    Stage,
    is_request_id,
)
from drillcore_server.transport.streams import StallWatch, Stream
from drillcore_server.transport.subjects import subjects_of

ORDER: Final = (RequestIds, Log, Measure, Admit, Record, Authenticate)
"""Outermost first. A call is logged even if it is not authenticated; everything in the log has a request id."""


_LONGER_THAN_ANY_DEADLINE_S: Final = 100 * 365 * 86_400.0
"""gRPC represents "no deadline" as a deadline in the far future."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    default_s: float
    max_s: float
    stream_idle_s: float

    def of(self, remaining_s: float | None) -> float:
        """How long a call may take: what its caller allows, up to the server's limit.

        A stream's time begins when it was received.
        """
        if remaining_s is None or remaining_s > _LONGER_THAN_ANY_DEADLINE_S:
            return min(self.default_s, self.max_s)
        return min(max(remaining_s, 0.0), self.max_s)


class Pipeline:
    def __init__(self, stages: Sequence[Stage], limits: TimeLimits) -> None:
        assert tuple(type(stage) for stage in stages) == ORDER, "the stages are in the wrong order"
        self._stages = stages
        self._limits = limits
        self._stalls = StallWatch(limits.stream_idle_s)

    def bind(self, service: ServiceDescriptor, implementation: object) -> grpc.GenericRpcHandler:
        """The gRPC handlers of all RPCs of a service."""
        handlers = {method.name: self._bind(method, getattr(implementation, method.name)) for method in service.methods}
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _bind(self, method: MethodDescriptor, handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
        streaming = method.client_streaming and method.server_streaming
        assert streaming or not (method.client_streaming or method.server_streaming), (
            "streams go both ways or not at all"
        )
        answer = _stream_handler(method.name, handler) if streaming else _call_handler(method, handler)
        for stage in reversed(self._stages):
            answer = _inside(stage, answer)
        request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        if streaming:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._streamed(answer, self._exchange(method.name, requests, context)),
                request_class.FromString,
                response_class.SerializeToString,
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: answer(self._exchange(method.name, request, context)),
            request_class.FromString,
            response_class.SerializeToString,
        )

    def _streamed(self, answer: Answer, exchange: Exchange) -> Iterator[Message]:
        stream = Stream(exchange)
        with self._stalls.over(stream):
            yield from stream.responses(answer)

    def _exchange(self, method: str, request: Message | Iterator[Message], context: grpc.ServicerContext) -> Exchange:
        metadata = _readable(context.invocation_metadata())
        given = metadata.get(REQUEST_ID_HEADER, "")
        request_id = RequestId(given if is_request_id(given) else str(uuid4()))
        timeout_s = self._limits.of(context.time_remaining())
        return Exchange(
            method,
            request,
            context,
            metadata,
            datetime.now(UTC),
            timeout_s,
            request_id,
            client=_client(context, metadata),
            reason=_reason(context.invocation_metadata()),
            region=_region(context.invocation_metadata()),
        )


class UnknownMethods(grpc.GenericRpcHandler):
    """Refuses methods that only a newer server has, and names this server's version. Register it last."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        refused = NotReady(
            Reason.SERVER_TOO_OLD,
            f"this server, version {VERSION}, does not know {handler_call_details.method[:200]}; upgrade the server",
        )
        given = _readable(handler_call_details.invocation_metadata).get(REQUEST_ID_HEADER, "")
        request_id = given if is_request_id(given) else str(uuid4())

        def refuse(_request: bytes, context: grpc.ServicerContext) -> NoReturn:
            outcome = refused.reason.name
            self._log.info("call", method="unknown", request_id=request_id, principal=None, outcome=outcome, ms=0.0)
            abort(context, refused, request_id)

        return grpc.unary_unary_rpc_method_handler(refuse)


def _inside(stage: Stage, inner: Answer) -> Answer:
    return lambda exchange: stage(exchange, inner)


def _call_handler(method: MethodDescriptor, handler: Handler) -> Answer:
    action, service = method.name, method.containing_service.name

    def answer(exchange: Exchange) -> Message:
        assert isinstance(exchange.request, Message)
        check_known_fields(exchange.request)
        content = exchange.request.SerializeToString(deterministic=True)
        subjects = subjects_of(exchange.request, service)
        response: Message = handler(exchange.request, _call(exchange, action, content, subjects))
        return response

    return answer


def _stream_handler(action: str, handler: Handler) -> Answer:
    """A stream's fingerprint is known only at its end, so its handler completes the call after the last request."""

    def answer(exchange: Exchange) -> None:
        assert not isinstance(exchange.request, Message)
        handler(exchange.request, _call(exchange, action, b""), exchange.emit)

    return answer


def _call(exchange: Exchange, action: str, content: bytes, subjects: Subjects = NO_SUBJECTS) -> Call:
    assert exchange.principal is not None, "a handler was reached without authentication"
    fingerprint = hashlib.sha256(action.encode() + b"\0" + content).digest()
    exchange.call = Call(
        action,
        exchange.request_id,
        exchange.principal,
        exchange.at,
        exchange.timeout_s,
        fingerprint,
        exchange.reason or "",
        exchange.client,
        region=exchange.region,
        subjects=subjects,
    )
    return exchange.call


def _client(context: grpc.ServicerContext, metadata: Mapping[str, str]) -> Client:
    names: Sequence[bytes] = context.auth_context().get("x509_common_name", ())  # type: ignore[assignment]
    version = metadata.get(API_VERSION_HEADER, "")[:API_VERSION_CHARACTERS_MAX]
    return Client(context.peer() or "", b", ".join(names).decode(errors="replace"), version)


def _reason(metadata: Sequence[tuple[str, str | bytes]] | Any) -> str | None:
    given = next((value for key, value in metadata if key == REASON_HEADER), b"")
    try:
        return given.decode() if isinstance(given, bytes) else given
    except UnicodeDecodeError:
        return None


def _region(metadata: Sequence[tuple[str, str | bytes]] | Any) -> str:
    """The region of the call. Several headers give a text that no region can match.

    Otherwise a call with two regions would be bound only to the last one.
    """
    return ",".join(str(value or ",") for key, value in metadata if key == RESIDENCY_HEADER)


def _readable(metadata: Sequence[tuple[str, str | bytes]] | Any) -> dict[str, str]:
    return {key: value for key, value in metadata if isinstance(value, str)}
