"""ImportCore."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.viewing import Library


@dataclass(frozen=True, slots=True)
class CoreImporter:
    """Everything that imports of cores need."""

    library: Library
    ingester: Ingester
