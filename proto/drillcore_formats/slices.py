"""Slices as files, as a client's `slice(..., format=...)` returns them. Reading and checking needs no server.

    made = drillcore.slices.read(path.read_bytes())     either format, JSON or binary
    made.slice_id, made.nodes, made.edges

Reading checks that the file is whole and that its fingerprints match its content. A slice that was changed, or made by
another policy, raises `InvalidSlice`.
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

from drillcore_formats.xxh64 import xxh64

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
"""The compatible policy is fingerprinted under the name of the reference policy."""


class InvalidSlice(ValueError):  # noqa: N818 - part of the public interface
    """The file is not a slice, or was changed."""


@dataclass(frozen=True, slots=True)
class SliceTurn:
    """What a slice says about a turn of a conversation."""

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
    """Number of edges from the anchor."""
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
    """The parameters of the policy. Fractions are given in millionths."""
    params_hash: str
    schema_version: str
    corpus_id: UUID
    revision: int
    nodes: Sequence[SliceNode]
    """Ordered by id."""
    edges: Sequence[SliceEdge]
    """Ordered by parent, child and type."""


def read(data: bytes) -> SliceFile:
    """A slice from its JSON or binary file. Raises `InvalidSlice`."""
    try:
        made = _from_binary(data) if data.startswith(MAGIC) else _from_json(data)
        _check(made)
    except InvalidSlice:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error) as error:
        raise InvalidSlice(f"this is not a slice, or it is damaged: {error}") from error
    return made


def fingerprint(value: object) -> str:
    """xxHash64 of the compact JSON, in hex. `slice_id` and `params_hash` are fingerprints."""
    return f"{xxh64(json.dumps(value, separators=(',', ':')).encode()):016x}"


def _check(made: SliceFile) -> None:
    if fingerprint(made.policy) != made.params_hash:
        raise InvalidSlice("the params_hash does not match the policy")
    ids = [node.id for node in made.nodes]
    order = [(edge.parent, edge.child, _EDGE_TYPES.index(edge.edge_type)) for edge in made.edges]
    if sorted(set(ids)) != ids or sorted(set(order)) != order or made.anchor not in ids:
        raise InvalidSlice("nodes or edges are not in order, or the anchor is not among the nodes")
    edges = [{"parent": str(edge.parent), "child": str(edge.child), "edge_type": edge.edge_type} for edge in made.edges]
    policy = _FINGERPRINTED_AS.get(made.policy_id, made.policy_id)
    canonical = [str(made.anchor), list(map(str, ids)), edges, policy, made.params_hash, made.schema_version]
    if fingerprint(canonical) != made.slice_id:
        raise InvalidSlice("the slice_id does not match the content of the slice")


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
        nodes=list(map(_json_node, told["nodes"])),
        edges=[SliceEdge(UUID(edge["parent"]), UUID(edge["child"]), edge["edge_type"]) for edge in told["edges"]],
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
        raise InvalidSlice("the file is damaged or cut short")
    told = msgpack.unpackb(body, raw=False)
    if not isinstance(told, list) or len(told) != _FIELDS:
        raise InvalidSlice(f"the file does not have the {_FIELDS} fields of a slice")
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
        edges=[
            SliceEdge(ids[parent], ids[child], _EDGE_TYPES[kind]) for parent, child, kind in _EDGE.iter_unpack(rest[4])
        ],
    )


def _binary_nodes(ids: Sequence[UUID], rest: Sequence[Any]) -> list[SliceNode]:
    kinds, phases, saliences, distances, _, sessions, packed = rest
    turns = {fields[0]: _binary_turn(fields[1:], sessions) for fields in _TURN.iter_unpack(packed)}
    weights = struct.unpack(f"<{len(ids)}f", saliences)
    reached = struct.unpack(f"<{len(ids)}H", distances)
    return [
        SliceNode(node, _KINDS[kinds[at]], _PHASES[phases[at]], weights[at], reached[at], turns.get(at))
        for at, node in enumerate(ids)
    ]


def _binary_turn(told: Sequence[Any], sessions: Sequence[str]) -> SliceTurn:
    session, role, *trajectory, at = told
    moment = _EPOCH + timedelta(microseconds=at)
    return SliceTurn(sessions[session], _ROLES[role], dict(zip(_TRAJECTORY, trajectory, strict=True)), moment)


def _in_order(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy with its names in the order of the fingerprint. Canonical JSON sorts them differently."""
    weights = {name: policy["phase_weights"][name] for name in _WEIGHTS}
    return {name: weights if name == "phase_weights" else policy[name] for name in _POLICY}
