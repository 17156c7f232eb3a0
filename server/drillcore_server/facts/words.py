"""The words by which facts are found, each as a number, and how an index takes them.

A term is the first four bytes of the BLAKE2b hash of a stem: short, and the same on every server. Words themselves are
never kept longer than a call, because a text must not stay in memory after its source was erased.

A fact is found by the words of its content and by those of the title and headings above it. They follow from the fact,
so the store does not have them: who loads an index makes them. An index takes the words of a fact like this:

    chunk (16 bytes) document (16) passage (2) number of words of the content (2) lead (2) headings (2) title (2)
    number of different words (2), for each, in order: term (4) how often in content (1) lead (1) headings (1) title (1)
    pairs of neighbours, in order: term (4)

A missing id is all zeros and a missing passage all ones. Numbers are little-endian; in place of a larger number is the
largest that fits. So the records of many facts, put one after the other, are arrays that can be used as they are.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, NewType
from urllib.parse import unquote
from uuid import UUID

import numpy as np
import Stemmer

from drillcore_server.facts.model import Fact
from drillcore_server.storage.ids import DocumentId, NodeId

Term = NewType("Term", int)
"""Below 2 ** 32."""
QUESTION_TERMS_MAX: Final = 256
"""Different terms of one question. A real question has a dozen; a text of 100,000 characters has too many."""
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
"""Both factors are odd, so that no two terms become equal when multiplied."""


class Lexicon:
    """Makes terms of words, and remembers the terms of the words that it has seen.

    Use it in one thread at a time, and only during a call. Stems are those of Snowball for English, which leaves most
    words of other languages as they are.
    """

    def __init__(self) -> None:
        self._known: dict[str, Term] = {}
        self._stemmer = Stemmer.Stemmer("english", 0)  # 0: without a cache of its own

    def terms(self, text: str) -> list[Term]:
        """The terms of a text in order, without stop words."""
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
    """The words of a question: each term and each pair of neighbours once, in the order of their first places."""

    terms: tuple[Term, ...]
    pairs: tuple[Term, ...]


def question(text: str) -> Question:
    """The question that a text asks. Only the first terms of a very long text count."""
    terms = Lexicon().terms(text)
    return Question(
        tuple(islice(dict.fromkeys(terms), QUESTION_TERMS_MAX)),
        tuple(islice(dict.fromkeys(pairs(terms)), QUESTION_TERMS_MAX)),
    )


def pairs(terms: Iterable[Term]) -> Iterator[Term]:
    """A term for each two neighbours, which depends on their order."""
    for term, following in pairwise(terms):
        yield Term((term * _FIRST ^ following * _SECOND) & _TERM_MAX)


def readable_name(source: str) -> str:
    """The words in the id of a source: its last part without the extension, with the words apart."""
    name = unquote(_EXTENSION.sub("", source.rstrip("/").rpartition("/")[2]))
    return f"{name} {_CAMEL_STEPS.sub(' ', name)}"


TITLES_CHARACTERS_MAX: Final = 1_000
"""Characters of the titles that a fact carries. There is a limit because each fact has a copy."""


@dataclass(frozen=True, slots=True)
class FactWords:
    """The words by which a fact is found, and where it is. Each mapping says how often a word occurs.

    They follow from the fact alone.
    """

    chunk: NodeId | None
    document: DocumentId | None
    passage: int | None
    """See `Fact`."""
    content: Mapping[Term, int]
    """The words of its content, with its introductions."""
    lead: Mapping[Term, int]
    """The words of its introductions alone."""
    headings: Mapping[Term, int]
    title: Mapping[Term, int]
    """The words of its document's title and its source's name, each counted once."""
    pairs: frozenset[Term]
    """Pairs of words that are neighbours in its content."""


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


def titles_above(title: str, headings: Sequence[str]) -> tuple[str, ...]:
    """The titles that a fact carries: of its document and the headings above it, cut to `TITLES_CHARACTERS_MAX`."""
    return tuple(_within((title, *headings), TITLES_CHARACTERS_MAX))


def _within(titles: Sequence[str], room: int) -> Iterator[str]:
    for title in titles:
        yield title[:room]
        room -= min(len(title), room)


PARTS: Final = ("content", "lead", "headings", "title")
_LENGTHS: Final = tuple((part, "<u2") for part in PARTS)
HEAD: Final = np.dtype([("chunk", "V16"), ("document", "V16"), ("passage", "<u2"), *_LENGTHS, ("words", "<u2")])
WORD: Final = np.dtype([("term", "<u4"), *((part, "u1") for part in PARTS)])
PAIR: Final = np.dtype("<u4")
NO_NODE: Final = UUID(int=0).bytes
NO_PASSAGE: Final = (1 << 16) - 1
_LENGTH_MAX: Final = (1 << 16) - 1
_COUNT_MAX: Final = (1 << 8) - 1
_SHIFTS: Final = (0, 8, 16, 24)
"""The shifts of the four counts in the four bytes behind a term."""

_Words = tuple[Mapping[Term, int], ...]


def encode_words(words: FactWords) -> bytes:
    """The words of a fact as an index takes them. The top of this file has the format."""
    parts: _Words = (words.content, words.lead, words.headings, words.title)
    counts: dict[int, int] = {}
    for shift, part in zip(_SHIFTS, parts, strict=True):
        for term, count in part.items():
            counts[term] = counts.get(term, 0) | min(count, _COUNT_MAX) << shift
    found = sorted(counts.items())[:_LENGTH_MAX]
    numbers = [number for pair in found for number in pair]
    numbers += sorted(words.pairs)
    return _head(words, parts, len(found)) + struct.pack(f"<{len(numbers)}I", *numbers)


def _head(words: FactWords, parts: _Words, count: int) -> bytes:
    chunk = NO_NODE if words.chunk is None else words.chunk.bytes
    document = NO_NODE if words.document is None else words.document.bytes
    passage = NO_PASSAGE if words.passage is None else min(words.passage, NO_PASSAGE)
    lengths = (min(sum(part.values()), _LENGTH_MAX) for part in parts)
    return chunk + document + struct.pack("<6H", passage, *lengths, count)
