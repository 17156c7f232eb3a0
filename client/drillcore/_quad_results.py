"""What calls about quads are asked for and return."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from drillcore._results import Page
from drillcore.quads import Quad


@dataclass(frozen=True, slots=True)
class MatchedQuad:
    """A quad of a corpus."""

    quad: Quad
    source_ids: tuple[str, ...]
    """That it was put of; none for what was put without one. If the pattern names a source: that one only."""
    derived: bool
    """Told from the records of the corpus: nobody put it."""


@dataclass(frozen=True, slots=True)
class QuadPage(Page[MatchedQuad]):
    """Some of the quads that match. It may be short, or empty: there are more for as long as a token says so."""

    revision: int
    """Of the corpus, that was read."""


@dataclass(frozen=True, slots=True)
class PutQuadsResult:
    revision: int
    """The head, if all were there already."""
    added: int
    known: int
    """That were there already, of this source, or were given twice."""
    derived: int = 0
    """Of a file: told from the records of the corpus that it was exported from, and left out."""


@dataclass(frozen=True, slots=True)
class RemovedQuads:
    revision: int
    """The head, if there was nothing to remove."""
    removed: int


class QuadFormat(enum.Enum):
    N_QUADS = "n-quads"
    TURTLE = "turtle"
    """Has no graphs: all go to, or come from, one."""


@dataclass(frozen=True, slots=True)
class QuadImportProgress:
    bytes_received: int
    quads_read: int


OnQuadImport = Callable[[QuadImportProgress], object]


@dataclass(frozen=True, slots=True)
class QuadExport:
    revision: int
    """Of the corpus, that was exported."""
    quads: int
    size_bytes: int
    sha256: str
    """Of the file, in hex: what was received is what the server recorded."""
    record_id: UUID
    """Of the audit record."""
