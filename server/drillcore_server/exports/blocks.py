"""The blocks that copies for people are made of. Markdown and PDF use the same blocks, so they say the same.

Control characters, and characters that change the direction of text, are shown by their number. A copy that hid them
could be read differently from the original.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LINE_ENDS: Final = re.compile("\r\n|\u2028|\u2029")
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"
)


def number_of(character: str) -> str:
    return f"U+{ord(character):04X}"


def with_numbers(text: str) -> str:
    """The text with line feeds as line ends, and invisible characters as numbers."""
    return _UNSEEN.sub(lambda found: number_of(found[0]), _LINE_ENDS.sub("\n", text))


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    depth: int
    """1 is the highest."""
    in_contents: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """Short values with their names."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Prose:
    """A text about the documents, such as a summary."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Original characters of a document."""

    text: str


@dataclass(frozen=True, slots=True)
class Quote:
    """A passage of a document, with a note."""

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    shares: Sequence[int]
    """The share of the width for each column."""
    rows: Sequence[Sequence[str]]
    continued: bool = False
    """Whether it continues the table before it, without title and head."""


@dataclass(frozen=True, slots=True)
class Manifestation:
    """An electronic signature: printed name, date and time, meaning, and further fields of the signature."""

    name: str
    at: str
    meaning: str
    rows: Sequence[tuple[str, str]]


Block = Heading | Facts | Prose | Verbatim | Quote | Table | Manifestation
