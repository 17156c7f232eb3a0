"""The commands of tenants: create, get, list, update, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import uuid4

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import access, corpus_store
from drillcore_server.kernel.access import Granted, checked_regions
from drillcore_server.kernel.corpus_model import Tenant
from drillcore_server.kernel.corpus_store import TENANT, TENANTS
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.named import changed_metadata, check_version, checked_metadata, checked_name
from drillcore_server.kernel.pages import Page, PageLimit, bounded_page, page_size, read_id_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import TenantId


def create_tenant(
    unit: Unit,
    call: Call,
    *,
    name: str,
    metadata: Mapping[str, str],
    tenant_id: TenantId | None,
    allowed_regions: Iterable[str] = (),
) -> Tenant:
    tenant = Tenant(
        id=tenant_id or TenantId(uuid4()),
        name=checked_name(name),
        metadata=checked_metadata(metadata),
        created_at=call.at,
        created_by=call.principal.id,
        updated_at=call.at,
        version=1,
        allowed_regions=checked_regions(allowed_regions, "allowed_regions"),
    )

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Tenant:
        TENANTS.insert(tr, unit.keys, tenant)
        trail.detail["tenant_id"] = str(tenant.id)
        trail.change(None, tenant)
        return tenant

    expected = [unit.keys.tenant(tenant.id), unit.keys.tenant_name(tenant.name)]
    return unit.write(call, access.operator, TENANT, work, expected=expected)


def delete_tenant(unit: Unit, call: Call, *, tenant_id: TenantId, expected_version: int | None) -> Tenant:
    """Marks the tenant deleted and returns it. Its id is never used again."""

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Tenant:
        old = corpus_store.get_tenant(tr, unit.keys, tenant_id)
        check_version(old, expected_version)
        if corpus_store.any_in(tr, unit.keys, tenant_id):
            raise NotReady(Reason.TENANT_NOT_EMPTY, f"tenant {tenant_id} still has corpora; delete them first")
        new = replace(old, updated_at=call.at, version=old.version + 1, deleted_at=call.at)
        TENANTS.replace(tr, unit.keys, old, new)
        trail.detail["tenant_id"] = str(tenant_id)
        trail.change(old, new)
        return new

    return unit.write(call, access.operator, TENANT, work, expected=[unit.keys.tenant(tenant_id)])


def get_tenant(unit: Unit, call: Call, *, key: TenantId | str) -> Tenant:
    """The tenant with this id or this name."""
    key = checked_name(key) if isinstance(key, str) else key

    def work(tr: Reader, _granted: Granted, trail: Trail) -> Tenant:
        if isinstance(key, str):
            found = corpus_store.get_tenant_by_name(tr, unit.keys, key)
        else:
            found = corpus_store.get_tenant(tr, unit.keys, key)
        trail.detail["tenant_id"] = str(found.id)
        return found

    expected = unit.keys.tenant_name(key) if isinstance(key, str) else unit.keys.tenant(key)
    return unit.read(call, access.operator, work, expected=[expected])


_LISTING = "tenants"


def list_tenants(unit: Unit, call: Call, *, size: int, token: str) -> Page[Tenant]:
    """The tenants in the order of ids. A page may be short or empty although more follow."""
    after = read_id_token(_LISTING, token)
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, _granted: Granted, trail: Trail) -> Page[Tenant]:
        keys = unit.keys.tenants(None if after is None else TenantId(after))
        page = bounded_page(_LISTING, TENANTS.stored(tr, keys), limit)
        trail.detail["tenant_ids"] = [str(tenant.id) for tenant in page.items]
        return page

    return unit.read(call, access.operator, work)


def update_tenant(
    unit: Unit,
    call: Call,
    *,
    tenant_id: TenantId,
    name: str | None,
    set_metadata: Mapping[str, str],
    remove_metadata: Iterable[str],
    allowed_regions: Iterable[str] | None = None,
    expected_version: int | None,
) -> Tenant:
    """Changes the given fields.

    Corpora outside the new allowed regions stay where they are, but nobody can reach them.
    """
    new_name = None if name is None else checked_name(name)
    regions = None if allowed_regions is None else checked_regions(allowed_regions, "allowed_regions")

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Tenant:
        old = corpus_store.get_tenant(tr, unit.keys, tenant_id)
        check_version(old, expected_version)
        new = replace(
            old,
            name=new_name or old.name,
            metadata=changed_metadata(old.metadata, set_metadata, remove_metadata),
            updated_at=call.at,
            version=old.version + 1,
            allowed_regions=old.allowed_regions if regions is None else regions,
        )
        TENANTS.replace(tr, unit.keys, old, new)
        trail.detail["tenant_id"] = str(tenant_id)
        trail.change(old, new)
        return new

    renamed = [] if new_name is None else [unit.keys.tenant_name(new_name)]
    return unit.write(call, access.operator, TENANT, work, expected=[unit.keys.tenant(tenant_id), *renamed])
