"""Limits on what one document may take, and the refusal of a document that cannot be read."""

from __future__ import annotations

import enum
import time
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
    """A document that was refused. The documents beside it are not affected."""

    name: str
    reason: UnparsableReason
    message: str
    """Says what is wrong and how to fix it. Never quotes the document."""
    line: int | None = None
    """The line in a JSON lines file, counted from 1."""

    @property
    def said(self) -> str:
        """Returns the message with the line that it is about."""
        return self.message if self.line is None else f"line {self.line} {self.message}"


class Refusal(Exception):  # noqa: N818 - not an error of ours: it becomes an Unparsable
    """A parser raises it; `parse` turns it into an `Unparsable`."""

    def __init__(self, reason: UnparsableReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def about(self, name: str, line: int | None = None) -> Unparsable:
        return Unparsable(name=name, reason=self.reason, message=self.message, line=line)


MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParseLimits:
    input_bytes_max: int = 256 * MIB
    text_chars_max: int = 64 * MIB
    """For one document, after extraction."""
    pages_max: int = 20_000
    zip_entries_max: int = 10_000
    zip_bytes_max: int = 512 * MIB
    """For all entries together, unpacked."""
    zip_ratio_max: int = 200
    """Unpacked over packed size of all entries that unpack to more than a MiB. Office XML reaches about 30."""
    xml_bytes_max: int = 32 * MIB
    """For one XML part."""
    xml_tags_max: int = 1_000_000
    """For one XML part: mammoth takes about 1 kB of memory and 60 us for each tag."""
    depth_max: int = 256
    """For nested HTML elements and JSON values. The time to parse HTML grows with its square."""
    seconds_max: float = 120.0
    """Checked between pages and while text is joined; a single call into a library is not interrupted."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits, and the deadline of this document."""

    limits: ParseLimits
    deadline_s: float

    @classmethod
    def of(cls, limits: ParseLimits) -> Budget:
        return cls(limits=limits, deadline_s=time.monotonic() + limits.seconds_max)

    def check_time(self) -> None:
        if time.monotonic() > self.deadline_s:
            raise Refusal(
                UnparsableReason.TOO_SLOW, f"took more than {self.limits.seconds_max:g} s to read; split the document"
            )

    def check_text(self, chars: int) -> None:
        check_size(chars, self.limits.text_chars_max, "characters of text")

    def check_input(self, size_bytes: int) -> None:
        check_size(size_bytes, self.limits.input_bytes_max, "bytes")


def check_size(size: int, size_max: int, unit: str) -> None:
    if size > size_max:
        raise Refusal(UnparsableReason.TOO_LARGE, f"has {size:,} {unit}, allowed are {size_max:,}; split the document")
