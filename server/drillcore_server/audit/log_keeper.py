"""Opens the signing keys of a store, runs the sequencer and the publisher, and records the server's own alerts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import structlog

from drillcore_fdb.engine import Engine, Figures, Options, Transaction
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_writer import LogWriter
from drillcore_server.audit.publisher import Publisher, Witness, open_sink
from drillcore_server.audit.sequencer import Alert, Sequencer
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.audit.signing_keys import KeyFiles, SignerProgram
from drillcore_server.kernel.access import SERVER, Granted, as_server
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.kernel.telemetry import Round
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import RequestId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind


@contextmanager
def open_signing(
    settings: AuditSettings, key_dir: Path, engine: Engine, keys: Keyspace, store: UUID
) -> Iterator[SigningKeys]:
    """Opens the signing keys, and notes whether the store was restored from a backup.

    The keys are in `key_dir`, unless a program holds them. Call it before the first record is made: a restored store
    must not reuse versionstamps.
    """
    with ExitStack() as opened:
        if settings.signer_command:
            program = SignerProgram(settings.signer_command, settings.signer_timeout_s)
            opened.callback(program.close)
            signing = SigningKeys.open(engine, keys, store, program, datetime.now(UTC))
        else:
            signing = SigningKeys.open(engine, keys, store, KeyFiles(key_dir), datetime.now(UTC))
        note_restore(engine, keys)
        yield signing


def note_restore(engine: Engine, keys: Keyspace, *, restored: bool = False) -> bool:
    """Begins a new incarnation if the store was restored from a backup. Returns whether it was.

    A restore is detected only if versions have gone back, as on a new cluster. After a restore in place, pass
    `restored`.
    """

    def work(tr: Transaction) -> bool:
        if not restored and not audit_log.is_restored(tr, keys):
            return False
        audit_log.begin_incarnation(tr, keys)
        return True

    # After a commit with an unknown result there may be a second incarnation, which does no harm.
    return engine.run(work, Options(idempotent=True))


@dataclass(frozen=True, slots=True)
class LogKeeper:
    """The sequencer and the publisher of a server. Its owner runs both, and calls `finish` in the end."""

    sequencer: Sequencer
    publisher: Publisher
    log: structlog.stdlib.BoundLogger

    @classmethod
    def open(
        cls,
        settings: AuditSettings,
        engine: Engine,
        keys: Keyspace,
        writer: LogWriter,
        log: structlog.stdlib.BoundLogger,
        on_alert: Alert,
        opened: ExitStack,
        *,
        alone: bool,
    ) -> LogKeeper:
        """Raises `SettingsError` if the sink cannot be written to.

        What must be closed later is added to `opened`. `alone` means that no other server can have the store open.
        """
        sink = None if settings.sink is None else open_sink(settings.sink)
        sequencer = Sequencer(engine, keys, writer, settings.lease_s, log, on_alert, alone=alone)
        witnesses = []
        if settings.witnesses:
            client = opened.enter_context(httpx.Client(timeout=settings.witness_timeout_s))
            witnesses = [Witness(witness.url, witness.key, client) for witness in settings.witnesses]
        every_s = settings.checkpoint_every_s
        return cls(sequencer, Publisher(engine, keys, sequencer, every_s, sink, witnesses, log, on_alert), log)

    def finish(self) -> None:
        """Puts the last records in order, publishes them and releases the lease. Call it after the last call."""
        with suppress(ExceptionGroup), Round(self.log, "audit log not finished, the next start goes on") as ends:
            for step in (self.sequencer.drain, self.publisher.publish, self.sequencer.release):
                with ends.part():
                    step()

    def figures(self) -> Figures:
        ordered, published = self.sequencer.figures(), self.publisher.figures()
        return Figures({**ordered.gauges, **published.gauges}, {**ordered.totals, **published.totals})


_OWN_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Own:
    call: str


_OWN: Final = RecordKind(_Own)


def raise_alert(unit: Unit, kind: str, detail: Mapping[str, Any]) -> None:
    """Records in the server's own log that something is wrong. Raises `Refused` if it cannot be recorded.

    `detail` has ids, numbers and messages, but no content.
    """
    record_own(unit, "Alert", {"kind": kind, **detail})


def record_own(unit: Unit, action: str, detail: Mapping[str, Any]) -> None:
    """Records in the server's own log what the server itself did. `action` and `detail` are as in other records."""
    request = RequestId(f"{action.lower()}-{uuid4()}")
    fingerprint = hashlib.sha256(request.encode()).digest()
    call = Call(action, request, SERVER, datetime.now(UTC), _OWN_TIMEOUT_S, fingerprint)

    def work(_tr: Transaction, _granted: Granted, trail: Trail) -> _Own:
        trail.detail |= detail
        return _Own(action)

    unit.write(call, as_server(None), _OWN, work)
