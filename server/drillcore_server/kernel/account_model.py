"""Accounts, credentials, sessions and roles.

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

from drillcore_server.storage.ids import AccountId, CorpusId, Level, PrincipalId, TenantId


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

    __hash__ = object.__hash__  # hashed by identity, which is fast: every call looks some up


class Role(enum.Enum):
    READER = "reader"
    WRITER = "writer"
    REVIEWER = "reviewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"

    __hash__ = object.__hash__  # hashed by identity, as above


PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.READER: frozenset({Permission.READ}),
    Role.WRITER: frozenset({Permission.READ, Permission.WRITE, Permission.MANAGE_CORPORA}),
    Role.REVIEWER: frozenset({Permission.READ, Permission.SIGN}),
    Role.AUDITOR: frozenset({Permission.READ, Permission.AUDIT, Permission.EXPORT, Permission.SIGN}),
    Role.OPERATOR: frozenset({Permission.OPERATE, Permission.MANAGE_CORPORA}),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a tenant, for one corpus and some levels. What is left out means all."""

    role: Role
    tenant: TenantId | None = None
    corpus: CorpusId | None = None
    levels: tuple[Level, ...] = ()

    def allows(self, permission: Permission, tenant: TenantId | None) -> bool:
        return permission in PERMISSIONS[self.role] and (self.tenant is None or self.tenant == tenant)

    def covers(self, corpus: CorpusId | None, level: Level | None) -> bool:
        """Whether the grant reaches this corpus and level. None stands for all."""
        return (self.corpus is None or self.corpus == corpus) and (not self.levels or level in self.levels)


EVERYTHING: Final = tuple(Grant(role) for role in Role)
"""The grants of a caller without a tenant in the settings file: it is there to set up the server."""


@dataclass(frozen=True, slots=True)
class Account:
    """A person or a service. Its id and login are never given to another account."""

    id: AccountId
    tenant_id: TenantId | None
    """None: an operator of the server."""
    kind: AccountKind
    login: str
    name: str
    """The printed name of a person."""
    grants: tuple[Grant, ...]
    created_at: datetime
    created_by: PrincipalId
    updated_at: datetime
    version: int
    disabled: bool = False
    certificates: tuple[bytes, ...] = ()
    """SHA-256 of the client certificates that identify it."""
    oidc_issuer: str = ""
    oidc_subject: str = ""

    def may_operate(self) -> bool:
        """Whether the account operates the whole server."""
        everywhere = any(grant.allows(Permission.OPERATE, None) for grant in self.grants)
        return self.tenant_id is None and not self.disabled and everywhere


@dataclass(frozen=True, slots=True)
class Credential:
    """A person's password and the attempts to use it. Kept apart from the account, which every call reads."""

    hash: str
    """Argon2id, with its salt and parameters."""
    changed_at: datetime
    must_change: bool
    """Another person set it, so it must be changed."""
    earlier: tuple[str, ...] = ()
    """Hashes of earlier passwords, newest first."""
    attempts: int = 0
    """Attempts since the last correct one."""
    attempted_at: datetime | None = None
    locked_until: datetime | None = None

    def is_expired(self, now: datetime, age_s_max: float) -> bool:
        """Whether the password must be changed before the next login. An age of 0 never expires."""
        too_old = age_s_max > 0 and (now - self.changed_at).total_seconds() > age_s_max
        return self.must_change or too_old


@dataclass(frozen=True, slots=True)
class AccountState:
    """An account as it is shown to callers, with what they may know about its password."""

    account: Account
    password_changed_at: datetime | None = None
    locked_until: datetime | None = None

    @property
    def id(self) -> AccountId:
        return self.account.id


@dataclass(frozen=True, slots=True)
class Session:
    """A login, or a token of a service account. Stored under the SHA-256 of its bearer token."""

    id: UUID
    account: AccountId
    name: str
    is_login: bool
    """Whether a password opened it: only such a session can sign."""
    created_at: datetime
    expires_at: datetime
    idle_timeout_s: float | None
    last_used_at: datetime
    """Accurate to a minute."""
    revoked_at: datetime | None = None
    signed_at: datetime | None = None
    """When this session last signed. None: the next signature needs login and password."""

    def is_over(self, now: datetime) -> bool:
        idle = self.idle_timeout_s is not None and (now - self.last_used_at).total_seconds() > self.idle_timeout_s
        return self.revoked_at is not None or now >= self.expires_at or idle

    def ends_at(self) -> datetime:
        """When it ended, or will end unless it is used again."""
        unused = None if self.idle_timeout_s is None else self.last_used_at + timedelta(seconds=self.idle_timeout_s)
        return min(at for at in (self.revoked_at, self.expires_at, unused) if at is not None)
