"""A real server on a real store, with tokens of an operator and of two tenants."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from drillcore import Client
from drillcore_fdb.engine import Engine
from drillcore_formats.settings import SettingsError
from drillcore_server.app.config import (
    FactSettings,
    IngestSettings,
    ServerSettings,
    Settings,
    TokenSettings,
)
from drillcore_server.app.main import Server
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.envelopes.settings import EnvelopeSettings
from drillcore_server.identity.settings import AuthSettings
from drillcore_server.kernel.telemetry import LogFormat, make_logger
from drillcore_server.vectors.settings import VectorSettings
from tests.support.stores.engines import engine_settings, open_engine

OPERATOR = "operator-token-0123456789"
ACME_ID = UUID("aaaaaaaa-0000-4000-8000-000000000001")
ACME = "acme-token-0123456789"
GLOBEX_ID = UUID("bbbbbbbb-0000-4000-8000-000000000002")
GLOBEX = "globex-token-0123456789"

SETTINGS = ServerSettings(
    listen="127.0.0.1:0",
    metrics_listen="",
    shutdown_grace_s=5.0,
    tokens=(
        TokenSettings(name="root", token=OPERATOR),
        TokenSettings(name="ann@acme", token=ACME, tenant_id=str(ACME_ID)),
        TokenSettings(name="gus@globex", token=GLOBEX, tenant_id=str(GLOBEX_ID)),
    ),
)


AUTH = AuthSettings(argon2_memory_kib=64, argon2_passes=1, argon2_lanes=1)
"""Cheap settings, so that passwords are hashed in a moment."""


COMMUNITIES = CommunitySettings(new_facts_min=1_000_000, every_days=1_000.0)
"""The server finds no communities by itself, not even right after its start: a run would be a revision of its own."""


DUE_COMMUNITIES = CommunitySettings(check_every_s=86_400.0, pause_s=0.0)
"""50 new facts make a run due, but the server checks only at its start. Tests start later checks themselves."""


FACTS = FactSettings(sweep_every_s=86_400.0)
"""The server does not sweep facts by itself: tests start the sweep when they want it."""


@dataclass
class Running:
    """A running server, and its clients, which are closed with it."""

    server: Server
    engine: Engine
    port: int
    log: io.StringIO
    clients: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, token: str | None = OPERATOR, **settings: Any) -> Client:
        return self.clients.enter_context(Client(self.address, token=token, **{"attempts": 1, **settings}))

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def logged_calls(self) -> list[dict[str, Any]]:
        return [line for line in self.log_lines() if line["event"] == "call"]


@contextmanager
def running(
    path: Path,
    ingest: IngestSettings | None = None,
    auth: AuthSettings = AUTH,
    vectors: VectorSettings | None = None,
    communities: CommunitySettings = COMMUNITIES,
    facts: FactSettings | None = None,
    envelopes: EnvelopeSettings | None = None,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    **changes: Any,
) -> Iterator[Running]:
    """A server on the store in `path`, with some settings changed. `wrap` puts another engine before the server's."""
    settings = Settings(
        server=replace(SETTINGS, **changes),
        engine=engine_settings(path),
        ingest=ingest or IngestSettings(),
        auth=auth,
        vectors=vectors or VectorSettings(),
        communities=communities,
        facts=facts or FACTS,
        envelopes=envelopes or EnvelopeSettings(),
    )
    engine, log = open_engine(path), io.StringIO()
    try:
        server = Server(settings, wrap(engine), make_logger(LogFormat.JSON, log))
        try:
            port = server.start()
        except SettingsError:
            server.close()
            raise
        found = Running(server, engine, port, log)
        try:
            yield found
        finally:
            found.clients.close()
            server.stop()
    finally:
        engine.close()


def create_tenants(operator: Client) -> None:
    """Makes the tenants that the tokens belong to."""
    operator.create_tenant("acme", tenant_id=ACME_ID)
    operator.create_tenant("globex", tenant_id=GLOBEX_ID)
