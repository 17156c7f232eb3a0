"""The built-in processor: deterministic and offline. It says nothing that is not in the text.

Key findings are what a group of documents obliges, forbids, times, limits and defines. Key quotes are sentences that
somebody would cite word for word.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final, TypeVar

from drillcore_server.documents.processing.entities import entities_of, mentions
from drillcore_server.documents.processing.keywords import (
    guess_language,
    keywords,
    lower,
    stopwords,
    tokens_of,
    word_scores,
)
from drillcore_server.documents.processing.processor import ChunkInput, Member, SectionMember, TokenRange
from drillcore_server.documents.processing.sentences import Unit, kind_of, units
from drillcore_server.documents.processing.summaries import chunk_summary, forget_measures, group_summary, text_of
from drillcore_server.documents.processing.weights import unit_weights
from drillcore_server.hierarchy.digests import (
    ChunkDigest,
    Entity,
    Finding,
    FindingKind,
    GroupDigest,
    MadeBy,
    Passage,
    Summary,
)
from drillcore_server.storage.ids import Span
from drillcore_server.tokenizers.encodings import TokenCounter

FINDINGS_MAX: Final = 10


def key_findings(ranked: Sequence[Passage]) -> tuple[Finding, ...]:
    """Chooses findings from passages that come best first and do not repeat each other: the best of each kind in turn.

    Plain statements only fill the places that the other kinds leave.
    """
    by_kind: dict[FindingKind, list[Finding]] = {kind: [] for kind in FindingKind}
    for passage in ranked:
        kind = kind_of(passage.text)
        by_kind[kind].append(Finding(kind, passage))
    statements = by_kind.pop(FindingKind.STATEMENT)
    chosen = (_in_turn(list(by_kind.values())) + statements)[:FINDINGS_MAX]
    order = list(FindingKind)
    return tuple(sorted(chosen, key=lambda finding: order.index(finding.kind)))


def _in_turn(kinds: Sequence[Sequence[Finding]]) -> list[Finding]:
    longest = max(map(len, kinds), default=0)
    return [findings[rank] for rank in range(longest) for findings in kinds if rank < len(findings)]


QUOTES_MAX: Final = 3
QUOTE_CHARACTERS: Final = range(40, 421)
_FIRST: Final = itemgetter(0)


def key_quotes(found: Sequence[Unit], ranked: Sequence[int]) -> list[int]:
    """Returns the places of the heaviest units that oblige, forbid, define or set a figure and have a quotable length.

    `ranked` are the places of units, heaviest first.
    """
    return list(islice((place for place in ranked if _is_quotable(found[place])), QUOTES_MAX))


def _is_quotable(unit: Unit) -> bool:
    if unit.end - unit.start not in QUOTE_CHARACTERS or unit.fragment:
        return False
    return bool(unit.kinds) or any(map(str.isdigit, map(_FIRST, unit.tokens)))


CHUNK_CANDIDATES_MAX: Final = 6
SECTION_CANDIDATES_MAX: Final = 24
GROUP_KEYWORDS_MAX: Final = 20
GROUP_ENTITIES_MAX: Final = 100
PASSAGES_MAX: Final = 24
"""The passages of one chunk from which its candidates, quotes and summary are chosen."""

_Named = TypeVar("_Named", str, Entity)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A chunk's digest without the token count of its summary: tokens are counted for all chunks at once."""

    summary: tuple[Passage, ...]
    quotes: tuple[Passage, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]


class ExtractiveProcessor:
    """Chooses every word from the text. The same input gives the same output, byte for byte."""

    def __init__(self, tokens: TokenCounter) -> None:
        self._tokens = tokens
        self._made_by = MadeBy(self.name, self.version)

    @property
    def name(self) -> str:
        return "extractive"

    @property
    def version(self) -> str:
        return "1"

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
    """Cached: consecutive chunks of a document share their headings."""
    return frozenset(tokens_of(lower(" ".join(headings)))) - stopwords(language)


def forget_passages() -> None:
    """Drops the texts that are kept in memory to save work."""
    forget_measures()
    _heading_words.cache_clear()


def _passage(chunk: ChunkInput, unit: Unit, weight: float) -> Passage:
    span = Span(chunk.span_start + unit.start, chunk.span_start + unit.end)
    return Passage(chunk.text[unit.start : unit.end], chunk.document, span, weight)


def _most_frequent(groups: Sequence[Sequence[_Named]], limit: int) -> tuple[_Named, ...]:
    """Returns what most members name, most frequent first; of equals, what they name sooner comes first."""
    counts = Counter(item for group in groups for item in group)
    ranks: Counter[_Named] = Counter()
    for group in groups:
        for rank, item in enumerate(group):
            ranks[item] += rank
    return tuple(sorted(counts, key=lambda item: (-counts[item], ranks[item], item))[:limit])
