"""The worker process: gets uploads, one after the other, and answers with the documents in them.

A message is a byte that names it, then a record. Records are not pickles: a worker that a document has taken over can
send wrong data, but no code. A worker ends with the server, and sooner if a document takes too much.
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
from drillcore_server.documents.ingestion.digest import Asked, Content, DigestedDocument, Digester
from drillcore_server.documents.parsing import Unparsable
from drillcore_server.documents.processing import forget_passages
from drillcore_server.documents.processing.chat import ChatSettings
from drillcore_server.documents.processing.openai_processor import open_processor
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


class Said(enum.Enum):
    """What a worker says: once that it is ready, then the results of each upload."""

    READY = b"r"
    DOCUMENT = b"d"
    UNPARSABLE = b"u"
    ASKED = b"a"
    """Asks which contents the corpus has. The worker continues with the answer."""
    NO_MEMORY = b"m"
    """The last message of this worker."""
    DEFECT = b"x"
    END = b"e"


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    media_type: str
    known_hash: str | None
    """The content hash of the upload's own source. The content follows as a message of its own."""


@dataclass(frozen=True, slots=True)
class Questions:
    asked: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    hashes: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Defect:
    """A place in our own code, without content."""

    place: str


TASK: Final = RecordKind(Task)
QUESTIONS: Final = RecordKind(Questions)
ANSWERS: Final = RecordKind(Answers)
DEFECT: Final = RecordKind(Defect)
_DOCUMENT: Final = RecordKind(DigestedDocument)
_UNPARSABLE: Final = RecordKind(Unparsable)


def result_message(result: DigestedDocument | Unparsable) -> bytes:
    if isinstance(result, Unparsable):
        return Said.UNPARSABLE.value + _UNPARSABLE.encode(result)
    return Said.DOCUMENT.value + _DOCUMENT.encode(result)


def result_of(message: bytes) -> DigestedDocument | Unparsable:
    """Raises `StoreCorruptError` for what no sound worker sends."""
    kind = _UNPARSABLE if message[:1] == Said.UNPARSABLE.value else _DOCUMENT
    return kind.decode(message[1:])


def questions_message(asked: Sequence[Asked]) -> bytes:
    return Said.ASKED.value + QUESTIONS.encode(Questions(tuple(asked)))


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    chat: ChatSettings | None
    memory_bytes_max: int


def work(connection: Connection, settings: WorkerSettings) -> None:
    """Runs a worker from its start to its end."""
    _end_with_the_server()
    _limit(settings.memory_bytes_max)
    with ExitStack() as opened:
        counter = token_counter()
        digester = Digester(counter, open_processor(settings.chat, counter, opened), ChunkSettings())
        try:
            connection.send_bytes(Said.READY.value)
            work_on(connection, digester)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the server closed its end: it does not need this worker any more


def work_on(connection: Connection, digester: Digester) -> None:
    """Reads one upload after the other and keeps nothing: nobody tells a worker that a source was erased."""
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
        pass  # the memory is freed only after this block
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # our own defect fails the document, not the worker
        connection.send_bytes(Said.DEFECT.value + DEFECT.encode(Defect(place_of(error))))
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
    if all(question.is_the_upload for question in asked):
        return [task.known_hash for _ in asked]
    connection.send_bytes(questions_message(asked))
    return ANSWERS.decode(connection.recv_bytes(MESSAGE_BYTES_MAX)).hashes
