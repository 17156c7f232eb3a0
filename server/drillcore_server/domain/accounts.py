"""Who may call, and what they may do.

role       may
reader     read
writer     read, write, manage corpora
reviewer   read, sign
auditor    read, audit, export, sign
operator   operate, manage corpora
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_server.domain.ids import AccountId, CorpusId, PrincipalId, TenantId
from drillcore_server.domain.nodes import Level


class AccountKind(enum.Enum):
    PERSON = "person"
    SERVICE = "service"


class Permission(enum.Enum):
    READ = "read"
    WRITE = "write"
    MANAGE_CORPORA = "manage corpora"
    AUDIT = "audit"
    EXPORT = "export"
    SIGN = "sign"
    OPERATE = "operate"

    __hash__ = object.__hash__  # of the one object that each is: every call looks some up


class Role(enum.Enum):
    READER = "reader"
    WRITER = "writer"
    REVIEWER = "reviewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"

    __hash__ = object.__hash__  # likewise


PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.READER: frozenset({Permission.READ}),
    Role.WRITER: frozenset({Permission.READ, Permission.WRITE, Permission.MANAGE_CORPORA}),
    Role.REVIEWER: frozenset({Permission.READ, Permission.SIGN}),
    Role.AUDITOR: frozenset({Permission.READ, Permission.AUDIT, Permission.EXPORT, Permission.SIGN}),
    Role.OPERATOR: frozenset({Permission.OPERATE, Permission.MANAGE_CORPORA}),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, in a tenant, for a corpus and some levels. What is left out means every one."""

    role: Role
    tenant: TenantId | None = None
    corpus: CorpusId | None = None
    levels: tuple[Level, ...] = ()

    def allows(self, permission: Permission, tenant: TenantId | None) -> bool:
        return permission in PERMISSIONS[self.role] and (self.tenant is None or self.tenant == tenant)

    def covers(self, corpus: CorpusId | None, level: Level | None) -> bool:
        """Whether it reaches this corpus and level; None stands for the whole."""
        return (self.corpus is None or self.corpus == corpus) and (not self.levels or level in self.levels)


EVERYTHING: Final = tuple(Grant(role) for role in Role)
"""What a caller without a tenant in the settings file is granted: they are there to set a server up."""


@dataclass(frozen=True, slots=True)
class Account:
    """A person or a service. Its id and login are never given to another."""

    id: AccountId
    tenant_id: TenantId | None
    """None: an operator of the server."""
    kind: AccountKind
    login: str
    name: str
    """Printed name of a person."""
    grants: tuple[Grant, ...]
    created_at: datetime
    created_by: PrincipalId
    updated_at: datetime
    version: int
    disabled: bool = False
    certificates: tuple[bytes, ...] = ()
    """SHA-256 of the client certificates that stand for it."""
    oidc_issuer: str = ""
    oidc_subject: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """What a bearer token stands for: a login, or a service account's token. Kept under the token's SHA-256."""

    id: UUID
    account: AccountId
    name: str
    is_login: bool
    """Whether a password opened it: only such a session can sign."""
    created_at: datetime
    expires_at: datetime
    idle_timeout_s: float | None
    last_used_at: datetime
    """Within a minute."""
    revoked_at: datetime | None = None
    signed_at: datetime | None = None
    """When it was last signed in; None: the next signature needs both components."""

    def is_over(self, now: datetime) -> bool:
        idle = self.idle_timeout_s is not None and (now - self.last_used_at).total_seconds() > self.idle_timeout_s
        return self.revoked_at is not None or now >= self.expires_at or idle
