"""Claims: a text cut into single assertions, from which facts are made.

A sentence is cut where a list item begins, at semicolons, and where a coordinated main clause begins, which is a
conjunction with a subject and a verb of its own after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.documents import Span
from drillcore_server.ingest.processing.sentences import MARKER, Bounds, sentences
from drillcore_server.ingest.processing.words import guess_language

CLAIM_CHARACTERS_MIN: Final = 20
"""Less than this asserts nothing, and stays with its neighbour."""

_VERB: Final = (
    r"(?:shall|must|may|will|should|can|cannot|could|would|is|are|was|were|has|have|had|does|do|did|applies|apply|means"
    r"|requires|includes)"
)
_SUBJECT: Final = (
    r"(?:the|a|an|each|every|any|no|such|this|that|these|those|it|they|he|she|all|its|their|neither"
    r"|[A-Z][\w\u2019'-]{1,30})"
)
_AND: Final = r"(?:(?:and|or|but)\s{1,4})?"
_ITEM: Final = re.compile(rf"(?<=[;:,.])\s{{1,4}}{_AND}(?=\((?:[a-z]|[ivx]{{1,5}}|[0-9]{{1,2}})\)\s)")
_SEMICOLON: Final = re.compile(rf"(?<=;)\s{{1,4}}{_AND}(?=\S)")
_CLAUSE: Final = re.compile(
    rf",?\s{{1,4}}(?:and|but|however,|provided that|except that)\s{{1,4}}"
    rf"(?={_SUBJECT}\b(?:\s{{1,4}}[\w\u2019'-]{{1,30}}){{0,6}}?\s{{1,4}}{_VERB}\b)"
)
_HAS_VERB: Final = re.compile(rf"\b{_VERB}\b")


@dataclass(frozen=True, slots=True)
class Claim:
    """One assertion. `lead` introduces the list it is an item of: "The firm must:" for "(b) keep records;"."""

    span: Span
    lead: Span | None = None


def split_claims(text: str, span_start: int = 0) -> list[Claim]:
    """Claims in order, as spans of the document in which `text` begins at `span_start`.

    They leave out nothing but white space, and commas and conjunctions between two of them.
    """
    claims: list[Claim] = []
    leads = _Leads()
    before = 0
    for sentence in sentences(text, guess_language(text)):
        for start, end in _assertions(text, *sentence):
            lead = leads.lead_of(text, start, end, text.find("\n", before, start) >= 0)
            claims.append(Claim(_span(span_start, (start, end)), _span(span_start, lead) if lead else None))
            before = end
    return claims


class _Leads:
    """The introductions that are open, the innermost last, each with the sort of marker its items have."""

    def __init__(self) -> None:
        self._open: list[tuple[Bounds, str]] = []

    def lead_of(self, text: str, start: int, end: int, new_line: bool) -> Bounds | None:
        """What introduces the claim, if it is an item; and remembers the claim if it introduces others."""
        marker = MARKER.match(text, start, end)
        lead = self._introduction(_sort_of(marker[0])) if marker else None
        if marker is None and new_line:
            self._open.clear()
        if text[end - 1] == ":":
            self._open.append(((start, end), ""))
        return lead

    def _introduction(self, sort: str) -> Bounds | None:
        while self._open:
            lead, items = self._open[-1]
            if not items:
                self._open[-1] = (lead, "roman" if sort == "i, v or x" else sort)
            if items in ("", sort) or (sort == "i, v or x" and items in ("letter", "roman")):
                return lead
            self._open.pop()
        return None


def _sort_of(marker: str) -> str:
    inside = marker.strip("().")
    if not inside.isalpha():
        return "number" if inside else marker
    if set(inside.lower()) <= set("ivx"):
        return "i, v or x" if len(inside) == 1 else "roman"
    return "letter"


def _span(offset: int, bounds: Bounds) -> Span:
    return Span(offset + bounds[0], offset + bounds[1])


def _assertions(text: str, start: int, end: int) -> Iterator[Bounds]:
    for cut, following in sorted(_cuts(text, start, end)):
        is_long_enough = cut - start >= CLAIM_CHARACTERS_MIN and end - following >= CLAIM_CHARACTERS_MIN
        if following > start and (is_long_enough or MARKER.match(text, following, end)):
            yield start, cut
            start = following
    yield start, end


def _cuts(text: str, start: int, end: int) -> Iterator[Bounds]:
    """Where a claim may end, and where the next one then begins."""
    for pattern in (_ITEM, _SEMICOLON):
        for found in pattern.finditer(text, start, end):
            yield found.span()
    last = start
    for found in _CLAUSE.finditer(text, start, end):
        if _HAS_VERB.search(text, last, found.start()):
            last = found.end()
            yield found.span()
