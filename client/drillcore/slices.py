"""Slices as files: what `slice(..., format=...)` of a client gives, read and checked without a server.

    made = drillcore.slices.read(path.read_bytes())     JSON or binary, whichever it is
    made.slice_id, made.nodes, made.edges

Reading checks that a file is whole and that its fingerprints are those of what it says, so a slice that was changed,
or that another policy made, is found: `InvalidSlice`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgpack

from drillcore._xxh64 import xxh64

__all__ = ["InvalidSlice", "SliceEdge", "SliceFile", "SliceNode", "SliceTurn", "fingerprint", "read"]

MAGIC: Final = b"DCSLICE1"
_CHECK_BYTES: Final = 8
_ID_BYTES: Final = 16
_FIELDS: Final = 16
_KINDS: Final = ("turn", "raw", "chunk", "section", "master", "fact")
_PHASES: Final = ("", "exploration", "debugging", "planning", "consolidation", "synthesis")
_ROLES: Final = ("", "user", "assistant", "system", "tool")
_EDGE_TYPES: Final = ("", "Reply", "Branch", "Reference", "Default")
_TRAJECTORY: Final = ("depth", "sibling_order", "homogeneity", "temporal", "complexity")
_EDGE: Final = struct.Struct("<IIB")
_TURN: Final = struct.Struct("<IIBfffffq")
_POLICY: Final = (
    "version",
    "max_nodes",
    "max_radius",
    "phase_weights",
    "salience_weight",
    "distance_decay",
    "include_siblings",
    "max_siblings_per_node",
)
_WEIGHTS: Final = ("synthesis", "planning", "consolidation", "debugging", "exploration")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FINGERPRINTED_AS: Final = {"slice_policy_v1_ref": "slice_policy_v1"}
"""The compatible policy has the fingerprints of the reference."""


class InvalidSlice(ValueError):  # noqa: N818 - what it is
    """The file is no slice, or not as it was made."""


@dataclass(frozen=True, slots=True)
class SliceTurn:
    """What a slice says of a turn of a conversation."""

    session_id: str
    role: str
    trajectory: Mapping[str, float]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SliceNode:
    id: UUID
    kind: str
    """Turn, raw, chunk, section, master or fact."""
    phase: str
    salience: float
    distance: int
    """From the anchor."""
    turn: SliceTurn | None


@dataclass(frozen=True, slots=True)
class SliceEdge:
    parent: UUID
    child: UUID
    edge_type: str
    """Reply, Branch, Reference or Default."""


@dataclass(frozen=True, slots=True)
class SliceFile:
    slice_id: str
    anchor: UUID
    policy_id: str
    policy: Mapping[str, Any]
    """Its parameters, fractions as whole millionths."""
    params_hash: str
    schema_version: str
    corpus_id: UUID
    revision: int
    nodes: Sequence[SliceNode]
    """In the order of ids."""
    edges: Sequence[SliceEdge]
    """In the order of parent, child and type."""


def read(data: bytes) -> SliceFile:
    """A slice from its JSON or binary file. Raises `InvalidSlice`."""
    try:
        made = _from_binary(data) if data.startswith(MAGIC) else _from_json(data)
        _check(made)
    except InvalidSlice:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error) as error:
        raise InvalidSlice(f"this is no slice, or it is damaged: {error}") from error
    return made


def fingerprint(value: object) -> str:
    """xxHash64 of the compact JSON, in hex: `slice_id` and `params_hash` are made so."""
    return f"{xxh64(json.dumps(value, separators=(',', ':')).encode()):016x}"


def _check(made: SliceFile) -> None:
    if fingerprint(made.policy) != made.params_hash:
        raise InvalidSlice("the params_hash is not that of the policy")
    ids = [node.id for node in made.nodes]
    order = [(edge.parent, edge.child, _EDGE_TYPES.index(edge.edge_type)) for edge in made.edges]
    if sorted(set(ids)) != ids or sorted(set(order)) != order or made.anchor not in ids:
        raise InvalidSlice("nodes and edges are not in order, or the anchor is not among them")
    edges = [{"parent": str(one.parent), "child": str(one.child), "edge_type": one.edge_type} for one in made.edges]
    policy = _FINGERPRINTED_AS.get(made.policy_id, made.policy_id)
    canonical = [str(made.anchor), list(map(str, ids)), edges, policy, made.params_hash, made.schema_version]
    if fingerprint(canonical) != made.slice_id:
        raise InvalidSlice("the slice_id is not that of what the slice says")


def _from_json(data: bytes) -> SliceFile:
    told = json.loads(data)
    return SliceFile(
        slice_id=told["slice_id"],
        anchor=UUID(told["anchor"]),
        policy_id=told["policy_id"],
        policy=_in_order(told["policy"]),
        params_hash=told["params_hash"],
        schema_version=told["schema_version"],
        corpus_id=UUID(told["corpus_id"]),
        revision=int(told["revision"]),
        nodes=[_json_node(one) for one in told["nodes"]],
        edges=[SliceEdge(UUID(one["parent"]), UUID(one["child"]), one["edge_type"]) for one in told["edges"]],
    )


def _json_node(told: Mapping[str, Any]) -> SliceNode:
    turn = told.get("turn")
    shown = None
    if turn is not None:
        trajectory = {name: float(turn["trajectory"][name]) for name in _TRAJECTORY}
        at = datetime.fromisoformat(turn["created_at"])
        shown = SliceTurn(turn["session_id"], turn["role"], trajectory, at)
    return SliceNode(
        UUID(told["id"]), told["kind"], told["phase"], float(told["salience"]), int(told["distance"]), shown
    )


def _from_binary(data: bytes) -> SliceFile:
    check, body = data[len(MAGIC) :][:_CHECK_BYTES], data[len(MAGIC) + _CHECK_BYTES :]
    if hashlib.blake2b(body, digest_size=_CHECK_BYTES).digest() != check:
        raise InvalidSlice("the file is damaged, or cut short")
    told = msgpack.unpackb(body, raw=False)
    if not isinstance(told, list) or len(told) != _FIELDS:
        raise InvalidSlice("the file has other fields than a slice")
    corpus, revision, slice_id, policy_id, policy, params_hash, schema, anchor, packed, *rest = told
    ids = [UUID(bytes=packed[at : at + _ID_BYTES]) for at in range(0, len(packed), _ID_BYTES)]
    return SliceFile(
        slice_id=slice_id,
        anchor=ids[anchor],
        policy_id=policy_id,
        policy=_in_order(policy),
        params_hash=params_hash,
        schema_version=schema,
        corpus_id=UUID(bytes=corpus),
        revision=revision,
        nodes=_binary_nodes(ids, rest),
        edges=[SliceEdge(ids[one], ids[other], _EDGE_TYPES[kind]) for one, other, kind in _EDGE.iter_unpack(rest[4])],
    )


def _binary_nodes(ids: Sequence[UUID], rest: Sequence[Any]) -> list[SliceNode]:
    kinds, phases, saliences, distances, _, sessions, packed = rest
    turns = {one[0]: _binary_turn(one[1:], sessions) for one in _TURN.iter_unpack(packed)}
    weights = struct.unpack(f"<{len(ids)}f", saliences)
    reached = struct.unpack(f"<{len(ids)}H", distances)
    return [
        SliceNode(one, _KINDS[kinds[at]], _PHASES[phases[at]], weights[at], reached[at], turns.get(at))
        for at, one in enumerate(ids)
    ]


def _binary_turn(told: Sequence[Any], sessions: Sequence[str]) -> SliceTurn:
    session, role, *trajectory, at = told
    moment = _EPOCH + timedelta(microseconds=at)
    return SliceTurn(sessions[session], _ROLES[role], dict(zip(_TRAJECTORY, trajectory, strict=True)), moment)


def _in_order(policy: Mapping[str, Any]) -> dict[str, Any]:
    """As it is fingerprinted: canonical JSON has put the names into another order."""
    weights = {name: policy["phase_weights"][name] for name in _WEIGHTS}
    return {name: weights if name == "phase_weights" else policy[name] for name in _POLICY}
