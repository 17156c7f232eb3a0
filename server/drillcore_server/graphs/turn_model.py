"""Turns of conversations, and the edges between them. Only what slices need is kept, never what was said."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final, NamedTuple

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, SourceId, TurnId

TURNS_MAX: Final = 10_000
"""Turns that one call may have, and also the edges it may have."""
SESSION_CHARACTERS_MAX: Final = 1_000


class TurnRole(enum.IntEnum):
    """Numbers are those of the protocol."""

    USER = 1
    ASSISTANT = 2
    SYSTEM = 3
    TOOL = 4


class Phase(enum.IntEnum):
    """Numbers are those of the protocol."""

    EXPLORATION = 1
    DEBUGGING = 2
    PLANNING = 3
    CONSOLIDATION = 4
    SYNTHESIS = 5


class EdgeType(enum.IntEnum):
    """Numbers are those of the protocol; they are also the order of edges between the same two turns."""

    REPLY = 1
    BRANCH = 2
    REFERENCE = 3
    DEFAULT = 4


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The place of a turn in the five dimensions of the reference implementation. Stored and returned unchanged."""

    depth: float = 0.0
    sibling_order: float = 0.0
    homogeneity: float = 0.0
    temporal: float = 0.0
    complexity: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    id: TurnId
    session: str
    role: TurnRole
    phase: Phase
    salience: float
    """From 0 to 1."""
    trajectory: Trajectory
    created_at: datetime
    """When the turn took place, as the caller says."""
    source: SourceId = SourceId("")  # noqa: RUF009 - a text
    """The source that the turn is erased with. Empty: the turn is erased with the corpus."""


class Edge(NamedTuple):
    """Leads from a turn to one that followed from it. Edges are ordered by parent, child and type."""

    parent: TurnId
    child: TurnId
    type: EdgeType


def check_counts(turns: int, edges: int) -> None:
    """Raises `BadInput` if a call has too many turns or edges. Checked before any of them is converted."""
    for count, field in ((turns, "turns"), (edges, "edges")):
        if count > TURNS_MAX:
            message = f"one call may have at most {TURNS_MAX:,} {field}, not {count:,}"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field=field)


def check_turns(turns: Sequence[Turn]) -> None:
    """Raises `BadInput` for turns that cannot be stored."""
    if not turns:
        raise BadInput(Reason.INVALID_ARGUMENT, "turns must have at least one turn", field="turns")
    seen: set[TurnId] = set()
    for place, turn in enumerate(turns):
        _check_turn(turn, f"turns[{place}]")
        if turn.id in seen:
            raise invalid(f"turns[{place}]: the turn {turn.id} is given twice", "turn_id")
        seen.add(turn.id)


def check_edges(edges: Sequence[Edge]) -> None:
    """Raises `BadInput` for an edge from a turn to itself."""
    for place, edge in enumerate(edges):
        if edge.parent == edge.child:
            raise invalid(f"edges[{place}]: leads from the turn {edge.parent} to itself", "child")


def invalid(message: str, field: str) -> BadInput:
    return BadInput(Reason.INVALID_TURN, message, field=field)


def _check_turn(turn: Turn, what: str) -> None:
    if not 0.0 <= turn.salience <= 1.0:  # false for NaN, too
        raise invalid(f"{what}: salience must be from 0 to 1", "salience")
    if not all(math.isfinite(getattr(turn.trajectory, dimension.name)) for dimension in fields(Trajectory)):
        raise invalid(f"{what}: every number of the trajectory must be finite", "trajectory")
    if len(turn.session) > SESSION_CHARACTERS_MAX:
        raise invalid(f"{what}: session_id must have at most {SESSION_CHARACTERS_MAX:,} characters", "session_id")
    if len(turn.source) > SOURCE_CHARACTERS_MAX:
        message = f"source_id must have at most {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
