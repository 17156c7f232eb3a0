"""The conversation graph of a corpus at any revision, read from the store as a slice needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from drillcore_server.domain.ids import TurnId
from drillcore_server.domain.slices import SliceEdge, check_read, most_salient
from drillcore_server.domain.turns import Edge, Phase, Turn
from drillcore_server.store.turns import TurnsView


class _Read(NamedTuple):
    kind: str
    phase: Phase
    salience: float
    turn: Turn


@dataclass(frozen=True, slots=True)
class StoredTurnGraph:
    """A `domain.slices.Graph`. What was read is remembered: for the slices of one call."""

    view: TurnsView
    _nodes: dict[bytes, _Read | None] = field(default_factory=dict)
    _to: dict[bytes, list[Edge]] = field(default_factory=dict)
    _from: dict[bytes, list[Edge]] = field(default_factory=dict)

    def node(self, node: bytes) -> _Read | None:
        if node not in self._nodes:
            check_read(len(self._nodes) + 1)
            turn = self.view.turn_left(_turn_id(node))
            self._nodes[node] = None if turn is None else _Read("turn", turn.phase, turn.salience, turn)
        return self._nodes[node]

    def turn(self, node: bytes) -> Turn:
        found = self.node(node)
        assert found is not None, "only turns that are there are asked for"
        return found.turn

    def parents(self, node: bytes) -> list[bytes]:
        return [edge.parent.bytes for edge in self._edges_to(node)]

    def children(self, node: bytes) -> list[bytes]:
        if node not in self._from:
            self._from[node] = list(self.view.edges_from(_turn_id(node)))
        return [edge.child.bytes for edge in self._from[node]]

    def siblings(self, node: bytes, limit: int) -> list[bytes]:
        others = {child for parent in self.parents(node) if self.node(parent) for child in self.children(parent)}
        return most_salient(self, others - {node}, limit)

    def edges(self, nodes: Collection[bytes]) -> Iterator[SliceEdge]:
        for child in nodes:
            for edge in self._edges_to(child):
                if edge.parent.bytes in nodes:
                    yield SliceEdge(edge.parent.bytes, child, edge.type)

    def _edges_to(self, node: bytes) -> list[Edge]:
        if node not in self._to:
            self._to[node] = list(self.view.edges_to(_turn_id(node)))
        return self._to[node]


def _turn_id(node: bytes) -> TurnId:
    return TurnId(UUID(bytes=node))
