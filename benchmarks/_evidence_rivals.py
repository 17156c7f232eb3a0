"""Other ways to pack contexts for questions: BM25 and nearest neighbours over titled paragraphs, and crprotocol.

A paragraph is text between blank lines; a very long one is cut between sentences. It is found by its text with the name
of its document in front. It is packed like a fact of an envelope: without that name, one on each line with its number,
best first, leaving out what does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks._evidence_sets import Answers, Context, EvidenceSet, Place, Question
from drillcore_server.documents.ingestion.prepared_documents import builtin_counter
from drillcore_server.vectors.embedding.embedders import Embedder

PARAGRAPH_CHARACTERS_MAX: Final = 2_000
FOUND: Final = 400
"""Paragraphs that are tried for a context."""
PEER_FACTS: Final = 100
"""The facts that crprotocol may choose from. It compares vectors in Python: all of them would take a minute
a question."""
_BLANK_LINES: Final = re.compile(r"\n\s*\n")
_LEAST_TOKENS: Final = 5
"""No line has fewer tokens, so nothing fits into what is left."""
Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Paragraphs:
    places: tuple[Place, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, evidence: EvidenceSet) -> Paragraphs:
        found = [
            (Place(name, start, end), text[start:end])
            for name, text in evidence.documents.items()
            for start, end in _paragraphs(text)
        ]
        return cls(tuple(place for place, _ in found), tuple(text for _, text in found))

    @cached_property
    def titled(self) -> list[str]:
        return [f"{_title(place.document)}\n{text}" for place, text in zip(self.places, self.texts, strict=True)]

    @cached_property
    def tokens(self) -> list[int]:
        """Counts with a number in front of each; numbers from 10 to 99 have as many tokens as any that occur."""
        return builtin_counter().count_many([f"[10] {text}\n" for text in self.texts])

    def packed(self, best_first: Sequence[int], budget: int) -> Context:
        taken, tokens = [], 0
        for place in best_first:
            if tokens + self.tokens[place] <= budget:
                taken.append(place)
                tokens += self.tokens[place]
            elif budget - tokens < _LEAST_TOKENS:
                break
        return Context(tokens, tuple(self.places[place] for place in taken))


def bm25(paragraphs: Paragraphs, questions: Sequence[Question], budgets: Sequence[int], *, stemmed: bool) -> Answers:
    """Uses `bm25s` with its defaults and English stop words, with or without Snowball's English stems."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english") if stemmed else None

    def terms(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    index = bm25s.BM25()
    index.index(terms(paragraphs.titled), show_progress=False)
    found = min(FOUND, len(paragraphs.texts))
    ranked, _ = index.retrieve(terms([question.text for question in questions]), k=found, show_progress=False)
    return {budget: [paragraphs.packed(row.tolist(), budget) for row in ranked] for budget in budgets}


@dataclass(frozen=True)
class Nearest:
    """Ranks paragraphs by the cosine of their vectors with a question's."""

    paragraphs: Paragraphs
    embedder: Embedder
    rows: Rows

    @classmethod
    def by(cls, embedder: Embedder, paragraphs: Paragraphs) -> Nearest:
        return cls(paragraphs, embedder, embedder.embed(paragraphs.titled))

    def best(self, question: Question, count: int) -> list[int]:
        cosines = self.rows @ self.embedder.embed([question.text])[0]
        return np.argsort(-cosines, kind="stable")[:count].tolist()

    def answers(self, questions: Sequence[Question], budgets: Sequence[int]) -> Answers:
        ranked = [self.best(question, FOUND) for question in questions]
        return {budget: [self.paragraphs.packed(row, budget) for row in ranked] for budget in budgets}


class Peer:
    """Runs crprotocol's `construct()` with the nearest paragraphs as its facts and their vectors as its model's.

    It counts tokens like the others. Its cross-encoder is left out, as wherever that model is not installed.
    """

    def __init__(self, nearest: Nearest) -> None:
        from crp.envelope import decomposer

        self._nearest = nearest
        self._vectors: dict[str, Rows] = {}
        self._embedder = nearest.embedder
        decomposer._EMBED_MODEL, decomposer._ST_AVAILABLE = self, True

    def encode(self, texts: list[str], **_options: Any) -> Rows:
        """Replaces its sentence transformer."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if fresh:
            self._vectors |= dict(zip(fresh, self._embedder.embed(fresh), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def answers(self, questions: Sequence[Question], budgets: Sequence[int]) -> Answers:
        answers: dict[int, list[Context]] = {budget: [] for budget in budgets}
        for question in questions:
            near = self._nearest.best(question, PEER_FACTS)
            paragraphs = self._nearest.paragraphs
            self._vectors = {paragraphs.texts[place]: self._nearest.rows[place] for place in near}
            for budget in budgets:
                answers[budget].append(self._constructed(question, near, budget))
        return answers

    def _constructed(self, question: Question, near: Sequence[int], budget: int) -> Context:
        from crp.core.task_intent import TaskIntent
        from crp.envelope import builder
        from crp.extraction.types import Fact

        paragraphs = self._nearest.paragraphs
        facts = [Fact(id=str(place), text=paragraphs.texts[place]) for place in near]
        task, state = TaskIntent(task_input=question.text), builder.EnvelopeState(facts=facts)
        result = builder.construct(task, budget, state, count_tokens=builtin_counter().count)
        assert result.decomposition.used_ml_model, "the peer did not use the vectors"
        places = tuple(self._said(result.envelope_text, fact) for fact in result.packing.packed_facts)
        return Context(result.envelope_tokens, places)

    def _said(self, envelope: str, packed: Any) -> Place:
        """Returns the part of a paragraph that is in the envelope: its beginning, if it was cut to fit."""
        whole = self._nearest.paragraphs.places[int(packed.fact_id)]
        line = envelope[at:] if (at := envelope.find(packed.text[:40])) >= 0 else ""
        text = packed.text.removeprefix("- ").removesuffix("..." if packed.is_compressed else "")
        said = min(len(text), len(line.removeprefix("- ")))
        return Place(whole.document, whole.start, min(whole.end, whole.start + said))


def _title(document: str) -> str:
    return PurePath(document).stem.replace("_", " ").replace("-", " ")


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in [*(found.start() for found in _BLANK_LINES.finditer(text)), len(text)]:
        part = text[start:end]
        begin = start + len(part) - len(part.lstrip())
        yield from _cut(text, begin, start + len(part.rstrip()))
        start = end


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > PARAGRAPH_CHARACTERS_MAX:
        last = start + PARAGRAPH_CHARACTERS_MAX
        sentence = text.rfind(". ", start + PARAGRAPH_CHARACTERS_MAX // 3, last) + 1
        at = sentence or text.rfind(" ", start + 1, last)
        at = at if at > start else last
        yield start, at
        start = at
    if start < end:
        yield start, end
