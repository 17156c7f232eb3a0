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
from datetime import datetime, timedelta
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

    def may_operate(self) -> bool:
        """Whether it is an operator of the whole server."""
        everywhere = any(one.allows(Permission.OPERATE, None) for one in self.grants)
        return self.tenant_id is None and not self.disabled and everywhere


@dataclass(frozen=True, slots=True)
class Credential:
    """A person's password, and how those fared who tried it. Apart from the account, which every call reads."""

    hash: str
    """Argon2id, with its salt and parameters."""
    changed_at: datetime
    must_change: bool
    """It was set by another."""
    earlier: tuple[str, ...] = ()
    """Hashes of those before it, the newest first."""
    attempts: int = 0
    """Since the last one that was right."""
    attempted_at: datetime | None = None
    locked_until: datetime | None = None

    def is_expired(self, now: datetime, age_s_max: float) -> bool:
        """Whether it must be changed before it opens anything. An age of 0 is none."""
        too_old = age_s_max > 0 and (now - self.changed_at).total_seconds() > age_s_max
        return self.must_change or too_old


@dataclass(frozen=True, slots=True)
class AccountState:
    """An account as it is shown: with what may be known of its password."""

    account: Account
    password_changed_at: datetime | None = None
    locked_until: datetime | None = None

    @property
    def id(self) -> AccountId:
        return self.account.id


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

    def ends_at(self) -> datetime:
        """When it ended, or will end if it is not used any more."""
        unused = None if self.idle_timeout_s is None else self.last_used_at + timedelta(seconds=self.idle_timeout_s)
        return min(at for at in (self.revoked_at, self.expires_at, unused) if at is not None)
