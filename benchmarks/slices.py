"""Makes slices of conversations of different sizes through gRPC, and compares them with bare expansion in memory."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import UUID

import grpc

from benchmarks._measure import percentile
from benchmarks._server import server_process
from drillcore import Client
from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_proto.v1 import graphs_pb2_grpc
from drillcore_server.graphs.slice_model import Policy, single, slice_graph
from drillcore_server.graphs.turn_graph import TurnGraph, TurnNode
from drillcore_server.graphs.turn_model import EdgeType, Phase, Trajectory, Turn, TurnRole
from drillcore_server.graphs.turn_store import TURN
from drillcore_server.storage.ids import TurnId
from drillcore_server.vectors.corpus_follower import Sharded

SESSION = 1_000
"""Turns in one session."""
AT_ONCE = 5_000
"""Turns in one call."""
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Link = tuple[bytes, bytes, EdgeType]


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks slices")
    parser.add_argument("--turns", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--calls", type=int, default=400, help="slices of each size in each round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    sizes = [_Size(turns, *_talks(turns, seed)) for seed, turns in enumerate(options.turns)]
    with tempfile.TemporaryDirectory(dir=".") as directory, server_process(directory) as serving:
        caller = _Caller(serving.address, serving.token)
        idle_bytes = serving.memory_bytes
        for size in sizes:
            size.put_s = _timed(lambda size=size: caller.put(size))  # type: ignore[misc]
            size.first_s = _timed(lambda size=size: caller.slice(size.nodes[0].id))  # type: ignore[misc]
            caller.change(size)
            size.followed_s = _timed(lambda size=size: caller.slice(size.nodes[0].id))  # type: ignore[misc]
        chance = random.Random(0)
        for _ in range(options.rounds):
            for size in sizes:
                before_s = _cpu_s(serving.process_id)
                size.measure(caller, [chance.choice(size.nodes).id for _ in range(options.calls)])
                size.server_cpu.append((_cpu_s(serving.process_id) - before_s) / options.calls)
        grown_bytes = serving.memory_bytes - idle_bytes
    return {"benchmark": "slices", **_report(sizes), "memory_for_all_graphs_mb": round(grown_bytes / 1e6)}


@dataclass
class _Size:
    turns: int
    nodes: Sequence[Turn]
    links: Sequence[Link]
    put_s: float = 0.0
    first_s: float = 0.0
    """The first slice, which reads the graph."""
    followed_s: float = 0.0
    """The first slice after another turn was put."""
    calls: list[list[float]] = field(default_factory=list)
    bare: list[list[float]] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)
    """Processor seconds for each call: other work on the machine changes them less than the elapsed time."""
    taken: list[int] = field(default_factory=list)
    """The nodes of each slice."""

    def __post_init__(self) -> None:
        self.graph = _in_memory(self.nodes, self.links)

    def measure(self, caller: _Caller, anchors: Sequence[TurnId]) -> None:
        self.calls.append([_timed(partial(caller.slice, anchor)) for anchor in anchors])
        policy = Policy()
        self.bare.append([_timed(partial(slice_graph, self.graph, anchor.bytes, policy)) for anchor in anchors])
        self.taken += [len(slice_graph(self.graph, anchor.bytes, policy).nodes) for anchor in anchors[:20]]

    def figures(self) -> dict[str, object]:
        name = f"at_{self.turns}"
        return {
            f"{name}_p50_ms": _ms(self.calls, 0.5),
            f"{name}_p99_ms": _ms(self.calls, 0.99),
            f"{name}_server_cpu_ms": round(1e3 * statistics.median(self.server_cpu), 2),
            f"{name}_bare_p50_ms": _ms(self.bare, 0.5),
            f"{name}_bare_p99_ms": _ms(self.bare, 0.99),
            f"{name}_nodes_in_a_slice": statistics.median(self.taken),
            f"{name}_put_s": round(self.put_s, 2),
            f"{name}_first_slice_s": round(self.first_s, 3),
            f"{name}_slice_after_a_change_ms": round(1e3 * self.followed_s, 2),
        }


class _Caller:
    def __init__(self, address: str, token: str) -> None:
        with Client(address, token=token) as client:
            self._tenant = str(client.create_tenant("benchmark").id)
        self._address, self._token = address, token
        self._stub = graphs_pb2_grpc.GraphServiceStub(grpc.insecure_channel(address))
        self._corpora: dict[int, str] = {}

    def put(self, size: _Size) -> None:
        with Client(self._address, token=self._token, tenant_id=self._tenant) as client:
            corpus = self._corpora[size.turns] = str(client.create_corpus(f"{size.turns} turns").id)
        for start in range(0, len(size.nodes), AT_ONCE):
            turns = [_message(node) for node in size.nodes[start : start + AT_ONCE]]
            self._stub.PutTurns(pb.PutTurnsRequest(corpus_id=corpus, turns=turns, **self._own), **self._options)
        for start in range(0, len(size.links), AT_ONCE):
            edges = [_edge(link) for link in size.links[start : start + AT_ONCE]]
            self._stub.PutEdges(pb.PutEdgesRequest(corpus_id=corpus, edges=edges, **self._own), **self._options)

    def change(self, size: _Size) -> None:
        turn = _message(size.nodes[0])
        turn.salience = 0.5
        request = pb.PutTurnsRequest(corpus_id=self._corpora[size.turns], turns=[turn], **self._own)
        self._stub.PutTurns(request, **self._options)
        request.turns[0].salience = size.nodes[0].salience
        self._stub.PutTurns(request, **self._options)

    def slice(self, anchor: TurnId) -> pb.Sliced:
        request = pb.SliceRequest(anchors=[str(anchor)], **self._own)
        return self._stub.Slice(request, **self._options).slices[0]

    @property
    def _own(self) -> dict[str, str]:
        return {"tenant_id": self._tenant}

    @property
    def _options(self) -> dict[str, object]:
        return {"metadata": [("authorization", f"Bearer {self._token}")], "timeout": 120}


def _talks(turns: int, seed: int) -> tuple[list[Turn], list[Link]]:
    """Makes sessions of a thousand turns: most answer one of the last few, some refer to any earlier turn of any
    session."""
    chance = random.Random(seed)
    nodes = [_turn(UUID(int=chance.getrandbits(128), version=4), place, chance) for place in range(turns)]
    links: set[Link] = set()
    for place in range(1, turns):
        began = place // SESSION * SESSION
        if place > began:
            before = chance.randrange(max(began, place - 4), place)
            links.add((nodes[before].id.bytes, nodes[place].id.bytes, chance.choice([EdgeType.REPLY, EdgeType.BRANCH])))
        if chance.random() < 0.1:
            links.add((nodes[chance.randrange(place)].id.bytes, nodes[place].id.bytes, EdgeType.REFERENCE))
    return nodes, sorted(links)


def _turn(turn: UUID, place: int, chance: random.Random) -> Turn:
    salience, phase, role = single(chance.random()), chance.choice(list(Phase)), chance.choice(list(TurnRole))
    trajectory = Trajectory(*(single(chance.random()) for _ in range(5)))
    return Turn(TurnId(turn), f"session {place // SESSION}", role, phase, salience, trajectory, AT)


def _message(turn: Turn) -> pb.Turn:
    names = ("depth", "sibling_order", "homogeneity", "temporal", "complexity")
    made = pb.Turn(
        turn_id=str(turn.id),
        session_id=turn.session,
        role=pb.TurnRole.ValueType(turn.role),
        phase=pb.Phase.ValueType(turn.phase),
        salience=turn.salience,
        trajectory=pb.Trajectory(**{name: getattr(turn.trajectory, name) for name in names}),
    )
    made.created_at.FromDatetime(turn.created_at)
    return made


def _edge(link: Link) -> pb.Edge:
    parent, child, kind = link
    ends = {"parent": str(UUID(bytes=parent)), "child": str(UUID(bytes=child))}
    return pb.Edge(**ends, edge_type=pb.EdgeType.ValueType(kind))


def _in_memory(nodes: Iterable[Turn], links: Iterable[Link]) -> TurnGraph:
    incoming: dict[bytes, list[tuple[bytes, int]]] = {}
    children: dict[bytes, set[bytes]] = {}
    for parent, child, kind in links:
        incoming.setdefault(child, []).append((parent, int(kind)))
        children.setdefault(parent, set()).add(child)
    made = {
        node.id.bytes: TurnNode(
            node.id.bytes,
            node.phase,
            node.salience,
            TURN.encode(node),
            tuple(sorted(incoming.get(node.id.bytes, ()))),
            sorted(children.get(node.id.bytes, ())),
        )
        for node in nodes
    }
    return TurnGraph(Sharded.of(made))


def _cpu_s(process: int) -> float:
    """Returns the processor time of a process and its threads so far."""
    figures = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def _timed(work: object) -> float:
    assert callable(work)
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _ms(rounds: Sequence[list[float]], share: float) -> float:
    """Returns the median of the rounds."""
    return round(1e3 * statistics.median(percentile(times, share) for times in rounds), 3)


def _growth(sizes: Sequence[_Size], share: float) -> float:
    first, last = (_ms(size.calls, share) for size in (sizes[0], sizes[-1]))
    return round(last / first, 3)


def _report(sizes: Sequence[_Size]) -> dict[str, object]:
    figures: dict[str, object] = {}
    for size in sizes:
        figures |= size.figures()
    last = sizes[-1]
    over = statistics.median(
        percentile(a, 0.5) / percentile(b, 0.5) for a, b in zip(last.calls, last.bare, strict=True)
    )
    return {
        **figures,
        "growth_p50": _growth(sizes, 0.5),
        "growth_p99": _growth(sizes, 0.99),
        "over_bare": round(over, 2),
    }
