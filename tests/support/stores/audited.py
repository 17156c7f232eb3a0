"""A store with an audit trail and nothing else: the real engine, keyring, keys and unit, below gRPC."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog

from drillcore_fdb.embedded import Durability
from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.format import StoreHeader
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_server.app.background import Background
from drillcore_server.app.factories import open_keyring
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_store import Head
from drillcore_server.audit.log_writer import LogWriter
from drillcore_server.audit.publisher import Publisher
from drillcore_server.audit.search import Terms
from drillcore_server.audit.sequencer import GATHER_S, POLL_S, Sequencer
from drillcore_server.audit.signing_keys import KeyFiles
from drillcore_server.kernel.access import Principal, PrincipalKind, as_server
from drillcore_server.kernel.journal import Journal, KeyKeeper, SigningKeys
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.audit_records import RECORD, RecordOpener, StoredRecord
from drillcore_server.storage.ids import PrincipalId, RecordId, RequestId, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.store import open_store
from tests.support.stores.engines import engine_settings, open_engine

T = TypeVar("T")
TENANT: Final = TenantId(UUID(int=1))
OTHER: Final = TenantId(UUID(int=2))
SERVER: Final = Principal(PrincipalId("drillcore"), None, PrincipalKind.SERVER)
LOGGER: Final = structlog.get_logger()
_numbers = itertools.count()


@dataclass(frozen=True)
class Done:
    """The answer of these tests' calls: just a number."""

    number: int


DONE: Final = RecordKind(Done)


@dataclass
class Audited:
    engine: Engine
    keys: Keyspace
    header: StoreHeader
    keyring: Keyring
    keeper: KeyKeeper
    signing: SigningKeys
    alerts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        sealed = SealedRecords(self.keyring)
        self.opener = RecordOpener(self.header.store_id, sealed)
        self.terms = Terms(self.keyring)
        journal = Journal(self.keys, self.keyring, sealed, self.header.store_id, self.signing)
        self.unit = Unit(self.engine, self.keys, journal)

    def on(self, engine: Engine) -> Audited:
        """The same store as another server has it, through an engine of its own."""
        signing = SigningKeys.open(self.engine, self.keys, self.header.store_id, self.keeper, datetime.now(UTC))
        return Audited(engine, self.keys, self.header, self.keyring, self.keeper, signing)

    def call(
        self, action: str = "GetCorpus", request_id: str | None = None, principal: Principal = SERVER, **more: Any
    ) -> Call:
        request = RequestId(request_id or f"request-{next(_numbers)}")
        more.setdefault("at", datetime.now(UTC))
        return Call(
            action=action,
            request_id=request,
            principal=principal,
            timeout_s=more.pop("timeout_s", 30.0),
            fingerprint=hashlib.sha256(request.encode()).digest(),
            **more,
        )

    def record(
        self, tenant: TenantId | None = None, touch: Callable[[Trail], object] = id, call: Call | None = None
    ) -> RecordId:
        """Makes a call in a tenant, or of the server itself. Returns the id of its record."""
        made: list[RecordId] = []

        def work(_tr: Transaction, _granted: object, trail: Trail) -> Done:
            touch(trail)
            made.append(trail.record)
            return Done(len(made))

        self.unit.write(call or self.call(), as_server(tenant), DONE, work)
        return made[-1]

    def writer(self) -> LogWriter:
        return LogWriter(self.keys, self.opener, self.terms, self.signing)

    def sequencer(self, lease_s: float = 10.0, *, alone: bool = False) -> Sequencer:
        return Sequencer(self.engine, self.keys, self.writer(), lease_s, LOGGER, self.alert, alone=alone)

    def sequence(self) -> None:
        """Puts all waiting records in order."""
        sequencer = self.sequencer(alone=True)
        while (done := sequencer.step()) is not None and done.more:
            continue

    def alert(self, kind: str, detail: dict[str, Any]) -> None:
        self.alerts.append((kind, detail))

    def run(self, work: Callable[[Transaction], T]) -> T:
        return self.engine.run(work)

    def head(self, log: UUID = SERVER_LOG) -> Head:
        return self.run(lambda tr: audit_log.head(tr, self.keys, log))

    def ids(self, log: UUID = SERVER_LOG) -> list[UUID]:
        """The records of a log, by index."""
        stored = self.run(lambda tr: list(tr.range(*self.keys.audit_entries(log, 0, 1 << 40))))
        return [audit_log.decode_entry(value).record for _, value in stored]

    def stored(self) -> list[tuple[audit_log.Position, StoredRecord]]:
        """Every record, in the order of the commits."""
        return self.run(
            lambda tr: [
                (position, RECORD.decode(value))
                for position, value in audit_log.records_after(tr, self.keys, audit_log.BEGINNING, 9)
            ]
        )


@contextlib.contextmanager
def audited(
    path: Path, durability: Durability = Durability.RELAXED, keeper: KeyKeeper | None = None
) -> Iterator[Audited]:
    """The store of a directory, made on first use."""
    with contextlib.ExitStack() as open_now:
        engine = open_engine(path, durability)
        open_now.callback(engine.close)
        root, header = open_store(engine)
        keys = Keyspace(root)
        keyring = open_now.enter_context(open_keyring(engine_settings(path, durability), engine))
        keeper = keeper or KeyFiles(path / "audit" / "keys")
        signing = SigningKeys.open(engine, keys, header.store_id, keeper, datetime.now(UTC))
        yield Audited(engine, keys, header, keyring, keeper, signing)


@contextlib.contextmanager
def at_work(sequencer: Sequencer, *publishers: Publisher) -> Iterator[None]:
    """A sequencer that works in the background, as in a server. At the end it puts the remaining records in order."""
    background = Background(LOGGER)
    background.add(
        "sequencer", lambda _now: sequencer.keep(background.stopping.is_set), POLL_S, sequencer.wake, GATHER_S
    )
    for publisher in publishers:
        background.add("publisher", lambda _now, found=publisher: found.publish(), publisher.every_s)  # type: ignore[misc]
    background.start()
    try:
        yield
    finally:
        background.stop()
        sequencer.drain()
