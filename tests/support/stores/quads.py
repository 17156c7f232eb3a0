"""The quads of a corpus as they are stored."""

from __future__ import annotations

from collections.abc import Iterator

from drillcore_server.graphs.quad_model import SourcedQuad
from drillcore_server.graphs.quad_store import decode_record
from drillcore_server.kernel.corpus_at_revision import BatchedReads


def stored_quads(snapshot: BatchedReads) -> Iterator[SourcedQuad]:
    """All stored quads by place, so that those of several sources follow each other. Erased ones are left out."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.quads())):
        yield decode_record(entry.value)
