"""With whom a corpus is shared: other tenants may then read it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import PrincipalId, TenantId

READERS_MAX: Final = 500
"""Tenants that one corpus is shared with by name; more are everyone."""


@dataclass(frozen=True, slots=True)
class Sharing:
    everyone: bool
    """With every tenant, those that are made later too; then none is named."""
    tenants: tuple[TenantId, ...]
    by: PrincipalId
    at: datetime


@dataclass(frozen=True, slots=True)
class SharingChange:
    """With whom to share from now on, in place of those before; with nobody, if neither is given."""

    everyone: bool = False
    tenants: Sequence[TenantId] = ()

    def applied(self, owner: TenantId, by: PrincipalId, at: datetime) -> Sharing | None:
        tenants = tuple(sorted(set(self.tenants)))
        if owner in tenants:
            message = "a corpus is not shared with the tenant it belongs to"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="share_with_tenants")
        if len(tenants) > READERS_MAX:
            message = f"name at most {READERS_MAX} tenants, or share with everyone"
            raise BadInput(Reason.TOO_LARGE, message, field="share_with_tenants")
        return Sharing(self.everyone, tenants, by, at) if self.everyone or tenants else None
