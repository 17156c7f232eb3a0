"""Cuts a text into claims. A claim is a single assertion, and facts are made from claims.

A sentence is cut where a list item begins, at semicolons, and where a second main clause begins: a conjunction with a
subject and a verb of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_server.documents.processors.keywords import guess_language
from drillcore_server.documents.processors.sentences import MARKER, MARKER_FORMS, Bounds, sentences
from drillcore_server.storage.ids import Span

CLAIM_CHARACTERS_MIN: Final = 20
"""Shorter text asserts nothing. It stays with its neighbour."""

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
_ALONE: Final = re.compile(MARKER_FORMS)
"""A marker in a paragraph of its own, as in the Official Journal of the European Union."""
_HAS_VERB: Final = re.compile(rf"\b{_VERB}\b")


@dataclass(frozen=True, slots=True)
class Claim:
    """One assertion. `lead` introduces the list that it is an item of: "The firm must:" for "(b) keep records;"."""

    span: Span
    lead: Span | None = None


class ClaimSplitter:
    """Cuts one text, part by part. The parts must come in order, since a list may continue in the next part."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._leads = _Leads()
        self._marker: Span | None = None
        """The last marker that stood alone. It belongs to the next claim."""
        self._before = 0

    def split(self, part: Span) -> list[Claim]:
        """Returns the claims of a part, in order, as spans of the whole text.

        Left out are only white space, commas and conjunctions between two claims, and a marker at the end of the part.
        """
        claims: list[Claim] = []
        for start, end in _bounds(part.of(self._text)):
            span = Span(part.start + start, part.start + end)
            if _ALONE.fullmatch(self._text, span.start, span.end):
                self._marker = span
            else:
                claims.append(self._claim(span, part))
        return claims

    def end_lists(self) -> None:
        """Ends all lists, as a heading does: no later claim is an item of an earlier introduction."""
        self._leads, self._marker = _Leads(), None

    def _claim(self, span: Span, part: Span) -> Claim:
        marker, self._marker = self._marker or self._marker_of(span), None
        is_new_line = self._text.find("\n", self._before, span.start) >= 0
        lead = self._leads.lead_of(self._text, span, marker, is_new_line)
        self._before = span.end
        start = min(span.start, max(marker.start, part.start)) if marker else span.start
        return Claim(Span(start, span.end), lead)

    def _marker_of(self, span: Span) -> Span | None:
        found = MARKER.match(self._text, span.start, span.end)
        return Span(*found.span()) if found else None


def _bounds(text: str) -> Iterator[Bounds]:
    for sentence in sentences(text, guess_language(text)):
        yield from _assertions(text, *sentence)


class _Leads:
    """The introductions of open lists, the innermost last, each with the sort of marker that its items have."""

    def __init__(self) -> None:
        self._open: list[tuple[Span, str]] = []

    def lead_of(self, text: str, claim: Span, marker: Span | None, is_new_line: bool) -> Span | None:
        """Returns the introduction of the claim if it is an item. Remembers the claim if it introduces items itself."""
        lead = self._introduction(_sort_of(marker.of(text))) if marker else None
        if marker is None and is_new_line:
            self._open.clear()
        if text[claim.end - 1] == ":":
            start = min(claim.start, marker.start) if marker else claim.start
            self._open.append((Span(start, claim.end), ""))
        return lead

    def _introduction(self, sort: str) -> Span | None:
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


def _assertions(text: str, start: int, end: int) -> Iterator[Bounds]:
    for cut, following in sorted(_cuts(text, start, end)):
        is_long_enough = cut - start >= CLAIM_CHARACTERS_MIN and end - following >= CLAIM_CHARACTERS_MIN
        if following > start and (is_long_enough or MARKER.match(text, following, end)):
            yield start, cut
            start = following
    yield start, end


def _cuts(text: str, start: int, end: int) -> Iterator[Bounds]:
    """Yields the places where a claim may end, each with the place where the next claim then begins."""
    for pattern in (_ITEM, _SEMICOLON):
        for found in pattern.finditer(text, start, end):
            yield found.span()
    last = start
    for found in _CLAUSE.finditer(text, start, end):
        if _HAS_VERB.search(text, last, found.start()):
            last = found.end()
            yield found.span()
