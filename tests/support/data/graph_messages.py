"""Messages about turns and slices with something in every field."""

from __future__ import annotations

from drillcore_proto.v1 import graphs_pb2 as pb
from tests.support.data.fact_messages import AT, CHUNK, CORPUS, FACT, stamp

TURN = pb.Turn(
    turn_id=str(FACT),
    session_id="s",
    role=pb.TURN_ROLE_TOOL,
    phase=pb.PHASE_SYNTHESIS,
    salience=0.5,
    trajectory=pb.Trajectory(depth=1, sibling_order=2, homogeneity=3, temporal=4, complexity=5),
    created_at=stamp(AT),
)
EDGE = pb.Edge(parent=str(FACT), child=str(CHUNK), edge_type=pb.EDGE_TYPE_BRANCH)
SLICE = pb.Sliced(
    slice_id="0123456789abcdef",
    anchor=str(FACT),
    policy_id="slice_policy_v1",
    params_hash="fedcba9876543210",
    schema_version="1",
    nodes=[
        pb.SliceNode(id=str(FACT), kind="turn", phase=pb.PHASE_SYNTHESIS, salience=0.5, distance=0, turn=TURN),
        pb.SliceNode(id=str(CHUNK), kind="chunk", phase=pb.PHASE_EXPLORATION, salience=0.25, distance=1),
    ],
    edges=[EDGE],
    corpus_id=str(CORPUS),
    revision=7,
    file=b"{}",
)
