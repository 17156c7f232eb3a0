"""Reads uploads in child processes: parsers are native or heavy code, and documents are untrusted.

A document that crashes its worker, never ends or takes too much memory fails alone and with a reason, and the worker is
replaced. Workers are never forked from the server, but from a process without threads that has loaded what they need
(`reader_preload`). They start with the first upload and end with the server.

Rejected: `concurrent.futures.ProcessPoolExecutor`. It breaks for good once one of its processes dies, and it cannot end
a process that hangs.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from multiprocessing.connection import Connection
from typing import Final

from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.documents.ingestion.digest import (
    Content,
    DigestedDocument,
    DocumentQuestion,
    KnownHashes,
    Reading,
)
from drillcore_server.documents.ingestion.reader_process import (
    ANSWERS,
    DEFECT,
    MESSAGE_BYTES_MAX,
    QUESTIONS,
    TASK,
    Answers,
    Task,
    WorkerMessage,
    WorkerSettings,
    result_message,
    result_of,
    work,
)
from drillcore_server.documents.parsers import Unparsable, UnparsableReason
from drillcore_server.kernel.child_process import exit_text
from drillcore_server.kernel.errors import Unavailable

UNREAD_BYTES_MAX: Final = 4 << 20
"""The size of the results of one upload that may wait to be read. Then its worker waits."""
_START_S: Final = 60.0
"""The time for a worker to start. The first worker waits about a second for the process that all are forked from."""
_KILL_S: Final = 5.0
"""The time that the operating system gets to end a killed process."""


class Workers:
    """Implements `Readers` with child processes. Uploads begin in the order in which they arrive.

    This order keeps two calls from waiting for each other: each call waits for its oldest upload, and that one began
    before all its others, so a worker is reading it.
    """

    def __init__(self, count: int, document_timeout_s: float, settings: WorkerSettings) -> None:
        self._count = count
        self._document_timeout_s = document_timeout_s
        self._settings = settings
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="drillcore-worker")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._under_way: set[_Upload] = set()
        self._closed = False

    @property
    def at_once(self) -> int:
        return 2 * self._count

    def begin(self, content: Content, known: KnownHashes) -> Reading:
        upload = _Upload(content, known, self._document_timeout_s)
        with self._lock:
            if self._closed:
                raise Unavailable(Reason.SHUTTING_DOWN, "the server is stopping")
            self._under_way.add(upload)
            self._threads.submit(copy_context().run, self._read, upload)
        return upload

    def close(self) -> None:
        with self._lock:
            self._closed = True
            under_way, idle = list(self._under_way), list(self._idle)
            self._idle.clear()
        for upload in under_way:
            upload.give_up()
        self._threads.shutdown(cancel_futures=True)
        for worker in idle:
            worker.end()

    def _read(self, upload: _Upload) -> None:
        try:
            self._read_with_a_worker(upload)
        except BaseException as error:  # the thread that waits for the results raises it again
            upload.queue.end(error)
        finally:
            with self._lock:
                self._under_way.discard(upload)

    def _read_with_a_worker(self, upload: _Upload) -> None:
        if upload.is_dropped:
            return
        worker = self._worker()
        try:
            is_fit = upload.read_with(worker)
        except BaseException:
            worker.end()
            raise
        if is_fit:
            with self._lock:
                if not self._closed:
                    self._idle.append(worker)
                    return
        worker.end()

    def _worker(self) -> _Worker:
        """Returns a living worker. Replaces workers that ended while they were idle."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                worker = self._idle.pop()
            if worker.is_alive():
                return worker
            worker.end()
        return _Worker.start(self._settings)


# Guards the list of processes in multiprocessing, which has no lock of its own.
_PROCESSES: Final = threading.Lock()


class _Worker:
    def __init__(self, process: multiprocessing.process.BaseProcess, connection: Connection) -> None:
        self._process = process
        self.connection = connection

    @classmethod
    def start(cls, settings: WorkerSettings) -> _Worker:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["drillcore_server.documents.ingestion.reader_preload"])
        ours, theirs = context.Pipe()
        with theirs, _PROCESSES:
            process = context.Process(target=work, args=(theirs, settings), name="drillcore-worker", daemon=True)
            process.start()
        worker = cls(process, ours)
        try:
            if ours.poll(_START_S) and ours.recv_bytes(1) == WorkerMessage.READY.value:
                return worker
        except EOFError:
            pass
        raise RuntimeError(f"a worker did not start ({worker.end()})")

    def is_alive(self) -> bool:
        with _PROCESSES:
            return self._process.is_alive()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    def end(self) -> str:
        """Kills the worker unless it has ended. Returns what ended it, as text."""
        self.connection.close()
        with _PROCESSES:
            self._process.join(0.0)
            self.kill()
            self._process.join(_KILL_S)
            return exit_text(self._process.exitcode)


class _Upload:
    """One upload on its way through a worker. A thread of the pool reads it. The thread of a call takes the results."""

    def __init__(self, content: Content, known: KnownHashes, timeout_s: float) -> None:
        self._content = content
        self._known = known
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._documents = 0
        self.queue = ResultQueue(UNREAD_BYTES_MAX)
        self.is_dropped = False

    def results(self) -> Iterator[DigestedDocument | Unparsable]:
        for message in self.queue:
            try:
                yield result_of(message)
            except StoreCorruptError:
                self.drop()
                yield self._failed(
                    UnparsableReason.CRASHED, "made the process that read it send something that is no document"
                )
                return

    def drop(self) -> None:
        self._stop(None)

    def give_up(self) -> None:
        """Drops the upload because the server stops. The thread that waits for its results gets an `Unavailable`."""
        self._stop(Unavailable(Reason.SHUTTING_DOWN, "the server is stopping; nothing was added"))

    def _stop(self, error: BaseException | None) -> None:
        # Drops the upload before it ends the queue: its worker is in the middle of an upload and must not be reused.
        with self._lock:
            self.is_dropped = True
            if self._worker is not None:
                self._worker.kill()
        self.queue.end(error)

    def read_with(self, worker: _Worker) -> bool:
        """Returns whether the worker can be used again."""
        with self._lock:
            if self.is_dropped:
                return True
            self._worker = worker
        try:
            last = self._exchange(worker)
        except (EOFError, OSError, ValueError, StoreCorruptError):
            last = self._failed(UnparsableReason.CRASHED, f"crashed the process that read it ({worker.end()})")
        with self._lock:
            self._worker = None
        if last is not None:
            self.queue.put(result_message(last))
        self.queue.end()
        return last is None and not self.is_dropped

    def _exchange(self, worker: _Worker) -> Unparsable | None:
        """Returns the reason if the upload was not read to its end."""
        connection = worker.connection
        (known_hash,) = self._known([DocumentQuestion(None, 0)])
        connection.send_bytes(TASK.encode(Task(self._content.name, self._content.media_type, known_hash)))
        connection.send_bytes(self._content.data)
        while connection.poll(self._timeout_s):
            message = connection.recv_bytes(MESSAGE_BYTES_MAX)
            said = WorkerMessage(message[:1])
            if said is WorkerMessage.END:
                return None
            if said is WorkerMessage.ASKED:
                hashes = self._known(QUESTIONS.decode(message[1:]).asked)
                connection.send_bytes(ANSWERS.encode(Answers(tuple(hashes))))
            elif said is WorkerMessage.NO_MEMORY:
                setting = "ingest.worker_memory_bytes_max"
                return self._failed(UnparsableReason.OUT_OF_MEMORY, f"takes more memory than {setting} allows")
            elif said is WorkerMessage.DEFECT:
                place = DEFECT.decode(message[1:]).place
                return self._failed(UnparsableReason.CRASHED, f"met a defect of the server ({place})")
            else:
                self._documents += 1
                if not self.queue.put(message):
                    return None
        worker.kill()
        setting = "ingest.document_timeout_s"
        return self._failed(UnparsableReason.TOO_SLOW, f"took more than the {self._timeout_s:g} s of {setting} to read")

    def _failed(self, reason: UnparsableReason, what: str) -> Unparsable:
        where = f" after the first {self._documents} of its documents" if self._documents else ""
        return Unparsable(self._content.name, reason, f"{what}{where}; split it, or leave it out")


class ResultQueue:
    """Passes messages from one thread to another. `put` waits while more than `bytes_max` are unread.

    Either thread may end the queue.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._messages: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, message: bytes) -> bool:
        """Returns false if the queue has ended: nobody wants more messages."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._bytes <= self._bytes_max)
            if not self._ended:
                self._messages.append(message)
                self._bytes += len(message)
                self._changed.notify_all()
            return not self._ended

    def end(self, error: BaseException | None = None) -> None:
        """Ends the queue. The reader still gets its messages, then the error, if any. Only the first call counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._messages))
            if not self._messages:
                if self._error is not None:
                    raise self._error
                return None
            message = self._messages.popleft()
            self._bytes -= len(message)
            self._changed.notify_all()
            return message
