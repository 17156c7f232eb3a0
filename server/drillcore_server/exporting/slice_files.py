"""A slice as a file: canonical JSON, or a compact binary form. `drillcore.slices` of the client reads both.

    DCSLICE1  BLAKE2b of the rest (8 bytes)  msgpack array:
      corpus (16 bytes), revision, slice_id, policy_id, policy parameters, params_hash, schema version, place of the
      anchor, ids (16 bytes each), kinds, phases (1 byte each), saliences (32-bit floats), distances (2 bytes each),
      edges (places of parent and child, 4 bytes each, and type, 1 byte), session ids, turns (place of its node and of
      its session id, 4 bytes each, role, 1 byte, five 32-bit floats, microseconds since 1970, 8 bytes)

Numbers are little-endian. See docs/slices.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import msgspec

from drillcore_server.domain.audit import time_text
from drillcore_server.domain.slices import EDGE_NAMES, KINDS, SCHEMA_VERSION, CorpusSlice, SlicedNode, id_text
from drillcore_server.domain.times import to_microseconds
from drillcore_server.domain.turns import Trajectory, Turn
from drillcore_server.exporting.canonical import canonical

MAGIC: Final = b"DCSLICE1"
CHECK_BYTES: Final = 8
_EDGE: Final = struct.Struct("<IIB")
_TURN: Final = struct.Struct("<IIBfffffq")
_TRAJECTORY: Final = [one.name for one in fields(Trajectory)]


def json_file(made: CorpusSlice) -> bytes:
    """The same bytes for the same slice of the same revision."""
    found = made.slice
    return canonical(
        {
            "schema_version": SCHEMA_VERSION,
            "slice_id": found.slice_id,
            "anchor": id_text(found.anchor),
            "policy_id": found.policy.id,
            "policy": found.policy.params(),
            "params_hash": found.params_hash,
            "corpus_id": str(made.corpus),
            "revision": made.revision,
            "nodes": [_node(one, made.turns.get(one.id)) for one in found.nodes],
            "edges": [
                {"parent": id_text(one.parent), "child": id_text(one.child), "edge_type": EDGE_NAMES[one.type]}
                for one in found.edges
            ],
        }
    )


def binary_file(made: CorpusSlice) -> bytes:
    """The same bytes for the same slice of the same revision."""
    body = msgspec.msgpack.encode(_fields(made))
    return MAGIC + hashlib.blake2b(body, digest_size=CHECK_BYTES).digest() + body


def _fields(made: CorpusSlice) -> list[Any]:
    found, nodes = made.slice, made.slice.nodes
    places = {node.id: place for place, node in enumerate(nodes)}
    sessions = sorted({turn.session for turn in made.turns.values()})
    return [
        made.corpus.bytes,
        made.revision,
        found.slice_id,
        found.policy.id,
        found.policy.params(),
        found.params_hash,
        SCHEMA_VERSION,
        places[found.anchor],
        b"".join(node.id for node in nodes),
        bytes(KINDS.index(node.kind) for node in nodes),
        bytes(node.phase for node in nodes),
        struct.pack(f"<{len(nodes)}f", *(node.salience for node in nodes)),
        struct.pack(f"<{len(nodes)}H", *(node.distance for node in nodes)),
        b"".join(_EDGE.pack(places[one.parent], places[one.child], one.type) for one in found.edges),
        sessions,
        _turns(made.turns, places, {session: place for place, session in enumerate(sessions)}),
    ]


def _turns(turns: Mapping[bytes, Turn], places: Mapping[bytes, int], sessions: Mapping[str, int]) -> bytes:
    return b"".join(
        _TURN.pack(
            places[one],
            sessions[turns[one].session],
            turns[one].role,
            *(getattr(turns[one].trajectory, name) for name in _TRAJECTORY),
            to_microseconds(turns[one].created_at),
        )
        for one in sorted(turns)
    )


def _node(node: SlicedNode, turn: Turn | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": id_text(node.id),
        "kind": node.kind,
        "phase": node.phase.name.lower(),
        "salience": _number(node.salience),
        "distance": node.distance,
    }
    if turn is not None:
        shown["turn"] = {
            "session_id": turn.session,
            "role": turn.role.name.lower(),
            "trajectory": {name: _number(getattr(turn.trajectory, name)) for name in _TRAJECTORY},
            "created_at": time_text(turn.created_at),
        }
    return shown


def _number(value: float) -> float:
    """Canonical JSON has 1 for 1.0, and is written sooner if that is said."""
    return int(value) if value.is_integer() else value
