"""ExportCore: the stream of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.commands.export_core import CoreExporter
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import Unavailable


def export_core(
    exporter: CoreExporter,  # noqa: ARG001
    requests: Iterator[pb.ExportCoreRequest],  # noqa: ARG001
    call: Call,  # noqa: ARG001
    emit: Callable[[pb.ExportCoreResponse], None],  # noqa: ARG001
) -> None:
    raise Unavailable(Reason.SERVER_TOO_OLD, "replaced before this branch lands")
