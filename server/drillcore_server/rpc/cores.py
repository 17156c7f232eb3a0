"""CoreService: requests to commands, results to responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.commands.export_core import CoreExporter
from drillcore_server.commands.import_core import CoreImporter
from drillcore_server.commands.unit import Call
from drillcore_server.rpc.export_core import export_core
from drillcore_server.rpc.import_core import import_core_stream


class CoreService:
    def __init__(self, exporter: CoreExporter, importer: CoreImporter) -> None:
        self._exporter = exporter
        self._importer = importer

    def ExportCore(
        self, requests: Iterator[pb.ExportCoreRequest], call: Call, emit: Callable[[pb.ExportCoreResponse], None]
    ) -> None:
        export_core(self._exporter, requests, call, emit)

    def ImportCore(
        self, requests: Iterator[pb.ImportCoreRequest], call: Call, emit: Callable[[pb.ImportCoreResponse], None]
    ) -> None:
        import_core_stream(self._importer, requests, call, emit)
