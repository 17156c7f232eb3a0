"""Publishes checkpoints: witnesses cosign them, the store keeps them, and a sink outside the store receives them.

    head's checkpoint -> witnesses -> kept in the store -> sink

The server that puts records in order also publishes: regularly for each log that has grown, and when it stops. If the
sink fails, checkpoints wait in the store until it works again. Nothing here delays the sequencer.

A witness (c2sp.org/tlog-witness) signs that a checkpoint continues the last one it has seen. It never signs two
histories of a log, so its signature shows that the server shows everybody the same log. Its failures do not stop the
log. The sink makes it possible to notice that a store was rolled back or replaced:

    a file         a line of JSON for each checkpoint: {"checkpoint": note, "log": id, "size": number}
    a directory    signed notes in <log>/<size>, and the newest again in <log>/latest

A checkpoint is durable when `write` returns. After a crash, it may be in the sink twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

import httpx
import orjson
import structlog

from drillcore_fdb.engine import Engine, Figures, Options, Transaction
from drillcore_formats.audit.checkpoints import check_cosignatures, parse_size
from drillcore_formats.audit.encoding import to_base64
from drillcore_formats.audit.findings import Malformed, VerificationFailed
from drillcore_formats.audit.notes import Note, NoteSignature, VerifierKey
from drillcore_formats.settings import SettingsError
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_store import Head, tree_of
from drillcore_server.audit.sequencer import Alert, Sequencer
from drillcore_server.kernel.telemetry import Round
from drillcore_server.storage.keyspace import Keyspace

ANSWER_BYTES_MAX: Final = 10_000
_SIZE_TYPE: Final = "text/x.tlog.size"

Consistency = Callable[[int], list[bytes]]
"""Makes the proof that the checkpoint to cosign continues the tree of an earlier size."""


class WitnessFailed(Exception):  # noqa: N818 - named after what happened
    """A witness did not cosign. The message says why."""


class WitnessAhead(WitnessFailed):
    """The witness has seen a larger log. This store was rolled back, or is a copy."""


@dataclass(frozen=True, slots=True)
class _Conflict:
    size: int


class Witness:
    def __init__(self, url: str, key: str, client: httpx.Client) -> None:
        self.url = url.rstrip("/")
        self._key = VerifierKey.parse(key)
        self._client = client
        self._sizes: dict[UUID, int] = {}
        """The size of each log that the witness has seen, as far as known. Its answers correct this."""

    def cosign(self, log: UUID, size: int, note: Note, consistency: Consistency) -> NoteSignature:
        """The witness's signature of a checkpoint. Raises `WitnessFailed`."""
        answer = self._ask(self._sizes.get(log, 0), size, note, consistency)
        if isinstance(answer, _Conflict):
            if answer.size > size:
                raise WitnessAhead(f"the witness {self.url} has seen {answer.size} records of this log, not {size}")
            answer = self._ask(answer.size, size, note, consistency)
        if isinstance(answer, _Conflict):
            raise WitnessFailed(
                f"the witness {self.url} says that it has seen {answer.size} records, after another size before"
            )
        self._sizes[log] = size
        return answer

    def _ask(self, old: int, size: int, note: Note, consistency: Consistency) -> NoteSignature | _Conflict:
        proof = consistency(min(old, size))
        body = "".join(f"{line}\n" for line in (f"old {min(old, size)}", *map(to_base64, proof), "")) + note.encode()
        try:
            answer = self._client.post(f"{self.url}/add-checkpoint", content=body.encode())
        except httpx.HTTPError as error:
            raise WitnessFailed(f"the witness {self.url} cannot be reached: {error}") from error
        if len(answer.content) > ANSWER_BYTES_MAX:
            raise WitnessFailed(f"the witness {self.url} answered more than {ANSWER_BYTES_MAX:,} bytes")
        try:
            return self._read(answer, note)
        except (VerificationFailed, UnicodeDecodeError) as error:
            raise WitnessFailed(f"the answer of the witness {self.url} cannot be used: {error}") from error

    def _read(self, answer: httpx.Response, note: Note) -> NoteSignature | _Conflict:
        if answer.status_code == httpx.codes.CONFLICT and answer.headers.get("content-type") == _SIZE_TYPE:
            return _Conflict(parse_size(answer.content.decode().strip()))
        if answer.status_code != httpx.codes.OK:
            raise WitnessFailed(f"the witness {self.url} refused, with status {answer.status_code}")
        signatures = [NoteSignature.parse(line) for line in answer.content.decode().splitlines()]
        for signature in signatures:
            if (signature.name, signature.key_hash) == (self._key.name, self._key.key_hash):
                check_cosignatures(Note(note.text, (signature,)), [self._key], required=1)
                return signature
        raise Malformed("there is no signature by its key")


LATEST: Final = "latest"
_SIZE_DIGITS: Final = 20
_TAIL_BYTES: Final = 1 << 20


class Sink(Protocol):
    def check(self) -> None:
        """Raises `OSError` if nothing can be written there."""

    def write(self, log: UUID, size: int, note: str) -> None:
        """Adds a checkpoint durably. Raises `OSError` if it cannot; then nothing was written."""


def open_sink(path: Path) -> Sink:
    """The sink at a path: a file or a directory. Raises `SettingsError` if it cannot be written to."""
    is_file = path.suffix != "" or (path.exists() and not path.is_dir())
    sink: Sink = FileSink(path) if is_file else DirectorySink(path)
    try:
        sink.check()
    except OSError as error:
        raise SettingsError(f"audit.sink {path}: cannot write there: {error.strerror or error}") from error
    return sink


class FileSink:
    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Also removes a line that a crash left half written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            if self._path.is_file():
                _cut_to_lines(self._path)
            file.flush()

    def write(self, log: UUID, size: int, note: str) -> None:
        line = orjson.dumps({"checkpoint": note, "log": str(log), "size": size}) + b"\n"
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                written = file.write(line)
                if written != len(line):
                    raise OSError("only a part was written")
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise


class DirectorySink:
    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        probe = self._path / f".probe-{os.getpid()}"
        _write_whole(probe, b"")
        probe.unlink()

    def write(self, log: UUID, size: int, note: str) -> None:
        directory = self._path / str(log)
        directory.mkdir(parents=True, exist_ok=True)
        _write_whole(directory / f"{size:0{_SIZE_DIGITS}d}", note.encode())
        _write_whole(directory / LATEST, note.encode())


def _write_whole(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _cut_to_lines(path: Path) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - _TAIL_BYTES, 0))
        tail = file.read()
        torn = len(tail) - (tail.rfind(b"\n") + 1)
        if torn:
            file.truncate(end - torn)


SINK_FAILED: Final = "checkpoints cannot be written to the sink"
WITNESS_AHEAD: Final = "a witness has seen a larger log"
_BATCH: Final = 100
"""Checkpoints written to the sink before the store notes how far it is."""


class SinkBehindError(Exception):
    """The sink lacks checkpoints because writing to it failed. The alert that was raised says why."""


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
        self.every_s = every_s
        self._sink = sink
        self._witnesses = witnesses
        self._log = log
        self._on_alert = on_alert
        self._epoch: int | None = None
        """The epoch of the lease in which all logs were last considered."""
        self._due: set[UUID] = set()
        self._sink_fails = False
        self._totals = {"checkpoints": 0.0, "published": 0.0, "sink_failures": 0.0, "witness_failures": 0.0}

    def publish(self) -> None:
        """Publishes every log that has grown or that the sink does not have in full.

        A log that fails does not keep the others. In the end this raises an `ExceptionGroup` with all failures, or
        `SinkBehindError`. May be called again.
        """
        epoch = self._sequencer.epoch
        if epoch is None:
            self._epoch = None
            return
        self._due |= self._sequencer.take_grown()
        if epoch != self._epoch:
            self._due |= self._engine.run(self._all_logs)
            self._epoch = epoch
        with Round(self._log, "checkpoint not published, will try again") as logs:
            for log in sorted(self._due):
                with logs.part(audit_log=str(log)):
                    self._keep(log)
                    if self._write_to_sink(log):
                        self._due.discard(log)
        if self._due:
            raise SinkBehindError(f"the sink lacks checkpoints of {len(self._due)} logs")

    def figures(self) -> Figures:
        gauges = {"sink_failing": float(self._sink_fails), "unpublished_logs": float(len(self._due))}
        return Figures(gauges, self._totals)

    def _all_logs(self, tr: Transaction) -> set[UUID]:
        return {log for log, _ in audit_log.heads(tr.snapshot, self._keys)}

    def _keep(self, log: UUID) -> None:
        """Keeps the head's checkpoint, with the signatures of all witnesses that cosign."""
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
            # No conflict check is needed: the checkpoint is right even if this server has lost its lease.
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

    def _write_to_sink(self, log: UUID) -> bool:
        """Writes the checkpoints of a log that the sink lacks. Returns whether it has all now."""
        if self._sink is None:
            return True
        while batch := self._engine.run(lambda tr: self._not_in_sink(tr, log)):
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

    def _not_in_sink(self, tr: Transaction, log: UUID) -> list[tuple[int, str]]:
        size = audit_log.published_size(tr.snapshot, self._keys, log)
        return audit_log.checkpoints_after(tr.snapshot, self._keys, log, size, _BATCH)

    def _write(self, sink: Sink, log: UUID, size: int, note: str) -> bool:
        try:
            sink.write(log, size, note)
        except OSError as error:
            self._totals["sink_failures"] += 1
            self._alert_once(str(error.strerror or error))
            return False
        if self._sink_fails:
            self._sink_fails = False
            self._log.info("checkpoints are written to the sink again")
        return True

    def _alert_once(self, why: str) -> None:
        """Alerts once for a failure, however long it lasts."""
        if not self._sink_fails:
            self._sink_fails = True
            self._log.error(SINK_FAILED, error=why)
            self._on_alert(SINK_FAILED, {"error": why})
