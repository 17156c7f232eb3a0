"""Slice: finds the anchors, takes a slice around each, and writes slices as files.

A file is canonical JSON, or the compact binary form below. `drillcore_formats.slices` reads both, see
docs/reference/slices.md.

    DCSLICE1  BLAKE2b of the rest (8 bytes)  msgpack array:
      corpus (16 bytes), revision, slice_id, policy_id, policy parameters, params_hash, schema version, place of the
      anchor, ids (16 bytes each), kinds, phases (1 byte each), saliences (32-bit floats), distances (2 bytes each),
      edges (places of parent and child, 4 bytes each, and type, 1 byte), session ids, turns (place of its node and of
      its session id, 4 bytes each, role, 1 byte, five 32-bit floats, microseconds since 1970, 8 bytes)

Numbers are little-endian.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts import store as facts
from drillcore_server.facts.index import FactIndexes, SimilarFacts
from drillcore_server.graphs import turn_store as turns
from drillcore_server.graphs.knowledge_graph import KnowledgeGraph
from drillcore_server.graphs.slice_model import (
    ANCHORS_MAX,
    EDGE_NAMES,
    KINDS,
    SCHEMA_VERSION,
    CorpusSlice,
    Policy,
    SlicedNode,
    id_text,
    missing_anchor,
    slice_graph,
)
from drillcore_server.graphs.turn_graph import StoredTurnGraph, TurnGraph, TurnGraphs
from drillcore_server.graphs.turn_model import Trajectory, Turn
from drillcore_server.graphs.turn_store import TurnReader
from drillcore_server.hierarchy import store as hierarchy
from drillcore_server.kernel import access, revisions
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.canonical_json import canonical
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import (
    CorpusId,
    CorpusNumber,
    FactId,
    Level,
    NodeId,
    TenantId,
    TurnId,
    to_microseconds,
)
from drillcore_server.storage.keyspace import Keyspace

MAGIC: Final = b"DCSLICE1"
CHECK_BYTES: Final = 8
_EDGE: Final = struct.Struct("<IIB")
_TURN: Final = struct.Struct("<IIBfffffq")
_TRAJECTORY: Final = [dimension.name for dimension in fields(Trajectory)]


def json_file(made: CorpusSlice) -> bytes:
    """The slice as canonical JSON. Equal slices of the same revision give equal bytes."""
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
            "nodes": [_node(node, made.turns.get(node.id)) for node in found.nodes],
            "edges": [
                {"parent": id_text(edge.parent), "child": id_text(edge.child), "edge_type": EDGE_NAMES[edge.type]}
                for edge in found.edges
            ],
        }
    )


def binary_file(made: CorpusSlice) -> bytes:
    """The slice in the binary form. Equal slices of the same revision give equal bytes."""
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
        b"".join(_EDGE.pack(places[edge.parent], places[edge.child], edge.type) for edge in found.edges),
        sessions,
        _turns(made.turns, places, {session: place for place, session in enumerate(sessions)}),
    ]


def _turns(turns: Mapping[bytes, Turn], places: Mapping[bytes, int], sessions: Mapping[str, int]) -> bytes:
    return b"".join(
        _TURN.pack(
            places[node],
            sessions[turn.session],
            turn.role,
            *(getattr(turn.trajectory, name) for name in _TRAJECTORY),
            to_microseconds(turn.created_at),
        )
        for node, turn in sorted(turns.items())
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
    """Whole numbers as integers. Canonical JSON writes them so anyway, and does it faster with integers."""
    return int(value) if value.is_integer() else value


_NODE_BYTES: Final = 200
_EDGE_BYTES: Final = 90
"""Rough sizes in an answer. Session ids of turns are counted separately."""


class SliceFormat(enum.IntEnum):
    """Numbers are those of the protocol."""

    JSON = 1
    BINARY = 2


_FILES: Final[Mapping[SliceFormat, Callable[[CorpusSlice], bytes]]] = {
    SliceFormat.JSON: json_file,
    SliceFormat.BINARY: binary_file,
}


@dataclass(frozen=True, slots=True)
class SliceQuestion:
    anchors: tuple[UUID, ...]
    policy: Policy
    corpus: CorpusId | None = None
    as_of: AsOf = field(default_factory=AsOf)
    format: SliceFormat | None = None

    def check(self) -> None:
        if not 0 < len(self.anchors) <= ANCHORS_MAX:
            raise BadInput(Reason.INVALID_ARGUMENT, f"anchors must have 1 to {ANCHORS_MAX} ids", field="anchors")
        self.policy.check()


@dataclass(frozen=True, slots=True)
class Sliced:
    made: CorpusSlice
    file: bytes
    """Empty unless the call asked for a format."""

    @property
    def size_bytes(self) -> int:
        found = self.made.slice
        sessions = sum(len(turn.session.encode()) for turn in self.made.turns.values())
        return _NODE_BYTES * len(found.nodes) + _EDGE_BYTES * len(found.edges) + sessions + len(self.file)


class _Anchor(NamedTuple):
    id: UUID
    corpus: Corpus
    is_turn: bool
    level: Level | None
    """Level of a node of the hierarchy. None for turns and facts."""


@dataclass(frozen=True, slots=True)
class Slicer:
    """The indexes and readers that slices need."""

    reads: CorpusReads
    facts: FactIndexes
    turns: TurnGraphs
    similar: SimilarFacts

    def anchor(self, tr: Reader, granted: InTenant, anchor: UUID) -> _Anchor:
        """Finds an anchor by its id alone. Raises `Missing` if it does not exist or the caller may not see it."""
        keys = self.reads.unit.keys
        for owner in granted.owners(tr, keys):
            number, is_turn, level = _located(tr, keys, owner, anchor)
            corpus = None if number is None else self.reads.numbered(tr, granted, owner, number)
            if corpus is not None:
                return _Anchor(anchor, corpus, is_turn, level)
        raise missing_anchor(anchor)


class _CorpusSlicer:
    """Takes slices of one corpus for one call. Slices share what was read for earlier ones."""

    def __init__(self, slicer: Slicer, view: CorpusAtRevision) -> None:
        self._slicer = slicer
        self._view = view
        self._turns: TurnGraph | StoredTurnGraph | None = None
        self._knowledge: KnowledgeGraph | None = None

    def around(self, anchor: _Anchor, policy: Policy) -> CorpusSlice:
        view, node = self._view, anchor.id.bytes
        if anchor.is_turn:
            graph = self._turns = self._turns or self._turn_graph()
            made = slice_graph(graph, node, policy, graph if isinstance(graph, StoredTurnGraph) else None)
            turns_by_id = {taken.id: graph.turn(taken.id) for taken in made.nodes}
            return CorpusSlice(made, view.corpus.id, view.revision, turns_by_id)
        knowledge = self._knowledge = self._knowledge or self._knowledge_graph()
        knowledge.reach(node, anchor.level)
        return CorpusSlice(slice_graph(knowledge, node, policy, knowledge), view.corpus.id, view.revision, {})

    def _turn_graph(self) -> TurnGraph | StoredTurnGraph:
        """The graph in memory for the head. Earlier revisions are read on demand."""
        view = self._view
        is_head = view.revision == revisions.head(view.tr, view.keys)
        kept = self._slicer.turns.newest(view) if is_head else None
        return kept or StoredTurnGraph(TurnReader(view))

    def _knowledge_graph(self) -> KnowledgeGraph:
        view, indexes = self._view, self._slicer.facts
        return KnowledgeGraph(view, lambda: indexes.at(view), self._slicer.similar)


def slice_around(slicer: Slicer, call: Call, tenant: TenantId | None, question: SliceQuestion) -> list[Sliced]:
    """A slice around each anchor, in the order of anchors. May be re-run.

    Raises `Refused`: ANCHOR_NOT_FOUND for an unknown anchor, TOO_LARGE if the slices do not fit into one answer or need
    too many reads.
    """
    question.check()
    reads = slicer.reads

    def work(tr: Reader, granted: InTenant, trail: Trail) -> list[Sliced]:
        trail.touch_node_ids(map(NodeId, question.anchors))
        anchors = _find_anchors(slicer, tr, granted, trail, question)
        corpora: dict[CorpusId, _CorpusSlicer] = {}
        for corpus in dict.fromkeys(anchor.corpus.id for anchor in anchors):
            view = reads.at(tr, granted, trail, corpus, question.as_of)
            granted.check_level(corpus, *Level)
            corpora[corpus] = _CorpusSlicer(slicer, view)
        return _take_slices(corpora, anchors, question, reads.unit.page_bytes_max, trail)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _find_anchors(
    slicer: Slicer, tr: Reader, granted: InTenant, trail: Trail, question: SliceQuestion
) -> list[_Anchor]:
    if question.corpus is not None:
        trail.touch_corpus(question.corpus)
        corpus = granted.corpus(tr, slicer.reads.unit.keys, question.corpus)
    found = [slicer.anchor(tr, granted, id_) for id_ in question.anchors]
    for anchor in found:
        if question.corpus is not None and anchor.corpus.number != corpus.number:
            raise missing_anchor(anchor.id)
    if question.as_of != AsOf() and len({anchor.corpus.id for anchor in found}) > 1:
        message = "as_of is for anchors of one corpus; these anchors belong to several corpora"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
    return found


def _take_slices(
    corpora: Mapping[CorpusId, _CorpusSlicer],
    anchors: list[_Anchor],
    question: SliceQuestion,
    bytes_max: int,
    trail: Trail,
) -> list[Sliced]:
    slices: list[Sliced] = []
    size_bytes = 0
    for anchor in anchors:
        made = corpora[anchor.corpus.id].around(anchor, question.policy)
        slices.append(Sliced(made, _FILES[question.format](made) if question.format else b""))
        size_bytes += slices[-1].size_bytes
        if size_bytes > bytes_max:
            message = "these slices do not fit into one answer; ask for fewer anchors, or a smaller max_nodes"
            raise BadInput(Reason.TOO_LARGE, message, field="anchors")
        _leave_trail(trail, made)
    trail.detail |= {
        "policy_id": question.policy.id,
        "policy": question.policy.params(),
        "slices": [sliced.made.slice.slice_id for sliced in slices],
    }
    return slices


def _leave_trail(trail: Trail, made: CorpusSlice) -> None:
    """Notes the nodes and facts of a slice in the audit record. Of turns, only the anchor is noted.

    The anchor, the revision, the policy and the slice's id together identify exactly these turns, which hold nothing of
    what was said. To index each turn would take most of the time of a slice.
    """
    for node in made.slice.nodes:
        if node.kind != "turn":
            trail.touch_node_ids([NodeId(UUID(bytes=node.id))])
            trail.levels.add(Level.CHUNK if node.kind == "fact" else Level.named(node.kind))


def _located(
    tr: Reader, keys: Keyspace, owner: TenantId, anchor: UUID
) -> tuple[CorpusNumber | None, bool, Level | None]:
    """The corpus that has or had an anchor, whether the anchor is a turn, and its level if it is a node."""
    number = turns.locate(tr, keys, owner, TurnId(anchor))
    if number is not None:
        return number, True, None
    number = facts.locate(tr, keys, owner, FactId(anchor))
    if number is not None:
        return number, False, None
    node = hierarchy.locate(tr, keys, owner, NodeId(anchor))
    return (None, False, None) if node is None else (node.corpus, False, node.level)
