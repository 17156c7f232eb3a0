"""Who may read an audit log: a tenant's, or the server's own."""

from __future__ import annotations

from datetime import datetime

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import Granted, Rule, in_tenant, operator
from drillcore_server.auth.principal import Principal
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import TenantId
from drillcore_server.store.keyspace import Keyspace


def auditing(asked: TenantId | None, *, server_log: bool) -> Rule[Granted]:
    """Auditors of the whole tenant; for what belongs to no tenant, the server's operators.

    `Granted.tenant` is the tenant whose log it is, None for the server's own.
    """
    if server_log and asked is not None:
        raise BadInput(Reason.INVALID_ARGUMENT, "the server's own log is of no tenant: name one or the other")

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
        if server_log:
            return operator(tr, keys, principal, now)
        granted = in_tenant(asked, Permission.AUDIT)(tr, keys, principal, now)
        granted.check_everything()
        return granted

    return rule
