"""What the server and a worker say to each other: a byte that names the message, then its content.

Records, not pickles: a worker that a document has taken over can send wrong data, but no code.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_server.ingest.digesting import Asked, DigestedDocument
from drillcore_server.ingest.parsing import Unparsable
from drillcore_server.store.records import RecordKind

MESSAGE_BYTES_MAX: Final = 1 << 30
"""A document may have 64 Mi characters of up to 4 bytes; its digests are less than its text."""


class Said(enum.Enum):
    """What a worker says: once that it is ready, then of each upload what is in it."""

    READY = b"r"
    DOCUMENT = b"d"
    UNPARSABLE = b"u"
    ASKED = b"a"
    """Which contents are known? Goes on when it is told."""
    NO_MEMORY = b"m"
    """The last message of this worker."""
    DEFECT = b"x"
    END = b"e"


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    media_type: str
    known_hash: str | None
    """Of the upload's own source. The content follows as a message of its own."""


@dataclass(frozen=True, slots=True)
class Questions:
    asked: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    hashes: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Defect:
    """Where in our own code, never with what content."""

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
    """Raises StoreCorruptError for what no sound worker sends."""
    kind = _UNPARSABLE if message[:1] == Said.UNPARSABLE.value else _DOCUMENT
    return kind.decode(message[1:])


def questions_message(asked: Sequence[Asked]) -> bytes:
    return Said.ASKED.value + QUESTIONS.encode(Questions(tuple(asked)))
