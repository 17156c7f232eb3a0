"""Calls about sources and their erasure. See `_calls`."""

from __future__ import annotations

from typing import Final

from drillcore import _convert_nodes
from drillcore import _convert_sources as convert
from drillcore._call import Call, Id, Pages, id_text
from drillcore._convert_nodes import AsOf
from drillcore._results import Page
from drillcore._source_results import Erasure, Purged, Source
from drillcore_proto.v1 import sources_pb2 as pb

_SOURCES: Final = "/drillcore_proto.v1.SourceService/"


def get_source(
    corpus_id: Id,
    source_id: str,
    *,
    as_of: AsOf | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Source]:
    """A source of a corpus, with how many facts it has. Raises NotFound."""

    def decode(answer: bytes) -> Source:
        response = pb.GetSourceResponse.FromString(answer)
        return convert.source(response.source, response.revision)

    request = pb.GetSourceRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        source_id=source_id,
        as_of=_convert_nodes.as_of_message(as_of),
    )
    return Call(f"{_SOURCES}GetSource", request, decode, request_id, timeout_s)


def list_sources(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Source]]:
    """One page of the sources of a corpus."""

    def decode(answer: bytes) -> Page[Source]:
        return convert.sources(pb.ListSourcesResponse.FromString(answer))

    request = pb.ListSourcesRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_SOURCES}ListSources", request, decode, request_id, timeout_s)


def iter_sources(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Source]:
    """Every source of a corpus, fetched page by page, all of one moment. `timeout_s` is for each page."""
    return lambda token: list_sources(
        corpus_id, as_of=as_of, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )


def erase_source(
    corpus_id: Id,
    source_id: str,
    *,
    reason: str,
    purge_now: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Erasure]:
    """Make everything that came from a source unreadable, everywhere and at every revision. It cannot be undone.

    Sections, master and communities that were made with it are made anew from the rest, in the same revision. `reason`
    is part of the audit record. The bytes, which nobody can read, are removed some days later, or with `purge_now` at
    once. Raises NotFound, and FailedPrecondition if the corpus is on legal hold or the source was erased already.
    """

    def decode(answer: bytes) -> Erasure:
        return convert.erasure(pb.EraseSourceResponse.FromString(answer).erasure)

    request = pb.EraseSourceRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        source_id=source_id,
        reason=reason,
        purge_now=purge_now,
    )
    return Call(f"{_SOURCES}EraseSource", request, decode, request_id, timeout_s)


def list_erasures(
    corpus_id: Id,
    *,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Erasure]]:
    """One page of the erasures of a corpus."""

    def decode(answer: bytes) -> Page[Erasure]:
        return convert.erasures(pb.ListErasuresResponse.FromString(answer))

    request = pb.ListErasuresRequest(
        tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id), page_size=page_size, page_token=page_token
    )
    return Call(f"{_SOURCES}ListErasures", request, decode, request_id, timeout_s)


def iter_erasures(
    corpus_id: Id, *, page_size: int = 0, tenant_id: Id | None = None, timeout_s: float | None = None
) -> Pages[Erasure]:
    """Every erasure of a corpus, fetched page by page. `timeout_s` is for each page."""
    return lambda token: list_erasures(
        corpus_id, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )


def purge_erased(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Purged]:
    """Remove the unreadable bytes that erased sources left, now. The server does it by itself some days after each.

    A purge that is not `finished` goes on with the next call.
    """

    def decode(answer: bytes) -> Purged:
        return convert.purged(pb.PurgeErasedResponse.FromString(answer))

    request = pb.PurgeErasedRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Call(f"{_SOURCES}PurgeErased", request, decode, request_id, timeout_s)
