"""Calls about the server, tenants and corpora, each declared once: its arguments, its request, how its answer is read.

A function here, as in `_document_calls` and `_node_calls`, makes no call: it returns the `Call` that `Client` and
`AsyncClient` each carry out in their way.
`request_id` names the request, so that a repeated write is done once; a new one is made if it is not given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty

from drillcore import _convert
from drillcore._call import Call, Id, Pages, id_text
from drillcore._results import Corpus, Page, ServerInfo, Tenant, Trimmed
from drillcore_proto.v1 import corpora_pb2, server_pb2, tenants_pb2

_SERVER: Final = "/drillcore_proto.v1.ServerService/"
_TENANTS: Final = "/drillcore_proto.v1.TenantService/"
_CORPORA: Final = "/drillcore_proto.v1.CorpusService/"


def server_info(*, request_id: str | None = None, timeout_s: float | None = None) -> Call[ServerInfo]:
    """What the server says of itself and of the caller."""

    def decode(answer: bytes) -> ServerInfo:
        return _convert.server_info(server_pb2.GetServerInfoResponse.FromString(answer))

    return Call(f"{_SERVER}GetServerInfo", server_pb2.GetServerInfoRequest(), decode, request_id, timeout_s)


def health() -> Call[bool]:
    """Whether the server takes calls, by the standard health protocol. Not part of the API: the doctor asks."""
    # HealthCheckResponse{status: SERVING} in bytes. The light client does without the package for two bytes.
    return Call("/grpc.health.v1.Health/Check", Empty(), b"\x08\x01".__eq__, None, None)


def create_tenant(
    name: str,
    *,
    metadata: Mapping[str, str] | None = None,
    tenant_id: Id | None = None,
    allowed_regions: Collection[str] = (),
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Tenant]:
    """Create a tenant, under an id of the caller's own if one is given. Operators only.

    Corpora that it has or reads must be in one of `allowed_regions`, if there are any.
    Raises AlreadyExists if a tenant has this name, or has or had this id.
    """

    def decode(answer: bytes) -> Tenant:
        return _convert.tenant(tenants_pb2.CreateTenantResponse.FromString(answer).tenant)

    request = tenants_pb2.CreateTenantRequest(
        name=name, metadata=metadata or {}, id=id_text(tenant_id), allowed_regions=allowed_regions
    )
    return Call(f"{_TENANTS}CreateTenant", request, decode, request_id, timeout_s)


def get_tenant(
    tenant_id: Id | None = None,
    *,
    name: str | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Tenant]:
    """The tenant with this id, or with this name. Raises NotFound."""

    def decode(answer: bytes) -> Tenant:
        return _convert.tenant(tenants_pb2.GetTenantResponse.FromString(answer).tenant)

    request = tenants_pb2.GetTenantRequest(**_one_key(tenant_id, name))
    return Call(f"{_TENANTS}GetTenant", request, decode, request_id, timeout_s)


def list_tenants(
    *,
    page_size: int = 0,
    page_token: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Tenant]]:
    """One page of the tenants. `page_size` 0 leaves the size to the server."""

    def decode(answer: bytes) -> Page[Tenant]:
        return _convert.tenants(tenants_pb2.ListTenantsResponse.FromString(answer))

    request = tenants_pb2.ListTenantsRequest(page_size=page_size, page_token=page_token)
    return Call(f"{_TENANTS}ListTenants", request, decode, request_id, timeout_s)


def iter_tenants(*, page_size: int = 0, timeout_s: float | None = None) -> Pages[Tenant]:
    """Every tenant, fetched page by page. `timeout_s` is for each page."""
    return lambda token: list_tenants(page_size=page_size, page_token=token, timeout_s=timeout_s)


def update_tenant(
    tenant_id: Id,
    *,
    name: str | None = None,
    set_metadata: Mapping[str, str] | None = None,
    remove_metadata: Collection[str] = (),
    allowed_regions: Collection[str] | None = None,
    expected_version: int | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Tenant]:
    """Change what is given and leave the rest. Raises Conflict if the tenant is not at `expected_version`.

    `allowed_regions` take the place of those before; with none in it, every region is allowed.
    """

    def decode(answer: bytes) -> Tenant:
        return _convert.tenant(tenants_pb2.UpdateTenantResponse.FromString(answer).tenant)

    request = tenants_pb2.UpdateTenantRequest(
        id=id_text(tenant_id),
        name=name,
        set_metadata=set_metadata or {},
        remove_metadata=remove_metadata,
        expected_version=expected_version,
        **_given(
            allowed_regions=tenants_pb2.Regions(names=allowed_regions) if allowed_regions else None,
            allow_every_region=True if allowed_regions is not None and not allowed_regions else None,
        ),
    )
    return Call(f"{_TENANTS}UpdateTenant", request, decode, request_id, timeout_s)


def delete_tenant(
    tenant_id: Id,
    *,
    expected_version: int | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[None]:
    """Delete a tenant. Raises FailedPrecondition while it has corpora."""
    request = tenants_pb2.DeleteTenantRequest(id=id_text(tenant_id), expected_version=expected_version)
    return Call(f"{_TENANTS}DeleteTenant", request, _nothing, request_id, timeout_s)


def create_corpus(
    name: str,
    *,
    description: str = "",
    metadata: Mapping[str, str] | None = None,
    corpus_id: Id | None = None,
    region: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Corpus]:
    """Create a corpus, under an id of the caller's own if one is given; in a region, which it never leaves.

    Raises PermissionDenied if the region is not allowed here.
    Raises AlreadyExists if a corpus of the tenant has this name, or if one has or had this id.
    """

    def decode(answer: bytes) -> Corpus:
        return _convert.corpus(corpora_pb2.CreateCorpusResponse.FromString(answer).corpus)

    request = corpora_pb2.CreateCorpusRequest(
        tenant_id=id_text(tenant_id),
        name=name,
        description=description,
        metadata=metadata or {},
        id=id_text(corpus_id),
        region=region,
    )
    return Call(f"{_CORPORA}CreateCorpus", request, decode, request_id, timeout_s)


def get_corpus(
    corpus_id: Id | None = None,
    *,
    name: str | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Corpus]:
    """The corpus with this id, or with this name. Raises NotFound."""

    def decode(answer: bytes) -> Corpus:
        return _convert.corpus(corpora_pb2.GetCorpusResponse.FromString(answer).corpus)

    request = corpora_pb2.GetCorpusRequest(tenant_id=id_text(tenant_id), **_one_key(corpus_id, name))
    return Call(f"{_CORPORA}GetCorpus", request, decode, request_id, timeout_s)


def list_corpora(
    *,
    tenant_id: Id | None = None,
    page_size: int = 0,
    page_token: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Corpus]]:
    """One page of the tenant's corpora, and of those shared with it. `page_size` 0 leaves the size to the server."""

    def decode(answer: bytes) -> Page[Corpus]:
        return _convert.corpora(corpora_pb2.ListCorporaResponse.FromString(answer))

    request = corpora_pb2.ListCorporaRequest(tenant_id=id_text(tenant_id), page_size=page_size, page_token=page_token)
    return Call(f"{_CORPORA}ListCorpora", request, decode, request_id, timeout_s)


def iter_corpora(*, tenant_id: Id | None = None, page_size: int = 0, timeout_s: float | None = None) -> Pages[Corpus]:
    """Every corpus of the tenant, or shared with it, fetched page by page. `timeout_s` is for each page."""
    return lambda token: list_corpora(tenant_id=tenant_id, page_size=page_size, page_token=token, timeout_s=timeout_s)


def update_corpus(
    corpus_id: Id,
    *,
    name: str | None = None,
    description: str | None = None,
    set_metadata: Mapping[str, str] | None = None,
    remove_metadata: Collection[str] = (),
    retention_days: int | None = None,
    keep_everything: bool = False,
    hold_reason: str | None = None,
    release_reason: str | None = None,
    region: str = "",
    share_with_everyone: bool = False,
    share_with: Collection[Id] = (),
    stop_sharing: bool = False,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Corpus]:
    """Change what is given and leave the rest. Raises Conflict if the corpus is not at `expected_version`.

    `retention_days` lets the server remove revisions that were not the head within so many days; `keep_everything` ends
    that. `hold_reason` puts the corpus on legal hold, under which nothing is removed; `release_reason` ends it. Raises
    FailedPrecondition for a hold that is on already, or a release where there is none.

    `region` is for a corpus that is in none; one that is in another raises FailedPrecondition. Operators of the server
    let other tenants read the corpus: all of them, or those in `share_with`, in place of those before.
    """
    if retention_days is not None and keep_everything:
        raise TypeError("give either retention_days or keep_everything")
    if hold_reason is not None and release_reason is not None:
        raise TypeError("give either hold_reason or release_reason")
    if share_with_everyone + bool(share_with) + stop_sharing > 1:
        raise TypeError("give one of share_with_everyone, share_with and stop_sharing")

    def decode(answer: bytes) -> Corpus:
        return _convert.corpus(corpora_pb2.UpdateCorpusResponse.FromString(answer).corpus)

    request = corpora_pb2.UpdateCorpusRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(corpus_id),
        name=name,
        description=description,
        set_metadata=set_metadata or {},
        remove_metadata=remove_metadata,
        expected_version=expected_version,
        region=region,
        **_given(
            share_with_everyone=share_with_everyone or None,
            share_with_tenants=corpora_pb2.TenantIds(ids=map(id_text, share_with)) if share_with else None,
            stop_sharing=stop_sharing or None,
            retention_days=retention_days,
            keep_everything=keep_everything or None,
            hold_reason=hold_reason,
            release_reason=release_reason,
        ),
    )
    return Call(f"{_CORPORA}UpdateCorpus", request, decode, request_id, timeout_s)


def delete_corpus(
    corpus_id: Id,
    *,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[None]:
    """Delete a corpus. Its id is never used again. Raises FailedPrecondition on legal hold."""
    request = corpora_pb2.DeleteCorpusRequest(
        tenant_id=id_text(tenant_id), id=id_text(corpus_id), expected_version=expected_version
    )
    return Call(f"{_CORPORA}DeleteCorpus", request, _nothing, request_id, timeout_s)


def trim_corpus(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Trimmed]:
    """Remove the revisions that the corpus's retention policy no longer keeps. Raises FailedPrecondition on legal hold.

    The server does it by itself from time to time. A trim that is not `finished` goes on with the next call.
    """

    def decode(answer: bytes) -> Trimmed:
        return _convert.trimmed(corpora_pb2.TrimCorpusResponse.FromString(answer))

    request = corpora_pb2.TrimCorpusRequest(tenant_id=id_text(tenant_id), id=id_text(corpus_id))
    return Call(f"{_CORPORA}TrimCorpus", request, decode, request_id, timeout_s)


def _one_key(key: Id | None, name: str | None) -> dict[str, str]:
    if key is not None and name is None:
        return {"id": str(key)}
    if name is not None and key is None:
        return {"name": name}
    raise TypeError("give either an id or a name")


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: of those that exclude each other the message takes no None."""
    return {name: value for name, value in fields.items() if value is not None}


def _nothing(_answer: bytes) -> None:
    """Answers to deletions say no more than that they came."""
