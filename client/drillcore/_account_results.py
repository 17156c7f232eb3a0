"""Accounts, what they are granted, and what stands for them: plain frozen data."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from drillcore._node_results import Level


class AccountKind(enum.Enum):
    PERSON = "person"
    """Logs in, and may sign."""
    SERVICE = "service"
    """Has tokens, and can never sign."""


class Role(enum.Enum):
    READER = "reader"
    WRITER = "writer"
    """Reads too, and manages corpora."""
    REVIEWER = "reviewer"
    """Reads and signs."""
    AUDITOR = "auditor"
    """Reads, pulls the audit trail and signed exports, reviews and signs."""
    OPERATOR = "operator"
    """Manages tenants, accounts and corpora; reads no content."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, in a tenant, for a corpus and some levels. What is left out means every one."""

    role: Role
    tenant_id: UUID | str | None = None
    """Left out for an account of a tenant: that tenant."""
    corpus_id: UUID | str | None = None
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """A person or a service that may call. Its id and login are never given to another."""

    id: UUID
    tenant_id: UUID | None
    """None: an operator of the server."""
    kind: AccountKind
    login: str
    name: str
    """Printed name of a person."""
    grants: tuple[Grant, ...]
    disabled: bool
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    """1 when created, one more with each update."""
    certificate_sha256: tuple[str, ...]
    """Client certificates that stand for it."""
    oidc_issuer: str
    oidc_subject: str
    password_changed_at: datetime | None
    """None: it has no password."""
    locked_until: datetime | None
    """After too many wrong passwords. None, or in the past: it is not locked."""


@dataclass(frozen=True, slots=True)
class Login:
    """A session that was opened."""

    token: str = field(repr=False)
    """For calls in this session, as a client's token."""
    expires_at: datetime
    """At the latest; earlier when it is not used."""
    idle_timeout_s: float
    account_id: UUID
    tenant_id: UUID | None


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A session or a service account's token, without what is secret of it."""

    id: UUID
    account_id: UUID
    name: str
    session: bool
    """Of a login; else a service account's token."""
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    """Within a minute."""
    revoked: bool


@dataclass(frozen=True, slots=True)
class NewToken:
    """A service account's token. The server does not show it again."""

    token: str = field(repr=False)
    info: TokenInfo
