"""Turns and slices through the clients. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import drillcore
from drillcore import (
    Edge,
    EdgeType,
    Phase,
    PhaseWeights,
    PutEdgesResult,
    PutTurnsResult,
    Reason,
    RemovedTurns,
    Slice,
    SliceFormat,
    SliceNode,
    SlicePolicy,
    Trajectory,
    Turn,
    TurnRole,
)
from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from tests.support.data import graph_messages
from tests.support.data.fact_messages import AT, CHUNK, CORPUS, FACT, TENANT
from tests.support.servers.both_clients import asynchronous, sync
from tests.support.servers.in_memory_server import Peer, because, page_of, running

Do = Callable[..., Any]

TURN = Turn(FACT, "s", TurnRole.TOOL, Phase.SYNTHESIS, 0.5, Trajectory(1, 2, 3, 4, 5), AT)
EDGE = Edge(FACT, CHUNK, EdgeType.BRANCH)
OF_CORPUS = {"tenant_id": str(TENANT), "corpus_id": str(CORPUS)}


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    return lambda method, *args, **options: request.param(peer.address, method, *args, **options)


def test_every_field_of_turns_and_edges_is_sent(do: Do, peer: Peer) -> None:
    peer.answers["PutTurns"] = pb.PutTurnsResponse(revision=3, added=1, replaced=2, edges_added=4)
    assert do("put_turns", CORPUS, [TURN], [EDGE], source_id="s", request_id="r") == PutTurnsResult(3, 1, 2, 4)
    wanted = pb.PutTurnsRequest(**OF_CORPUS, turns=[graph_messages.TURN], edges=[graph_messages.EDGE], source_id="s")
    assert (peer.requests, peer.request_ids()) == ([wanted], ["r"])


def test_omitted_fields_of_a_turn_are_left_to_the_server(do: Do, peer: Peer) -> None:
    peer.answers["PutTurns"] = pb.PutTurnsResponse()
    do("put_turns", CORPUS, [Turn(FACT, "s", TurnRole.USER, Phase.PLANNING)])
    (turn,) = peer.requests[0].turns
    assert (turn.HasField("trajectory"), turn.HasField("created_at")) == (False, False)


def test_edges_and_turns_are_put_and_removed(do: Do, peer: Peer) -> None:
    peer.answers["PutEdges"] = pb.PutEdgesResponse(revision=3, added=1, known=2)
    peer.answers["RemoveTurns"] = pb.RemoveTurnsResponse(revision=4, turns_removed=1, edges_removed=2)
    assert do("put_edges", CORPUS, [EDGE]) == PutEdgesResult(3, 1, 2)
    assert do("remove_turns", CORPUS, [FACT], edges=[EDGE]) == RemovedTurns(4, 1, 2)
    assert peer.requests == [
        pb.PutEdgesRequest(**OF_CORPUS, edges=[graph_messages.EDGE]),
        pb.RemoveTurnsRequest(**OF_CORPUS, turn_ids=[str(FACT)], edges=[graph_messages.EDGE]),
    ]


def test_turns_are_listed_with_the_edges_that_lead_to_them(do: Do, peer: Peer) -> None:
    def listed(request: pb.ListTurnsRequest) -> pb.ListTurnsResponse:
        turns, token = page_of(request, [graph_messages.TURN] * 3)
        return pb.ListTurnsResponse(turns=turns, edges=[graph_messages.EDGE], next_page_token=token, revision=7)

    peer.answers["ListTurns"] = listed
    page = do("list_turns", CORPUS, session_id="s", as_of=7, page_size=1)
    assert (page.items, page.edges, page.next_page_token, page.revision) == ((TURN,), (EDGE,), "1", 7)
    as_of = nodes_pb2.AsOf(revision=7)
    assert peer.requests == [pb.ListTurnsRequest(**OF_CORPUS, session_id="s", as_of=as_of, page_size=1)]
    assert do("iter_turns", CORPUS) == [TURN] * 3


def test_every_field_of_a_policy_is_sent_and_every_field_of_a_slice_returned(do: Do, peer: Peer) -> None:
    peer.answers["Slice"] = pb.SliceResponse(slices=[graph_messages.SLICE])
    policy = SlicePolicy(
        policy_id="slice_policy_v1_ref",
        max_nodes=5,
        max_radius=0,
        phase_weights=PhaseWeights(1, 2, 3, 4, 5),
        salience_weight=0.0,
        distance_decay=0.5,
        include_siblings=False,
        max_siblings_per_node=0,
    )
    (found,) = do("slice", [FACT], corpus_id=CORPUS, policy=policy, as_of=7, format=SliceFormat.BINARY)
    assert found == Slice(
        slice_id="0123456789abcdef",
        anchor=FACT,
        policy_id="slice_policy_v1",
        params_hash="fedcba9876543210",
        schema_version="1",
        nodes=(
            SliceNode(FACT, "turn", Phase.SYNTHESIS, 0.5, 0, TURN),
            SliceNode(CHUNK, "chunk", Phase.EXPLORATION, 0.25, 1, None),
        ),
        edges=(EDGE,),
        corpus_id=CORPUS,
        revision=7,
        file=b"{}",
    )
    assert peer.requests == [
        pb.SliceRequest(
            **OF_CORPUS,
            anchors=[str(FACT)],
            policy=pb.SlicePolicy(
                policy_id="slice_policy_v1_ref",
                max_nodes=5,
                max_radius=0,
                phase_weights=pb.PhaseWeights(synthesis=1, planning=2, consolidation=3, debugging=4, exploration=5),
                salience_weight=0.0,
                distance_decay=0.5,
                include_siblings=False,
                max_siblings_per_node=0,
            ),
            as_of=nodes_pb2.AsOf(revision=7),
            format=pb.SLICE_FORMAT_BINARY,
        )
    ]


def test_omitted_fields_of_a_policy_are_left_to_the_server(do: Do, peer: Peer) -> None:
    peer.answers["Slice"] = pb.SliceResponse()
    do("slice", [FACT, CHUNK])
    do("slice", [FACT], policy=SlicePolicy(max_nodes=1))
    first, second = peer.requests
    assert first == pb.SliceRequest(tenant_id=str(TENANT), anchors=[str(FACT), str(CHUNK)])
    assert second.policy == pb.SlicePolicy(max_nodes=1)


def test_a_missing_anchor_is_not_found(do: Do, peer: Peer) -> None:
    peer.failures.append(because(Reason.NODE_NOT_FOUND, f"no {FACT}"))
    with pytest.raises(drillcore.NotFound, match=str(FACT)):
        do("slice", [FACT])
