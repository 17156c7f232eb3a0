"""The words that a text is found by, each as a number.

A term is the first four bytes of the BLAKE2b hash of a stem: short to keep, and the same on every server. No word is
kept for longer than a call: what a text said must not stay in memory after its source was erased.

What a fact is found by: the words of what it says, and those of what stands above it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, NewType
from urllib.parse import unquote

import Stemmer

from drillcore_server.facts.model import Fact
from drillcore_server.storage.ids import DocumentId, NodeId

Term = NewType("Term", int)
"""Below 2 ** 32."""
QUESTION_TERMS_MAX: Final = 256
"""Different ones that are looked for at once. A question has a dozen; a text of 100,000 characters is no question."""
_STOP_WORDS: Final = """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each few for from further had has have having he her here hers him
    his how i if in into is it its itself just me more most my no nor not now of off on once only or other our out over
    own same she should so some such than that the their them then there these they this those through to too under
    until up upon us very was we were what when where whether which while who whom whose why will with would you your
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
_WORDS: Final = re.compile(r"[^\W_]+")
_CAMEL_STEPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_EXTENSION: Final = re.compile(r"\.[A-Za-z]\w{0,4}$")
_KNOWN_MAX: Final = 50_000
_TERM_MAX: Final = (1 << 32) - 1
_FIRST: Final = 0x9E3779B1
_SECOND: Final = 0x85EBCA77
"""Odd, so that no two terms become one when they are multiplied."""


class Lexicon:
    """Knows the terms of the words that it has seen, for as long as it is used: many texts share them.

    For one thread at a time. Stems are those of Snowball for English; words of other languages are mostly left alone.
    """

    def __init__(self) -> None:
        self._known: dict[str, Term] = {}
        self._stemmer = Stemmer.Stemmer("english", 0)  # without a memory of its own

    def terms(self, text: str) -> list[Term]:
        """Of the words of a text that say something, in order."""
        known = self._known
        words = (word for word in _WORDS.findall(text.lower()) if word not in STOP_WORDS)
        return [known[word] if word in known else self._learn(word) for word in words]

    def _learn(self, word: str) -> Term:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        digest = hashlib.blake2b(self._stemmer.stemWord(word).encode("utf-8", "surrogatepass"), digest_size=4).digest()
        self._known[word] = term = Term(int.from_bytes(digest, "little"))
        return term


@dataclass(frozen=True, slots=True)
class Question:
    """What a text is asked by: each term and each pair of neighbours once, in the order of their first places."""

    terms: tuple[Term, ...]
    pairs: tuple[Term, ...]


def question(text: str) -> Question:
    """Of a very long text what comes first."""
    terms = Lexicon().terms(text)
    return Question(
        tuple(islice(dict.fromkeys(terms), QUESTION_TERMS_MAX)),
        tuple(islice(dict.fromkeys(pairs(terms)), QUESTION_TERMS_MAX)),
    )


def pairs(terms: Iterable[Term]) -> Iterator[Term]:
    """A term for each two that are neighbours, in their order."""
    for one, following in pairwise(terms):
        yield Term((one * _FIRST ^ following * _SECOND) & _TERM_MAX)


def readable_name(source: str) -> str:
    """What the id of a source says in words: its last part without its extension, and with its words apart."""
    name = unquote(_EXTENSION.sub("", source.rstrip("/").rpartition("/")[2]))
    return f"{name} {_CAMEL_STEPS.sub(' ', name)}"


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
