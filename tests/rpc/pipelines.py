"""A pipeline's stages in their order, outside of a server."""

from __future__ import annotations

import io

from drillcore_server.auth.tokens import Token, Tokens
from drillcore_server.config import LogFormat
from drillcore_server.logs import make_logger
from drillcore_server.metrics import Metrics
from drillcore_server.rpc.pipeline import ORDER, TimeLimits
from drillcore_server.rpc.stages import Authenticate, Log, Measure, Stage

LIMITS = TimeLimits(default_s=30.0, max_s=120.0, stream_idle_s=30.0)


def stages(*tokens: Token, log: io.StringIO | None = None, metrics: Metrics | None = None) -> list[Stage]:
    parts = {
        Log: lambda: Log(make_logger(LogFormat.JSON, log or io.StringIO())),
        Measure: lambda: Measure(metrics or Metrics()),
        Authenticate: lambda: Authenticate(Tokens(tokens)),
    }
    return [parts.get(kind, kind)() for kind in ORDER]
