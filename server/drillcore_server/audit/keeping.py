"""What a server needs to keep its audit logs: the keys that sign, and the threads that put records in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import httpx
import structlog

from drillcore_fdb.engine import Engine, Figures, Options, Transaction
from drillcore_server.audit.key_files import KeyFiles
from drillcore_server.audit.publisher import Publisher
from drillcore_server.audit.sequencer import Alert, Sequencer
from drillcore_server.audit.sequencing import LogWriter
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.audit.signer_program import SignerProgram
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.audit.sinks import open_sink
from drillcore_server.audit.witness import Witness
from drillcore_server.store import audit_log
from drillcore_server.store.keyspace import Keyspace


@contextmanager
def open_signing(
    settings: AuditSettings, data_dir: Path, engine: Engine, keys: Keyspace, store: UUID
) -> Iterator[SigningKeys]:
    """The keys of a store, and a store that knows whether it was restored from a backup.

    Before the first record is made: what was restored must not go on under numbers that it has used already.
    """
    with ExitStack() as opened:
        if settings.signer_command:
            program = SignerProgram(settings.signer_command, settings.signer_timeout_s)
            opened.callback(program.close)
            signing = SigningKeys.open(engine, keys, store, program, datetime.now(UTC))
        else:
            files = KeyFiles(settings.key_dir or data_dir / "audit" / "keys")
            signing = SigningKeys.open(engine, keys, store, files, datetime.now(UTC))
        note_restore(engine, keys)
        yield signing


def note_restore(engine: Engine, keys: Keyspace, *, restored: bool = False) -> bool:
    """Begins a new incarnation if the store was restored from a backup; whether it was.

    That shows by itself only where versions have gone back, as on a new cluster. Whoever restores a store in place says
    so with `restored`.
    """

    def work(tr: Transaction) -> bool:
        if not restored and not audit_log.is_restored(tr, keys):
            return False
        audit_log.begin_incarnation(tr, keys)
        return True

    # A second incarnation, after a commit whose result was unknown, does no harm.
    return engine.run(work, Options(idempotent=True))


@dataclass(frozen=True, slots=True)
class LogKeeper:
    """The threads that put records in order, and publish checkpoints."""

    sequencer: Sequencer
    publisher: Publisher

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
        """Raises `SettingsError` if checkpoints cannot be written where they should go.

        What must be closed in the end is given to `opened`. `alone`: no other server can have the store open.
        """
        sink = None if settings.sink is None else open_sink(settings.sink)
        sequencer = Sequencer(engine, keys, writer, settings.lease_s, log, on_alert, alone=alone)
        witnesses = []
        if settings.witnesses:
            client = opened.enter_context(httpx.Client(timeout=settings.witness_timeout_s))
            witnesses = [Witness(one.url, one.key, client) for one in settings.witnesses]
        every_s = settings.checkpoint_every_s
        return cls(sequencer, Publisher(engine, keys, sequencer, every_s, sink, witnesses, log, on_alert))

    def start(self) -> None:
        self.sequencer.start()
        self.publisher.start()

    def stop(self) -> None:
        """After the last call: what it recorded is put in order, and published."""
        self.sequencer.stop()
        self.publisher.stop()
        self.sequencer.release()

    def figures(self) -> Figures:
        ordered, published = self.sequencer.figures(), self.publisher.figures()
        return Figures({**ordered.gauges, **published.gauges}, {**ordered.totals, **published.totals})
