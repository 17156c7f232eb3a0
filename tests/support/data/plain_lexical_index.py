"""A plain lexical index: dictionaries that are counted again for every question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from drillcore_server.facts.words import FactWords, Question, Term, pairs
from drillcore_server.storage.ids import DocumentId, FactId, NodeId

Facts = Mapping[FactId, FactWords]
Place = object
WORDS = [Term(number) for number in (0, 1, 2, 3, 5, 1 << 31, (1 << 32) - 1)]


def words(seed: int, chunk: int | None = None, passage: int | None = None, document: int = 0) -> FactWords:
    """Few words that repeat often, so that many facts match. The lead is part of the content."""
    lead = Counter({word: 1 + (seed // 3 + place) % 2 for place, word in enumerate(WORDS[:3]) if seed >> place & 1})
    own = Counter({word: 1 + (seed + place) % 3 for place, word in enumerate(WORDS) if (seed * 7 + place) % 3 == 0})
    above = {word: 1 for place, word in enumerate(WORDS) if (seed + 2 * place) % 5 == 0}
    return FactWords(
        None if chunk is None else NodeId(UUID(int=1000 + chunk)),
        None if chunk is None else DocumentId(UUID(int=2000 + document)),
        passage,
        own + lead,
        lead,
        above,
        {word: 1 for word in above if word % 2},
        frozenset(pairs(list(own))),
    )


@dataclass(frozen=True)
class Text:
    """The words of one text of a level: how often each occurs. Of the headings above facts, the longest counts."""

    content: Counter[Term]
    headings: Counter[Term]
    title: Counter[Term]
    lengths: Mapping[str, int]


def passage_of(fact: FactId, found: FactWords) -> Place:
    return fact if found.chunk is None or found.passage is None else (found.chunk, found.passage)


def levels(facts: Facts) -> dict[str, dict[Place, Text]]:
    """The texts of each level, each by the place that it has."""
    passages = _grouped(facts, passage_of)
    chunks = _summed(passages, {passage_of(fact, words): words.chunk or fact for fact, words in facts.items()})
    documents = _summed(chunks, {words.chunk or fact: words.document or fact for fact, words in facts.items()})
    return {"facts": _grouped(facts, lambda fact, _: fact), "chunks": chunks, "documents": documents}


def _summed(texts: Mapping[Place, Text], parents: Mapping[Place, Place]) -> dict[Place, Text]:
    found: dict[Place, Text] = {}
    for place, above in parents.items():
        found[above] = _both(found[above], texts[place]) if above in found else texts[place]
    return found


def _grouped(facts: Facts, place_of: Callable[[FactId, FactWords], Place]) -> dict[Place, Text]:
    inside: dict[Place, list[FactWords]] = {}
    for fact, words in facts.items():
        inside.setdefault(place_of(fact, words), []).append(words)
    return {place: _text(some) for place, some in inside.items()}


def _text(inside: Sequence[FactWords]) -> Text:
    """The text of several facts. A lead that introduces several of them counts once."""
    content, lead, headings, title = Counter[Term](), Counter[Term](), Counter[Term](), Counter[Term]()
    for words in inside:
        content += Counter(words.content) - Counter(words.lead)
        lead, headings, title = (
            lead | Counter(words.lead),
            headings | Counter(words.headings),
            title | Counter(words.title),
        )
    longest = {
        part: max(sum(getattr(words, part).values()) for words in inside) for part in ("lead", "headings", "title")
    }
    lengths = {"content": sum(content.values()) + longest["lead"], **longest}
    return Text(content + lead, headings, title, lengths)


def _both(left: Text, right: Text) -> Text:
    lengths = {part: max(left.lengths[part], right.lengths[part]) for part in ("headings", "title")}
    lengths["content"] = left.lengths["content"] + right.lengths["content"]
    return Text(left.content + right.content, left.headings | right.headings, left.title | right.title, lengths)


def plain_scores(facts: Facts, level: str, asked: Question, *above: str) -> dict[Place, float]:
    """The share of the question's weight that each text of a level answers, with the levels in `above` added to it."""
    parts, texts = ("content", *above), levels(facts)[level]
    lengths = {place: sum(text.lengths[part] for part in parts) for place, text in texts.items()}
    average = max(sum(lengths.values()) / len(texts), 1.0)
    counts = {place: {t: sum(getattr(x, p)[t] for p in parts) for t in asked.terms} for place, x in texts.items()}
    rare = {t: rarity(sum(words[t] > 0 for words in counts.values()), len(texts)) for t in asked.terms}
    return {
        place: sum(
            rare[t] * words[t] / (words[t] + 1.2 * (0.25 + 0.75 * lengths[place] / average)) for t in asked.terms
        )
        / sum(rare.values())
        for place, words in counts.items()
    }


def plain_titles(facts: Facts, asked: Question) -> dict[Place, float]:
    texts = levels(facts)["documents"]
    having = {t: sum(x.content[t] + x.title[t] > 0 for x in texts.values()) for t in asked.terms}
    rare = {t: rarity(count, len(texts)) for t, count in having.items()}
    return {
        place: sum(rare[t] for t in asked.terms if text.title[t]) / sum(rare.values()) for place, text in texts.items()
    }


def plain_pairs(facts: Facts, asked: Question, place_of: Callable[[FactId, FactWords], Place]) -> dict[Place, float]:
    there: dict[Place, set[Term]] = {}
    for fact, words in facts.items():
        there.setdefault(place_of(fact, words), set()).update(words.pairs)
    rare = {pair: rarity(sum(pair in pairs for pairs in there.values()), len(there)) for pair in asked.pairs}
    return {
        place: sum(rare[p] for p in asked.pairs if p in pairs) / sum(rare.values()) for place, pairs in there.items()
    }


def rarity(having: int, count: int) -> float:
    return math.log1p((count - having + 0.5) / (having + 0.5))
