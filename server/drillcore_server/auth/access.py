"""Rules of access, checked inside the transaction of the call they guard. What is not allowed is denied."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth.principal import Principal
from drillcore_server.domain.errors import BadInput, Denied, Missing
from drillcore_server.domain.ids import TenantId
from drillcore_server.store import tenants
from drillcore_server.store.keyspace import Keyspace

G = TypeVar("G")
Rule = Callable[[Reader, Keyspace, Principal], G]
"""What the caller is granted (a tenant to act in, or nothing more than yes); raises `Refused` if it is not."""


def operator(_tr: Reader, _keys: Keyspace, principal: Principal) -> None:
    if not principal.is_operator:
        raise Denied(Reason.PERMISSION_DENIED, "only an operator may do this")


def anyone(_tr: Reader, _keys: Keyspace, _principal: Principal) -> None:
    """Any authenticated caller."""


def in_tenant(asked: TenantId | None) -> Rule[TenantId]:
    """The tenant to act in: the caller's own, or for an operator the one named. Another's is not there."""

    def rule(tr: Reader, keys: Keyspace, principal: Principal) -> TenantId:
        if principal.tenant is not None:
            if asked not in {None, principal.tenant}:
                raise Missing(Reason.TENANT_NOT_FOUND, f"there is no tenant {asked}")
            return tenants.get(tr, keys, principal.tenant).id
        if asked is None:
            raise BadInput(Reason.TENANT_REQUIRED, "an operator must say which tenant to act in", field="tenant_id")
        return tenants.get(tr, keys, asked).id

    return rule
