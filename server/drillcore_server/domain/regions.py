"""Where data may be: a corpus is in a region, and a server, a tenant and a call each allow some regions or all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput, Denied

REGIONS_MAX: Final = 100
_REGION: Final = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def is_region(text: str) -> bool:
    return _REGION.fullmatch(text) is not None


def checked_region(region: str, field: str = "region") -> str:
    if not is_region(region):
        message = f"{field} is not a region: 1 to 63 of the characters a-z, 0-9 and -, such as eu-west-1"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=field)
    return region


def checked_regions(regions: Iterable[str], field: str) -> tuple[str, ...]:
    """The regions, each once and in order."""
    checked = tuple(sorted({checked_region(one, field) for one in regions}))
    if len(checked) > REGIONS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"over {REGIONS_MAX} regions", field=field)
    return checked


@dataclass(frozen=True, slots=True)
class Residency:
    """The regions that a call may touch. Whoever names none allows every one, and corpora that are in none."""

    server: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    asked: str = ""
    """By the caller, for this call."""

    def allows(self, region: str) -> bool:
        return self._excluding(region) is None

    def check(self, region: str) -> None:
        """Raises `Denied` if a corpus of this region may not be touched; "" stands for one that is in none."""
        excluding = self._excluding(region)
        if excluding is not None:
            where = f"in the region {region}" if region else "in no region"
            raise Denied(Reason.REGION_NOT_ALLOWED, f"the corpus is {where}, which {excluding}", region=region)

    def _excluding(self, region: str) -> str | None:
        """Who does not allow the region, in words; None if all do."""
        asked = (self.asked,) if self.asked else ()
        bounds = (
            (self.server, "this server does not serve"),
            (self.tenant, "the tenant does not allow"),
            (asked, "is not the one that the call is bound to"),
        )
        return next((words for allowed, words in bounds if allowed and region not in allowed), None)


ANYWHERE: Final = Residency()
