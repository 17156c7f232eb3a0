"""How much of a core was stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CoreCounts:
    records: int = 0
    """Of the file."""
    quads: int = 0
    entity_vectors: int = 0
    library_documents: int = 0
    documents: int = 0
    sections: int = 0
    chunks: int = 0
    facts: int = 0
    sources: int = 0
    communities: int = 0
    signatures: int = 0
    turns: int = 0
    edges: int = 0
