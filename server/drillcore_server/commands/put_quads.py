"""PutQuads."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_proto.reasons import Reason
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.quad_changing import PutQuads, QuadPut, check_not_derived
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.quads import QUADS_MAX, Quad, check_quad


def put_quads(ingester: Ingester, call: Call, target: Target, quads: Sequence[Quad], source: SourceId) -> PutQuads:
    """Stores quads of a source, or of none, as one revision: all or none. Those that are there stay as they are."""
    if not 0 < len(quads) <= QUADS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"put 1 to {QUADS_MAX} quads", field="quads")
    for place, one in enumerate(quads):
        check_quad(one, f"quads[{place}]")
        check_not_derived(one, f"quads[{place}]")
    return QuadPut(ingester, call, target, lambda: quads, source).run()
