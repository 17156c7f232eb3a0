"""Quads and explanations through the clients. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import drillcore
from drillcore import (
    Explained,
    Explanation,
    MatchedQuad,
    PutQuadsResult,
    Quad,
    QuadExport,
    QuadFormat,
    QuadImportProgress,
    QuadPattern,
    Reason,
    RemovedQuads,
    Span,
)
from drillcore_formats.quads import Blank, Iri, Literal, Quoted
from drillcore_proto.v1 import nodes_pb2, provenance_pb2
from drillcore_proto.v1 import quads_pb2 as pb
from tests.support.data.fact_messages import CHUNK, CORPUS, FACT, RECORD, TENANT
from tests.support.servers.both_clients import asynchronous, sync
from tests.support.servers.in_memory_server import Peer, because, page_of, running

Do = Callable[..., Any]

QUAD = Quad(
    Quoted(Blank("b"), Iri("urn:p"), Literal("o", language="en")),
    Iri("urn:says"),
    Literal("1", "urn:number"),
    "urn:g",
)
MESSAGE = pb.Quad(
    subject=pb.Term(
        triple=pb.Triple(
            subject=pb.Term(blank="b"),
            predicate=pb.Term(iri="urn:p"),
            object=pb.Term(literal=pb.Literal(value="o", language="en")),
        )
    ),
    predicate=pb.Term(iri="urn:says"),
    object=pb.Term(literal=pb.Literal(value="1", datatype="urn:number")),
    graph="urn:g",
)
PIECE = 256 * 1024


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    """Calls a method of a client of the peer and returns its result; an iteration is returned as a list."""
    return lambda method, *args, **options: request.param(peer.address, method, *args, **options)


def test_every_field_of_a_quad_is_sent(do: Do, peer: Peer) -> None:
    peer.answers["PutQuads"] = pb.PutQuadsResponse(revision=3, added=1, known=2)
    assert do("put_quads", CORPUS, [QUAD], source_id="s", request_id="r") == PutQuadsResult(3, 1, 2)
    wanted = pb.PutQuadsRequest(tenant_id=str(TENANT), corpus_id=str(CORPUS), quads=[MESSAGE], source_id="s")
    assert (peer.requests, peer.request_ids()) == ([wanted], ["r"])


def test_quads_are_removed_by_name_or_by_pattern(do: Do, peer: Peer) -> None:
    peer.answers["RemoveQuads"] = pb.RemoveQuadsResponse(revision=4, removed=5)
    assert do("remove_quads", CORPUS, [QUAD], source_id="s") == RemovedQuads(4, 5)
    do("remove_quads", CORPUS, pattern=QuadPattern(subject=Blank("b"), graph=""))
    first, second = peer.requests
    assert (list(first.quads), first.HasField("pattern"), first.source_id) == ([MESSAGE], False, "s")
    assert second.pattern.subject.blank == "b"
    assert second.pattern.HasField("graph"), "the default graph is not the same as any graph"
    assert not second.pattern.HasField("object")


def test_matches_come_page_by_page_with_their_sources(do: Do, peer: Peer) -> None:
    found = [
        pb.MatchedQuad(quad=MESSAGE, source_ids=["a", "b"]),
        pb.MatchedQuad(quad=MESSAGE, derived=True),
        pb.MatchedQuad(quad=MESSAGE),
    ]

    def matched(request: pb.MatchQuadsRequest) -> pb.MatchQuadsResponse:
        quads, token = page_of(request, found)
        return pb.MatchQuadsResponse(quads=quads, next_page_token=token, revision=7)

    peer.answers["MatchQuads"] = matched
    pattern = QuadPattern(QUAD.subject, QUAD.predicate, QUAD.object, "urn:g", "s")
    page = do("match_quads", CORPUS, pattern, as_of=7, page_size=1)
    assert (page.items, page.revision) == ((MatchedQuad(QUAD, ("a", "b"), derived=False),), 7)
    assert peer.requests[0] == pb.MatchQuadsRequest(
        tenant_id=str(TENANT),
        corpus_id=str(CORPUS),
        pattern=pb.QuadPattern(
            subject=MESSAGE.subject, predicate=MESSAGE.predicate, object=MESSAGE.object, graph="urn:g", source_id="s"
        ),
        as_of=nodes_pb2.AsOf(revision=7),
        page_size=1,
    )
    assert [match.derived for match in do("iter_quads", CORPUS)] == [False, True, False]


def test_an_unknown_term_of_a_newer_server_is_an_error(do: Do, peer: Peer) -> None:
    peer.answers["MatchQuads"] = pb.MatchQuadsResponse(quads=[pb.MatchedQuad(quad=pb.Quad(subject=pb.Term()))])
    with pytest.raises(ValueError, match="upgrade the client"):
        do("match_quads", CORPUS)


@pytest.mark.parametrize("kind", ["bytes", "path", "file"])
def test_a_file_of_quads_is_sent_in_pieces(do: Do, peer: Peer, tmp_path: Path, kind: str) -> None:
    content = b"<urn:s> <urn:p> <urn:o> .\n" * 20_000
    (tmp_path / "quads.nq").write_bytes(content)
    parts: list[pb.ImportQuadsRequest] = []

    def imported(requests: Iterator[Any], _context: grpc.ServicerContext) -> Iterator[Any]:
        for part in requests:
            parts.append(part)
            if part.WhichOneof("part") == "data":
                progress = pb.ImportQuadsProgress(bytes_received=len(part.data), quads_read=1)
                yield pb.ImportQuadsResponse(progress=progress)
        yield pb.ImportQuadsResponse(done=pb.PutQuadsResponse(revision=2, added=1))

    peer.streams["ImportQuads"] = imported
    heard: list[QuadImportProgress] = []
    given = {"bytes": content, "path": tmp_path / "quads.nq", "file": io.BytesIO(content)}[kind]
    result = do(
        "import_quads",
        CORPUS,
        given,
        format=QuadFormat.TURTLE,
        source_id="s",
        graph="urn:g",
        base_iri="urn:base",
        rename_blank_nodes=True,
        on_event=heard.append,
    )
    assert result == PutQuadsResult(2, 1, 0)
    assert parts[0].target == pb.ImportQuadsTarget(
        tenant_id=str(TENANT),
        corpus_id=str(CORPUS),
        format=pb.QUAD_FORMAT_TURTLE,
        source_id="s",
        graph="urn:g",
        base_iri="urn:base",
        rename_blank_nodes=True,
    )
    assert b"".join(part.data for part in parts) == content
    assert parts[-1].end.size_bytes == len(content)
    assert heard == [QuadImportProgress(PIECE, 1), QuadImportProgress(len(content) - PIECE, 1)]


def test_a_refused_import_names_the_line(do: Do, peer: Peer) -> None:
    def refused(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        because(Reason.UNPARSABLE, "line 3: no")(context)
        yield

    peer.streams["ImportQuads"] = refused
    with pytest.raises(drillcore.InvalidArgument, match="line 3"):
        do("import_quads", CORPUS, b"x")


def exported(content: bytes, sha256: bytes) -> Callable[..., Iterator[Any]]:
    def answer(requests: Iterator[Any], _context: grpc.ServicerContext) -> Iterator[Any]:
        (request,) = requests
        assert request.format == pb.QUAD_FORMAT_N_QUADS
        assert request.pattern.graph == "urn:g"
        yield pb.ExportQuadsResponse(data=content[:5])
        yield pb.ExportQuadsResponse(data=content[5:])
        done = pb.ExportQuadsDone(revision=7, quads=1, sha256=sha256, size_bytes=len(content), record_id=str(RECORD))
        yield pb.ExportQuadsResponse(done=done)

    return answer


def test_an_export_is_checked_against_what_the_server_recorded(do: Do, peer: Peer) -> None:
    content = b"<urn:s> <urn:p> <urn:o> <urn:g> .\n"
    digest = hashlib.sha256(content)
    peer.streams["ExportQuads"] = exported(content, digest.digest())
    file, heard = io.BytesIO(), []
    result = do("export_quads", CORPUS, file, QuadPattern(graph="urn:g"), on_bytes=heard.append)
    assert result == QuadExport(7, 1, len(content), digest.hexdigest(), RECORD)
    assert (file.getvalue(), heard) == (content, [5, len(content)])
    peer.streams["ExportQuads"] = exported(content, b"other")
    with pytest.raises(drillcore.Internal, match="the file is incomplete"):
        do("export_quads", CORPUS, io.BytesIO(), QuadPattern(graph="urn:g"))


def test_an_explanation_returns_every_step(do: Do, peer: Peer) -> None:
    step = provenance_pb2.Explained(
        iri=f"urn:drillcore:fact:{FACT}",
        kind="fact",
        id=str(FACT),
        title="t",
        derived_from=[f"urn:drillcore:chunk:{CHUNK}"],
        document_id=str(CHUNK),
        span=nodes_pb2.Span(start=3, end=9),
        text="Keep it",
    )
    source = provenance_pb2.Explained(iri="urn:drillcore:source:s", kind="source", id="s", gone=True)
    peer.answers["Explain"] = provenance_pb2.ExplainResponse(
        steps=[step, source], revision=5, corpus_id=str(CORPUS), truncated=True
    )
    assert do("explain", FACT, corpus_id=CORPUS, as_of=5) == Explanation(
        (
            Explained(
                step.iri, "fact", str(FACT), "t", (*step.derived_from,), CHUNK, Span(3, 9), "Keep it", gone=False
            ),
            Explained(source.iri, "source", "s", "", (), None, None, "", gone=True),
        ),
        5,
        CORPUS,
        truncated=True,
    )
    assert peer.requests == [
        provenance_pb2.ExplainRequest(
            tenant_id=str(TENANT), node=str(FACT), corpus_id=str(CORPUS), as_of=nodes_pb2.AsOf(revision=5)
        )
    ]
