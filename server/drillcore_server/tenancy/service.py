"""TenantService: converts requests to commands and results to responses."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import tenants_pb2 as pb
from drillcore_server.kernel.corpus_model import Tenant
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import optional_tenant_id, tenant_id, timestamp
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.tenancy.tenants import create_tenant, delete_tenant, get_tenant, list_tenants, update_tenant


class TenantService:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def CreateTenant(self, request: pb.CreateTenantRequest, call: Call) -> pb.CreateTenantResponse:
        tenant = create_tenant(
            self._unit,
            call,
            name=request.name,
            metadata=request.metadata,
            tenant_id=optional_tenant_id(request.id, "id"),
            allowed_regions=request.allowed_regions,
        )
        return pb.CreateTenantResponse(tenant=_message(tenant))

    def GetTenant(self, request: pb.GetTenantRequest, call: Call) -> pb.GetTenantResponse:
        key = request.name if request.WhichOneof("key") == "name" else tenant_id(request.id)
        return pb.GetTenantResponse(tenant=_message(get_tenant(self._unit, call, key=key)))

    def ListTenants(self, request: pb.ListTenantsRequest, call: Call) -> pb.ListTenantsResponse:
        page = list_tenants(self._unit, call, size=request.page_size, token=request.page_token)
        return pb.ListTenantsResponse(tenants=map(_message, page.items), next_page_token=page.next_token)

    def UpdateTenant(self, request: pb.UpdateTenantRequest, call: Call) -> pb.UpdateTenantResponse:
        tenant = update_tenant(
            self._unit,
            call,
            tenant_id=tenant_id(request.id),
            name=request.name if request.HasField("name") else None,
            set_metadata=request.set_metadata,
            remove_metadata=request.remove_metadata,
            allowed_regions=_regions(request),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.UpdateTenantResponse(tenant=_message(tenant))

    def DeleteTenant(self, request: pb.DeleteTenantRequest, call: Call) -> pb.DeleteTenantResponse:
        expected = request.expected_version if request.HasField("expected_version") else None
        delete_tenant(self._unit, call, tenant_id=tenant_id(request.id), expected_version=expected)
        return pb.DeleteTenantResponse()


def _regions(request: pb.UpdateTenantRequest) -> Sequence[str] | None:
    chosen = request.WhichOneof("regions")
    if chosen is None:
        return None
    if not (request.allowed_regions.names or request.allow_every_region):
        message = f"{chosen} is true, or names regions, or is left out"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=chosen)
    return request.allowed_regions.names


def _message(tenant: Tenant) -> pb.Tenant:
    return pb.Tenant(
        id=str(tenant.id),
        name=tenant.name,
        metadata=tenant.metadata,
        created_at=timestamp(tenant.created_at),
        created_by=tenant.created_by,
        updated_at=timestamp(tenant.updated_at),
        version=tenant.version,
        allowed_regions=tenant.allowed_regions,
    )
