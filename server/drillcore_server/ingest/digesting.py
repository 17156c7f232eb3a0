"""From the bytes of an upload to digested documents: parsed, cut into chunks, each chunk with its digest
and its facts.

All of it is pure and slow, on content that nobody vouches for, so it is done in other processes (`workers`). What it
needs is imported there too: nothing here may import numpy, whose threads and buffers count against a worker's memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.digests import ChunkDigest, Entity, MadeBy, Passage
from drillcore_server.domain.documents import ChunkSpan, ParsedDocument, Span
from drillcore_server.domain.nodes import Excerpt
from drillcore_server.ingest.chunking import ChunkSettings, chunk
from drillcore_server.ingest.facts import DrawnFact, draw_facts
from drillcore_server.ingest.parsing import Unparsable, parse
from drillcore_server.ingest.processing.ports import ChunkInput, Processor
from drillcore_server.tokenizing.ports import TokenCounter

GROUP_DOCUMENTS_MAX: Final = 64
GROUP_CHARACTERS_MAX: Final = 1 << 18
"""Documents of JSON lines are asked after so many at a time; one that is larger goes alone."""


@dataclass(frozen=True, slots=True)
class Content:
    """One upload. The name and the media type are hints."""

    data: bytes
    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A document of an upload: by its own id where the format has one, and where it stands."""

    external_id: str | None
    place: int

    @property
    def is_the_upload(self) -> bool:
        return self.external_id is None and self.place == 0


Known = Callable[[Sequence[Asked]], Sequence[str | None]]
"""The content hashes that documents have in the corpus already. One that has not changed is not digested again."""


@dataclass(frozen=True, slots=True)
class DigestedChunk:
    span: Span
    """What it is read as; see ChunkSpan."""
    raws: tuple[Span, ...]
    headings: tuple[str, ...]
    page: int | None
    tokens: int
    summary: tuple[Excerpt, ...]
    summary_text: str
    """Empty if the summary is its excerpts, one a line."""
    quotes: tuple[Excerpt, ...]
    candidates: tuple[Excerpt, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    facts: tuple[DrawnFact, ...] = ()

    @property
    def own(self) -> Span:
        return Span(self.raws[0].start, self.raws[-1].end)


@dataclass(frozen=True, slots=True)
class DigestedDocument:
    """A document without ids and vectors, which it gets in the server's process."""

    text: str
    media_type: str
    title: str
    preprocessing: tuple[str, ...]
    metadata: Mapping[str, str]
    external_id: str | None
    content_hash: str
    unchanged: bool
    """Then it has no chunks here."""
    chunks: tuple[DigestedChunk, ...]


def content_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Digester:
    counter: TokenCounter
    processor: Processor
    chunking: ChunkSettings

    def read(self, content: Content, known: Known) -> Iterator[DigestedDocument | Unparsable]:
        """The documents of an upload, in order. Raises nothing for whatever the content is, unless memory runs out."""
        found = parse(content.data, name=content.name, media_type=content.media_type or None)
        for group in _groups(enumerate(found)):
            asked = [(place, one) for place, one in group if isinstance(one, ParsedDocument)]
            hashes = iter(known([Asked(one.external_id, place) for place, one in asked]) if asked else ())
            for _, one in group:
                yield one if isinstance(one, Unparsable) else self.digest(one, next(hashes))

    def digest(self, parsed: ParsedDocument, known_hash: str | None = None) -> DigestedDocument:
        hashed = content_hash(parsed.text)
        unchanged = hashed == known_hash
        return DigestedDocument(
            text=parsed.text,
            media_type=parsed.media_type,
            title=parsed.title,
            preprocessing=parsed.preprocessing,
            metadata=parsed.metadata,
            external_id=parsed.external_id,
            content_hash=hashed,
            unchanged=unchanged,
            chunks=() if unchanged else self._chunks(parsed),
        )

    def _chunks(self, parsed: ParsedDocument) -> tuple[DigestedChunk, ...]:
        spans = chunk(parsed, self.counter, self.chunking)
        digests = self.processor.process_chunks([_input(parsed, span) for span in spans])
        facts = draw_facts(parsed, spans, self.counter)
        return tuple(_digested(*one) for one in zip(spans, digests, facts, strict=True))


def _groups(
    found: Iterable[tuple[int, ParsedDocument | Unparsable]],
) -> Iterator[list[tuple[int, ParsedDocument | Unparsable]]]:
    group: list[tuple[int, ParsedDocument | Unparsable]] = []
    characters = 0
    for place, one in found:
        group.append((place, one))
        characters += len(one.text) if isinstance(one, ParsedDocument) else 0
        if len(group) == GROUP_DOCUMENTS_MAX or characters > GROUP_CHARACTERS_MAX:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _input(parsed: ParsedDocument, span: ChunkSpan) -> ChunkInput:
    start = span.raws[0].start
    # Passages are kept by their place alone, so the document needs no id yet.
    return ChunkInput(parsed.text[start : span.raws[-1].end], start, "", (parsed.title, *span.headings))


def _digested(span: ChunkSpan, digest: ChunkDigest, facts: tuple[DrawnFact, ...]) -> DigestedChunk:
    extractive = digest.summary.text == "\n".join([passage.text for passage in digest.summary.passages])
    return DigestedChunk(
        span=span.span,
        raws=span.raws,
        headings=span.headings,
        page=span.page,
        tokens=span.tokens,
        summary=_excerpts(digest.summary.passages),
        summary_text="" if extractive else digest.summary.text,
        quotes=_excerpts(digest.quotes),
        candidates=_excerpts(digest.candidates),
        entities=digest.entities,
        keywords=digest.keywords,
        made_by=digest.made_by,
        facts=facts,
    )


def _excerpts(passages: Sequence[Passage]) -> tuple[Excerpt, ...]:
    return tuple([Excerpt(passage.span, passage.weight) for passage in passages])
