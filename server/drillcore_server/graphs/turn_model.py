"""Conversation graphs: turns and the edges between them. What was said is not kept, only what slices are made of."""

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
"""Turns, and edges, of one call."""
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
    """Where a turn stands in the reference's five dimensions. Passed through as it is."""

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
    """0 to 1."""
    trajectory: Trajectory
    created_at: datetime
    """Of the turn itself, as its caller says."""
    source: SourceId = SourceId("")  # noqa: RUF009 - a text
    """That it is erased with; empty: none, it goes with the corpus."""


class Edge(NamedTuple):
    """Leads from a turn to one that came of it. In order: by parent, child, type."""

    parent: TurnId
    child: TurnId
    type: EdgeType


def check_counts(turns: int, edges: int) -> None:
    """Raises `BadInput` for more than one call takes: before anything is made of them."""
    for count, what in ((turns, "turns"), (edges, "edges")):
        if count > TURNS_MAX:
            message = f"one call takes at most {TURNS_MAX:,} {what}, not {count:,}"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field=what)


def check_turns(turns: Sequence[Turn]) -> None:
    """Raises `BadInput` for what can never be stored."""
    if not turns:
        raise BadInput(Reason.INVALID_ARGUMENT, "there are no turns to put", field="turns")
    seen: set[TurnId] = set()
    for place, turn in enumerate(turns):
        _check_turn(turn, f"turns[{place}]")
        if turn.id in seen:
            raise invalid(f"turns[{place}]: the turn {turn.id} is there twice", "turn_id")
        seen.add(turn.id)


def check_edges(edges: Sequence[Edge]) -> None:
    """Raises `BadInput` for an edge that leads to its own beginning."""
    for place, edge in enumerate(edges):
        if edge.parent == edge.child:
            raise invalid(f"edges[{place}]: it leads from {edge.parent} to itself", "child")


def invalid(message: str, field: str) -> BadInput:
    return BadInput(Reason.INVALID_TURN, message, field=field)


def _check_turn(turn: Turn, what: str) -> None:
    if not 0.0 <= turn.salience <= 1.0:  # a NaN is not either
        raise invalid(f"{what}: salience is from 0 to 1", "salience")
    if not all(math.isfinite(getattr(turn.trajectory, one.name)) for one in fields(Trajectory)):
        raise invalid(f"{what}: a trajectory is made of numbers", "trajectory")
    if len(turn.session) > SESSION_CHARACTERS_MAX:
        raise invalid(f"{what}: session_id has over {SESSION_CHARACTERS_MAX:,} characters", "session_id")
    if len(turn.source) > SOURCE_CHARACTERS_MAX:
        message = f"source_id has over {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
