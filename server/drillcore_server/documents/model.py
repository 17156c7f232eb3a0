"""Documents as they come out of parsing: the original characters, and where their blocks are."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from drillcore_server.storage.ids import Span


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
    """Of a heading: 1 is the highest. 0 for everything else."""
    page: int | None = None
    """Counted from 1, in formats that have pages."""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    text: str
    """What spans count in. For text formats exactly the decoded characters, line ends included."""
    media_type: str
    title: str
    blocks: tuple[Block, ...]
    preprocessing: tuple[str, ...] = ()
    """What was done to get from the bytes to the text, in order, as in "decoded as utf-8"."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    external_id: str | None = None
    """The document's own id, in formats that carry one."""


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Where a chunk is: the text it is made of, and the raw spans it owns.

    Raw spans of all chunks of a document follow each other without gaps and cover it whole, so the original can be put
    together from them. `span` is what the chunk is read as: its raw spans and the end of the chunk before it.
    """

    span: Span
    raws: tuple[Span, ...]
    headings: tuple[str, ...]
    """Titles of the headings above it, the highest first."""
    page: int | None
    tokens: int
