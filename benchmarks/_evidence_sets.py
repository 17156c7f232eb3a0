"""Judged sets for the benchmark of evidence: documents, questions, and the characters that answer each.

A set is a folder with `documents/` and files `queries*.jsonl`, which are asked separately. A line of these is `{"id",
"text", "spans": [{"document", "start", "end"}]}`, in characters of the document read as UTF-8.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """Characters of a document; the end is exclusive."""

    document: str
    start: int
    end: int

    def as_json(self) -> dict[str, object]:
        return {"document": self.document, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class Question:
    id: str
    text: str
    spans: tuple[Place, ...]


@dataclass(frozen=True)
class Context:
    """What was packed for a question: the places of its text, and its tokens."""

    tokens: int
    places: tuple[Place, ...]


Answers = Mapping[int, Sequence[Context]]
"""By budget, a context for each question."""


@dataclass(frozen=True)
class EvidenceSet:
    name: str
    documents: Mapping[str, str]
    asked: Mapping[str, tuple[Question, ...]]
    """By the name of their file, such as `queries.multi`."""

    @property
    def questions(self) -> list[Question]:
        return [question for asked in self.asked.values() for question in asked]


def sets_in(data: Path, questions_max: int | None) -> list[EvidenceSet]:
    """Yields the set in the folder, or else those in its subfolders. Takes `questions_max` of each file, spread over
    it."""
    folders = [data] if (data / "documents").is_dir() else sorted(path.parent for path in data.glob("*/documents"))
    assert folders, f"{data} holds no set: a folder with documents/ and queries.jsonl"
    return [_read(folder, questions_max) for folder in folders]


def _read(folder: Path, questions_max: int | None) -> EvidenceSet:
    documents = {path.name: path.read_bytes().decode() for path in sorted((folder / "documents").iterdir())}
    asked = {
        file.name.removesuffix(".jsonl"): _spread(list(_questions(file)), questions_max)
        for file in sorted(folder.glob("queries*.jsonl"))
    }
    return EvidenceSet(folder.resolve().name, documents, asked)


def _questions(file: Path) -> Iterator[Question]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip():
            one = json.loads(line)
            yield Question(str(one["id"]), one["text"], tuple(Place(**span) for span in one["spans"]))


def _spread(questions: list[Question], most: int | None) -> tuple[Question, ...]:
    if most is None or most >= len(questions):
        return tuple(questions)
    return tuple(questions[place * len(questions) // most] for place in range(most))


class Scorer:
    """Uses the data's own measure: its `score.py`."""

    def __init__(self, file: Path) -> None:
        spec = importlib.util.spec_from_file_location("evidence_score", file)
        assert spec is not None, f"{file} is no Python file"
        assert spec.loader is not None, f"{file} is no Python file"
        self._module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)

    def score(self, questions: Sequence[Question], contexts: Sequence[Context]) -> dict[str, float]:
        """Returns recall, the share of complete answers, precision, and mean tokens."""
        wanted = [{"id": question.id, "spans": [span.as_json() for span in question.spans]} for question in questions]
        packed = [
            {"id": question.id, "tokens": context.tokens, "spans": [place.as_json() for place in context.places]}
            for question, context in zip(questions, contexts, strict=True)
        ]
        figures: dict[str, float] = self._module.score(wanted, packed)
        return {name: figures[name] for name in ("recall", "complete", "precision", "tokens")}
