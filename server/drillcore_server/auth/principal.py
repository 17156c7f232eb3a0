"""Who is calling."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_server.domain.ids import PrincipalId, TenantId


@dataclass(frozen=True, slots=True)
class Principal:
    id: PrincipalId
    tenant: TenantId | None
    """The tenant it belongs to and cannot leave; None for an operator, who belongs to none."""

    @property
    def is_operator(self) -> bool:
        return self.tenant is None
