"""ExportCore."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_fdb.engine import Engine
from drillcore_server.commands.viewing import Library


@dataclass(frozen=True, slots=True)
class CoreExporter:
    """Everything that exports of cores need."""

    engine: Engine
    library: Library
