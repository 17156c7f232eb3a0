"""What a core file may have at most. Files come from anywhere: there is a limit on all that is held in memory."""

from __future__ import annotations

from typing import Final

RECORD_BYTES_MAX: Final = 64 << 20
"""Of a record that is no blob. Blobs may be of any size: they are read in pieces."""
ITEM_BYTES_MAX: Final = 8 << 20
"""Of a triple, an entity or a chunk in a record, and of a record's description."""
ITEM_CONTAINERS_MAX: Final = 100_000
"""Lists and maps in one item. One byte of a file may be an empty one, which takes sixty in memory."""
PAIRS_MAX: Final = 100
"""In the map that a record is."""
LIBRARY_BYTES_MAX: Final = 1 << 20
"""Of a record that describes a library document."""
PART_BYTES_MAX: Final = 64 << 20
"""Of the decoded content of one part of a full core; we write about 1 MiB."""
PART_CONTAINERS_MAX: Final = 10
"""Lists and maps in one record of a part: its own list, and what a record says it has several of."""
PART_LENGTH_MAX: Final = 100_000
"""Values in one of these."""
ROOT_BYTES_MAX: Final = 64 << 10
"""Of the decoded content of the root of a full core."""
DIMENSIONS_MAX: Final = 65_536
"""Of the vectors of a full core."""
MODEL_CHARACTERS_MAX: Final = 1_000
"""Of the name of the model that made them."""
TAG_BYTES_MAX: Final = 255
ID_BYTES_MAX: Final = 64 << 10
"""Of the id of a library document."""
QUOTED_DEPTH_MAX: Final = 8
"""Of quoted triples in quoted triples."""
PIECE_BYTES: Final = 256 << 10
"""Read of a file, and given of a blob, at once."""
