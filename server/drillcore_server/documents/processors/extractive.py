"""The built-in processor: deterministic and offline. It says nothing that is not in the text.

It weighs the units of a chunk, and chooses passages by their weight. Key findings are passages that oblige, forbid,
define, or set a deadline or a threshold. Key quotes are sentences that somebody would cite word for word.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from operator import itemgetter
from typing import Final, TypeVar

from drillcore_server.documents.processors.entities import entities_of, mentions
from drillcore_server.documents.processors.keywords import (
    guess_language,
    keywords,
    lower,
    stopwords,
    tokens_of,
    word_scores,
)
from drillcore_server.documents.processors.processor import ChunkInput, Member, SectionMember, TokenRange
from drillcore_server.documents.processors.sentences import Unit, kind_of, units
from drillcore_server.documents.processors.summaries import chunk_summary, forget_measures, group_summary, text_of
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

_POSITION_WEIGHT: Final = 0.12
_CUE_WEIGHTS: Final = {
    FindingKind.OBLIGATION: 0.20,
    FindingKind.PROHIBITION: 0.22,
    FindingKind.DEFINITION: 0.18,
    FindingKind.DEADLINE: 0.12,
    FindingKind.THRESHOLD: 0.08,
}
_CUE_WEIGHT_MAX: Final = 0.40
_KEYWORD_WEIGHT: Final = 0.28
_HEADING_WEIGHT: Final = 0.08
_ENTITY_WEIGHT: Final = 0.04
_ENTITY_WEIGHT_MAX: Final = 0.12

_SHORT_CHARACTERS: Final = 40
_SHORT_FACTOR: Final = 0.4
_LONG_CHARACTERS: Final = 400
_LONG_FACTOR: Final = 0.85

_FRAGMENT_FACTOR: Final = 0.5
_UNFINISHED_FACTOR: Final = 0.45
"""For a unit without a mark at its end: a heading or a label."""
_TABLE_FACTOR: Final = 0.3

_FINAL_MARKS: Final = frozenset('.!?;:)"”\u2019»。\uff01\uff1f।؟')
_WEIGHT_DECIMALS: Final = 4


def unit_weights(
    text: str,
    found: Sequence[Unit],
    scores: dict[str, int],
    headings: frozenset[str],
    mention_starts: Sequence[int],
) -> list[float]:
    """Returns for each unit, from 0 to 1, how much it is worth quoting. `mention_starts` must be sorted.

        weight = (position + cues + keywords + headings + entities) x length x form

    - position: the first unit of a chunk states its subject; later units count less and less.
    - cues: each kind of cue counts once (obligation, prohibition, definition, deadline, threshold).
    - keywords: how much of the unit consists of words that the chunk is about.
    - headings: whether the unit repeats words of the headings above.
    - entities: dates, amounts, references and names make a statement precise.
    - length: very short units say nothing, very long units too much.
    - form: fragments, headings and table rows are not understood alone.
    """
    best = max(scores.values(), default=1)
    return [
        round(
            (
                _POSITION_WEIGHT / (1 + place)
                + _cue_weight(unit.kinds)
                + _KEYWORD_WEIGHT * _keyword_density(unit.tokens, scores, best)
                + (0.0 if headings.isdisjoint(unit.tokens) else _HEADING_WEIGHT)
                + min(_ENTITY_WEIGHT_MAX, _ENTITY_WEIGHT * _count_between(mention_starts, unit))
            )
            * _length_factor(unit.end - unit.start)
            * _form_factor(text, unit),
            _WEIGHT_DECIMALS,
        )
        for place, unit in enumerate(found)
    ]


@functools.cache
def _cue_weight(kinds: frozenset[FindingKind]) -> float:
    return min(_CUE_WEIGHT_MAX, sum([weight for kind, weight in _CUE_WEIGHTS.items() if kind in kinds], 0.0))


def _keyword_density(tokens: Sequence[str], scores: dict[str, int], best: int) -> float:
    """Returns the score of an average word in this unit as a share of the best word's score.

    It is doubled, since half of the words are small words without a score.
    """
    if not tokens:
        return 0.0
    total = sum(map(scores.get, tokens, repeat(0)))
    return min(1.0, 2 * total / (best * len(tokens)))


def _count_between(starts: Sequence[int], unit: Unit) -> int:
    return bisect_left(starts, unit.end) - bisect_left(starts, unit.start)


def _length_factor(characters: int) -> float:
    if characters < _SHORT_CHARACTERS:
        return _SHORT_FACTOR
    return _LONG_FACTOR if characters > _LONG_CHARACTERS else 1.0


def _form_factor(text: str, unit: Unit) -> float:
    if text.count("\t", unit.start, unit.end) > 1 or "|" in unit.tokens:
        return _TABLE_FACTOR
    if text[unit.end - 1] not in _FINAL_MARKS:
        return _UNFINISHED_FACTOR
    return _FRAGMENT_FACTOR if unit.fragment else 1.0


FINDINGS_MAX: Final = 10


def key_findings(ranked: Sequence[Passage]) -> tuple[Finding, ...]:
    """Returns findings chosen from passages in turn: the best of each kind, then the second best, and so on.

    `ranked` must come best first and without repetitions. Plain statements only fill places that other kinds leave.
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
    """Returns the places of the heaviest units that have a cue or a figure, and a length fit for quoting.

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
"""The number of a chunk's heaviest units that its candidates, quotes and summary are chosen from."""

_Named = TypeVar("_Named", str, Entity)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A chunk's digest before the tokens of its summary are counted, which is done for all chunks at once."""

    summary: tuple[Passage, ...]
    quotes: tuple[Passage, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]


class ExtractiveProcessor:
    """Takes every word from the text. The same input gives the same output, byte for byte."""

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
    """Drops all texts from the caches of this process, as an erasure needs."""
    forget_measures()
    _heading_words.cache_clear()


def _passage(chunk: ChunkInput, unit: Unit, weight: float) -> Passage:
    span = Span(chunk.span_start + unit.start, chunk.span_start + unit.end)
    return Passage(chunk.text[unit.start : unit.end], chunk.document, span, weight)


def _most_frequent(groups: Sequence[Sequence[_Named]], limit: int) -> tuple[_Named, ...]:
    """Returns the items that most groups contain, most frequent first. Of equals, the item listed earlier is first."""
    counts = Counter(item for group in groups for item in group)
    ranks: Counter[_Named] = Counter()
    for group in groups:
        for rank, item in enumerate(group):
            ranks[item] += rank
    return tuple(sorted(counts, key=lambda item: (-counts[item], ranks[item], item))[:limit])
