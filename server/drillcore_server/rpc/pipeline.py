"""How a call gets from the wire to its handler and back.

    gRPC -> RequestIds -> Log -> Measure -> Authenticate -> handler (a method of a service in this package) -> command

A service is a class with one method per RPC, named like it; `bind` finds them by the service's descriptor, so an RPC
without a method is found when the server starts, not when it is called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from drillcore_proto.reasons import REQUEST_ID_HEADER, Reason
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.ids import RequestId
from drillcore_server.rpc.exchange import Answer, Exchange, Handler
from drillcore_server.rpc.messages import check_known_fields
from drillcore_server.rpc.refusals import abort
from drillcore_server.rpc.stages import Authenticate, Log, Measure, RequestIds, Stage
from drillcore_server.version import VERSION

ORDER: Final = (RequestIds, Log, Measure, Authenticate)
"""Outermost first. A call is logged even if it is not authenticated; everything in the log has a request id."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    default_s: float
    max_s: float

    def of(self, remaining_s: float | None) -> float:
        """How long a call may take: what its caller allows, up to our own limit."""
        return min(self.default_s if remaining_s is None else max(remaining_s, 0.0), self.max_s)


class Pipeline:
    def __init__(self, stages: Sequence[Stage], limits: TimeLimits) -> None:
        assert tuple(type(stage) for stage in stages) == ORDER, "the stages are in the wrong order"
        self._stages = stages
        self._limits = limits

    def bind(self, service: ServiceDescriptor, implementation: object) -> grpc.GenericRpcHandler:
        """Handlers of every RPC of a service."""
        handlers = {method.name: self._bind(method, getattr(implementation, method.name)) for method in service.methods}
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _bind(self, method: MethodDescriptor, handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
        answer = _call_handler(method.name, handler)
        for stage in reversed(self._stages):
            answer = _inside(stage, answer)

        def behave(request: Message, context: grpc.ServicerContext) -> Message:
            metadata = _readable(context.invocation_metadata())
            request_id = RequestId(metadata.get(REQUEST_ID_HEADER) or str(uuid4()))
            timeout_s = self._limits.of(context.time_remaining())
            return answer(Exchange(method.name, request, context, metadata, datetime.now(UTC), timeout_s, request_id))

        request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        return grpc.unary_unary_rpc_method_handler(behave, request_class.FromString, response_class.SerializeToString)


class UnknownMethods(grpc.GenericRpcHandler):
    """Goes last: answers calls that a newer client knows and this server does not, saying so with our version."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        refused = NotReady(
            Reason.SERVER_TOO_OLD, f"this server, version {VERSION}, does not know {handler_call_details.method}"
        )
        request_id = _readable(handler_call_details.invocation_metadata).get(REQUEST_ID_HEADER) or str(uuid4())
        return grpc.unary_unary_rpc_method_handler(lambda _request, context: abort(context, refused, request_id))


def _inside(stage: Stage, inner: Answer) -> Answer:
    return lambda exchange: stage(exchange, inner)


def _call_handler(action: str, handler: Handler) -> Answer:
    def answer(exchange: Exchange) -> Message:
        assert exchange.principal is not None, "a handler was reached without authentication"
        check_known_fields(exchange.request)
        content = exchange.request.SerializeToString(deterministic=True)
        fingerprint = hashlib.sha256(action.encode() + b"\0" + content).digest()
        call = Call(action, exchange.request_id, exchange.principal, exchange.at, exchange.timeout_s, fingerprint)
        return handler(exchange.request, call)

    return answer


def _readable(metadata: Sequence[tuple[str, str | bytes]] | Any) -> dict[str, str]:
    return {key: value for key, value in metadata if isinstance(value, str)}
