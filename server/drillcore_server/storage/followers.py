"""Which index entries follow from which records, told by their keys. An entry is purged with the records it follows.

    sealed record        tells its encryption keys itself
    entry that follows   belongs to the keys of one or two other records; the index by source lists it under them
    implied entry        its key can be worked out from that of its record, so nothing lists it

An entry that follows is written anew when its record gets another encryption key. Therefore all versions of the record
that the entry leads to have the same key.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import BlockId, TurnId, node_id
from drillcore_server.storage.spaces import Space

SEALED: Final = frozenset(
    {
        Space.MASTERS,
        Space.SECTIONS,
        Space.CHUNKS,
        Space.RAW,
        Space.VECTORS,
        Space.DOCUMENTS,
        Space.SOURCES,
        Space.FACTS,
        Space.FACT_VECTORS,
        Space.COMMUNITIES,
        Space.QUADS,
        Space.TURNS,
        Space.LIBRARY,
        Space.LIBRARY_BLOBS,
        Space.ENTITY_VECTORS,
        Space.FOREIGN_SIGNATURES,
    }
)
"""The spaces of sealed records. A stub with the numbers of its keys stays of a record that is purged."""
_OF_CHUNKS: Final = frozenset({Space.MEMBERS, Space.ENTITIES, Space.EMBEDDED})
_OF_BLOCKS: Final = frozenset({Space.FACTS_BY_CHUNK, Space.FACTS_BY_SOURCE})


def followed(keys: CorpusKeys, key: bytes, value: bytes) -> list[tuple[bytes, ...]]:
    """The records that an entry follows, each given by the keys it may have: it is at the first of them that exists.

    Empty for records and for implied entries.
    """
    space = keys.space_of(key)
    last = key[-16:]
    if space in _OF_CHUNKS:
        return [(keys.chunk(node_id(last)),)]
    if space in _OF_BLOCKS | {Space.FACT_EXPIRIES}:
        # A fact that expires is alone in its block, or its id was made from its block's.
        blocks = (last,) if space in _OF_BLOCKS else (last, last[:-2] + b"\0\0")
        return [tuple(keys.fact_block(BlockId(node_id(block))) for block in blocks)]
    if space is Space.PARENTS:  # of a chunk, or of a raw with an id of its own, whose parent is a chunk
        return [(keys.chunk(node_id(last)), keys.chunk(node_id(value)))]
    if space is Space.EDGES:
        return [(keys.turn(turn),) for turn in _ends(key)]
    if space is Space.GRAPH_INDEX and key >= keys.session_turns(b"").begin:
        return [(keys.turn(TurnId(UUID(bytes=last))),)]
    return []


def edge_by_child(keys: CorpusKeys, edge: bytes) -> bytes:
    """The key of the same edge in the index by child."""
    parent, child = _ends(edge)
    return keys.edge_to(child, parent, edge[-1])


def _ends(edge: bytes) -> tuple[TurnId, TurnId]:
    """The parent and the child of an edge, from its key."""
    return TurnId(UUID(bytes=edge[-33:-17])), TurnId(UUID(bytes=edge[-17:-1]))
