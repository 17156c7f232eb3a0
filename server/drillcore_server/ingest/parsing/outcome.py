"""What parsing says of a document it cannot take."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class UnparsableReason(enum.Enum):
    EMPTY = "empty"
    NOT_TEXT = "not_text"
    BROKEN_ENCODING = "broken_encoding"
    ENCRYPTED = "encrypted"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    TOO_SLOW = "too_slow"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    UNSUPPORTED = "unsupported"
    DUPLICATE_ID = "duplicate_id"


@dataclass(frozen=True, slots=True)
class Unparsable:
    """One document that was refused; those beside it are not affected."""

    name: str
    reason: UnparsableReason
    message: str
    """What is wrong and how to mend it. Never quotes the document."""
    line: int | None = None
    """Of a JSON lines file, counted from 1."""

    @property
    def said(self) -> str:
        """The message, with the line it is about."""
        return self.message if self.line is None else f"line {self.line} {self.message}"


class Refusal(Exception):  # noqa: N818 - not an error of ours: it becomes an Unparsable
    """Raised inside a parser, and turned into an Unparsable by `parse`."""

    def __init__(self, reason: UnparsableReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def about(self, name: str, line: int | None = None) -> Unparsable:
        return Unparsable(name=name, reason=self.reason, message=self.message, line=line)
