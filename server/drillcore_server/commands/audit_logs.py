"""What the commands about audit logs share: which log a call is about, who may see it, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit.checking import LogChecker
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.audit.search import LogSearch
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted, Rule
from drillcore_server.auth.principal import Principal
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import TenantId
from drillcore_server.store.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class AuditLogs:
    """How logs are read and checked."""

    signing: SigningKeys
    opener: RecordOpener
    search: LogSearch
    checker: LogChecker
    wait: Callable[[float], None]
    """Until records may have been put in order, or so many seconds are over."""


@dataclass(frozen=True, slots=True)
class WhichLog:
    """A tenant's log, or the server's own."""

    tenant: TenantId | None
    server_log: bool

    def __post_init__(self) -> None:
        if self.server_log and self.tenant is not None:
            message = "the server's own log is no tenant's: leave out tenant_id, or server_log"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="server_log")


def auditing(which: WhichLog) -> Rule[Granted]:
    """Who may see all of a log: an auditor of the whole tenant; of the server's own, an operator."""
    if which.server_log:
        return access.operator

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
        granted = access.in_tenant(which.tenant, Permission.AUDIT)(tr, keys, principal, now)
        granted.check_everything()
        return granted

    return rule


def taking_part(which: WhichLog) -> Rule[Granted]:
    """Who may have records of their own calls in a log."""
    return access.operator if which.server_log else access.in_tenant(which.tenant, Permission.READ, Permission.AUDIT)
