"""Parsed documents, the limits of parsing, and the refusal of a document that cannot be read."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from drillcore_server.storage.ids import Span

MIB = 1024 * 1024


class BlockKind(enum.Enum):
    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE = "table"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Block:
    """A run of text that belongs together. Blocks are in order, do not overlap, and leave out only white space."""

    kind: BlockKind
    span: Span
    level: int = 0
    """The level of a heading, where 1 is the highest; 0 for every other kind."""
    page: int | None = None
    """Counted from 1. None if the format has no pages."""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    text: str
    """Spans count in this text. For text formats it is exactly the decoded characters, line ends included."""
    media_type: str
    title: str
    blocks: tuple[Block, ...]
    preprocessing: tuple[str, ...] = ()
    """The steps from the bytes to the text, in order, such as "decoded as utf-8"."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    external_id: str | None = None
    """The document's own id, if its format carries one."""


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """The place of a chunk: the text that it shows, and the raw spans that it owns.

    The raw spans of a document's chunks follow each other without gaps and cover the whole document, so the original
    can be put together from them. `span` is the text that readers see: the raw spans, and before them the overlap with
    the end of the previous chunk.
    """

    span: Span
    raws: tuple[Span, ...]
    headings: tuple[str, ...]
    """The titles of the headings above the chunk, the highest first."""
    page: int | None
    tokens: int


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
    """A document that was refused. The other documents of the same upload are not affected."""

    name: str
    reason: UnparsableReason
    message: str
    """Says what is wrong and how to fix it. Never quotes the document."""
    line: int | None = None
    """The line in a JSON lines file, counted from 1."""

    @property
    def said(self) -> str:
        """The message, preceded by the line number if there is one."""
        return self.message if self.line is None else f"line {self.line} {self.message}"


class Refusal(Exception):  # noqa: N818 - not an error of ours: it becomes an Unparsable
    """Raised by a parser. `parse` turns it into an `Unparsable`."""

    def __init__(self, reason: UnparsableReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def about(self, name: str, line: int | None = None) -> Unparsable:
        return Unparsable(name=name, reason=self.reason, message=self.message, line=line)


@dataclass(frozen=True, slots=True)
class ParseLimits:
    input_bytes_max: int = 256 * MIB
    text_chars_max: int = 64 * MIB
    """For the extracted text of one document."""
    pages_max: int = 20_000
    zip_entries_max: int = 10_000
    zip_bytes_max: int = 512 * MIB
    """For all entries together, unpacked."""
    zip_ratio_max: int = 200
    """The unpacked size divided by the packed size. Checked only if the entries unpack to more than a MiB. Office XML
    reaches about 30."""
    xml_bytes_max: int = 32 * MIB
    """For one XML part."""
    xml_tags_max: int = 1_000_000
    """For one XML part. mammoth takes about 1 kB of memory and 60 us for each tag."""
    depth_max: int = 256
    """For nested HTML elements and JSON values. The time to parse HTML grows with the square of the depth."""
    seconds_max: float = 120.0
    """Checked between pages and while text is joined. A single call into a library is not interrupted."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits for one document, and its deadline."""

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
        raise Refusal(
            UnparsableReason.TOO_LARGE, f"has {size:,} {unit}; at most {size_max:,} are allowed; split the document"
        )
