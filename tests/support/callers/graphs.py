"""Raw calls of GraphService, and graphs to store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self
from uuid import UUID

from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_proto.v1 import graphs_pb2_grpc
from drillcore_server.graphs.turn_model import EdgeType
from tests.support.callers.erasures import ErasingCaller
from tests.support.servers.running import Running

REPLY, BRANCH, REFERENCE, DEFAULT = EdgeType
GOLDEN_EDGES = ((1, 2, REPLY), (1, 3, BRANCH), (1, 4, BRANCH), (2, 5, REPLY), (2, 6, REPLY))
"""The edges of the test vectors in the specification, section 11."""


def name(number: int) -> str:
    return str(UUID(int=number))


def turn(number: int, **fields: Any) -> pb.Turn:
    given = {"role": pb.TURN_ROLE_USER, "phase": pb.PHASE_EXPLORATION, "salience": 0.5, "session_id": "talk", **fields}
    return pb.Turn(turn_id=name(number), **given)


def edge(parent: int, child: int, edge_type: int = REPLY) -> pb.Edge:
    return pb.Edge(parent=name(parent), child=name(child), edge_type=pb.EdgeType.ValueType(edge_type))


def edges(told: Iterable[tuple[int, int, int]]) -> list[pb.Edge]:
    return [edge(*ends) for ends in told]


def talk(turns: int, seed: int = 0, first: int = 1) -> tuple[list[pb.Turn], list[pb.Edge]]:
    """A conversation with branches, references and every phase. The same seed gives the same conversation."""
    chance = random.Random(seed)
    numbers = range(first, first + turns)
    made = [turn(number, phase=chance.randint(1, 5), salience=chance.randrange(11) / 10) for number in numbers]
    told: set[tuple[int, int, int]] = set()
    for number in numbers[1:]:
        told.add((chance.randrange(max(first, number - 6), number), number, chance.randint(1, 4)))
        if chance.random() < 0.2:
            told.add((chance.randrange(first, number), number, chance.randint(1, 4)))
    return made, edges(sorted(told))


class GraphCaller(ErasingCaller):
    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.graphs = graphs_pb2_grpc.GraphServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def put_turns(
        self,
        corpus: str,
        turns: Sequence[pb.Turn],
        edges: Sequence[pb.Edge] = (),
        request_id: str | None = None,
        **more: Any,
    ) -> pb.PutTurnsResponse:
        request = pb.PutTurnsRequest(corpus_id=corpus, turns=turns, edges=edges, **more)
        return self.graphs.PutTurns(request, **self.options(request_id))

    def put_edges(self, corpus: str, *edges: pb.Edge) -> pb.PutEdgesResponse:
        return self.graphs.PutEdges(pb.PutEdgesRequest(corpus_id=corpus, edges=edges), **self.options())

    def remove_turns(
        self, corpus: str, *numbers: int, edges: Sequence[pb.Edge] = (), request_id: str | None = None
    ) -> pb.RemoveTurnsResponse:
        request = pb.RemoveTurnsRequest(corpus_id=corpus, turn_ids=map(name, numbers), edges=edges)
        return self.graphs.RemoveTurns(request, **self.options(request_id))

    def turn_pages(self, corpus: str, **fields: Any) -> Iterator[pb.ListTurnsResponse]:
        token = ""
        while True:
            request = pb.ListTurnsRequest(corpus_id=corpus, page_token=token, **fields)
            page = self.graphs.ListTurns(request, **self.options())
            yield page
            token = page.next_page_token
            if not token:
                return

    def turns(self, corpus: str, **fields: Any) -> list[pb.Turn]:
        return [turn for page in self.turn_pages(corpus, **fields) for turn in page.turns]

    def edges(self, corpus: str, **fields: Any) -> list[pb.Edge]:
        return [edge for page in self.turn_pages(corpus, **fields) for edge in page.edges]

    def slices(self, *anchors: str, request_id: str | None = None, **fields: Any) -> list[pb.Sliced]:
        request = pb.SliceRequest(anchors=anchors, **fields)
        return list(self.graphs.Slice(request, **self.options(request_id)).slices)

    def slice(self, anchor: str | int, **fields: Any) -> pb.Sliced:
        (found,) = self.slices(name(anchor) if isinstance(anchor, int) else anchor, **fields)
        return found
