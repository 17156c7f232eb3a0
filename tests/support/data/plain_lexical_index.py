"""A plain lexical index: dictionaries, counted anew for every question."""

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
    """Few words, often the same, so that many facts match. The lead is part of the content."""
    lead = Counter({one: 1 + (seed // 3 + place) % 2 for place, one in enumerate(WORDS[:3]) if seed >> place & 1})
    own = Counter({one: 1 + (seed + place) % 3 for place, one in enumerate(WORDS) if (seed * 7 + place) % 3 == 0})
    above = {one: 1 for place, one in enumerate(WORDS) if (seed + 2 * place) % 5 == 0}
    return FactWords(
        None if chunk is None else NodeId(UUID(int=1000 + chunk)),
        None if chunk is None else DocumentId(UUID(int=2000 + document)),
        passage,
        own + lead,
        lead,
        above,
        {one: 1 for one in above if one % 2},
        frozenset(pairs(list(own))),
    )


@dataclass(frozen=True)
class Text:
    """Of a level: how often it has each word, and how many it has. Of what stands above facts, the longest counts."""

    content: Counter[Term]
    headings: Counter[Term]
    title: Counter[Term]
    lengths: Mapping[str, int]


def passage_of(fact: FactId, found: FactWords) -> Place:
    return fact if found.chunk is None or found.passage is None else (found.chunk, found.passage)


def levels(facts: Facts) -> dict[str, dict[Place, Text]]:
    """The texts of each level, by what stands for them."""
    passages = _grouped(facts, passage_of)
    chunks = _summed(passages, {passage_of(fact, one): one.chunk or fact for fact, one in facts.items()})
    documents = _summed(chunks, {one.chunk or fact: one.document or fact for fact, one in facts.items()})
    return {"facts": _grouped(facts, lambda fact, _: fact), "chunks": chunks, "documents": documents}


def _summed(texts: Mapping[Place, Text], parents: Mapping[Place, Place]) -> dict[Place, Text]:
    found: dict[Place, Text] = {}
    for place, above in parents.items():
        found[above] = _both(found[above], texts[place]) if above in found else texts[place]
    return found


def _grouped(facts: Facts, place_of: Callable[[FactId, FactWords], Place]) -> dict[Place, Text]:
    inside: dict[Place, list[FactWords]] = {}
    for fact, one in facts.items():
        inside.setdefault(place_of(fact, one), []).append(one)
    return {place: _text(some) for place, some in inside.items()}


def _text(inside: Sequence[FactWords]) -> Text:
    """What introduces several of its facts counts once."""
    content, lead, headings, title = Counter[Term](), Counter[Term](), Counter[Term](), Counter[Term]()
    for one in inside:
        content += Counter(one.content) - Counter(one.lead)
        lead, headings, title = lead | Counter(one.lead), headings | Counter(one.headings), title | Counter(one.title)
    longest = {part: max(sum(getattr(one, part).values()) for one in inside) for part in ("lead", "headings", "title")}
    lengths = {"content": sum(content.values()) + longest["lead"], **longest}
    return Text(content + lead, headings, title, lengths)


def _both(one: Text, other: Text) -> Text:
    lengths = {part: max(one.lengths[part], other.lengths[part]) for part in ("headings", "title")}
    lengths["content"] = one.lengths["content"] + other.lengths["content"]
    return Text(one.content + other.content, one.headings | other.headings, one.title | other.title, lengths)


def plain_scores(facts: Facts, level: str, asked: Question, *above: str) -> dict[Place, float]:
    """The share of the question's weight that each text of a level answers, with what is above it if it is to count."""
    parts, texts = ("content", *above), levels(facts)[level]
    lengths = {place: sum(text.lengths[part] for part in parts) for place, text in texts.items()}
    average = max(sum(lengths.values()) / len(texts), 1.0)
    counts = {place: {t: sum(getattr(x, p)[t] for p in parts) for t in asked.terms} for place, x in texts.items()}
    rare = {t: rarity(sum(one[t] > 0 for one in counts.values()), len(texts)) for t in asked.terms}
    return {
        place: sum(rare[t] * one[t] / (one[t] + 1.2 * (0.25 + 0.75 * lengths[place] / average)) for t in asked.terms)
        / sum(rare.values())
        for place, one in counts.items()
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
    for fact, one in facts.items():
        there.setdefault(place_of(fact, one), set()).update(one.pairs)
    rare = {pair: rarity(sum(pair in one for one in there.values()), len(there)) for pair in asked.pairs}
    return {place: sum(rare[p] for p in asked.pairs if p in one) / sum(rare.values()) for place, one in there.items()}


def rarity(having: int, count: int) -> float:
    return math.log1p((count - having + 0.5) / (having + 0.5))
