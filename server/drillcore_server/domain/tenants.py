"""Tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from drillcore_server.domain.ids import PrincipalId, TenantId


@dataclass(frozen=True, slots=True)
class Tenant:
    id: TenantId
    name: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: PrincipalId
    updated_at: datetime
    version: int
    deleted_at: datetime | None = None
    allowed_regions: tuple[str, ...] = ()
    """Where the corpora that it has or reads must be; none: anywhere."""
