"""What else a full core has: turns and edges, what came from other systems, and signatures."""

from __future__ import annotations

from itertools import chain
from typing import Any
from uuid import UUID

from drillcore.cores.failures import WrongShape
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import FactId, NodeId, SourceId, TurnId
from drillcore_server.domain.signatures import Signature, Target, TargetKind
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX
from drillcore_server.domain.turns import Edge, EdgeType, Turn, check_turns
from drillcore_server.importing.decoding import check, decoded, fields, text, uuid
from drillcore_server.importing.full_facts import FactIntake
from drillcore_server.importing.full_hierarchy import HierarchyIntake
from drillcore_server.importing.library import LibraryIntake
from drillcore_server.importing.vectors import VectorIntake
from drillcore_server.store.signatures import SIGNATURE
from drillcore_server.store.turns import TURN


def read_turn(given: list[Any]) -> Turn:
    source, stored = fields("turn", given, 2)
    turn = decoded(TURN, stored)
    check(turn.source == source, f"turn {turn.id} is of another source than it says")
    try:
        check_turns([turn])
    except BadInput:
        raise WrongShape(f"turn {turn.id} has a value that cannot be") from None
    return turn


def read_edge(given: list[Any]) -> Edge:
    parent, child, kind = fields("edge", given, 3)
    try:
        edge = Edge(TurnId(uuid(parent, "a turn")), TurnId(uuid(child, "a turn")), EdgeType(kind))
    except ValueError:
        raise WrongShape("an edge has a type that is not known") from None
    check(edge.parent != edge.child, "an edge leads from a turn to itself")
    return edge


def read_signature(given: list[Any]) -> Signature:
    signature = decoded(SIGNATURE, *fields("signature", given, 1))
    target = signature.target
    check(target.kind in {TargetKind.NODE, TargetKind.FACT}, "a signature is of something that no core has")
    check(0 < target.version < 1 << 32, "a signature is of no version")
    check(signature.sealed_by == (), "a signature names keys, which are those of another server")
    return signature


def _source(given: object) -> SourceId:
    found = text(given, "a source")
    check(len(found) <= SOURCE_CHARACTERS_MAX, "the id of a source is too long")
    return SourceId(found)


class RestIntake:
    def __init__(self, hierarchy: HierarchyIntake, facts: FactIntake) -> None:
        self._hierarchy = hierarchy
        self._facts = facts
        self._last_turn: TurnId | None = None
        self._last_edge: Edge | None = None
        self._last_signature: tuple[int, UUID, int, UUID] | None = None
        self.turns: set[TurnId] = set()
        self.edges = 0
        self.signatures = 0
        self.library: dict[str, SourceId] = {}
        self.sources: set[SourceId] = set()
        """That these are of."""

    def take_turn(self, given: list[Any]) -> None:
        turn = read_turn(given)
        check(self._last_turn is None or self._last_turn < turn.id, "turns do not come by their ids")
        self._last_turn = turn.id
        self.turns.add(turn.id)
        self.sources.add(turn.source)

    def take_edge(self, given: list[Any]) -> None:
        edge = read_edge(given)
        check(self._last_edge is None or self._last_edge < edge, "edges do not come in order")
        self._last_edge = edge
        check({edge.parent, edge.child} <= self.turns, "an edge is of a turn that is not there")
        self.edges += 1

    def take_library(self, given: list[Any]) -> None:
        document, source = fields("library", given, 2)
        check(text(document, "a library document") not in self.library, "a library document has two sources")
        self.library[document] = _source(source)
        self.sources.add(self.library[document])

    def take_embedding(self, given: list[Any], vectors: VectorIntake) -> None:
        document, source, floats = fields("embedding", given, 3)
        of = _source(source)
        vectors.take_document(text(document, "a piece of a document"), of, floats)
        self.sources.add(of)

    def take_signature(self, given: list[Any]) -> None:
        signature = read_signature(given)
        target = signature.target
        place = (int(target.kind), target.id, target.version, signature.id)
        check(self._last_signature is None or self._last_signature < place, "signatures do not come in order")
        self._last_signature = place
        check(self._is_there(target), f"a signature is of {target.id}, which is not there")
        self.signatures += 1

    def sources_of(self, signature: Signature) -> tuple[SourceId, ...]:
        """Those of what was signed; none if that is not there."""
        target = signature.target.id
        if signature.target.kind is TargetKind.FACT:
            source = self._facts.facts.get(FactId(target))
            return () if source is None else (source,)
        return self._hierarchy.source_of(NodeId(target)) or ()

    def _is_there(self, target: Target) -> bool:
        if target.kind is TargetKind.FACT:
            return FactId(target.id) in self._facts.facts
        return self._hierarchy.source_of(NodeId(target.id)) is not None

    def settle(self, library: LibraryIntake) -> None:
        """When all was taken."""
        check(all(one in library for one in self.library), "a source is given of a library document that is not there")
        nodes = {*self._hierarchy.chunks, *self._hierarchy.own_raws, *self._hierarchy.sections}
        facts = self._facts.facts.keys()
        may_be_raw = self._hierarchy.may_be_raw
        check(not any(map(may_be_raw, chain(facts, self.turns))), "a fact or a turn has the id of a raw")
        check(facts.isdisjoint(nodes) and facts.isdisjoint(self.turns), "a fact has the id of something else")
        check(
            nodes.isdisjoint(self.turns) and self._hierarchy.master not in {*facts, *self.turns}, "an id is two things'"
        )
