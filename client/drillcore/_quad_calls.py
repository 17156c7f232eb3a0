"""Calls about quads. See `_calls`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore import _convert_nodes
from drillcore import _convert_quads as convert
from drillcore._call import Call, Id, Pages, id_text
from drillcore._convert_nodes import AsOf
from drillcore._document_results import BinaryFile
from drillcore._download import Whole, WritableFile, download
from drillcore._quad_results import (
    MatchedQuad,
    OnQuadImport,
    PutQuadsResult,
    QuadExport,
    QuadFormat,
    QuadImportProgress,
    QuadPage,
    RemovedQuads,
)
from drillcore._upload import Upload, pieces, unanswered
from drillcore.quads import Quad, QuadPattern
from drillcore_proto.v1 import quads_pb2 as pb

_QUADS: Final = "/drillcore_proto.v1.QuadService/"
_EVERY: Final = QuadPattern()


def put_quads(
    corpus_id: Id,
    quads: Iterable[Quad],
    *,
    source_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutQuadsResult]:
    """Store quads, at most 10,000, as one revision of a corpus: all or none. For more see `import_quads`.

    With a `source_id` they are erased with that source. A quad that is there already stays as it is. Raises
    InvalidArgument, whose message names the quad, also for those that only the server makes: what `urn:graph:source`
    and `urn:graph:retrieval` tell of records of the corpus.
    """

    def decode(answer: bytes) -> PutQuadsResult:
        return convert.put_result(pb.PutQuadsResponse.FromString(answer))

    request = pb.PutQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        quads=map(convert.quad_message, quads),
        source_id=source_id,
    )
    return Call(f"{_QUADS}PutQuads", request, decode, request_id, timeout_s)


def remove_quads(
    corpus_id: Id,
    quads: Iterable[Quad] = (),
    *,
    pattern: QuadPattern | None = None,
    source_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RemovedQuads]:
    """Remove quads, at most 10,000, or all that match a pattern, as one revision. Earlier revisions keep them.

    With a `source_id`, quads are removed only as quads of this source; else whatever they come from.
    """

    def decode(answer: bytes) -> RemovedQuads:
        return convert.removed(pb.RemoveQuadsResponse.FromString(answer))

    request = pb.RemoveQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        quads=map(convert.quad_message, quads),
        pattern=None if pattern is None else convert.pattern_message(pattern),
        source_id=source_id,
    )
    return Call(f"{_QUADS}RemoveQuads", request, decode, request_id, timeout_s)


def match_quads(
    corpus_id: Id,
    pattern: QuadPattern = _EVERY,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[QuadPage]:
    """One page of the quads that match: first those that were put, then those told from the corpus's own records.

    The second are in the graphs `urn:graph:source` (sources, documents, chunks, sections, the master, facts) and
    `urn:graph:retrieval` (the caller's envelopes), in the words of PROV-O. A page may be short, or empty.
    """

    def decode(answer: bytes) -> QuadPage:
        return convert.page(pb.MatchQuadsResponse.FromString(answer))

    request = pb.MatchQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        pattern=convert.pattern_message(pattern),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_QUADS}MatchQuads", request, decode, request_id, timeout_s)


def iter_quads(
    corpus_id: Id,
    pattern: QuadPattern = _EVERY,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[MatchedQuad]:
    """Every quad that `match_quads` finds, fetched page by page, all of one moment. `timeout_s` is for each page."""
    return lambda token: match_quads(
        corpus_id, pattern, as_of=as_of, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )


def import_quads(
    corpus_id: Id,
    content: bytes | Path | BinaryFile,
    *,
    format: QuadFormat = QuadFormat.N_QUADS,  # noqa: A002 - the word for it
    source_id: str = "",
    graph: str = "",
    base_iri: str = "",
    rename_blank_nodes: bool = False,
    on_event: OnQuadImport | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[PutQuadsResult]:
    """Store the quads of a file as one revision, whatever their number: all or none.

    `graph` is that of a Turtle file, and of what has no graph in an N-Quads file; `base_iri` is of a Turtle file.
    `rename_blank_nodes` keeps those of this file apart from those of the same labels in the corpus. What another corpus
    told from its records, as an exported file has it, is counted as `derived` and left out. Raises
    InvalidArgument for what cannot be parsed, with its line. Repeating it under the same `request_id` does it once.
    `timeout_s` is for the whole call; by default it has no limit.
    """
    target = pb.ImportQuadsTarget(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        format=convert.FORMATS[format],
        source_id=source_id,
        graph=graph,
        base_iri=base_iri,
        rename_blank_nodes=rename_blank_nodes,
    )
    return Upload(
        f"{_QUADS}ImportQuads", target, (content,), _import_requests, _ImportReceipt, on_event, request_id, timeout_s
    )


def export_quads(
    corpus_id: Id,
    file: WritableFile,
    pattern: QuadPattern = _EVERY,
    *,
    format: QuadFormat = QuadFormat.N_QUADS,  # noqa: A002 - the word for it
    as_of: AsOf | None = None,
    on_bytes: Callable[[int], object] | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[QuadExport]:
    """Write the quads that match into a file that is open for bytes. For Turtle the pattern names one graph.

    `on_bytes` hears how many have come so far; the first come when the file is made and recorded. What is in the file
    after a failure is not whole.
    """
    request = pb.ExportQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        pattern=convert.pattern_message(pattern),
        as_of=_convert_nodes.as_of_message(as_of),
        format=convert.FORMATS[format],
    )
    return download(f"{_QUADS}ExportQuads", request, file, _exported, on_bytes, request_id, timeout_s)


def _import_requests(
    target: pb.ImportQuadsTarget, contents: Iterable[bytes | Path | BinaryFile]
) -> Iterator[pb.ImportQuadsRequest]:
    """Of one content."""
    yield pb.ImportQuadsRequest(target=target)
    sent = 0
    for content in contents:
        for piece in pieces(content):
            yield pb.ImportQuadsRequest(data=piece)
            sent += len(piece)
    yield pb.ImportQuadsRequest(end=pb.ImportQuadsEnd(size_bytes=sent))


class _ImportReceipt:
    """What the answers to an import say."""

    def __init__(self, on_event: OnQuadImport | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._done: pb.PutQuadsResponse | None = None

    def take(self, answer: bytes) -> None:
        response = pb.ImportQuadsResponse.FromString(answer)
        match response.WhichOneof("part"):
            case "progress":
                progress = response.progress
                self._on_event(QuadImportProgress(progress.bytes_received, progress.quads_read))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> PutQuadsResult:
        if self._done is None:
            raise unanswered(request_id)
        return convert.put_result(self._done)


def _exported(answer: bytes) -> bytes | Whole[QuadExport]:
    response = pb.ExportQuadsResponse.FromString(answer)
    if response.WhichOneof("part") != "done":
        return response.data
    done = response.done
    result = QuadExport(done.revision, done.quads, done.size_bytes, done.sha256.hex(), UUID(done.record_id))
    return Whole(done.size_bytes, done.sha256, result)
