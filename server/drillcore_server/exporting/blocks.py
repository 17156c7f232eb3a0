"""What copies for people are made of. Markdown and PDF set the same blocks, so they say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    depth: int
    """1 is the highest."""
    in_contents: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values, short ones."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Prose:
    """A text that somebody or something wrote about the documents."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Original characters of a document."""

    text: str


@dataclass(frozen=True, slots=True)
class Quote:
    """A passage as it stands in a document."""

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    shares: Sequence[int]
    """Of the width, for each column."""
    rows: Sequence[Sequence[str]]
    continued: bool = False
    """Whether it goes on where the table before it ended: neither title nor head again."""


@dataclass(frozen=True, slots=True)
class Manifestation:
    """An electronic signature: printed name, date and time, meaning; then what it is bound to."""

    name: str
    at: str
    meaning: str
    rows: Sequence[tuple[str, str]]


Block = Heading | Facts | Prose | Verbatim | Quote | Table | Manifestation
