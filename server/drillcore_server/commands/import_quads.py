"""ImportQuads.

the file, in a sealed spool -> read once: is all of it RDF? -> read again: one revision, in batches
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.quad_changing import PUT_QUADS, PutQuads, QuadPut
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.provenance_quads import is_derived
from drillcore_server.domain.quads import Quad, check_graph
from drillcore_server.rdf.reading import QuadFile

PROGRESS_EVERY: Final = 10_000
"""Quads."""


@dataclass(frozen=True, slots=True)
class QuadImport:
    target: Target
    source: SourceId
    file: QuadFile


def import_quads(ingester: Ingester, call: Call, wanted: QuadImport, progress: Callable[[int], object]) -> PutQuads:
    """Stores the quads of a file as one revision: all or none. `progress` is told how many were read so far.

    What another corpus told from its records is counted and left out: it is of no record here. Raises `Refused`:
    UNPARSABLE, INVALID_QUAD.
    """
    check_graph(wanted.file.graph, "target")
    begun = ingester.reviser.begin(call, wanted.target, PUT_QUADS)
    if begun.known is not None:
        return begun.known
    count = derived = 0
    for count, quad in enumerate(wanted.file.quads(), 1):
        derived += is_derived(quad)
        if count % PROGRESS_EVERY == 0:
            progress(count)
    progress(count)
    return QuadPut(ingester, call, wanted.target, lambda: _put(wanted.file), wanted.source, derived).run()


def _put(file: QuadFile) -> Iterator[Quad]:
    return (quad for quad in file.quads() if not is_derived(quad))
