"""What calls return: plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tenant:
    """An owner of corpora, who sees nothing of any other tenant."""

    id: UUID
    name: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    """1 when created, one more with each update."""
    allowed_regions: tuple[str, ...] = ()
    """Where the corpora that it has or reads must be; none: anywhere."""


@dataclass(frozen=True, slots=True)
class LegalHold:
    """A hold on a corpus: while it is on nothing is trimmed, and the corpus cannot be deleted."""

    on: bool
    """False: it was released."""
    reason: str
    """Why it was put on, or why it was released."""
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sharing:
    """With whom a corpus is shared: they may read it, and nothing else."""

    everyone: bool
    """Every tenant, those that are made later too."""
    tenant_ids: tuple[UUID, ...]
    """Or these."""
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Corpus:
    """A body of documents of one tenant."""

    id: UUID
    tenant_id: UUID | None
    """None if it is shared with the caller's tenant: whose it is, is not shown."""
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    """1 when created, one more with each update."""
    retention_days: int | None = None
    """Every revision that was the head within so many days is kept; None: every one, for ever."""
    legal_hold: LegalHold | None = None
    """As it was last changed; None if there never was one."""
    region: str = ""
    """Where its data may be; empty: in none."""
    sharing: Sharing | None = None
    """None: other tenants do not have it."""
    shared: bool = False
    """It is another tenant's, and may only be read. What concerns only that tenant is then left out."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim of a corpus did."""

    oldest_revision: int
    """The oldest that can still be read; 0 if none was ever trimmed."""
    records_removed: int
    finished: bool
    """False: there is more to remove. Call again, or leave it to the server."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server says of itself and of the caller."""

    version: str
    api_version: str
    """Of the protocol, "major.minor"."""
    principal: str
    """Who the server takes the caller for."""
    tenant_id: UUID | None
    """The caller's tenant; None for an operator."""
    engine: str
    format_version: int
    message_bytes_max: int


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a list. `next_page_token` asks for what follows; it is empty on the last page."""

    items: tuple[T, ...]
    next_page_token: str
