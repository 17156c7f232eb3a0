"""Tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import given, one_key, to_datetime
from drillcore._transport.call import Call, Id, Page, id_text, no_result
from drillcore_proto.v1 import tenants_pb2


@dataclass(frozen=True, slots=True)
class Tenant:
    """An owner of corpora. It sees nothing of other tenants."""

    id: UUID
    name: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    """1 at creation; every update adds one."""
    allowed_regions: tuple[str, ...] = ()
    """The regions in which the corpora that it owns or reads must be. Empty: any region."""


def to_tenant(message: tenants_pb2.Tenant) -> Tenant:
    return Tenant(
        id=UUID(message.id),
        name=message.name,
        metadata=dict(message.metadata),
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=to_datetime(message.updated_at),
        version=message.version,
        allowed_regions=tuple(message.allowed_regions),
    )


def to_tenants(message: tenants_pb2.ListTenantsResponse) -> Page[Tenant]:
    return Page(tuple(map(to_tenant, message.tenants)), message.next_page_token)


_TENANTS: Final = "/drillcore_proto.v1.TenantService/"


def create_tenant(
    name: str,
    *,
    metadata: Mapping[str, str] | None = None,
    tenant_id: Id | None = None,
    allowed_regions: Collection[str] = (),
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Tenant]:
    """Create a tenant, with your own id if you give one. Operators only.

    The corpora that it owns or reads must be in one of `allowed_regions`, if there are any.
    Raises AlreadyExists if a tenant has this name, or has or had this id.
    """

    def decode(answer: bytes) -> Tenant:
        return to_tenant(tenants_pb2.CreateTenantResponse.FromString(answer).tenant)

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
    """The tenant with this id or name. Raises NotFound."""

    def decode(answer: bytes) -> Tenant:
        return to_tenant(tenants_pb2.GetTenantResponse.FromString(answer).tenant)

    request = tenants_pb2.GetTenantRequest(**one_key(tenant_id, name))
    return Call(f"{_TENANTS}GetTenant", request, decode, request_id, timeout_s)


def list_tenants(
    *,
    page_size: int = 0,
    page_token: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Tenant]]:
    """One page of the tenants."""

    def decode(answer: bytes) -> Page[Tenant]:
        return to_tenants(tenants_pb2.ListTenantsResponse.FromString(answer))

    request = tenants_pb2.ListTenantsRequest(page_size=page_size, page_token=page_token)
    return Call(f"{_TENANTS}ListTenants", request, decode, request_id, timeout_s)


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
    """Change what is given and keep the rest. Raises Conflict if the tenant is not at `expected_version`.

    `allowed_regions` replaces the earlier ones. If it is empty, every region is allowed.
    """

    def decode(answer: bytes) -> Tenant:
        return to_tenant(tenants_pb2.UpdateTenantResponse.FromString(answer).tenant)

    request = tenants_pb2.UpdateTenantRequest(
        id=id_text(tenant_id),
        name=name,
        set_metadata=set_metadata or {},
        remove_metadata=remove_metadata,
        expected_version=expected_version,
        **given(
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
    return Call(f"{_TENANTS}DeleteTenant", request, no_result, request_id, timeout_s)
