"""Conversation graphs and slices: what is put, and what calls about them return."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from drillcore._results import Page


class Phase(enum.Enum):
    """What a conversation was at."""

    EXPLORATION = "exploration"
    DEBUGGING = "debugging"
    PLANNING = "planning"
    CONSOLIDATION = "consolidation"
    SYNTHESIS = "synthesis"


class TurnRole(enum.Enum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class EdgeType(enum.Enum):
    REPLY = "reply"
    BRANCH = "branch"
    REFERENCE = "reference"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Where in its conversation a turn is."""

    depth: float = 0.0
    sibling_order: float = 0.0
    homogeneity: float = 0.0
    temporal: float = 0.0
    complexity: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation. What was said is not kept: only what slices are made of."""

    id: UUID
    session_id: str
    role: TurnRole
    phase: Phase
    salience: float = 0.0
    """0 to 1."""
    trajectory: Trajectory | None = None
    created_at: datetime | None = None
    """Of the turn itself; None: now."""


@dataclass(frozen=True, slots=True)
class Edge:
    """From one turn, or node of a slice, to another."""

    parent: UUID
    child: UUID
    edge_type: EdgeType = EdgeType.DEFAULT


@dataclass(frozen=True, slots=True)
class PutTurnsResult:
    revision: int
    added: int
    replaced: int
    edges_added: int


@dataclass(frozen=True, slots=True)
class PutEdgesResult:
    revision: int
    """The head, if all were there already."""
    added: int
    known: int


@dataclass(frozen=True, slots=True)
class RemovedTurns:
    revision: int
    turns_removed: int
    edges_removed: int


@dataclass(frozen=True, slots=True)
class TurnPage(Page[Turn]):
    """Some turns of a corpus, in the order of ids."""

    edges: tuple[Edge, ...]
    """Whose child is one of the turns."""
    revision: int


@dataclass(frozen=True, slots=True)
class PhaseWeights:
    """What each phase counts."""

    synthesis: float = 1.0
    planning: float = 0.9
    consolidation: float = 0.6
    debugging: float = 0.5
    exploration: float = 0.3


@dataclass(frozen=True, slots=True)
class SlicePolicy:
    """How far a slice goes. None: the server's default."""

    policy_id: str = ""
    """slice_policy_v1, the default, or slice_policy_v1_ref: ties as in the reference code."""
    max_nodes: int | None = None
    """256; 1 to 10,000."""
    max_radius: int | None = None
    """10; 0 to 1,000."""
    phase_weights: PhaseWeights | None = None
    salience_weight: float | None = None
    """0.3."""
    distance_decay: float | None = None
    """0.9; 0 to 1."""
    include_siblings: bool | None = None
    """True."""
    max_siblings_per_node: int | None = None
    """5; 0 to 1,000."""


class SliceFormat(enum.Enum):
    JSON = "json"
    """Canonical."""
    BINARY = "binary"
    """Compact: `drillcore.slices` reads it."""


@dataclass(frozen=True, slots=True)
class SliceNode:
    id: UUID
    kind: str
    """turn, raw, chunk, section, master or fact."""
    phase: Phase
    salience: float
    distance: int
    """From the anchor, as it was reached."""
    turn: Turn | None
    """Of a turn."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A bounded, reproducible neighbourhood of an anchor."""

    slice_id: str
    """16 hex digits: xxHash64 of the canonical form."""
    anchor: UUID
    policy_id: str
    params_hash: str
    schema_version: str
    nodes: tuple[SliceNode, ...]
    """In the order of ids."""
    edges: tuple[Edge, ...]
    """Between them, in the order of parent, child, type."""
    corpus_id: UUID
    revision: int
    file: bytes
    """Where a format was asked for; else empty."""
