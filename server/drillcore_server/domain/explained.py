"""What Explain tells: the way from something to the characters of the original documents, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from drillcore_server.domain.documents import Span
from drillcore_server.domain.ids import CorpusId, DocumentId, Revision
from drillcore_server.domain.iris import iri_of
from drillcore_server.domain.nodes import RawPage

STEPS_MAX: Final = 1_000
_OVERHEAD_BYTES: Final = 300
"""Of ids and numbers: a generous guess."""
_IRI_BYTES: Final = 70


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    id: UUID | str
    """A source's is any text."""
    title: str = ""
    derived_from: Sequence[str] = ()
    document: DocumentId | None = None
    span: Span | None = None
    text: str = ""
    """The original characters of the span."""
    gone: bool = False

    @property
    def iri(self) -> str:
        return iri_of(self.kind, self.id)

    @property
    def size_bytes(self) -> int:
        """About what it takes in an answer."""
        return _OVERHEAD_BYTES + 4 * (len(self.title) + len(self.text)) + _IRI_BYTES * len(self.derived_from)


@dataclass(frozen=True, slots=True)
class Explanation:
    steps: Sequence[Step]
    truncated: bool
    corpus: CorpusId | None
    """None for an envelope of several."""
    revision: Revision


@dataclass(slots=True)
class Steps:
    """Steps in their order, each once, up to so many and so large."""

    bytes_max: int
    told: dict[str, Step] = field(default_factory=dict)
    truncated: bool = False
    _is_full: bool = False
    _size_bytes: int = 0

    def add(self, step: Step) -> bool:
        """Whether it is new and there was room for it: then what it was made from is to be told, too."""
        if self._is_full or step.iri in self.told:
            return False
        self._size_bytes += step.size_bytes
        if self.told and (len(self.told) >= STEPS_MAX or self._size_bytes > self.bytes_max):
            self.truncated = self._is_full = True
            return False
        self.told[step.iri] = step
        return True

    def named(self, iris: Iterable[str]) -> tuple[str, ...]:
        """What a step was made from, each once; more than there can be steps are not named."""
        each = tuple(dict.fromkeys(iris))
        self.truncated = self.truncated or len(each) > STEPS_MAX
        return each[:STEPS_MAX]


def parts_of(page: RawPage, wanted: Sequence[Span] | None) -> dict[int, Span]:
    """Of which raws of a chunk the wanted characters are, by their places: from the first in each to the last.

    None: all of them.
    """
    if wanted is None:
        return {place: raw.span for place, raw in enumerate(page.raws)}
    found: dict[int, Span] = {}
    for place, raw in enumerate(page.raws):
        pieces = [one for one in (_common(raw.span, span) for span in wanted) if one is not None]
        if pieces:
            found[place] = Span(min(one.start for one in pieces), max(one.end for one in pieces))
    return found


def _common(one: Span, other: Span) -> Span | None:
    start, end = max(one.start, other.start), min(one.end, other.end)
    return Span(start, end) if start < end else None
