"""A worker process: is given uploads, one after the other, and says what is in them.

It ends with the server's process, however that ends, and sooner if a document takes more than its share.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import resource
import signal
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection

from drillcore_server.ingest.chunking import ChunkSettings
from drillcore_server.ingest.digesting import Asked, Content, Digester
from drillcore_server.ingest.processing import forget_passages
from drillcore_server.ingest.processing.chat import ChatSettings
from drillcore_server.ingest.processing.opening import open_processor
from drillcore_server.ingest.worker_wire import (
    ANSWERS,
    DEFECT,
    MESSAGE_BYTES_MAX,
    TASK,
    Defect,
    Said,
    Task,
    questions_message,
    result_message,
)
from drillcore_server.tokenizing.encodings import token_counter


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    chat: ChatSettings | None
    memory_bytes_max: int


def work(connection: Connection, settings: WorkerSettings) -> None:
    """The whole life of a worker."""
    _end_with_the_server()
    _limit(settings.memory_bytes_max)
    with ExitStack() as opened:
        counter = token_counter()
        digester = Digester(counter, open_processor(settings.chat, counter, opened), ChunkSettings())
        try:
            connection.send_bytes(Said.READY.value)
            work_on(connection, digester)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the server closed its end: it is done with this worker


def work_on(connection: Connection, digester: Digester) -> None:
    """Reads one upload after the other, and keeps nothing of them: nobody tells a worker that a source was erased."""
    while _work_once(connection, digester):
        forget_passages()


def _end_with_the_server() -> None:
    """Asks the kernel for a signal when the server's end of our lifeline closes: SIGIO ends a process.

    A thread that watches it would not get its turn while a pattern or a parser keeps the interpreter's lock.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the server, which says when its workers end
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)


def _limit(memory_bytes_max: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    # A core file would hold a document in the clear.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work_once(connection: Connection, digester: Digester) -> bool:
    """Whether the worker is fit for another upload."""
    try:
        _read(connection, digester)
    except MemoryError:
        pass  # what filled it is let go of only after this block
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # a defect of ours fails the document, not the worker
        connection.send_bytes(Said.DEFECT.value + DEFECT.encode(Defect(_place(error))))
        return True
    else:
        connection.send_bytes(Said.END.value)
        return True
    connection.send_bytes(Said.NO_MEMORY.value)
    return False


def _read(connection: Connection, digester: Digester) -> None:
    task = TASK.decode(connection.recv_bytes(MESSAGE_BYTES_MAX))
    content = Content(connection.recv_bytes(MESSAGE_BYTES_MAX), task.name, task.media_type)
    for result in digester.read(content, lambda asked: _known(connection, task, asked)):
        connection.send_bytes(result_message(result))


def _known(connection: Connection, task: Task, asked: Sequence[Asked]) -> Sequence[str | None]:
    if all(one.is_the_upload for one in asked):
        return [task.known_hash for _ in asked]
    connection.send_bytes(questions_message(asked))
    return ANSWERS.decode(connection.recv_bytes(MESSAGE_BYTES_MAX)).hashes


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {os.path.basename(last.filename)}:{last.lineno}"
