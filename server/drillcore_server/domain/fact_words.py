"""What a fact is found by: the words of what it says, and those of what stands above it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import DocumentId, NodeId
from drillcore_server.domain.words import Lexicon, Term, pairs, readable_name

TITLES_CHARACTERS_MAX: Final = 1_000
"""Of the titles that a fact carries: each has a copy."""


@dataclass(frozen=True, slots=True)
class FactWords:
    """It follows from a fact alone. Each mapping says how often a word is there."""

    chunk: NodeId | None
    document: DocumentId | None
    passage: int | None
    """See `Fact`."""
    content: Mapping[Term, int]
    """With what introduces it."""
    lead: Mapping[Term, int]
    """Of what introduces it alone."""
    headings: Mapping[Term, int]
    title: Mapping[Term, int]
    """Of its document, and of its source's name: each once."""
    pairs: frozenset[Term]
    """Neighbours in its content."""


def words_of(fact: Fact, lexicon: Lexicon) -> FactWords:
    title, headings = fact.titles[:1], fact.titles[1:]
    content = lexicon.terms(fact.content)
    return FactWords(
        chunk=fact.chunk,
        document=fact.document,
        passage=fact.passage,
        content=Counter(content),
        lead=Counter(lexicon.terms(fact.content[: fact.lead_characters])),
        headings=Counter(lexicon.terms("\n".join(headings))),
        title=dict.fromkeys(lexicon.terms("\n".join((*title, readable_name(fact.source)))), 1),
        pairs=frozenset(pairs(content)),
    )


def is_found_alike(one: Fact, other: Fact) -> bool:
    """Whether two versions of a fact have the same words, in the same place."""
    return _found_by(one) == _found_by(other)


def _found_by(fact: Fact) -> tuple[object, ...]:
    return fact.content, fact.lead_characters, fact.titles, fact.chunk, fact.document, fact.passage


def titles_above(title: str, headings: Sequence[str]) -> tuple[str, ...]:
    """The title of a document and the headings above something in it; as much of them as there is room for."""
    return tuple(_within((title, *headings), TITLES_CHARACTERS_MAX))


def _within(titles: Sequence[str], room: int) -> Iterator[str]:
    for one in titles:
        yield one[:room]
        room -= min(len(one), room)
