"""The built-in processor: deterministic, offline, and nothing in it that is not in the text."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from drillcore_server.domain.digests import ChunkDigest, Entity, GroupDigest, MadeBy, Passage, Summary
from drillcore_server.domain.documents import Span
from drillcore_server.ingest.processing.entities import entities_of, mentions
from drillcore_server.ingest.processing.findings import key_findings
from drillcore_server.ingest.processing.keywords import keywords, word_scores
from drillcore_server.ingest.processing.ports import ChunkInput, Member, SectionMember, TokenRange
from drillcore_server.ingest.processing.quotes import key_quotes
from drillcore_server.ingest.processing.summaries import chunk_summary, forget_measures, group_summary, text_of
from drillcore_server.ingest.processing.units import Unit, units
from drillcore_server.ingest.processing.weights import unit_weights
from drillcore_server.ingest.processing.words import guess_language, lower, stopwords, tokens_of
from drillcore_server.tokenizing.ports import TokenCounter

CHUNK_CANDIDATES_MAX: Final = 6
SECTION_CANDIDATES_MAX: Final = 24
GROUP_KEYWORDS_MAX: Final = 20
GROUP_ENTITIES_MAX: Final = 100
PASSAGES_MAX: Final = 24
"""Of one chunk, of which its candidates, quotes and summary are chosen."""

_Named = TypeVar("_Named", str, Entity)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A chunk's digest but for the tokens of its summary, which are counted for all chunks at once."""

    summary: tuple[Passage, ...]
    quotes: tuple[Passage, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]


class ExtractiveProcessor:
    """Chooses what it says from what the text says; the same input gives the same output, byte for byte."""

    def __init__(self, tokens: TokenCounter) -> None:
        self._tokens = tokens
        self._made_by = MadeBy(self.name, self.version)

    @property
    def name(self) -> str:
        return "extractive"

    @property
    def version(self) -> str:
        return "1"

    def process_chunk(self, text: str, span_start: int, document: str, headings: tuple[str, ...]) -> ChunkDigest:
        return self.process_chunks([ChunkInput(text, span_start, document, headings)])[0]

    def process_chunks(self, chunks: Sequence[ChunkInput]) -> list[ChunkDigest]:
        drafts = [_draft(chunk) for chunk in chunks]
        texts = [text_of(draft.summary) for draft in drafts]
        sizes = self._tokens.count_many(texts)
        return [
            ChunkDigest(
                Summary(text, draft.summary, size),
                draft.quotes,
                draft.entities,
                draft.keywords,
                draft.candidates,
                self._made_by,
            )
            for draft, text, size in zip(drafts, texts, sizes, strict=True)
        ]

    def summarise_section(self, title: str, members: Sequence[Member], tokens: TokenRange) -> GroupDigest:
        return self._summarise(title, members, tokens)

    def summarise_corpus(self, sections: Sequence[SectionMember], tokens: TokenRange) -> GroupDigest:
        return self._summarise(" ".join(section.title for section in sections), sections, tokens)

    def _summarise(
        self, title: str, members: Sequence[Member] | Sequence[SectionMember], tokens: TokenRange
    ) -> GroupDigest:
        words = _most_frequent([member.keywords for member in members], GROUP_KEYWORDS_MAX)
        topics = frozenset(tokens_of(lower(" ".join((title, *words)))))
        summary, chosen = group_summary([member.candidates for member in members], topics, tokens, self._tokens)
        return GroupDigest(
            summary=summary,
            findings=key_findings(chosen),
            entities=_most_frequent([member.entities for member in members], GROUP_ENTITIES_MAX),
            keywords=words,
            candidates=chosen[:SECTION_CANDIDATES_MAX],
            made_by=self._made_by,
        )


def _draft(chunk: ChunkInput) -> _Draft:
    text, lowered, language = chunk.text, lower(chunk.text), guess_language(chunk.text)
    found = units(text, lowered, language)
    headings = _heading_words(chunk.headings, language)
    tokens = [unit.tokens for unit in found]
    scores = word_scores(tokens, stopwords(language), headings)
    named = mentions(text)
    weights = unit_weights(text, found, scores, headings, [mention.start for mention in named])
    ranked = sorted(range(len(found)), key=weights.__getitem__, reverse=True)[:PASSAGES_MAX]
    summary = chunk_summary(len(text), found, weights, ranked)
    quotes, candidates = key_quotes(found, ranked), ranked[:CHUNK_CANDIDATES_MAX]
    passages = {place: _passage(chunk, found[place], weights[place]) for place in (*summary, *quotes, *candidates)}
    return _Draft(
        summary=tuple(passages[place] for place in summary),
        quotes=tuple(passages[place] for place in quotes),
        entities=entities_of(named),
        keywords=keywords(tokens, scores),
        candidates=tuple(passages[place] for place in candidates),
    )


@functools.lru_cache(maxsize=256)
def _heading_words(headings: tuple[str, ...], language: str) -> frozenset[str]:
    """Chunks of a document follow each other here, and have their headings in common."""
    return frozenset(tokens_of(lower(" ".join(headings)))) - stopwords(language)


def forget_passages() -> None:
    """Lets go of the texts that are kept in memory to save work."""
    forget_measures()
    _heading_words.cache_clear()


def _passage(chunk: ChunkInput, unit: Unit, weight: float) -> Passage:
    span = Span(chunk.span_start + unit.start, chunk.span_start + unit.end)
    return Passage(chunk.text[unit.start : unit.end], chunk.document, span, weight)


def _most_frequent(groups: Sequence[Sequence[_Named]], limit: int) -> tuple[_Named, ...]:
    """What most members name, the most frequent first, and of equals what they name sooner."""
    counts = Counter(item for group in groups for item in group)
    ranks: Counter[_Named] = Counter()
    for group in groups:
        for rank, item in enumerate(group):
            ranks[item] += rank
    return tuple(sorted(counts, key=lambda item: (-counts[item], ranks[item], item))[:limit])
