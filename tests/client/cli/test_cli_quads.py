"""`drillcore quads` and `drillcore explain`: their requests and their output."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import nodes_pb2, provenance_pb2
from drillcore_proto.v1 import quads_pb2 as pb
from tests.support.data.fact_messages import CHUNK, CORPUS, FACT, RECORD
from tests.support.processes.children import gone_afterwards
from tests.support.servers.in_memory_server import Peer, because, page_of, running

Run = Callable[..., Result]
IN = ("--corpus", str(CORPUS))
TRIPLE = pb.Quad(
    subject=pb.Term(iri="urn:s"), predicate=pb.Term(iri="urn:p"), object=pb.Term(literal=pb.Literal(value="o"))
)


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


def test_quads_are_put_in_the_notation_of_n_quads(run: Run, peer: Peer) -> None:
    peer.answers["PutQuads"] = pb.PutQuadsResponse(revision=3, added=2, known=1)
    lines = ['<urn:s> <urn:p> "o"', "<<( _:b <urn:p> <urn:o> )>> <urn:p> <urn:o> <urn:g> ."]
    result = run("quads", "put", *lines, *IN, "--source", "sop-7", "--request-id", "r")
    assert result.stdout == "stored 2 quads, 1 stored already: revision 3\n"
    (request,) = peer.requests
    assert (request.quads[0], request.source_id, peer.request_ids()) == (TRIPLE, "sop-7", ["r"])
    assert (request.quads[1].subject.triple.subject.blank, request.quads[1].graph) == ("b", "urn:g")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["put", "urn:s <urn:p> <urn:o>"], "at character 1: a term is written as"),
        (["put", "<urn:s> <urn:p>"], "at character 16"),
        (["put"], "Missing argument"),
        (["match", "-s", '"open'], "at character 1: a text must end with"),
        (["match", "-g", '"text"'], "a graph must be named by"),
        (["match", "-g", "<urn:g>", "--default-graph"], "either --graph or --default-graph"),
        (["remove"], "give the QUADs to remove"),
        (["remove", "<urn:s> <urn:p> <urn:o>", "-g", "<urn:g>"], "give either QUADs or flags"),
    ],
)
def test_text_that_is_not_n_quads_is_misuse(run: Run, peer: Peer, arguments: list[str], why: str) -> None:
    result = run("quads", *arguments, *IN)
    assert (result.exit_code, why in result.stderr) == (2, True), result.stderr
    assert peer.seen == []


def test_matches_are_printed_as_n_quads_that_cannot_control_the_terminal(run: Run, peer: Peer) -> None:
    odd = pb.Quad(
        subject=pb.Term(blank="b"),
        predicate=pb.Term(iri="urn:p"),
        object=pb.Term(literal=pb.Literal(value='a\x1b"\n\x9b\u202e', language="en")),
        graph="_:g",
    )
    peer.answers["MatchQuads"] = pb.MatchQuadsResponse(quads=[pb.MatchedQuad(quad=TRIPLE), pb.MatchedQuad(quad=odd)])
    assert run("quads", "match", *IN).stdout.splitlines() == [
        '<urn:s> <urn:p> "o" .',
        '_:b <urn:p> "a\\u001B\\"\\n\\u009B\\u202E"@en _:g .',
    ]


def test_the_flags_of_a_match_are_sent_as_its_pattern(run: Run, peer: Peer) -> None:
    peer.answers["MatchQuads"] = pb.MatchQuadsResponse()
    flags = ["-s", "_:b", "-p", "<urn:p>", "-o", '"1"^^<urn:n>', "-g", "<urn:g>", "--source", "s", "--as-of", "7"]
    assert run("quads", "match", *IN, *flags).stdout == ""
    run("quads", "match", *IN, "--default-graph")
    run("quads", "match", *IN)
    full, default, every = (request.pattern for request in peer.requests)
    assert full == pb.QuadPattern(
        subject=pb.Term(blank="b"),
        predicate=pb.Term(iri="urn:p"),
        object=pb.Term(literal=pb.Literal(value="1", datatype="urn:n")),
        graph="urn:g",
        source_id="s",
    )
    assert peer.requests[0].as_of.revision == 7
    assert default == pb.QuadPattern(graph="")
    assert (default.HasField("graph"), every) == (True, pb.QuadPattern())


def pages(peer: Peer) -> None:
    """The peer answers three quads on pages of two, after an empty page."""

    def matched(request: pb.MatchQuadsRequest) -> pb.MatchQuadsResponse:
        if not request.page_token:
            return pb.MatchQuadsResponse(next_page_token="0", revision=7)
        found = [pb.MatchedQuad(quad=TRIPLE, source_ids=["a"], derived=True)] * 3
        quads, token = page_of(request, found)
        return pb.MatchQuadsResponse(quads=quads, next_page_token=token, revision=7)

    peer.answers["MatchQuads"] = matched


def test_an_empty_page_is_not_the_end(run: Run, peer: Peer) -> None:
    pages(peer)
    line = '<urn:s> <urn:p> "o" .'
    assert run("quads", "match", *IN).stdout.splitlines() == [
        line,
        line,
        "# There are more: --page-token 2, or --all",
    ]
    assert run("quads", "match", *IN, "--page-token", "2").stdout.splitlines() == [line]
    assert run("quads", "match", *IN, "--all").stdout.splitlines() == [line] * 3


def test_matches_as_json_name_their_sources(run: Run, peer: Peer) -> None:
    pages(peer)
    quad = {"subject": "<urn:s>", "predicate": "<urn:p>", "object": '"o"', "graph": ""}
    quad |= {"source_ids": ["a"], "derived": True}
    found = json.loads(run("quads", "match", *IN, "--json").stdout)
    assert found == {"quads": [quad, quad], "next_page_token": "2", "revision": 7}
    assert len(json.loads(run("quads", "match", *IN, "--json", "--all").stdout)["quads"]) == 3


def test_quads_are_removed_by_name_or_pattern_after_a_confirmation(run: Run, peer: Peer) -> None:
    peer.answers["RemoveQuads"] = pb.RemoveQuadsResponse(revision=4, removed=2)
    refused = run("quads", "remove", "-g", "<urn:g>", *IN, text="n\n")
    assert (refused.exit_code, peer.seen) == (1, [])
    assert "Remove all quads that match" in refused.stderr
    assert run("quads", "remove", "-g", "<urn:g>", *IN, "--yes").stdout == "removed 2 quads: revision 4\n"
    run("quads", "remove", '<urn:s> <urn:p> "o"', *IN, "--source", "s", "--yes")
    first, second = peer.requests
    assert (first.pattern, list(first.quads), first.source_id) == (pb.QuadPattern(graph="urn:g"), [], "")
    assert (second.HasField("pattern"), list(second.quads), second.source_id) == (False, [TRIPLE], "s")


def test_a_file_is_imported_in_the_format_of_its_ending(run: Run, peer: Peer, tmp_path: Path) -> None:
    targets, contents = [], []

    def imported(requests: Iterator[Any], _context: grpc.ServicerContext) -> Iterator[Any]:
        target, data, _end = requests
        targets.append(target.target)
        contents.append(data.data)
        yield pb.ImportQuadsResponse(progress=pb.ImportQuadsProgress(bytes_received=3, quads_read=1))
        yield pb.ImportQuadsResponse(done=pb.PutQuadsResponse(revision=2, added=1))

    peer.streams["ImportQuads"] = imported
    for name in ("a.nq", "a.ttl", "a.txt"):
        (tmp_path / name).write_text("# no")
    flags = ["--source", "s", "-g", "<urn:g>", "--base", "urn:base", "--rename-blank-nodes"]
    assert run("quads", "import", "a.ttl", *IN, *flags).stdout == "stored 1 quad: revision 2\n"
    run("quads", "import", "a.nq", *IN)
    run("quads", "import", "a.txt", *IN, "--format", "n-quads")
    assert run("quads", "import", "a.txt", *IN).exit_code == 2
    assert [target.format for target in targets] == [
        pb.QUAD_FORMAT_TURTLE,
        pb.QUAD_FORMAT_N_QUADS,
        pb.QUAD_FORMAT_N_QUADS,
    ]
    first = targets[0]
    assert (first.source_id, first.graph, first.base_iri, first.rename_blank_nodes) == ("s", "urn:g", "urn:base", True)
    assert contents == [b"# no"] * 3


def exported(content: bytes) -> Callable[..., Iterator[Any]]:
    def answer(_requests: Iterator[Any], _context: grpc.ServicerContext) -> Iterator[Any]:
        yield pb.ExportQuadsResponse(data=content)
        sha256 = hashlib.sha256(b"<urn:s> <urn:p> <urn:o> .\n").digest()
        done = pb.ExportQuadsDone(revision=7, quads=1, sha256=sha256, size_bytes=26, record_id=str(RECORD))
        yield pb.ExportQuadsResponse(done=done)

    return answer


def test_a_file_is_exported_whole_or_not_at_all(run: Run, peer: Peer, tmp_path: Path) -> None:
    peer.streams["ExportQuads"] = exported(b"<urn:s>")
    assert run("quads", "export", *IN, "--output", "a.nq").exit_code == 1
    assert list(tmp_path.glob("*a.nq*")) == []
    peer.streams["ExportQuads"] = exported(b"<urn:s> <urn:p> <urn:o> .\n")
    result = run("quads", "export", *IN, "--output", "a.nq")
    assert result.stdout.startswith("wrote 1 quad of revision 7 to a.nq: 26 bytes\nSHA-256 ")
    assert (tmp_path / "a.nq").read_text() == "<urn:s> <urn:p> <urn:o> .\n"
    assert "FILE_EXISTS" in run("quads", "export", *IN, "--output", "a.nq").stderr
    assert run("quads", "export", *IN, "--output", "a.nq", "--force").exit_code == 0


def test_an_explanation_shows_every_step_to_the_original_characters(run: Run, peer: Peer) -> None:
    fact, raw = f"urn:drillcore:fact:{FACT}", f"urn:drillcore:raw:{CHUNK}"
    peer.answers["Explain"] = provenance_pb2.ExplainResponse(
        steps=[
            provenance_pb2.Explained(iri=fact, kind="fact", id=str(FACT), derived_from=[raw, "urn:elsewhere"]),
            provenance_pb2.Explained(
                iri=raw,
                kind="raw",
                id=str(CHUNK),
                title="SOP\x1b",
                document_id=str(RECORD),
                span=nodes_pb2.Span(start=3, end=9),
                text="Keep\nit",
                gone=True,
            ),
        ],
        revision=7,
        corpus_id=str(CORPUS),
        truncated=True,
    )
    assert run("explain", f"<{fact}>", "--corpus", str(CORPUS)).stdout.splitlines() == [
        f"1. fact {FACT}",
        "   from 2, urn:elsewhere",
        f"2. raw {CHUNK}: SOP\\x1b (gone)",
        f"   document {RECORD}, characters 3 to 9",
        "   | Keep",
        "   | it",
        "There is more: explain one of the last steps.",
    ]
    assert (peer.requests[0].node, peer.requests[0].corpus_id) == (fact, str(CORPUS))
    found = json.loads(run("explain", str(FACT), "--json").stdout)
    assert (found["steps"][1]["span"], found["truncated"]) == ({"start": 3, "end": 9}, True)


def test_an_unknown_node_is_not_explained(run: Run, peer: Peer) -> None:
    peer.failures.append(because(Reason.NODE_NOT_FOUND, "no such node"))
    result = run("explain", str(FACT))
    assert (result.exit_code, "NODE_NOT_FOUND: no such node" in result.stderr) == (1, True)


def test_a_stopped_import_says_that_the_file_may_be_stored(peer: Peer, tmp_path: Path) -> None:
    heard, ended = threading.Event(), threading.Event()

    def slow(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        list(requests)
        heard.set()
        ended.wait(30)
        yield pb.ImportQuadsResponse(done=pb.PutQuadsResponse(revision=2, added=1))

    peer.streams["ImportQuads"] = slow
    (tmp_path / "a.nq").write_text("<urn:s> <urn:p> <urn:o> .")
    environment = {**os.environ, "DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "drillcore", "quads", "import", "a.nq", *IN]
    started = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    with gone_afterwards(started) as process:
        assert heard.wait(30)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "ABORTED: you stopped it; the server may have done it or not" in said
    assert "Traceback" not in said
