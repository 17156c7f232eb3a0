"""How much of a core was stored, while it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from drillcore_server.domain.cores import CoreCounts


@dataclass(slots=True)
class StoredCounts:
    """Counted as writes are gone through. The names are those of `CoreCounts`."""

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

    def of(self, records: int) -> CoreCounts:
        """Of a file with so many records."""
        return CoreCounts(records=records, **asdict(self))
