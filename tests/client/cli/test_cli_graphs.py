"""`drillcore turns` and `drillcore slice`: their requests and their output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from drillcore_proto.v1 import graphs_pb2 as pb
from tests.support.data.fact_messages import CHUNK, CORPUS, FACT
from tests.support.data.graph_messages import EDGE, SLICE, TURN
from tests.support.servers.in_memory_server import Peer, page_of, running

Run = Callable[..., Result]
IN = ("--corpus", str(CORPUS))


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture
def run(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the peer, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    environment = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path), "NO_COLOR": "1"}

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, input=text)

    return run


TURN_LINE = json.dumps(
    {
        "turn": {
            "turnId": str(FACT),
            "sessionId": "s",
            "role": "tool",
            "phase": "synthesis",
            "salience": 0.5,
            "trajectory": {"depth": 1, "siblingOrder": 2, "homogeneity": 3, "temporal": 4, "complexity": 5},
            "createdAt": "2026-01-02T03:04:05Z",
        }
    }
)
EDGE_LINE = json.dumps({"edge": {"parent": str(FACT), "child": str(CHUNK), "edgeType": "EDGE_TYPE_BRANCH"}})


def test_turns_and_edges_are_put_from_json_lines(run: Run, peer: Peer, tmp_path: Path) -> None:
    peer.answers["PutTurns"] = pb.PutTurnsResponse(revision=3, added=1, replaced=2, edges_added=1)
    (tmp_path / "turns.jsonl").write_text(f"{TURN_LINE}\n\n{EDGE_LINE}\n")
    result = run("turns", "put", "turns.jsonl", *IN, "--source", "chat", "--request-id", "r")
    assert result.stdout == "stored 1 turn, 2 replaced, 1 edge: revision 3\n"
    (request,) = peer.requests
    assert (list(request.turns), list(request.edges), request.source_id) == ([TURN], [EDGE], "chat")
    assert peer.request_ids() == ["r"]


def test_edges_alone_are_put_between_existing_turns(run: Run, peer: Peer) -> None:
    peer.answers["PutEdges"] = pb.PutEdgesResponse(revision=3, added=1)
    assert run("turns", "put", "-", *IN, text=EDGE_LINE).stdout == "stored 1 edge: revision 3\n"
    assert list(peer.requests[0].edges) == [EDGE]
    assert run("turns", "put", "-", *IN, "--source", "s", text=EDGE_LINE).exit_code == 2


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"node": {}}', '{"turn": {"phase": "sleep"}}', '{"turn": {"x": 1}}', '{"turn": 1}', "[" * 9999]
)
def test_a_wrong_line_is_named_and_nothing_is_stored(run: Run, peer: Peer, line: str) -> None:
    result = run("turns", "put", "-", *IN, text=f"{TURN_LINE}\n{line}\n")
    assert (result.exit_code, peer.seen) == (1, [])
    assert result.stderr.startswith("INVALID_LINE: line 2: ")


def test_a_file_without_lines_is_refused_before_it_is_sent(run: Run, peer: Peer) -> None:
    result = run("turns", "put", "-", *IN, text="\n")
    assert (result.exit_code, result.stderr, peer.seen) == (1, "INVALID_ARGUMENT: - has neither turns nor edges\n", [])


def test_turns_are_listed_with_all_their_edges(run: Run, peer: Peer) -> None:
    def listed(request: pb.ListTurnsRequest) -> pb.ListTurnsResponse:
        turns, token = page_of(request, [TURN] * 3)
        return pb.ListTurnsResponse(turns=turns, edges=[EDGE], next_page_token=token, revision=7)

    peer.answers["ListTurns"] = listed
    found = json.loads(run("turns", "list", *IN, "--session", "s", "--all", "--json").stdout)
    assert (len(found["turns"]), len(found["edges"]), found["revision"]) == (3, 2, 7)
    assert found["turns"][0]["phase"] == "synthesis"
    assert peer.requests[0].session_id == "s"
    shown = run("turns", "list", *IN).stdout.splitlines()
    assert shown[1].split() == [str(FACT), "s", "tool", "synthesis", "0.500"]
    assert shown[-1] == "There are more: --page-token 2, or --all"


def test_turns_are_removed_after_a_confirmation(run: Run, peer: Peer) -> None:
    peer.answers["RemoveTurns"] = pb.RemoveTurnsResponse(revision=4, turns_removed=1, edges_removed=2)
    assert run("turns", "remove", str(FACT), *IN, text="n\n").exit_code == 1
    assert peer.seen == []
    assert run("turns", "remove", str(FACT), *IN, "--yes").stdout == "removed 1 turn and 2 edges: revision 4\n"


def test_a_slice_is_shown_with_its_nodes_and_edges(run: Run, peer: Peer) -> None:
    peer.answers["Slice"] = pb.SliceResponse(slices=[SLICE])
    shown = run("slice", str(FACT)).stdout.splitlines()
    assert shown[0].split() == ["slice", "id", "0123456789abcdef"]
    assert "2 nodes, 1 edge" in shown
    assert [str(FACT), "turn", "synthesis", "0.500", "0"] in [line.split() for line in shown]
    assert [str(FACT), str(CHUNK), "branch"] in [line.split() for line in shown]
    assert peer.requests == [pb.SliceRequest(anchors=[str(FACT)], policy=pb.SlicePolicy())]


def test_the_flags_of_a_slice_are_sent_as_its_policy(run: Run, peer: Peer) -> None:
    peer.answers["Slice"] = pb.SliceResponse(slices=[SLICE, SLICE])
    flags = ["--policy", "slice_policy_v1_ref", "--max-nodes", "5", "--max-radius", "0", "--phase-weights", "5,4,3,2,1"]
    flags += ["--salience-weight", "0", "--distance-decay", "0.5", "--no-siblings", "--max-siblings", "0"]
    found = json.loads(run("slice", str(FACT), str(CHUNK), *IN, *flags, "--as-of", "7", "--json").stdout)
    assert [found_slice["slice_id"] for found_slice in found["slices"]] == [SLICE.slice_id] * 2
    (request,) = peer.requests
    assert request.policy == pb.SlicePolicy(
        policy_id="slice_policy_v1_ref",
        max_nodes=5,
        max_radius=0,
        phase_weights=pb.PhaseWeights(synthesis=5, planning=4, consolidation=3, debugging=2, exploration=1),
        salience_weight=0,
        distance_decay=0.5,
        include_siblings=False,
        max_siblings_per_node=0,
    )
    assert (list(request.anchors), request.as_of.revision) == ([str(FACT), str(CHUNK)], 7)


def test_a_slice_is_written_to_a_file(run: Run, peer: Peer, tmp_path: Path) -> None:
    peer.answers["Slice"] = pb.SliceResponse(slices=[SLICE])
    shown = run("slice", str(FACT), "--output", "slice.bin", "--format", "binary").stdout
    assert shown.endswith(f"wrote slice.bin: {len(SLICE.file)} bytes\n")
    assert (tmp_path / "slice.bin").read_bytes() == SLICE.file
    assert peer.requests[0].format == pb.SLICE_FORMAT_BINARY
    assert "FILE_EXISTS" in run("slice", str(FACT), "--output", "slice.bin").stderr
    assert run("slice", str(FACT), str(CHUNK), "--output", "other.json").exit_code == 2
    assert run("slice", str(FACT), "--phase-weights", "1,2").exit_code == 2
    assert "--format needs --output" in run("slice", str(FACT), "--format", "binary").stderr
