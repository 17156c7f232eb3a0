"""One call on its way through the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import grpc
from google.protobuf.message import Message

from drillcore_server.auth.principal import Principal
from drillcore_server.commands.unit import Call
from drillcore_server.domain.ids import RequestId


@dataclass(slots=True)
class Exchange:
    """What is known of a call. Each stage adds its part; the stages' order is in `pipeline.ORDER`."""

    method: str
    request: Message
    context: grpc.ServicerContext
    metadata: dict[str, str]
    at: datetime
    timeout_s: float
    request_id: RequestId
    principal: Principal | None = None


Answer = Callable[[Exchange], Message]
Handler = Callable[[Message, Call], Message]
"""A method of a service: the request and who asks, to the response."""
