"""Slice."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.derived.graphs import TurnGraph, TurnGraphs
from drillcore_server.derived.knowledge_graph import KnowledgeGraph
from drillcore_server.derived.similar_facts import SimilarFacts
from drillcore_server.derived.stored_graph import StoredTurnGraph
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, CorpusNumber, FactId, NodeId, TenantId, TurnId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.slice_policies import Policy
from drillcore_server.domain.slices import ANCHORS_MAX, CorpusSlice, missing_anchor, slice_graph
from drillcore_server.exporting.slice_files import binary_file, json_file
from drillcore_server.store import facts, hierarchy, revisions, turns
from drillcore_server.store.turns import TurnsView

_NODE_BYTES: Final = 200
_EDGE_BYTES: Final = 90
"""About what each takes in an answer; a turn's session id comes to it."""


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
            raise BadInput(Reason.INVALID_ARGUMENT, f"name 1 to {ANCHORS_MAX} anchors", field="anchors")
        self.policy.check()


@dataclass(frozen=True, slots=True)
class Sliced:
    made: CorpusSlice
    file: bytes
    """Empty unless a format was asked for."""

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
    """Of a node of the hierarchy."""


@dataclass(frozen=True, slots=True)
class Slicer:
    """Everything that slices need."""

    facts: FactLibrary
    turns: TurnGraphs
    similar: SimilarFacts

    def anchor(self, tr: Reader, granted: InTenant, anchor: UUID) -> _Anchor:
        """Where an anchor is, by its id alone. Raises `Missing` if the caller may not have it."""
        library = self.facts.library
        for owner in granted.owners(tr, library.unit.keys):
            number, is_turn, level = _located(tr, self.facts, owner, anchor)
            corpus = None if number is None else library.numbered(tr, granted, owner, number)
            if corpus is not None:
                return _Anchor(anchor, corpus, is_turn, level)
        raise missing_anchor(anchor)


class _Slicing:
    """The slices of one call: what was read of a corpus for one of them is there for the others."""

    def __init__(self, slicer: Slicer, shelf: Shelf) -> None:
        self._slicer = slicer
        self._shelf = shelf
        self._turns: TurnGraph | StoredTurnGraph | None = None
        self._knowledge: KnowledgeGraph | None = None

    def around(self, anchor: _Anchor, policy: Policy) -> CorpusSlice:
        shelf, one = self._shelf, anchor.id.bytes
        if anchor.is_turn:
            graph = self._turns = self._turns or self._turn_graph()
            made = slice_graph(graph, one, policy)
            return CorpusSlice(made, shelf.corpus.id, shelf.revision, {n.id: graph.turn(n.id) for n in made.nodes})
        knowledge = self._knowledge = self._knowledge or self._knowledge_graph()
        knowledge.reach(one, anchor.level)
        return CorpusSlice(slice_graph(knowledge, one, policy), shelf.corpus.id, shelf.revision, {})

    def _turn_graph(self) -> TurnGraph | StoredTurnGraph:
        """In memory there is the head; earlier revisions are read as far as they are needed."""
        shelf = self._shelf
        is_head = shelf.revision == revisions.head(shelf.view.tr, shelf.view.keys)
        kept = self._slicer.turns.newest(shelf.corpus.number, shelf.view) if is_head else None
        return kept or StoredTurnGraph(TurnsView(shelf.view))

    def _knowledge_graph(self) -> KnowledgeGraph:
        shelf, indexes = self._shelf, self._slicer.facts.indexes
        return KnowledgeGraph(shelf.view, lambda: indexes.at(shelf.corpus.number, shelf.view), self._slicer.similar)


def slice_around(slicer: Slicer, call: Call, tenant: TenantId | None, question: SliceQuestion) -> list[Sliced]:
    """A slice around each anchor, in their order. Raises `Refused`: ANCHOR_NOT_FOUND for one that is not there."""
    question.check()
    library = slicer.facts.library

    def work(tr: Reader, granted: InTenant, trail: Trail) -> list[Sliced]:
        trail.touch_node_ids(map(NodeId, question.anchors))
        anchors = _anchors(slicer, tr, granted, trail, question)
        corpora: dict[CorpusId, _Slicing] = {}
        for corpus in dict.fromkeys(anchor.corpus.id for anchor in anchors):
            shelf = library.shelf(tr, granted, trail, corpus, question.as_of)
            granted.check_level(corpus, *Level)
            corpora[corpus] = _Slicing(slicer, shelf)
        return _all(corpora, anchors, question, library.unit.page_bytes_max, trail)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _anchors(slicer: Slicer, tr: Reader, granted: InTenant, trail: Trail, question: SliceQuestion) -> list[_Anchor]:
    if question.corpus is not None:
        trail.touch_corpus(question.corpus)
        corpus = granted.corpus(tr, slicer.facts.library.unit.keys, question.corpus)
    found = [slicer.anchor(tr, granted, one) for one in question.anchors]
    for anchor in found:
        if question.corpus is not None and anchor.corpus.number != corpus.number:
            raise missing_anchor(anchor.id)
    if question.as_of != AsOf() and len({anchor.corpus.id for anchor in found}) > 1:
        message = "these anchors are of several corpora, each with revisions of its own; slice one corpus at a time"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
    return found


def _all(
    corpora: Mapping[CorpusId, _Slicing],
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
        "slices": [one.made.slice.slice_id for one in slices],
    }
    return slices


def _leave_trail(trail: Trail, made: CorpusSlice) -> None:
    """Names nodes and facts. Turns, of which nothing that was said is kept, are named by their anchor: with it, the
    revision and the policy the slice's id stands for exactly these turns, and an index of each would take most of a
    slice's time."""
    for node in made.slice.nodes:
        if node.kind != "turn":
            trail.touch_node_ids([NodeId(UUID(bytes=node.id))])
            trail.levels.add(Level.CHUNK if node.kind == "fact" else Level[node.kind.upper()])


def _located(
    tr: Reader, library: FactLibrary, owner: TenantId, anchor: UUID
) -> tuple[CorpusNumber | None, bool, Level | None]:
    """The corpus that has, or had it; whether it is a turn; and its level, if it is a node."""
    keys = library.library.unit.keys
    number = turns.locate(tr, keys, owner, TurnId(anchor))
    if number is not None:
        return number, True, None
    number = facts.locate(tr, keys, owner, FactId(anchor))
    if number is not None:
        return number, False, None
    node = hierarchy.locate(tr, keys, owner, NodeId(anchor))
    return (None, False, None) if node is None else (node.corpus, False, node.level)
