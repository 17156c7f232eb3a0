"""The worker process: receives uploads, one after the other, and answers with the documents in them.

A message is a byte for its kind, then a record. Records are not pickles: a worker that a malicious document controls
can send wrong data, but no code. A worker ends with the server, or earlier if a document takes too much memory.
"""

from __future__ import annotations

import enum
import multiprocessing
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from drillcore_server.documents.ingestion.chunk_spans import ChunkSettings
from drillcore_server.documents.ingestion.digest import Content, DigestedDocument, Digester, DocumentQuestion
from drillcore_server.documents.parsers import Unparsable
from drillcore_server.documents.processors import forget_passages
from drillcore_server.documents.processors.chat import ChatSettings
from drillcore_server.documents.processors.openai_processor import open_processor
from drillcore_server.kernel.child_process import (
    end_when_closed,
    leave_no_core_file,
    leave_stop_signals_to_the_server,
    place_of,
)
from drillcore_server.storage.records import RecordKind
from drillcore_server.tokenizers.encodings import token_counter

MESSAGE_BYTES_MAX: Final = 1 << 30
"""A document may have 64 Mi characters of up to 4 bytes. Its digests are smaller than its text."""


class WorkerMessage(enum.Enum):
    """The kinds of messages from a worker: READY once, then for each upload its results and END."""

    READY = b"r"
    DOCUMENT = b"d"
    UNPARSABLE = b"u"
    ASKED = b"a"
    """Asks for the content hashes that the corpus has. The worker waits for the answer."""
    NO_MEMORY = b"m"
    """The worker ran out of memory. This is its last message."""
    DEFECT = b"x"
    """An error in our own code, in place of END. The worker continues with the next upload."""
    END = b"e"


@dataclass(frozen=True, slots=True)
class Task:
    """An upload for a worker. The content follows as a message of its own."""

    name: str
    media_type: str
    known_hash: str | None
    """The content hash that the corpus has for the source of the upload, if any."""


@dataclass(frozen=True, slots=True)
class Questions:
    asked: tuple[DocumentQuestion, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    hashes: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Defect:
    """Where our own code failed. Contains nothing of the document."""

    place: str


TASK: Final = RecordKind(Task)
QUESTIONS: Final = RecordKind(Questions)
ANSWERS: Final = RecordKind(Answers)
DEFECT: Final = RecordKind(Defect)
_DOCUMENT: Final = RecordKind(DigestedDocument)
_UNPARSABLE: Final = RecordKind(Unparsable)


def result_message(result: DigestedDocument | Unparsable) -> bytes:
    if isinstance(result, Unparsable):
        return WorkerMessage.UNPARSABLE.value + _UNPARSABLE.encode(result)
    return WorkerMessage.DOCUMENT.value + _DOCUMENT.encode(result)


def result_of(message: bytes) -> DigestedDocument | Unparsable:
    """Raises `StoreCorruptError` if the message is not a result."""
    kind = _UNPARSABLE if message[:1] == WorkerMessage.UNPARSABLE.value else _DOCUMENT
    return kind.decode(message[1:])


def questions_message(asked: Sequence[DocumentQuestion]) -> bytes:
    return WorkerMessage.ASKED.value + QUESTIONS.encode(Questions(tuple(asked)))


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    chat: ChatSettings | None
    memory_bytes_max: int


def work(connection: Connection, settings: WorkerSettings) -> None:
    """Runs a worker process from its start to its end."""
    _end_with_the_server()
    _limit(settings.memory_bytes_max)
    with ExitStack() as opened:
        counter = token_counter()
        digester = Digester(counter, open_processor(settings.chat, counter, opened), ChunkSettings())
        try:
            connection.send_bytes(WorkerMessage.READY.value)
            work_on(connection, digester)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the server closed its end of the pipe: it does not need this worker any more


def work_on(connection: Connection, digester: Digester) -> None:
    """Reads one upload after the other. Keeps nothing of them: a worker does not learn when a source is erased."""
    while _work_once(connection, digester):
        forget_passages()


def _end_with_the_server() -> None:
    leave_stop_signals_to_the_server()
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_when_closed(parent.sentinel)


def _limit(memory_bytes_max: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    leave_no_core_file()


def _work_once(connection: Connection, digester: Digester) -> bool:
    """Returns whether the worker can read another upload."""
    try:
        _read(connection, digester)
    except MemoryError:
        pass  # answers after this block: only then is the memory free
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # a defect of ours fails the document, not the worker
        connection.send_bytes(WorkerMessage.DEFECT.value + DEFECT.encode(Defect(place_of(error))))
        return True
    else:
        connection.send_bytes(WorkerMessage.END.value)
        return True
    connection.send_bytes(WorkerMessage.NO_MEMORY.value)
    return False


def _read(connection: Connection, digester: Digester) -> None:
    task = TASK.decode(connection.recv_bytes(MESSAGE_BYTES_MAX))
    content = Content(connection.recv_bytes(MESSAGE_BYTES_MAX), task.name, task.media_type)
    for result in digester.read(content, lambda asked: _known(connection, task, asked)):
        connection.send_bytes(result_message(result))


def _known(connection: Connection, task: Task, asked: Sequence[DocumentQuestion]) -> Sequence[str | None]:
    if all(question.is_the_upload for question in asked):
        return [task.known_hash for _ in asked]
    connection.send_bytes(questions_message(asked))
    return ANSWERS.decode(connection.recv_bytes(MESSAGE_BYTES_MAX)).hashes
