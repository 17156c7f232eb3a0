"""Keeps checkpoints, has them cosigned, and brings them out of the store.

    head's checkpoint -> witnesses -> kept in the store -> sink

The server that puts records in order does this too, every so often for each log that has grown, and when it stops. What
the sink cannot take is kept, and brought there once it can. Nothing here holds the sequencer up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import structlog

from drillcore.audit.notes import Note
from drillcore_fdb.engine import Engine, Figures, Options, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_server.audit.proofs import tree_of
from drillcore_server.audit.sequencer import Alert, Sequencer
from drillcore_server.audit.sinks import Sink
from drillcore_server.audit.witness import Witness, WitnessAhead, WitnessFailed
from drillcore_server.store import audit_log
from drillcore_server.store.audit_log import Head
from drillcore_server.store.keyspace import Keyspace

SINK_FAILED: Final = "checkpoints cannot be written to the sink"
WITNESS_AHEAD: Final = "a witness has seen a larger log"
_BATCH: Final = 100
"""Checkpoints brought to the sink between two notes of how far it is."""


class Publisher:
    def __init__(
        self,
        engine: Engine,
        keys: Keyspace,
        sequencer: Sequencer,
        every_s: float,
        sink: Sink | None,
        witnesses: Sequence[Witness],
        log: structlog.stdlib.BoundLogger,
        on_alert: Alert,
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._sequencer = sequencer
        self._every_s = every_s
        self._sink = sink
        self._witnesses = witnesses
        self._log = log
        self._on_alert = on_alert
        self._epoch: int | None = None
        """When all logs were last looked at."""
        self._due: set[UUID] = set()
        self._sink_fails = False
        self._totals = {"checkpoints": 0.0, "published": 0.0, "sink_failures": 0.0, "witness_failures": 0.0}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drillcore-publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Publishes what the logs are now, and returns."""
        self._stopping.set()
        self._thread.join()
        self._guarded()

    def publish(self) -> None:
        """Publishes every log that has grown, or of which something is not in the sink yet. Raises `EngineError`."""
        epoch = self._sequencer.epoch
        if epoch is None:
            self._epoch = None
            return
        self._due |= self._sequencer.take_grown()
        if epoch != self._epoch:
            self._due |= self._engine.run(self._all_logs)
            self._epoch = epoch
        for log in sorted(self._due):
            self._keep(log)
            if self._bring_out(log):
                self._due.discard(log)

    def figures(self) -> Figures:
        gauges = {"sink_failing": float(self._sink_fails), "unpublished_logs": float(len(self._due))}
        return Figures(gauges, self._totals)

    def _all_logs(self, tr: Transaction) -> set[UUID]:
        return {log for log, _ in audit_log.heads(tr.snapshot, self._keys)}

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self._guarded()

    def _guarded(self) -> None:
        try:
            self.publish()
        except EngineError as error:
            self._log.warning("checkpoints not published, will try again", error=error.message, code=error.code)
        except Exception as error:
            self._log.exception("checkpoints not published, a defect", error=type(error).__name__)

    def _keep(self, log: UUID) -> None:
        """Keeps the head's checkpoint, with the signatures of the witnesses that can be had."""
        head, kept = self._engine.run(
            lambda tr: (
                audit_log.head(tr.snapshot, self._keys, log),
                audit_log.last_checkpoint(tr.snapshot, self._keys, log),
            )
        )
        if head.size == 0 or (kept is not None and kept[0] >= head.size):
            return
        note = self._cosigned(log, head).encode()

        def work(tr: Transaction) -> None:
            # Not a reason for a conflict: a server that has lost the lease keeps a checkpoint that is just as good.
            audit_log.put_checkpoint(tr, self._keys, log, head.size, note)

        self._engine.run(work, Options(idempotent=True))
        self._totals["checkpoints"] += 1

    def _cosigned(self, log: UUID, head: Head) -> Note:
        note = Note.parse(head.checkpoint)
        signatures = []
        for witness in self._witnesses:
            try:
                signatures.append(witness.cosign(log, head.size, note, self._consistency(log, head.size)))
            except WitnessFailed as failed:
                self._totals["witness_failures"] += 1
                self._log.warning("a witness did not cosign", audit_log=str(log), error=str(failed))
                if isinstance(failed, WitnessAhead):
                    self._on_alert(WITNESS_AHEAD, {"log": str(log), "size": head.size, "witness": witness.url})
        return Note(note.text, (*note.signatures, *signatures))

    def _consistency(self, log: UUID, size: int) -> Callable[[int], list[bytes]]:
        def prove(old: int) -> list[bytes]:
            return self._engine.run(lambda tr: tree_of(tr.snapshot, self._keys, log, size).consistency(old, size))

        return prove

    def _bring_out(self, log: UUID) -> bool:
        """Writes what the sink has not got of a log; whether it has all now."""
        if self._sink is None:
            return True
        while batch := self._engine.run(lambda tr: self._not_brought_out(tr, log)):
            for size, note in batch:
                if not self._write(self._sink, log, size, note):
                    return False
            last = batch[-1][0]
            self._engine.run(
                lambda tr, size=last: audit_log.set_published_size(tr, self._keys, log, size),  # type: ignore[misc]
                Options(idempotent=True),
            )
            self._totals["published"] += len(batch)
        return True

    def _not_brought_out(self, tr: Transaction, log: UUID) -> list[tuple[int, str]]:
        size = audit_log.published_size(tr.snapshot, self._keys, log)
        return audit_log.checkpoints_after(tr.snapshot, self._keys, log, size, _BATCH)

    def _write(self, sink: Sink, log: UUID, size: int, note: str) -> bool:
        try:
            sink.write(log, size, note)
        except OSError as error:
            self._totals["sink_failures"] += 1
            self._tell(str(error.strerror or error))
            return False
        if self._sink_fails:
            self._sink_fails = False
            self._log.info("checkpoints are written to the sink again")
        return True

    def _tell(self, why: str) -> None:
        """Once, however long it lasts."""
        if not self._sink_fails:
            self._sink_fails = True
            self._log.error(SINK_FAILED, error=why)
            self._on_alert(SINK_FAILED, {"error": why})
