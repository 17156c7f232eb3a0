"""Reads uploads: turns their bytes into digested documents, which are chunks with their digests and facts.

`Digester` does the work. It is pure, slow and on untrusted content, so the server does it in child processes
(`reader_pool`). `Readers` is the interface of the pool, and `InProcessReaders` implements it without isolation.

Child processes import this module. Nothing here may import numpy, whose threads and buffers count against the memory
limit of a process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from drillcore_server.documents.ingestion.chunk_spans import ChunkSettings, chunk
from drillcore_server.documents.ingestion.drawn_facts import DrawnFact, draw_facts
from drillcore_server.documents.model import ChunkSpan, ParsedDocument
from drillcore_server.documents.parsers import Unparsable, parse
from drillcore_server.documents.processors.processor import ChunkInput, Processor
from drillcore_server.hierarchy.digests import ChunkDigest, Entity, MadeBy, Passage
from drillcore_server.hierarchy.model import Excerpt
from drillcore_server.storage.ids import Span
from drillcore_server.tokenizers.encodings import TokenCounter

GROUP_DOCUMENTS_MAX: Final = 64
GROUP_CHARACTERS_MAX: Final = 1 << 18
"""Documents of JSON lines are looked up in groups of about this many characters. A larger document is in a group of
its own."""


@dataclass(frozen=True, slots=True)
class Content:
    """One upload. The name and the media type are hints."""

    data: bytes
    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class DocumentQuestion:
    """A question about a document of an upload: which content does the corpus have for it?"""

    external_id: str | None
    """The id that the document carries in its format, if any."""
    place: int
    """The number of the document in its upload, from 0."""

    @property
    def is_the_upload(self) -> bool:
        """Whether the document shares the source of its upload. Later documents have sources of their own."""
        return self.external_id is None and self.place == 0


KnownHashes = Callable[[Sequence[DocumentQuestion]], Sequence[str | None]]
"""Returns the content hash that the corpus has for each of these documents, or None. An unchanged document is not
digested again."""


@dataclass(frozen=True, slots=True)
class DigestedChunk:
    span: Span
    """The text that readers see, with the overlap. See `ChunkSpan`."""
    raws: tuple[Span, ...]
    headings: tuple[str, ...]
    page: int | None
    tokens: int
    summary: tuple[Excerpt, ...]
    summary_text: str
    """Empty if the summary is exactly its excerpts, one on each line."""
    quotes: tuple[Excerpt, ...]
    candidates: tuple[Excerpt, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    facts: tuple[DrawnFact, ...] = ()

    @property
    def own(self) -> Span:
        """The text without the overlap."""
        return Span(self.raws[0].start, self.raws[-1].end)


@dataclass(frozen=True, slots=True)
class DigestedDocument:
    """A document before it gets ids and vectors, which happens in the server's process."""

    text: str
    media_type: str
    title: str
    preprocessing: tuple[str, ...]
    metadata: Mapping[str, str]
    external_id: str | None
    content_hash: str
    unchanged: bool
    """True if the corpus has this content already. Then `chunks` is empty."""
    chunks: tuple[DigestedChunk, ...]


def content_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Digester:
    counter: TokenCounter
    processor: Processor
    chunking: ChunkSettings

    def read(self, content: Content, known: KnownHashes) -> Iterator[DigestedDocument | Unparsable]:
        """Yields the documents of an upload, in order. Raises `MemoryError`, but no other error for any content."""
        found = parse(content.data, name=content.name, media_type=content.media_type or None)
        for group in _groups(enumerate(found)):
            asked = [(place, result) for place, result in group if isinstance(result, ParsedDocument)]
            hashes = iter(
                known([DocumentQuestion(document.external_id, place) for place, document in asked]) if asked else ()
            )
            for _, result in group:
                yield result if isinstance(result, Unparsable) else self.digest(result, next(hashes))

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
        return tuple(_digested(*parts) for parts in zip(spans, digests, facts, strict=True))


def _groups(
    found: Iterable[tuple[int, ParsedDocument | Unparsable]],
) -> Iterator[list[tuple[int, ParsedDocument | Unparsable]]]:
    group: list[tuple[int, ParsedDocument | Unparsable]] = []
    characters = 0
    for place, result in found:
        group.append((place, result))
        characters += len(result.text) if isinstance(result, ParsedDocument) else 0
        if len(group) == GROUP_DOCUMENTS_MAX or characters > GROUP_CHARACTERS_MAX:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _input(parsed: ParsedDocument, span: ChunkSpan) -> ChunkInput:
    start = span.raws[0].start
    # Passages are stored by their place alone, so the document needs no id yet.
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


class Reading(Protocol):
    """One upload that is being read."""

    def results(self) -> Iterator[DigestedDocument | Unparsable]:
        """Yields the documents of the upload in order, as they are done. Call it once. Ends early after `drop`."""
        ...

    def drop(self) -> None:
        """Stops the reading, because nobody wants the rest. Any thread may call it, and more than once."""
        ...


class Readers(Protocol):
    @property
    def at_once(self) -> int:
        """The number of uploads to begin at once so that all readers are busy."""
        ...

    def begin(self, content: Content, known: KnownHashes) -> Reading:
        """Begins to read an upload. May call `known` from another thread."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class InProcessReaders:
    """Reads in the calling thread, without isolation: a parser that crashes or never ends takes the process with it."""

    digester: Digester

    @property
    def at_once(self) -> int:
        return 1

    def begin(self, content: Content, known: KnownHashes) -> Reading:
        return _InProcessReading(self.digester, content, known)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _InProcessReading:
    digester: Digester
    content: Content
    known: KnownHashes

    def results(self) -> Iterator[DigestedDocument | Unparsable]:
        return self.digester.read(self.content, self.known)

    def drop(self) -> None:
        pass  # nothing runs unless its results are asked for
