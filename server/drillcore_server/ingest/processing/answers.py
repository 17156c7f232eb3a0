"""What a model answered, checked against the text it was asked about. What is not in the text is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drillcore_server.domain.digests import Entity, Finding, FindingKind, Passage
from drillcore_server.domain.documents import Span
from drillcore_server.ingest.processing.chat import NoAnswer
from drillcore_server.ingest.processing.cues import kind_of
from drillcore_server.ingest.processing.entities import ENTITIES_MAX, ENTITY_TYPES, mentions
from drillcore_server.ingest.processing.entities.mentions import tidy
from drillcore_server.ingest.processing.findings import FINDINGS_MAX
from drillcore_server.ingest.processing.ports import ChunkInput
from drillcore_server.ingest.processing.quotes import QUOTES_MAX

CITATIONS_MAX: Final = 32
CITATION_CHARACTERS: Final = range(8, 2001)
ENTITY_CHARACTERS_MAX: Final = 200
CITED_WEIGHT: Final = 1.0
"""Of passages a model chose: it gives no weights, and they are all it would quote."""


@dataclass(frozen=True, slots=True)
class ChunkAnswer:
    summary: str
    citations: tuple[Passage, ...]
    quotes: tuple[Passage, ...]
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    summary: str
    citations: tuple[Passage, ...]
    findings: tuple[Finding, ...]


def read_chunk_answer(answer: Mapping[str, Any], chunk: ChunkInput) -> ChunkAnswer:
    """Raises NoAnswer if a part is missing or malformed, or if no citation of the summary stands in the text."""
    citations = _verbatim(_strings(answer, "citations")[:CITATIONS_MAX], chunk)
    if not citations:
        raise NoAnswer("no citation stands in the text")
    quotes = _verbatim(_strings(answer, "quotes"), chunk)
    return ChunkAnswer(_summary(answer), citations, quotes[:QUOTES_MAX], _entities(answer, chunk.text))


def read_group_answer(answer: Mapping[str, Any], shown: Sequence[Passage]) -> GroupAnswer:
    """Citations are numbers of the passages shown, from 1. Raises NoAnswer as above."""
    numbers = _list(answer, "citations")
    citations = _numbered(numbers, shown)
    if not citations:
        raise NoAnswer("no citation is one of the passages")
    findings = _numbered(_list(answer, "findings"), shown)[:FINDINGS_MAX]
    return GroupAnswer(_summary(answer), citations, tuple(_finding(passage) for passage in findings))


def _finding(passage: Passage) -> Finding:
    return Finding(FindingKind(kind_of(passage.text)), passage)


def _summary(answer: Mapping[str, Any]) -> str:
    summary = answer.get("summary")
    if not isinstance(summary, str) or not summary.strip():
        raise NoAnswer("answer has no summary")
    return summary.strip()


def _list(answer: Mapping[str, Any], name: str) -> list[Any]:
    values = answer.get(name)
    if not isinstance(values, list):
        raise NoAnswer(f"answer has no list of {name}")
    return values


def _strings(answer: Mapping[str, Any], name: str) -> list[str]:
    return [value for value in _list(answer, name) if isinstance(value, str)]


def _verbatim(quoted: Sequence[str], chunk: ChunkInput) -> tuple[Passage, ...]:
    """Those that stand in the text, character by character, in reading order."""
    spans = []
    for text in dict.fromkeys(text.strip() for text in quoted):
        place = chunk.text.find(text)
        if place >= 0 and len(text) in CITATION_CHARACTERS:
            spans.append((place, place + len(text)))
    return tuple(_passage(chunk, start, end) for start, end in sorted(spans))


def _passage(chunk: ChunkInput, start: int, end: int) -> Passage:
    span = Span(chunk.span_start + start, chunk.span_start + end)
    return Passage(chunk.text[start:end], chunk.document, span, CITED_WEIGHT)


def _entities(answer: Mapping[str, Any], text: str) -> tuple[Entity, ...]:
    """In the normal form the built-in processor gives them, so that both find the same entity under one value."""
    found = {
        _normal(entity["type"], entity["text"])
        for entity in _list(answer, "entities")[: 2 * ENTITIES_MAX]
        if isinstance(entity, dict) and _is_entity(entity.get("type"), entity.get("text"), text)
    }
    return tuple(sorted(found)[:ENTITIES_MAX])


def _is_entity(type_: object, written: object, text: str) -> bool:
    if type_ not in ENTITY_TYPES or not isinstance(written, str):
        return False
    return 0 < len(tidy(written)) <= ENTITY_CHARACTERS_MAX and written in text


def _normal(type_: str, written: str) -> Entity:
    known = [mention.value for mention in mentions(written) if mention.type == type_]
    return Entity(type_, known[0] if known else tidy(written))


def _numbered(numbers: Sequence[Any], shown: Sequence[Passage]) -> tuple[Passage, ...]:
    known = dict.fromkeys(number for number in numbers if type(number) is int and 1 <= number <= len(shown))
    return tuple(shown[number - 1] for number in sorted(known))
