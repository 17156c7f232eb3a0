# ruff: noqa: N818  # errors are named after what was found, because that is what a report says
"""The tags and limits of core files, and what can be wrong with one.

Core files come from anywhere, so everything that is held in memory has a limit.
"""

from __future__ import annotations

from typing import Final

from drillcore_formats.audit.findings import Malformed

TRIPLES: Final = "t"
GRAPH_EMBEDDINGS: Final = "ge"
DOCUMENT_EMBEDDINGS: Final = "de"
LIBRARY_METADATA: Final = "lm"
LIBRARY_BLOB: Final = "lb"
KNOWN: Final = (TRIPLES, GRAPH_EMBEDDINGS, DOCUMENT_EMBEDDINGS, LIBRARY_METADATA, LIBRARY_BLOB)
LISTS: Final = {TRIPLES: "t", GRAPH_EMBEDDINGS: "e", DOCUMENT_EMBEDDINGS: "c"}
"""By tag: the key of the list in a record."""

RECORD_BYTES_MAX: Final = 64 << 20
"""A record other than a blob. Blobs may have any size, because they are read in pieces."""
ITEM_BYTES_MAX: Final = 8 << 20
"""A triple, an entity or a chunk in a record, and a record's description."""
ITEM_CONTAINERS_MAX: Final = 100_000
"""Lists and maps in one item. An empty one takes one byte in a file and sixty in memory."""
PAIRS_MAX: Final = 100
"""Pairs in the map of a record."""
LIBRARY_BYTES_MAX: Final = 1 << 20
"""A record that describes a library document."""
PART_BYTES_MAX: Final = 64 << 20
"""The decoded content of one part of a full core. Drillcore writes parts of about 1 MiB."""
PART_CONTAINERS_MAX: Final = 10
"""Lists and maps in one record of a part: the record itself, and its fields that have several values."""
PART_LENGTH_MAX: Final = 100_000
"""Values in one list or map of a part."""
ROOT_BYTES_MAX: Final = 64 << 10
"""The decoded content of the root of a full core."""
DIMENSIONS_MAX: Final = 65_536
"""Dimensions of the vectors in a full core."""
MODEL_CHARACTERS_MAX: Final = 1_000
"""The name of the model that made the vectors."""
TAG_BYTES_MAX: Final = 255
ID_BYTES_MAX: Final = 64 << 10
"""The id of a library document."""
QUOTED_DEPTH_MAX: Final = 8
"""How deep quoted triples may be nested."""
PIECE_BYTES: Final = 256 << 10
"""How much of a file or a blob is read at once."""


class InvalidCore(Malformed):
    """The file is not a core, or not a whole one. The message names the record and where it begins in the file."""

    def __init__(self, record: int, offset_bytes: int, why: str) -> None:
        super().__init__(f"record {record:,} at byte {offset_bytes:,}: {why}")
        self.record = record
        """The record's number in the file, from 1."""
        self.offset_bytes = offset_bytes
        self.why = why


class WrongShape(ValueError):
    """A record, or a part of one, has the wrong structure. `InvalidCore` adds where in the file."""


class InvalidTerm(ValueError):
    """A term or triple has the right structure but is not valid RDF."""
