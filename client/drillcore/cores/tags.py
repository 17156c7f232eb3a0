"""The tags of records."""

from __future__ import annotations

from typing import Final

TRIPLES: Final = "t"
GRAPH_EMBEDDINGS: Final = "ge"
DOCUMENT_EMBEDDINGS: Final = "de"
LIBRARY_METADATA: Final = "lm"
LIBRARY_BLOB: Final = "lb"
KNOWN: Final = (TRIPLES, GRAPH_EMBEDDINGS, DOCUMENT_EMBEDDINGS, LIBRARY_METADATA, LIBRARY_BLOB)
LISTS: Final = {TRIPLES: "t", GRAPH_EMBEDDINGS: "e", DOCUMENT_EMBEDDINGS: "c"}
"""The key under which a record has its list."""
