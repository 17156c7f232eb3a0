"""A pipeline's stages in their order, without a server around them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drillcore_server.identity.authenticator import Authenticator, Issuers
from drillcore_server.identity.bearer_tokens import Token, Tokens
from drillcore_server.kernel.telemetry import LogFormat, Metrics, make_logger
from drillcore_server.kernel.unit import Unit
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from drillcore_server.transport.exchange import Record
from drillcore_server.transport.pipeline import ORDER, TimeLimits
from drillcore_server.transport.stages import Authenticate, Log, Measure, Stage
from tests.support.stores.journals import open_journal_here
from tests.support.stores.stores import opened

LIMITS = TimeLimits(default_s=30.0, max_s=120.0, stream_idle_s=30.0)


@contextmanager
def opened_unit(path: Path) -> Iterator[Unit]:
    """A unit on a store of its own."""
    with opened(path) as engine:
        keys = Keyspace(open_store(engine)[0])
        yield Unit(engine, keys, open_journal_here(engine, keys, path))


def stages(unit: Unit, *tokens: Token, log: io.StringIO | None = None, metrics: Metrics | None = None) -> list[Stage]:
    parts = {
        Record: lambda: Record(unit, make_logger(LogFormat.JSON, log or io.StringIO())),
        Log: lambda: Log(make_logger(LogFormat.JSON, log or io.StringIO())),
        Measure: lambda: Measure(metrics or Metrics()),
        Authenticate: lambda: Authenticate(Authenticator(unit._engine, unit.keys, Tokens(tokens), Issuers(()))),
    }
    return [parts.get(kind, kind)() for kind in ORDER]
