"""One call on its way through the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import grpc
from google.protobuf.message import Message

from drillcore_server.audit.journal import UNKNOWN_CLIENT, Client
from drillcore_server.auth.principal import Principal
from drillcore_server.commands.unit import Call
from drillcore_server.domain.ids import RequestId


@dataclass(slots=True)
class Exchange:
    """What is known of a call. Each stage adds its part; the stages' order is in `pipeline.ORDER`."""

    method: str
    request: Message | Iterator[Message]
    """An iterator where the caller streams."""
    context: grpc.ServicerContext
    metadata: dict[str, str]
    at: datetime
    timeout_s: float
    request_id: RequestId
    client: Client = UNKNOWN_CLIENT
    reason: str | None = ""
    """Why the call is made, in the caller's words; None if that is no text."""
    region: str = ""
    """The one that the caller binds the call to."""
    principal: Principal | None = None
    call: Call | None = None
    """As the handler gets it."""
    emit: Callable[[Message], None] | None = None
    """Sends a response, where the server streams."""


Answer = Callable[[Exchange], Message | None]
"""None where the responses were emitted."""
Handler = Callable[..., Any]
"""A method of a service: the request and who asks, to the response. A streaming one takes the requests, who asks and
`emit`, and returns when the last response is emitted."""
