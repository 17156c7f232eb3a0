"""What quads are made of.

Term ─┬─ Iri
      ├─ Blank
      ├─ Literal
      └─ Quoted      a triple that is spoken of
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Iri:
    value: str
    """Absolute."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A blank node. The same label is the same node in all of a corpus."""

    label: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: str
    datatype: str = ""
    """An IRI; empty for an xsd:string, and for one with a language."""
    language: str = ""
    """BCP 47."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """A triple that is spoken of, without being said."""

    subject: Term
    predicate: Term
    object: Term


Term = Iri | Blank | Literal | Quoted


@dataclass(frozen=True, slots=True)
class Quad:
    subject: Term
    predicate: Term
    object: Term
    graph: str = ""
    """An IRI, or `_:` and a blank node's label; empty for the default graph."""


@dataclass(frozen=True, slots=True)
class QuadPattern:
    """None matches everything."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: str | None = None
    """Empty: the default graph."""
    source_id: str = ""
    """Only quads that were put of this source; empty: of any, or none."""
